"""``docs/reference/modes.md``: what the sweep found, as a page; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from peagle_sm.core.spec.endpoint_spec import Mode
from peagle_sm.measure.results.provenance import overrides_for_others
from peagle_sm.measure.results.records import Interval, RequestRecord
from peagle_sm.measure.results.result_file import Results
from scripts.bench.comparison import (
    THIRD,
    arm_of,
    differing,
    figures,
    identity_text,
    measured_requests,
    speed_up,
    within,
)
from scripts.bench.modes.sweep import EngineResult

_INTRODUCTION = """\
# The three modes, measured

**Small stand-in weights on a CPU.** The target and both draft heads are the small family that ships with
this project, run by real vLLM behind the local SageMaker. The figures compare the modes on this machine;
they say nothing about a large model on a GPU.

This page is written by `scripts/bench-modes`; do not edit it.

- Concurrency 1, temperature 0, the same request to every mode, engines up together and taking turns prompt
  by prompt in an order that rotates; warm-up is not counted, and no run finds another's prompts cached.
- OTPS: all output tokens by all seconds of wall time, as the caller of the endpoint sees them, streamed.
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
    parts = [_INTRODUCTION, _chosen(results)]
    for found in results:
        finals = [_final(f"{name}, {found.engine}", final) for name, final in found.finals.items()]
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


def _final(name: str, results: Results) -> str:
    title = f"{name[0].upper()}{name[1:]}, each mode at its own best K"
    third = within(results, THIRD)
    return "\n\n".join(
        [
            f"### {title} ({_prompts(results)} prompts)",
            table(results),
            f"### {title}; {THIRD} of the prompts ({_prompts(third)} prompts)",
            table(third),
            f"Load average (1 min): {_load(results)}.",
        ]
    )


def _prompts(results: Results) -> int:
    return len({row.prompt_id for row in measured_requests(results)})


def _load(results: Results) -> str:
    return f"{max(point.machine_load or 0.0 for point in results.points):.2f}"


def arm_figures(results: Results) -> dict[Mode, dict[str, Any]]:
    """The figures of each mode: those that the product has too, and what a thousand output tokens took.

    Target steps: with speculation each request takes its prefill and one pass for each verified draft;
    without, one pass for each token. Draft passes: 1 for a draft of P-EAGLE, K for one of EAGLE-3.
    """
    found = figures(results)
    for mode, row in found.items():
        requests = [one for one in measured_requests(results) if one.arm == arm_of(results, mode).name]
        tokens = sum(one.output_tokens or 0 for one in requests)
        passes = {"none": 0, "eagle3": row["num_speculative_tokens"] or 0, "p-eagle": 1}[mode]
        shares = [one.distinct_4_grams for one in requests if one.distinct_4_grams is not None]
        row["target_steps_per_1000_tokens"] = 1000 * sum(_target_steps(one) for one in requests) / tokens
        row["draft_passes_per_1000_tokens"] = (
            1000 * passes * sum(one.drafts or 0 for one in requests) / tokens
        )
        row["distinct_4_grams"] = sum(shares) / len(shares) if shares else None
    return found


def _target_steps(request: RequestRecord) -> int:
    return (request.output_tokens or 0) if request.drafts is None else 1 + request.drafts


_HEADS = (
    "mode",
    "K",
    "OTPS",
    "acceptance length",
    "target steps /1k tokens",
    "draft passes /1k tokens",
    "vs none [95% interval]",
    "vs eagle3 [95% interval]",
    "distinct 4-grams",
)


def table(results: Results) -> str:
    """All modes as a Markdown table, and whether their outputs are the same."""
    lines = [f"| {' | '.join(_HEADS)} |", "|---|" + "---:|" * (len(_HEADS) - 1)]
    for mode, row in arm_figures(results).items():
        cells = (mode, str(row["num_speculative_tokens"] or "-"), *_cells(results, mode, row))
        lines.append(f"| {' | '.join((*cells, _number(row['distinct_4_grams'])))} |")
    said = identity_text(results)
    reach = "95% intervals over the prompts of this deployment only"
    return "\n".join([*lines, "", f"{said[0].upper()}{said[1:]}. {reach}."])


def _cells(results: Results, mode: Mode, row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['otps']:.0f}",
        _number(row["acceptance_length"]),
        f"{row['target_steps_per_1000_tokens']:.0f}",
        f"{row['draft_passes_per_1000_tokens']:.0f}",
        ratio_text(speed_up(results, mode, "none")),
        ratio_text(speed_up(results, mode, "eagle3")),
    )


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


def ratio_text(ratio: Interval | None) -> str:
    """``1.23x [1.10, 1.36]``; ``not shown [0.95, 1.08]`` where the interval includes 1; ``-`` for none."""
    if ratio is None:
        return "-"
    interval = f"[{ratio.low:.2f}, {ratio.high:.2f}]"
    return f"{ratio.value:.2f}x {interval}" if ratio.shown else f"not shown {interval}"


def _sweep(found: EngineResult) -> str:
    lines = [
        f"### Sweep over K, {found.engine}",
        "",
        "| K | mode | OTPS | acceptance length | target steps /1k | draft passes /1k | vs none [95%]"
        " | vs eagle3 at the same K [95%] | load |",
        "|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for k, block in found.blocks.items():
        for mode, row in arm_figures(block).items():
            cells = (str(k), mode, *_cells(block, mode, row), _load(block) if mode == "none" else "")
            lines.append(f"| {' | '.join(cells)} |")
    same = not any(differing(block) for block in found.blocks.values())
    prompts = _prompts(next(iter(found.blocks.values())))
    lines += ["", f"{prompts} prompts a K; outputs identical in every block: {'yes' if same else 'NO'}."]
    return "\n".join(lines)


def _reproduce(settings: Mapping[str, Any], compiled: bool) -> str:
    words = ["scripts/bench-modes"]
    words += [f"--prompts {settings['prompts']}", f"--final-prompts {settings['final_prompts']}"]
    words += [f"--held-out-prompts {settings['held_out_prompts']}"]
    words += [f"--max-tokens {settings['max_tokens']}", f"--ks {','.join(map(str, settings['ks']))}"]
    words += [f"--seed {settings['seed']}"]
    if compiled:
        words += ["--compiled", f"--compiled-ks {','.join(map(str, settings['compiled_ks']))}"]
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
