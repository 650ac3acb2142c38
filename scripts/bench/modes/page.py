"""``docs/reference/modes.md``, from the records of every machine kind. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from peagle_sm.core.spec.endpoint_spec import Mode
from scripts.bench.modes.record import (
    ENGINES,
    INSTRUCTIONS,
    Comparison,
    Engine,
    EngineRecord,
    Final,
    MachineRecord,
    ModeFigures,
    Ratio,
)

_INTRODUCTION = """\
# The three modes, measured

**Small stand-in weights on a CPU.** The target and both draft heads are the small family that ships with
this project, run by real vLLM behind the local SageMaker. The figures compare the modes on one machine;
they say nothing about a large model on a GPU, and they do not compare processors.

`scripts/bench-modes` writes a record of its machine kind into `docs/reference/modes/`, and this page from all
records; do not edit it.

- Concurrency 1, temperature 0, the same request to every mode, engines up together and taking turns prompt
  by prompt in an order that rotates; warm-up is not counted, and no run finds another's prompts cached.
- OTPS: all output tokens by all seconds of wall time, as the caller of the endpoint sees them.
- Each head runs at the K (`num_speculative_tokens`) chosen on that machine, with other prompts.
- Speed-ups are paired by prompt; brackets hold a 95% confidence interval over the prompts **of this
  deployment** ([Measure and compare](../how-to/measure.md)). Another deployment may differ by some percent:
  only two or more show it. "not significant" means that the interval includes 1.
- Acceptance length: tokens per verification step, 1 + accepted / drafts, weighted by step.
- Target steps and draft passes are forward passes per 1,000 output tokens (one prefill per request
  included; drafts that were verified). An EAGLE-3 draft takes K passes, a P-EAGLE draft one.
- Distinct 4-grams: the mean share of an output's 4-grams that occur once or for the first time; 1 repeats
  nothing. The least repetitive third is chosen by it, from the outputs without speculation.
