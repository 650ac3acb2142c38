"""K by load of this machine kind, for docs/how-to/k-by-load.md: the job of ``scripts/bench-loads``.

It tunes both heads of the small model at each load, as `peagle-sm tune --loads` does, then measures each
table beside the best fixed K on a trace of load. What is recorded lies beside the page, one pair of files for
each machine kind, and the page and the figures are made from all that are recorded.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import Any

from peagle_bench.notebook.calls import tune
from peagle_bench.report import formatting, tables
from peagle_bench.report.charts import HALF
from peagle_bench.report.files import records_of
from peagle_bench.report.markdown import markdown_table
from peagle_bench.report.merging import view_of
from peagle_bench.report.tuning import k_chart
from peagle_bench.report.view import load_value
from peagle_bench.results import provenance
from peagle_bench.results.records import FitRecord, TableRecord
from peagle_bench.results.result_file import Results, ResultWriter, read
from peagle_bench.tune.arms import arm_spec, table_spec
from peagle_sm.core.display import Table
from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, Mode
from sagemaker_local.engine.env import engine_version
from sagemaker_local.paths import weights_dir
from scripts.bench.comparison import human_eval, spec_of
from scripts.bench.job import run_job, write_json
from scripts.bench.loads import trace
from scripts.bench.local_stack import LocalStack
from scripts.bench.marked_page import insert
from scripts.bench.progress import Reporter

BEGIN = "<!-- machines: written by scripts/bench-loads -->"
END = "<!-- end of machines -->"
PAGE = Path("docs/how-to/k-by-load.md")
FOLDER = Path("docs/assets/k-by-load")
LOADS = (1, 2, 4, 8)
MAX_K = 11
MODES: tuple[Mode, ...] = ("p-eagle", "eagle3")
HEADS: dict[Mode, str] = {"eagle3": "tiny-code-eagle3"}
TRACE = "-trace"  #: ending of the name of a machine kind's file with its traces
_GAP = 24


def machine_kind(cpu_info: str) -> str:
    """Name the machine kind from the text of /proc/cpuinfo: ``AMD EPYC without AVX-512``. Pure.

    The matrix instructions decide which K pays, so they are named; the model's number is not.
    """
    facts: dict[str, str] = {}
    for line in cpu_info.splitlines():
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    model = facts.get("model name", "unknown processor")
    words = [word for word in re.sub(r"\([^)]*\)", "", model).split() if word not in ("CPU", "Processor")]
    flags = set(facts.get("flags", facts.get("Features", "")).split())
    if "amx_tile" in flags:
        kind = "with AMX"
    elif "avx512f" in flags:
        kind = "with AVX-512, without AMX"
    else:
        kind = "without AVX-512"
    return f"{' '.join(words[:2])} {kind}"


def slug(kind: str) -> str:
    """Name the files of a machine kind: ``amd-epyc-without-avx-512``."""
    return re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-")


def recorded(results: Results, kind: str, machine_load: float | None) -> Results:
    """Keep what the page needs: the fits and the tables, with the machine kind and the engine. Pure.

    ``machine_load``: the machine's 1-minute load average after the tuning; None if it is not known.
    """
    more = {
        "machine_kind": kind,
        "load_average": machine_load,
        "engine": [{"engine_version": engine_version()}],
        "weights_sha256": provenance.weights_sha256(weights_dir()),
    }
    header = replace(results.header, provenance={**results.header.provenance, **more})
    return Results(header, fits=results.fits, tables=results.tables)


def figure(results: Results) -> str:
    """Draw tokens per second by K at each load, as one SVG file for light and dark pages. Pure."""
    view = view_of([results])
    ordered = sorted(results.fits, key=lambda fit: load_value(fit.load))
    panels = [(load, list(fits)) for load, fits in groupby(ordered, key=lambda fit: fit.load)]
    height = HALF.height + 3 * _GAP
    mark = f" ({view.watermark})" if view.watermark else ""
    parts = []
    for number, (load, fits) in enumerate(panels):
        y = number * height
        chart = k_chart(view, load, sorted(fits, key=lambda fit: fit.mode))
        place = f'<svg x="{_GAP}" y="{y + 2 * _GAP}" width="{HALF.width}" height="{HALF.height}" '
        title = f"{load.label}: tokens/s by K{mark}"
        parts.append(f'<text class="title" x="{_GAP}" y="{y + _GAP}">{title}</text>')
        parts.append(chart.at(HALF).__html__().replace("<svg ", place, 1))
    # One below the other: side by side, their text would be 8 px high on a page.
    width = f"{HALF.width + 2 * _GAP:g}"
    kind = results.header.provenance["machine_kind"]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {len(panels) * height:g}" '
        f'width="{width}" role="img" aria-label="Output tokens per second by K at each load, {kind}">\n'
        f"<style>\n{_style()}\n</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _style() -> str:
    """Take the colours and the charts' rules from the report's style sheet."""
    css = resources.files("peagle_bench.report").joinpath("templates/page.css").read_text(encoding="utf-8")
    colours = css[: css.index("* { box-sizing")]
    rules = [line for line in css.splitlines() if line.startswith(("svg .", "svg text", ".h-"))]
    font = 'svg { font-family: system-ui, -apple-system, "Segoe UI", sans-serif; color: var(--ink); }'
    return "\n".join([colours.strip(), font, *rules, "svg .title { font-weight: 600; font-size: 15px; }"])


def section(found: Sequence[tuple[Results, Mapping[str, Any]]], folder: str) -> str:
    """Write the part of the page on all machine kinds: each with its figure, tables and trace. Pure."""
    return "\n\n".join(_machine(results, traces, folder) for results, traces in found)


def _machine(results: Results, traces: Mapping[str, Any], folder: str) -> str:
    kind = results.header.provenance["machine_kind"]
    view = view_of([results])
    parts = [
        f"### {kind}",
        f"![Output tokens per second by K at c=1, 2, 4 and 8 for both heads]({folder}/{slug(kind)}.svg)",
        _best(results.fits),
    ]
    titles = (
        ("What `tune --loads` decided:", tables.by_load(view)),
        ("The tables on their own endpoints:", tables.validations(results.tables)),
        (
            "The other modes over the K in use:",
            tables.alternatives(results.tables),
        ),
    )
    parts += [f"{title}\n\n{markdown_table(rows)}" for title, rows in titles if rows is not None]
    parts += [_trace(mode, one) for mode, one in traces.items()]
    parts.append(_origin(results.header.provenance, results.header.config))
    return "\n\n".join(parts)


def _best(fits: Sequence[FitRecord]) -> str:
    """Write the best K of each mode at each load, its rate, and that of no speculation."""
    heads = ("load", "mode", "best K", "tokens/s", "95% interval", "no speculation", "over it")
    rows = []
    for fit in sorted(fits, key=lambda fit: (load_value(fit.load), fit.mode)):
        best = next(point for point in fit.points if point.k == fit.best_k)
        plain = tables.baseline(fit)
        span = formatting.DASH if best.low is None else f"[{best.low:.0f}, {best.high:.0f}]"
        over = formatting.DASH if plain is None else f"{best.otps / plain.otps:.2f}x"
        none = formatting.DASH if plain is None else f"{plain.otps:.0f}"
        mode = formatting.MODE_NAMES[fit.mode]
        rows.append((fit.load.label, mode, str(fit.best_k), f"{best.otps:.0f}", span, none, over))
    right = ("best K", "tokens/s", "no speculation", "over it")
    return markdown_table(Table("", heads, tuple(rows), right))


def _trace(mode: str, one: Mapping[str, Any]) -> str:
    """Write what a trace showed, from the document of `scripts/bench-trace`."""
    ratio, levels = one["ratio"], one["by_load"]
    steps = " to ".join(map(str, one["steps"]))
    by_load = ", ".join(f"c={load} {_figures(level)}" for load, level in levels.items())
    drafted = ", ".join(
        f"{arm} {formatting.DASH if k is None else f'{k:.1f}'}"
        for arm, k in one["draft_tokens_per_step"].items()
    )
    return (
        f"{formatting.MODE_NAMES[mode]} on the trace c={steps}: the table has {_figures(ratio)} times the "
        f"tokens/s of the best fixed K (95% interval over {one['blocks']} blocks in turns). At most 2% "
        f"slower: {one['at_most_2_percent_slower']}. By load: {by_load}. Draft tokens per step: {drafted}. "
        f"Answered: {one['requests'] - one['failed']} of {one['requests']} requests; identical outputs: "
        f"{one['identical_outputs']} of {one['compared_outputs']} prompts. Load average "
        f"{one['load_average']:.1f}."
    )


def _figures(ratio: Mapping[str, float]) -> str:
    return f"{ratio['value']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"


def _origin(facts: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    machine = facts["machine"]
    load = facts.get("load_average")
    words = [
        f"{str(facts['date'])[:10]}, {machine['cores']} cores of {machine['processor']}",
        f"vLLM {facts['engine'][0]['engine_version']}",
        f"peagle-sm {facts['versions']['peagle-sm']}, commit {str(facts['git_revision'])[:9]}",
        f"{config['requests']} requests of at most {config['max_tokens']} tokens in a window",
        "" if load is None else f"load average {load:.1f}",
    ]
    return f"Small stand-in weights, eager engine. {'; '.join(word for word in words if word)}."


def load_recorded(folder: Path) -> list[tuple[Results, dict[str, Any]]]:
    """Read every machine kind of a folder, with its traces by mode.

    Raises:
        SpecError: a file is not a results file.
    """
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        traces = path.with_name(f"{path.stem}{TRACE}.json")
        found.append((read(path), json.loads(traces.read_text()) if traces.is_file() else {}))
    return found


def write_page(page: Path, folder: Path) -> None:
    """Draw the figure of each recorded machine kind, and write the page's part between its marks."""
    found = load_recorded(folder)
    for results, _ in found:
        name = slug(results.header.provenance["machine_kind"])
        (folder / f"{name}.svg").write_text(figure(results), encoding="utf-8")
    shown = "../" + "/".join(folder.parts[-2:])
    written = insert(page.read_text(encoding="utf-8"), BEGIN, END, f"\n{section(found, shown)}\n")
    page.write_text(written, encoding="utf-8")


