"""Arms in turns on connections that stay open: each prompt to every arm, or blocks of time in ABBA order.

The same step took 3.5 and 4.7 ms 25 minutes apart on one machine, so arms measured one after the other say
little. A steady drift cancels when every arm's mean time is the same: ABBA.

Each arm gets the same prompts under a ``cache_salt`` of its own, so that two arms which are the same endpoint
(an A/A pair) do not find each other's prompts in the prefix cache.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice

from peagle_sm.core.errors import SpecError
from peagle_sm.measure.load import (
    Clock,
    LoadOptions,
    LoadRun,
    LoadStopped,
    Observer,
    Target,
    Timeouts,
    WorkItem,
)
from peagle_sm.measure.load.http_client import Sender, open_sender
from peagle_sm.measure.load.run import Connect, drive_load
from peagle_sm.measure.results.records import Load, RequestRecord
from peagle_sm.measure.workloads import rounds


def turn_order(arms: Sequence[str], turn: int) -> list[str]:
    """The order in which arms answer prompt number ``turn``: rotated, and reversed every other cycle.

    Over ``2 * len(arms)`` turns each arm goes first, and follows each neighbour, equally often.
    """
    start = turn % len(arms)
    rotated = [*arms[start:], *arms[:start]]
    return rotated[::-1] if (turn // len(arms)) % 2 else rotated


def abba(arms: Sequence[str], blocks: int) -> Iterator[tuple[int, str]]:
    """Block by block, each arm twice: forth and back, beginning with another arm each block.

    Yields:
        The block's number and the arm that is under load next; ``2 * len(arms) * blocks`` of them.
    """
    for block in range(blocks):
        start = block % len(arms)
        forth = [*arms[start:], *arms[:start]]
        for arm in (*forth, *reversed(forth)):
            yield block, arm


GIVE_UP_AFTER = 5  #: prompts in a row that one arm failed on; a comparison with such holes is none
Took = Callable[[LoadRun], None]
"""Takes what one turn or one window gave, between two of them: it may take its time."""


@dataclass(frozen=True)
class Contender:
    """An arm that is asked, and the salt of its prompts."""

    target: Target
    salt: str

    def own(self, item: WorkItem) -> WorkItem:
        """The item as this arm gets it."""
        return under(self.salt, item)


def under(salt: str, item: WorkItem) -> WorkItem:
    """The item, and the turns that follow, under a salt; one that it has already still tells it apart.

    The salt that is sent is a digest: vLLM takes 128 characters at most, and no ``/`` or ``@`` among them.
    """
    follow = item.then

    def then(answer: str) -> WorkItem | None:
        following = follow(answer) if follow is not None else None
        return None if following is None else under(salt, following)

    whole = hashlib.sha256(f"{salt}{item.body.get('cache_salt', '')}".encode()).hexdigest()[:32]
    return replace(item, body={**item.body, "cache_salt": whole}, then=None if follow is None else then)


def warming(item: WorkItem, salt: str = "") -> WorkItem:
    """The item as a warm-up: under another name, and a salt that keeps a measured one out of the cache."""
    return replace(under(f"warm-up{salt}", item), prompt_id=f"{item.prompt_id}#warm-up", then=None)


@dataclass(frozen=True)
class Way:
    """How turns are taken; what tests put in another's place comes last."""

    timeouts: Timeouts
    began: float  #: of the run, by ``clock``
    observer: Observer
    took: Took
    clock: Clock = time.perf_counter
    connect: Connect = open_sender

    @asynccontextmanager
    async def connected(self, contenders: Sequence[Contender], places: int) -> AsyncIterator[Connect]:
        """Open connections to all, and lend them to each load that follows."""
        targets = [contender.target for contender in contenders]
        async with self.connect(targets, self.timeouts, places, self.clock) as sender:
            yield lambda *_: _lent(sender)

    def options(self, requests: int, warm_up: int, block: int) -> LoadOptions:
        """Of one turn or window."""
        return LoadOptions(
            requests=requests,
            warm_up_requests=warm_up,
            timeouts=self.timeouts,
            began=self.began,
            block=block,
        )


@asynccontextmanager
async def _lent(sender: Sender) -> AsyncIterator[Sender]:
    yield sender


