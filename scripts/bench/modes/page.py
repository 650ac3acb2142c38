"""``docs/reference/modes.md``: what the sweep found, as a page; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from peagle_sm.measure.results.provenance import overrides_for_others
from scripts.bench.comparison.run import Run
from scripts.bench.comparison.summary import Report
from scripts.bench.comparison.table import load_text, markdown, ratio_text
from scripts.bench.modes.sweep import EngineResult

_INTRODUCTION = """\
# The three modes, measured

**Small stand-in weights on a CPU.** The target and both draft heads are the small family that ships with
this project, run by real vLLM behind the local SageMaker. The figures compare the modes on this machine;
they say nothing about a large model on a GPU.

This page is written by `scripts/bench-modes`; do not edit it.

- Concurrency 1, temperature 0, the same request to every mode, engines up together and taking turns prompt
  by prompt in an order that rotates; warm-up is not counted, and no run finds another's prompts cached.
- OTPS: all output tokens by all seconds of wall time, as the caller of the endpoint sees them{streamed}.
- Speed-ups are paired by prompt; brackets hold a 95% confidence interval over the prompts **of this
  deployment** ([Measure and compare](../how-to/measure.md)). Another deployment may differ by some percent:
  only two or more show it.
  "not shown" means that the interval includes 1.
- Acceptance length: tokens per verification step, 1 + accepted / drafts, weighted by step.
- Target steps and draft passes are forward passes per 1,000 output tokens (one prefill per request
  included; drafts that were verified). An EAGLE-3 draft takes K passes, a P-EAGLE draft one.
- Distinct 4-grams: the mean share of an output's 4-grams that occur once or for the first time; 1 repeats
  nothing. The least repetitive third is chosen by it, from the outputs without speculation.
"""


def page(results: Sequence[EngineResult], settings: Mapping[str, Any], provenance: Mapping[str, Any]) -> str:
    """The whole page."""
    streamed = ", streamed" if settings["stream"] else ", answers whole"
    parts = [_INTRODUCTION.format(streamed=streamed)]
    parts.append(_chosen(results))
    for found in results:
        finals = [_final(run) for run in found.finals.values()]
        parts += [f"## {found.engine.capitalize()} engine", *finals, _sweep(found)]
    parts += [_reproduce(settings, len(results) > 1), _provenance(provenance)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _chosen(results: Sequence[EngineResult]) -> str:
    lines = ["## K for the catalogue", ""]
    for found in results:
        ks = ", ".join(f"{mode} K={k}" for mode, k in found.best.items())
        lines.append(f"- {found.engine}: {ks}")
    lines += [
        "",
        "The best K of a mode is the one with the largest gain over plain decoding in its own block of the "
        "sweep. The catalogue and `scripts/quickstart` use the eager engine's.",
    ]
    return "\n".join(lines)


def _final(run: Run) -> str:
    report, third = run.report(), run.least_repetitive()
    return "\n\n".join([_table(report), _table(third), load_text(run.load).capitalize() + "."])


def _table(report: Report) -> str:
    title = f"### {report.title[0].upper()}{report.title[1:]} ({report.prompts} prompts)"
    return title + "\n\n" + markdown(report, with_title=False)


def _sweep(found: EngineResult) -> str:
    lines = [
        f"### Sweep over K, {found.engine}",
        "",
        "| K | mode | OTPS | acceptance length | target steps /1k | draft passes /1k | vs none [95%]"
        " | vs eagle3 at the same K [95%] | load |",
        "|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for k, run in found.blocks.items():
        report = run.report()
        lines += [_sweep_row(k, run, report, number) for number in range(len(report.arms))]
    same = all(run.report().identical_outputs for run in found.blocks.values())
    prompts = next(iter(found.blocks.values())).report().prompts
    lines += ["", f"{prompts} prompts a K; outputs identical in every block: {'yes' if same else 'NO'}."]
    return "\n".join(lines)


def _sweep_row(k: int, run: Run, report: Report, number: int) -> str:
    arm = report.arms[number]
    by_mode = {base.mode: report.speed_ups[arm.arm].get(base.arm) for base in report.arms}
    length = "unknown" if arm.acceptance_length is None else f"{arm.acceptance_length:.2f}"
    cells = (
        str(k),
        arm.mode,
        f"{arm.otps:.0f}",
        length,
        f"{arm.target_steps_per_1000_tokens:.0f}",
        f"{arm.draft_passes_per_1000_tokens:.0f}",
        ratio_text(by_mode["none"]),
        ratio_text(by_mode["eagle3"]),
        " -> ".join(f"{value:.1f}" for value in run.load) if number == 0 else "",
    )
    return "| " + " | ".join(cells) + " |"


def _reproduce(settings: Mapping[str, Any], compiled: bool) -> str:
    words = ["scripts/bench-modes"]
    words += [f"--prompts {settings['prompts']}", f"--final-prompts {settings['final_prompts']}"]
    words += [f"--held-out-prompts {settings['held_out_prompts']}"]
    words += [f"--max-tokens {settings['max_tokens']}", f"--ks {','.join(map(str, settings['ks']))}"]
    words += [f"--seed {settings['seed']}"]
    if compiled:
        words += ["--compiled", f"--compiled-ks {','.join(map(str, settings['compiled_ks']))}"]
    words += ["--stream"] if settings["stream"] else []
    return (
        f"## Do it again\n\n```\n{' '.join(words)}\n```\n\n"
        "`results/bench-modes.json` then holds every request. Nothing else should run on the machine."
    )


def _provenance(provenance: Mapping[str, Any]) -> str:
    machine, versions = provenance["machine"], provenance["versions"]
    lines = [
        "## Where these numbers come from",
        "",
        f"- date: {provenance['date']}; seed {provenance['seed']}; revision {provenance['git_revision']}",
        f"- machine: {machine['cores']} cores of {machine['processor']}, {machine['memory_gb']} GB,"
        f" {machine['system']} {machine['architecture']}",
        "- versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()),
    ]
    engines = provenance["engine"]
    running = sorted({str(row["engine_version"]) for row in engines if row.get("engine_version")})
    if running:
        lines.append(f"- engine: vLLM {', '.join(running)}")
    overrides = sorted({text for row in engines for text in overrides_for_others(row)})
    if overrides:
        lines += ["- local overrides of the engine:", *(f"  - {text}" for text in overrides)]
    weights = sorted(provenance["weights_sha256"].items())
    lines += [f"- weights: `{path}` sha256 `{digest[:16]}…`" for path, digest in weights]
    return "\n".join(lines)