def arms_of(base: EndpointSpec, record: TableRecord) -> dict[str, EndpointSpec]:
    """Return the specs of a table and of its fixed K, as `tune` would write them."""
    mode: Mode = "eagle3" if record.mode == "eagle3" else "p-eagle"
    head = HEADS.get(mode)
    return {
        "table": table_spec(base, mode, record.rows, head=head),
        "fixed": arm_spec(base, mode, record.fixed_k, head=head),
    }


def traced(
    stack: LocalStack,
    base: EndpointSpec,
    record: TableRecord,
    options: argparse.Namespace,
    reporter: Reporter,
) -> dict[str, Any]:
    """Measure a table beside its fixed K on the trace, and return the document of it."""
    arms = arms_of(base, record)
    with reporter.phase(f"{record.mode}: deploy the table and K={record.fixed_k}"):
        endpoints = stack.deploy(arms)
    with reporter.phase(f"{record.mode}: trace in turns"):
        workload = human_eval(trace.PROMPTS, max_tokens=options.max_tokens, seed=options.seed)
        path = options.results / f"bench-loads-{record.mode}-trace.jsonl"
        found = trace.run_trace(
            stack, endpoints, workload, path, say=reporter.say, blocks=options.blocks, seed=options.seed
        )
    stack.delete([endpoint.name for endpoint in endpoints.values()])
    reporter.say(trace.text(found, tuple(arms)))
    return trace.document(found, arms)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench-loads", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--from", dest="tuned", type=Path, help="a finished `tune --loads` instead of a new one"
    )
    parser.add_argument("--write-only", action="store_true", help="only write the page from what is recorded")
    parser.add_argument("--requests", type=int, default=24, help="requests of a window (default 24)")
    parser.add_argument("--blocks", type=int, default=trace.BLOCKS, help="blocks of the traces")
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens per answer at most (default 128)")
    parser.add_argument("--seed", type=int, default=0, help="chooses prompts (default 0)")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the whole records")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder of what is recorded")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write")
    return parser.parse_args(words)


