"""``docs/reference/pack-runs.md``, from the recorded runs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from scripts.bench.packs.arms import CLEAN
from scripts.bench.packs.cases import CASES, REFUSED

_INTRODUCTION = """\
# Runs of the workload packs

**Small stand-in weights on a CPU.** `scripts/bench-packs` writes this page and the record
`docs/reference/packs/runs.json`; do not edit them. Real vLLM serves every arm behind the local SageMaker.
Each run has its own seed, and sends its pack, made small, to an arm without speculation and to the arm in
question. Where a pack has long prompts, the contexts are far below the model's limit of 8,192 tokens: the
heads of the stand-in were trained on 496, and their acceptance is lower beyond that. [One run goes to the
limit](../how-to/is-it-right.md#the-scorecard-of-the-stand-ins).

A clean run must pass. A run on a fault must fail by the check that is named, or be refused. The sizes are in
`scripts/bench/packs/cases.py`, the faults in `scripts/bench/packs/arms.py`: a draft head or a target that is
damaged from position 200 on; an engine without a prefix cache (it has the damaged head, too); a file with
placeholders; a head that guesses nothing; and faults of the local SageMaker: tokens in a stream that were
not verified, an engine that generates on after its client left, an engine that gets no format. The clean arm
has K=5, those with a damaged head or target K=11. Runs of most packs share an engine, up to 60 at a time, so
their seconds say little. [The packs](../how-to/packs.md) says what each pack shows.

The shipped model has no reasoning effort, so the endpoints got a chat template that has it. The small model
does not reason, whatever its prompt says. A higher effort only puts more text before the question, so that
the answer has later positions. This is no model of real reasoning: it shows that the pack runs on the
engine, passes on a clean arm and finds its faults. Its answers have 64 tokens at each effort. So what more
effort costs in USD was only simulated (`toolkit/peagle-bench/tests/bench/packs/test_reasoning.py`). On a busy machine the pack
does not decide the cost.

The table has the recorded runs. Earlier failures that are not in the record are on the page
[What works](status.md)."""


def page(document: Mapping[str, Any]) -> str:
    """Write the page."""
    runs = document["runs"]
    lines = [
        "| pack | arm | must | runs | did | context | requests a run | median s |",
        "|---|---|---|---:|---:|---:|---:|---:|",
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
    found = _found(runs)
    if found:
        parts.append("The first fault that the check names, in the first run that kept it:")
        parts.append("\n".join(["| pack | arm | fault |", "|---|---|---|", *found]))
    parts.append(
        "Where the runs are from; `+changes` means files that were not committed. Day, processor and "
        "revision of the runs before 26 November 2026 are those of the record that has them first."
    )
    parts.append("\n".join(_origins(runs)))
    return "\n\n".join([*parts, _versions(document["provenance"])]) + "\n"


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
    cells = (pack, arm, _must(pack, arm), len(own), did, f"{CASES[pack].context:,}")
    return f"| {' | '.join(map(str, cells))} | {requests:g} | {seconds:.1f} |"


def _found(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a row with an example of each fault that has one."""
    rows = []
    for case in CASES.values():
        for arm in case.faults:
            own = [one for one in runs if (one["pack"], one["arm"]) == (case.pack, arm) and one["example"]]
            if own:
                first = min(own, key=lambda one: one["seed"])["example"]
                rows.append(f"| {case.pack} | {arm} | `{first.replace('|', '/').replace('`', chr(39))}` |")
    return rows


def _origins(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table of the days, processors and revisions."""
    names = ("day", "processor", "revision")
    counts = Counter((*(one[name] for name in names), one["pack"]) for one in runs)
    places = sorted({key[:3] for key in counts})
    lines = ["| day | 2 cores of | git | runs |", "|---|---|---|---|"]
    for place in places:
        day, processor, revision = place
        own = ", ".join(f"{counts[*place, pack]} {pack}" for pack in CASES if counts[*place, pack])
        lines.append(f"| {day} | {processor} | {short_revision(revision)} | {own} |")
    return lines


def short_revision(revision: str) -> str:
    """Return a git revision with 12 characters, and with its ``+changes``."""
    commit, plus, changes = revision.partition("+")
    return f"{commit[:12]}{plus}{changes}"


def _versions(told: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in (told.get("versions") or {}).items())
    return f"`scripts/bench-packs`, on a machine with other work on it; versions of the last run: {versions}."