async def by_prompt(
    contenders: Sequence[Contender],
    load: Load,
    items: Sequence[WorkItem],
    warm_up: Sequence[WorkItem],
    way: Way,
) -> None:
    """One request in flight: every prompt to every arm before the next one, in an order that rotates.

    Raises:
        LoadStopped: an arm failed several prompts in a row.
        SpecError: there is no prompt.
    """
    _demand(len(items), 1, load)
    by_name = {contender.target.arm: contender for contender in contenders}
    failed: Counter[str] = Counter()
    async with way.connected(contenders, len(contenders)) as connect:
        for turn, item in enumerate([*warm_up, *items], start=-len(warm_up)):
            for name in turn_order(list(by_name), max(turn, 0)):
                # No pause after an error: it would only hold up the other arms' turns.
                options = replace(way.options(1, 0, max(turn, 0)), pause_after_error_s=0.0)
                run = await _drive(by_name[name], load, [item], options, way, connect)
                way.took(run if turn >= 0 else _as_warm_up(run))
                _give_up_on_the_dead(run, failed)


def _as_warm_up(run: LoadRun) -> LoadRun:
    return replace(run, records=tuple(replace(record, phase="warm-up") for record in run.records))


def _give_up_on_the_dead(run: LoadRun, failed: Counter[str]) -> None:
    bad = [record for record in run.records if record.error is not None]
    failed[run.arm] = failed[run.arm] + 1 if bad else 0
    if failed[run.arm] >= GIVE_UP_AFTER:
        raise _stopped(f"the last {failed[run.arm]} prompts all failed", bad)


def _stopped(
    what: str, bad: Sequence[RequestRecord], *, untaken: tuple[RequestRecord, ...] = ()
) -> LoadStopped:
    last = bad[-1]
    return LoadStopped(
        f"{last.arm}: {what}; the last one: {last.error}: {last.error_message}",
        untaken,
        next_step="Look at the endpoint with `peagle-sm status`; what was measured before is kept.",
    )


async def by_block(
    contenders: Sequence[Contender],
    load: Load,
    items: Sequence[WorkItem],
    *,
    blocks: int,
    repeat: bool,
    way: Way,
) -> None:
    """Several requests in flight: one arm at a time for a window, windows in ABBA order, the same for all.

    In each block every arm has two windows with prompts of their own; before each window as many requests as
    are in flight warm the arm up.

    Raises:
        LoadStopped: an arm fails every request.
        SpecError: there are too few prompts for as many blocks.
    """
    places = load.concurrency or 1
    each = requests_per_window(len(items), places, blocks, repeat=repeat, load=load)
    by_name = {contender.target.arm: contender for contender in contenders}
    parts = dict(enumerate(_parts(rounds(items, repeat=repeat), each, 2 * blocks)))
    first = list(islice(rounds(items, repeat=True), places))
    windows: Counter[tuple[int, str]] = Counter()
    async with way.connected(contenders, places) as connect:
        for block, name in abba(list(by_name), blocks):
            half = windows[block, name]
            windows[block, name] += 1
            warm_up = [warming(item, f" {block}.{half} ") for item in first]
            work = [*warm_up, *parts[2 * block + half]]
            run = await _drive(by_name[name], load, work, way.options(each, places, block), way, connect)
            if all(record.error is not None for record in run.records):
                raise _stopped(
                    f"no request of block {block + 1} was answered", run.records, untaken=run.records
                )
            way.took(run)


def _parts(items: Iterator[WorkItem], each: int, count: int) -> Iterator[list[WorkItem]]:
    for _ in range(count):
        yield list(islice(items, each))


def requests_per_window(prompts: int, places: int, blocks: int, *, repeat: bool, load: Load) -> int:
    """How many requests a window measures: the whole workload shared out, twice the places when it repeats.

    Raises:
        SpecError: it comes to fewer than are in flight at once, and prompts are not to repeat.
    """
    each = prompts // (2 * blocks)
    if repeat:
        return max(each, 2 * places)
    _demand(prompts, 2 * blocks * places, load)
    return each


def _demand(prompts: int, needed: int, load: Load) -> None:
    if prompts < needed:
        raise SpecError(
            f"the workload has {prompts} prompts; {load.label} needs {needed} of them, none of them twice.",
            next_step="Take a larger workload, fewer --blocks, or --repeat (each time under a salt of its "
            "own, so that no cache helps).",
            details={"found": prompts, "needed": needed},
        )


async def _drive(
    contender: Contender,
    load: Load,
    items: Sequence[WorkItem],
    options: LoadOptions,
    way: Way,
    connect: Callable[..., AbstractAsyncContextManager[Sender]],
) -> LoadRun:
    return await drive_load(
        contender.target,
        load,
        [contender.own(item) for item in items],
        options=options,
        observer=way.observer,
        clock=way.clock,
        connect=connect,
    )