def job(options: argparse.Namespace, reporter: Reporter) -> int:
    """Tune, trace, record and write the page; 1 if answers differ or are missing, or anything is left."""
    if options.write_only:
        write_page(options.page, options.folder)
        return 0
    base = spec_of("p-eagle")
    kind = machine_kind(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    options.folder.mkdir(parents=True, exist_ok=True)
    sound, machine_load = True, None
    with LocalStack(reporter.say) as stack:
        if options.tuned is None:
            results = tuned_here(stack, base, options, reporter)
            machine_load = provenance.load_now()
        else:
            results = read(options.tuned)
        if not results.tables:
            raise SpecError(
                f"{options.tuned} has no table of K: it is not of a finished `tune --loads`.",
                next_step="Run `peagle-sm tune --loads` to its end, or leave --from out.",
            )
        with ResultWriter(options.folder / f"{slug(kind)}.jsonl", overwrite=True) as writer:
            for record in records_of(recorded(results, kind, machine_load)):
                writer.append(record)
        traces = {
            str(one.mode): traced(stack, base, one, options, reporter)
            for one in results.tables
            if len(one.rows) > 1
        }
        left = stack.delete_all() + stack.close()
    if traces:
        write_json(options.folder / f"{slug(kind)}{TRACE}.json", traces)
        sound = all(
            not one["failed"] and one["identical_outputs"] == one["compared_outputs"]
            for one in traces.values()
        )
    write_page(options.page, options.folder)
    print(f"{kind}: recorded in {options.folder}; left behind: {', '.join(left) or 'nothing'}")
    return 0 if sound and not left else 1


def tuned_here(
    stack: LocalStack, base: EndpointSpec, options: argparse.Namespace, reporter: Reporter
) -> Results:
    """Tune both heads at each load on this local SageMaker; the results file stays in ``options.results``."""
    out = options.results / "bench-loads.jsonl"
    out.unlink(missing_ok=True)
    with reporter.phase(f"tune at c={', '.join(map(str, LOADS))}"):
        return tune(
            base,
            modes=MODES,
            heads=HEADS,
            loads=LOADS,
            max_k=MAX_K,
            requests=options.requests,
            max_tokens=options.max_tokens,
            seed=options.seed,
            out=out,
            yes=True,
            unguarded=True,
            session=stack.session,
            progress=lambda event: reporter.say(f"   {event.message}"),
        ).results


def main(words: Sequence[str] | None = None) -> int:
    """The command: returns its exit code."""
    return run_job(lambda reporter: job(arguments(words), reporter))


if __name__ == "__main__":
    sys.exit(main())
