"""docs/reference/faults-matrix.md: written from a run of the whole matrix, and read back by the test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tests.faults.cells import Cell, Recorded
from tests.faults.wire import KINDS

PAGE = "docs/reference/faults-matrix.md"
_HEAD = """# Deploy under faults

Each AWS call that deploy, update, pause, resume and delete make fails once in each way, and the program is
killed before and after it; then the same command runs again without a fault. `scripts/fault-matrix` runs it
and writes this page: an unmodified boto3 over HTTP against the local SageMaker, faults at boto3's transport,
engines that come up and go on command, and a clock that only waiting moves.

{cells:,} cells, {wrong} not as they must be; {runs:,} runs, since cells that could not differ share one
(below).

**What must hold in each cell**
- An endpoint that exists has its lifetime schedule, at every moment: also after a kill between any two
  calls.
- The command ends in bounded time (the longest here: {longest:.0f} minutes of virtual time), and either
  gets to its goal or raises a typed error with a next step. After a failed deploy an endpoint that is left
  is named, with the command that removes it.
- Run again, the command gets to its goal, with nothing left over.

**How to read it.** `on`: it got to its goal all the same (where the goal is an error, as for an engine that
does not come up, that error's number). A number: the exit code of its error
([exit codes](exit-codes.md)); `+`: the endpoint is there, with its schedule. `again`: killed. After all
but `on` the next run got to the goal.

**The faults.** Throttled, 500, timeout (60 s without an answer) and response lost (the call was carried
out) hold for one call, all of botocore's attempts included. A missing permission stays missing for that
call, and an expired token fails everything from there on.

**Shared runs.** A kill leaves what the calls before it have made, so all kills from one writing call to the
next are one run. A call that only reads leaves nothing behind: timeout and response lost are one run. Cells
that begin another use case's way (the calls of a deploy that then fails) stand in that one's table.

**Beside it.** A stack's endpoint is turned off and on by the guard's switch, a Lambda that updates the stack:
`toolkit/peagle-sm/tests/service/test_faults.py` runs the faults at calls of that, and Ctrl-C,
two in a row, and an AWS that goes away for good.
`tests/faults/test_matrix.py` runs a choice of the cells below with every `scripts/test --all`, and fails
where a call or an outcome is not as this page has it.

**What is tolerated.** Where the guard's register cannot be written (`dynamodb:DeleteItem`), a deletion goes
on and its line stays: at worst the guard tries to wake what is gone, and fails.
A deletion that may not delete alarms (`monitoring:DeleteAlarms`) leaves those of a killed update.
Who may not read or write it (`GetItem`, `UpdateItem`) pauses, resumes and updates all the same: the progress
reports it, and the guard's next sweep finds out by itself. A resume whose endpoint serves reports a mark of
the pause that it could not remove (`DeleteTags`); the next `update` or `resume` removes it.
"""


def page(recorded: Iterable[Recorded], cells: Mapping[str, list[Cell]], runs: int) -> str:
    """Return the page."""
    every = [cell for rows in cells.values() for cell in rows]
    text = _HEAD.format(
        cells=len(every),
        wrong=sum(bool(cell.wrong) for cell in every),
        runs=runs,
        longest=max(cell.seconds for cell in every) / 60,
    )
    parts = [text, _summary(cells)]
    for case in recorded:
        parts.append(_table(case, cells[case.case.name]))
    return "\n".join(parts)


def _summary(cells: Mapping[str, list[Cell]]) -> str:
    lines = [
        "## Counts",
        "| use case | calls | cells | goal reached | typed error | killed |",
        "|---|---|---|---|---|---|",
    ]
    for name, rows in cells.items():
        counts = Counter(_kind(row.outcome) for row in rows)
        lines.append(
            f"| [{name}](#{name}) | {len(rows) // len(KINDS)} | {len(rows)} | {counts['on']} "
            f"| {counts['error']} | {counts['again']} |"
        )
    return "\n".join(lines) + "\n"


def _kind(outcome: str) -> str:
    return outcome if outcome in ("on", "again") else "error"


def _table(recorded: Recorded, rows: list[Cell]) -> str:
    by_cell = {(row.number, row.kind): row.outcome for row in rows}
    lines = [
        f"## {recorded.case.name}",
        f"Before: {recorded.case.what}.",
        "",
        "| # | call | " + " | ".join(KINDS) + " |",
        "|---|---|" + "---|" * len(KINDS),
    ]
    for number in recorded.numbers:
        outcomes = " | ".join(by_cell[number, kind] for kind in KINDS)
        lines.append(f"| {number} | {recorded.calls[number]} | {outcomes} |")
    return "\n".join(lines) + "\n"


def read_page(text: str) -> dict[str, dict[int, tuple[str, dict[str, str]]]]:
    """Return use case -> number -> (call, fault -> outcome) of a page."""
    tables: dict[str, dict[int, tuple[str, dict[str, str]]]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("## "):
            name = line.removeprefix("## ")
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0].isdigit():
            number, call, *outcomes = cells
            tables.setdefault(name, {})[int(number)] = (call, dict(zip(KINDS, outcomes, strict=True)))
    return tables
