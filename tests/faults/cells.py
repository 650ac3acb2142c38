"""Running cells: one use case, one fault at one call; then the same use case again without it.

Cells whose runs could not differ share one: see `runner_of`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from peagle_sm.core.errors import BillableLeft, PeagleError
from tests.faults.cases import Case
from tests.faults.wire import KINDS, Fault, Killed, Kind, Script
from tests.faults.world import Found, Place, World

# A clean-up that AWS refuses the whole time ends after `delete_timeout_s`; botocore's attempts come on top.
BOUND_S = 9000.0 + 600.0
_numbers = itertools.count(1)
_READS = ("Describe", "Get", "List")
#: Those that pass and those that last, one after the other.
_REFUSALS: tuple[Kind, ...] = ("throttled", "denied", "500", "expired token", "timeout")


@dataclass(frozen=True)
class Cell:
    """What came of one fault; ``wrong`` is empty when everything is as it must be.

    ``outcome``: `on` the use case got to its end all the same; `again` it was killed; a number is the exit
    code of its typed error, with `+` where the endpoint is there. After all but `on` the next run got there.
    """

    case: str
    number: int
    call: str
    kind: Kind
    outcome: str
    seconds: float
    wrong: str = ""


@dataclass(frozen=True)
class Recorded:
    """The calls of one undisturbed run; those before ``first`` are another use case's too."""

    case: Case
    calls: tuple[str, ...]
    first: int = 0

    @property
    def numbers(self) -> range:
        """The calls that are this use case's own."""
        return range(self.first, len(self.calls))


def is_read(call: str) -> bool:
    """Whether a call changes nothing."""
    return call.partition(":")[2].startswith(_READS)


def record(place: Place, case: Case) -> Recorded:
    """Run a use case without a fault and write down what it calls."""
    world = _world(place, case)
    case.prepare(world)
    script = Script()
    ended = _run(world, case, script)
    assert ended is None or isinstance(ended, case.settled), repr(ended)
    wrong = case.arrived(world, world.found())
    assert not wrong, f"{case.name} without a fault: {wrong}"
    world.clear()
    first = script.calls.index(case.after) + 1 if case.after else 0
    return Recorded(case, tuple(script.calls), first)


def runner_of(recorded: Recorded, number: int, kind: Kind) -> tuple[int, Kind]:
    """Return the cell whose run stands for this one.

    A kill leaves what the calls before it have made: from one write to the next it is the same kill. And a
    call that changes nothing leaves nothing behind, whether it was its answer or itself that got lost.
    """
    call = recorded.calls[number]
    if kind in ("kill before", "kill after"):
        last = number - 1 if kind == "kill before" or is_read(call) else number
        while last > recorded.first and is_read(recorded.calls[last]):
            last -= 1
        return (recorded.first, "kill before") if last <= recorded.first else (last, "kill after")
    if kind == "response lost" and is_read(call):
        return number, "timeout"
    return number, kind


def runs(recorded: Recorded, *, every: bool) -> list[tuple[int, Kind]]:
    """Return the cells to run: all that may differ, or a choice of them.

    The choice has every kill; of a call that changes something the lost answer and one refusal; and of each
    fifth call that only reads one refusal. The five refusals take turns.
    """
    chosen: dict[tuple[int, Kind], None] = {}
    refusals = itertools.cycle(_REFUSALS)
    for number in recorded.numbers:
        kinds: tuple[Kind, ...] = ("kill before",)
        if every:
            kinds = KINDS
        elif not is_read(recorded.calls[number]):
            kinds = (next(refusals), "response lost", "kill before", "kill after")
        elif number % 5 == 0:
            kinds = (next(refusals), "kill before")
        for kind in kinds:
            chosen[runner_of(recorded, number, kind)] = None
    return list(chosen)


def run_cells(place: Place, recorded: Recorded, *, every: bool) -> Iterator[Cell]:
    """Run the cells of one use case."""
    for number, kind in runs(recorded, every=every):
        yield run_cell(place, recorded, number, kind)


def all_cells(recorded: Recorded, ran: dict[tuple[int, Kind], Cell]) -> Iterator[Cell]:
    """Return every cell, with what the run that stands for it came to."""
    for number in recorded.numbers:
        for kind in KINDS:
            cell = ran[runner_of(recorded, number, kind)]
            yield replace(cell, number=number, call=recorded.calls[number], kind=kind)


def run_cell(place: Place, recorded: Recorded, number: int, kind: Kind) -> Cell:
    """Run one cell."""
    case = recorded.case
    world = _world(place, case)
    case.prepare(world)
    script = Script(Fault(number, kind))
    began = world.seconds
    ended = _run(world, case, script)
    took = world.seconds - began
    left = world.found()
    arrived = case.arrived(world, left)
    outcome = _outcome(ended, left, arrived)
    wrong = _wrong(case, script, ended, world, left, arrived)
    if not wrong and took > BOUND_S:
        wrong = f"it took {took:.0f} s"
    if not wrong and arrived:
        wrong = _converged(case, world)
    world.clear()
    return Cell(case.name, number, recorded.calls[number], kind, outcome, took, wrong)


def _world(place: Place, case: Case) -> World:
    return World(place, f"fault-{next(_numbers)}-{case.name}")


def _run(world: World, case: Case, script: Script) -> BaseException | None:
    try:
        case.act(world, world.session(script))
    except (PeagleError, Killed) as ended:
        return ended
    return None


def _outcome(ended: BaseException | None, left: Found, arrived: str) -> str:
    if isinstance(ended, Killed):
        return "again"
    if ended is None or not isinstance(ended, PeagleError):
        return "on"
    mark = "+" if left.status is not None else ""
    return f"{ended.exit_code}{mark}"


def _wrong(
    case: Case, script: Script, ended: BaseException | None, world: World, left: Found, arrived: str
) -> str:
    """What is wrong after the run with the fault."""
    if not script.happened:
        return "the fault was never reached"
    exists = left.status is not None
    armed = left.armed_until is not None and left.armed_until > world.now()
    if exists and not armed:
        return f"an endpoint without its lifetime limit: {left}; {ended!r}"
    if isinstance(ended, Killed):
        return ""
    if ended is None:
        tolerated = (script.calls[script.fault.number], script.fault.kind) in case.tolerated  # type: ignore[union-attr]
        return "" if tolerated or not arrived else f"told as done: {arrived}"
    assert isinstance(ended, PeagleError)
    step = ended.next_step or ""
    if not step:
        return f"no next step: {ended!r}"
    if isinstance(ended, BillableLeft) and not ("peagle-sm" in step and world.name in step):
        return f"no command that removes it: {step}"
    unwanted = exists and case.name.startswith("deploy")
    if unwanted and not isinstance(ended, BillableLeft):
        return f"an endpoint is left and not named: {ended!r}"
    named = f"{ended.message} {step} {ended.details}"
    if isinstance(ended, case.settled) and arrived and "at no hourly cost" not in step:
        return f"something is left and not told: {arrived}; {named}"
    return ""


def _converged(case: Case, world: World) -> str:
    again = _run(world, case, Script())
    if again is not None and not isinstance(again, case.settled):
        return f"run again: {again!r}; next step: {getattr(again, 'next_step', None)}"
    wrong = case.arrived(world, world.found())
    return wrong and f"run again: {wrong}"