- Identical outputs: prompts that all three modes answered with the same token ids."""


def page(records: Sequence[MachineRecord], shipped: Mapping[str, str]) -> str:
    """The whole page; ``shipped``: sha256 of the weights that ship now, by file."""
    parts = [_INTRODUCTION, "## Machine kinds side by side", _machines(records)]
    if warnings := _warnings(records, shipped):
        parts.append(warnings)
    for engine in ENGINES:
        here = [record for record in records if engine in record.engines]
        names = dict.fromkeys(name for record in here for name in record.engines[engine].finals)
        parts += [_side_by_side(here, engine, name) for name in names]
    for record in records:
        parts.append(f"## {record.machine.title}")
        for engine, found in record.engines.items():
            parts += _detail(engine, found, shipped)
    return "\n\n".join(parts) + "\n"


def _machines(records: Sequence[MachineRecord]) -> str:
    heads = ("machine kind", "processor", *INSTRUCTIONS, "cores", "dtype of the engine", "measured")
    rows = []
    for record in records:
        machine = record.machine
        number = f" (family/model {machine.family_and_model})" if machine.family_and_model else ""
        known = {True: "yes", False: "no", None: "not recorded"}
        flags = [known[machine.instructions.get(name)] for name in INSTRUCTIONS]
        runs = [
            f"{engine}: {found.provenance['date'][:10]}, answers {found.answers}"
            for engine, found in record.engines.items()
        ]
        rows.append(
            (
                _link(record),
                f"{machine.processor}{number}",
                *flags,
                str(machine.cores),
                machine.dtype,
                "; ".join(runs),
            )
        )
    return _table(heads, rows, numbers_from=len(heads))


def _link(record: MachineRecord) -> str:
    title = record.machine.title
    anchor = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_").replace(
        " ", "-"
    )
    return f"[{title}](#{anchor})"


#: Load averages above this many times the cores are not the measurement's own, which is 1 to 2 in all.
_BUSY = 2


def _warnings(records: Sequence[MachineRecord], shipped: Mapping[str, str]) -> str:
    lines = []
    for record in records:
        machine = record.machine
        for engine, found in record.engines.items():
            if others := found.other_weights(shipped):
                files = ", ".join(f"`{part}`" for part in others)
                lines.append(
                    f"- **{machine.title}, {engine}, was measured with other weights than those that "
                    f"ship now:** {files}. Run `scripts/bench-modes` there to renew it."
                )
            load = max(value for final in found.finals.values() for value in final.load)
            if load > _BUSY * machine.cores:
                lines.append(
                    f"- **{machine.title}, {engine}, was measured while the machine was busy with other "
                    f"work:** load average {load:.1f} on {machine.cores} cores. Run `scripts/bench-modes` "
                    "there again when it is quiet."
                )
    return "\n".join(lines)


def _side_by_side(records: Sequence[MachineRecord], engine: Engine, name: str) -> str:
    heads = (
        "machine kind",
        "prompts",
        "K eagle3",
        "K p-eagle",
        "OTPS none",
        "OTPS eagle3",
        "OTPS p-eagle",
        "p-eagle vs eagle3 [95%]",
        "p-eagle vs none [95%]",
        "third: vs eagle3 [95%]",
        "third: vs none [95%]",
        "identical outputs",
    )
    rows = []
    for record in records:
        final = record.engines[engine].finals.get(name)
        if final is None:
            continue
        everything, third = final.all_prompts, final.least_repetitive_third
        modes, p_eagle = everything.modes, everything.modes["p-eagle"]
        rows.append(
            (
                record.machine.title,
                str(everything.prompts),
                *(str(modes[mode].k) for mode in _HEADS),
                *(f"{figures.otps:.0f}" for figures in modes.values()),
                ratio_text(p_eagle.over_eagle3),
                ratio_text(p_eagle.over_none),
                ratio_text(third.modes["p-eagle"].over_eagle3),
                ratio_text(third.modes["p-eagle"].over_none),
                f"{everything.identical} of {everything.prompts}",
            )
        )
    return f"### {_capital(name)}, {engine} engine\n\n{_table(heads, rows)}"


_HEADS: tuple[Mode, ...] = ("eagle3", "p-eagle")


def _detail(engine: Engine, found: EngineRecord, shipped: Mapping[str, str]) -> list[str]:
    parts = ["\n".join([f"### How it was taken, {engine}", "", *_origin(found, shipped)])]
    parts.append(_choices(engine, found))
    for name, final in found.finals.items():
        parts.append(_final(f"{_capital(name)}, {engine}", final))
    if found.sweep:
        parts.append(_sweep(engine, found))
    return parts


def _origin(found: EngineRecord, shipped: Mapping[str, str]) -> list[str]:
    origin: Mapping[str, Any] = found.provenance
    versions = ", ".join(f"{name} {version}" for name, version in origin["versions"].items())
    others = found.other_weights(shipped)
    same = "those that ship now" if not others else f"not those that ship now ({', '.join(others)})"
    return [
        *(f"- {note}" for note in found.notes),
        f"- answers {found.answers}, at most {found.max_tokens} tokens; seed {origin['seed']}",
        f"- command: `{found.command}`",
        f"- date: {origin['date']}; revision {origin['git_revision']}",
        f"- versions: {versions}; vLLM {', '.join(origin['engine_versions'])}",
        f"- weights: {same}",
        *(f"    - `{part}` sha256 `{digest[:16]}…`" for part, digest in origin["weights_sha256"].items()),
        "- local overrides of the engine:",
        *(f"    - {text}" for text in origin["overrides"]),
    ]


def _choices(engine: Engine, found: EngineRecord) -> str:
    heads = ("head", "K", "K of the catalogue", "tokens/s while decoding, by K", "how it was chosen")
    rows = []
    for mode, choice in found.choices.items():
        rates = ", ".join(f"{k}: {rate:.0f}" for k, rate in choice.tokens_per_s.items())
        catalogue = "not recorded" if choice.catalogue is None else str(choice.catalogue)
        rows.append((mode, str(choice.k), catalogue, rates or "see the sweep below", choice.how))
    return f"### K on this machine, {engine}\n\n{_table(heads, rows, numbers_from=len(heads))}"


def _final(title: str, final: Final) -> str:
    third = final.least_repetitive_third
    return "\n\n".join(
        [
            f"### {title} ({final.all_prompts.prompts} prompts)",
            table(final.all_prompts),
            f"### {title}; least repetitive third of the prompts ({third.prompts} prompts)",
            table(third),
            f"Load average (1 min), from before to after: {_load(final.load)}.",
        ]
    )


def _load(values: Sequence[float], digits: int = 2) -> str:
    return " -> ".join(f"{value:.{digits}f}" for value in values)


def table(comparison: Comparison) -> str:
    """All modes as a Markdown table, and whether their outputs are the same."""
    heads = ("mode", "K", *_FIGURES, "vs none [95% interval]", "vs eagle3 [95% interval]", "distinct 4-grams")
    rows = [
        (mode, str(row.k or "-"), *_cells(row), _number(row.distinct_4_grams))
        for mode, row in comparison.modes.items()
    ]
    same = "yes" if comparison.identical == comparison.prompts else "NO"
    return (
        f"{_table(heads, rows)}\n\nIdentical outputs: {same}, {comparison.identical} of {comparison.prompts} "
        "prompts (by token ids). 95% intervals over the prompts of this deployment only."
    )


_FIGURES = ("OTPS", "acceptance length", "target steps /1k tokens", "draft passes /1k tokens")


def _cells(row: ModeFigures) -> tuple[str, ...]:
    return (
        f"{row.otps:.0f}",
        _number(row.acceptance_length),
        f"{row.target_steps:.0f}",
        f"{row.draft_passes:.0f}",
        ratio_text(row.over_none),
        ratio_text(row.over_eagle3),
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def ratio_text(ratio: Ratio | None) -> str:
    """``1.23x [1.10, 1.36]``; ``not significant [0.95, 1.08]`` if the interval includes 1; ``-`` for none."""
    if ratio is None:
        return "-"
    interval = f"[{ratio.low:.2f}, {ratio.high:.2f}]"
    if ratio.value is None or not ratio.significant:
        return f"not significant {interval}"
    return f"{ratio.value:.2f}x {interval}"


def _sweep(engine: Engine, found: EngineRecord) -> str:
    heads = ("K", "mode", *_FIGURES, "vs none [95%]", "vs eagle3 at the same K [95%]", "load")
    rows = []
    for block in found.sweep:
        for mode, row in block.comparison.modes.items():
            load = _load(block.load, 1) if mode == "none" else ""
            rows.append((str(block.k), mode, *_cells(row), load))
    comparisons = [block.comparison for block in found.sweep]
    same = all(one.identical == one.prompts for one in comparisons)
    return (
        f"### Sweep over K, {engine}\n\n{_table(heads, rows)}\n\n{comparisons[0].prompts} prompts a K; "
        f"outputs identical in every block: {'yes' if same else 'NO'}."
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers_from: int = 1) -> str:
    ruler = "".join("---|" if index < numbers_from else "---:|" for index in range(len(heads)))
    return "\n".join([f"| {' | '.join(heads)} |", f"|{ruler}", *(f"| {' | '.join(row)} |" for row in rows)])


def _capital(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"
