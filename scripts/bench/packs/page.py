"""``docs/reference/pack-runs.md``, from the recorded runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from peagle_sm.measure.verify.statistics import counted
from scripts.bench.packs.arms import CLEAN
from scripts.bench.packs.cases import CASES, REFUSED

_INTRODUCTION = """\
# Runs of the workload packs

**Small stand-in weights on a CPU.** `scripts/bench-packs` writes this page and the record
`docs/reference/packs/runs.json`; do not edit them. Real vLLM serves every arm behind the local SageMaker.
Each run has its own seed, and sends its pack, made small, to an arm without speculation and to the arm in
question.

A clean run must pass. A run on a fault must fail by the check that is named, or be refused. The sizes are in
`scripts/bench/packs/cases.py`, the faults in `scripts/bench/packs/arms.py`: a draft head or a target that is
damaged from position 200 on; an engine without a prefix cache (it has the damaged head, too); a file with
placeholders; a head that guesses nothing; and faults of the local SageMaker: tokens in a stream that were
not verified, an engine that generates on after its client left, an engine that gets no format. The clean arm
has K=5, those with a damaged head or target K=11. Runs of most packs share an engine, up to 60 at a time, so
their seconds say little. [The packs](../how-to/packs.md) says what each pack shows.

The shipped model has no reasoning effort, so the endpoints got a chat template that has it. The small model
does not reason, whatever its prompt says. A higher effort only puts more text before the question, so that
the answer has later positions. This is no model of real reasoning: it shows that the pack runs on the engine,
passes on a clean arm and finds its faults.

The table has the recorded runs. Earlier failures that are not in the record are on the page
[What works](status.md)."""


def page(document: Mapping[str, Any]) -> str:
    """Write the page."""
    runs = document["runs"]
    lines = [
        "| pack | arm | must | runs | did | requests a run | median s |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for case in CASES.values():
        for arm in (CLEAN, *case.faults):
            own = [one for one in runs if (one["pack"], one["arm"]) == (case.pack, arm)]
            if own:
                lines.append(_row(case.pack, arm, own))
    odd = [one for one in runs if not did_what_it_must(one)]
    parts = [_INTRODUCTION, "\n".join(lines)]
    if odd:
        parts.append("Runs that did not do what they must:")
        names = ("pack", "arm", "seed", "result", "why")
        rows = [" | ".join(str(one[name]).replace("|", "/") for name in names) for one in odd]
        rows = [f"| {row} |" for row in rows]
        parts.append("\n".join(["| pack | arm | seed | result | why |", "|---|---|---:|---|---|", *rows]))
    return "\n\n".join([*parts, _origin(document["provenance"])]) + "\n"


def _must(pack: str, arm: str) -> str:
    if arm == CLEAN:
        return "pass"
    check = CASES[pack].faults[arm]
    return "be refused" if check == REFUSED else f"fail: {check}"


def did_what_it_must(run: Mapping[str, Any]) -> bool:
    """Decide whether a run passed on the clean arm, or found the fault that was seeded."""
    if run["arm"] == CLEAN:
        return bool(run["result"] == "pass")
    check = CASES[run["pack"]].faults[run["arm"]]
    if check == REFUSED:
        return run["result"] == "not measured" and "placeholders" in run["why"]
    return run["result"] == "fail" and check in run["failed"]


def _row(pack: str, arm: str, own: Sequence[Mapping[str, Any]]) -> str:
    did = sum(map(did_what_it_must, own))
    requests = median(one["requests"] for one in own)
    seconds = median(one["seconds"] for one in own)
    return f"| {pack} | {arm} | {_must(pack, arm)} | {len(own)} | {did} | {requests:g} | {seconds:.1f} |"


def _origin(told: Mapping[str, Any]) -> str:
    machine, versions = told.get("machine") or {}, told.get("versions") or {}
    facts = [
        f"last run {str(told.get('date', ''))[:10]}",
        f"{counted(machine.get('cores', 0), 'core')} of {machine.get('processor')}, shared with other work",
        ", ".join(f"{name} {version}" for name, version in versions.items()),
        f"git {str(told.get('git_revision', ''))[:12]}",
    ]
    return f"`scripts/bench-packs`; {'; '.join(facts)}."
