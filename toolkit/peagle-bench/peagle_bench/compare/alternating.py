"""Alternating load on several arms: each prompt to every arm, or blocks of time in ABBA order.

The same step took 3.5 and 4.7 ms 25 minutes apart on one machine, so arms measured one after the other
cannot be compared. In ABBA order every arm has the same mean time, so a steady drift cancels.

Connections stay open between turns. Each arm gets the same prompts with its own ``cache_salt``: two arms on
the same endpoint (an A/A pair) must not find each other's prompts in the prefix cache.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice

from peagle_bench.load import (
    Clock,
    LoadOptions,
    LoadRun,
    LoadStopped,
    Observer,
    Target,
    Timeouts,
    WorkItem,
)
from peagle_bench.load.http_client import Sender, open_sender
from peagle_bench.load.run import Connect, drive_load
from peagle_bench.results.records import Load, RequestRecord
from peagle_bench.workloads import rounds, salted
from peagle_sm.core.errors import SpecError


def turn_order(arms: Sequence[str], turn: int) -> list[str]:
    """Return the order of the arms for prompt number ``turn``: rotated, reversed every other cycle.

    Over ``2 * len(arms)`` turns each arm goes first, and follows each neighbour, equally often.
    """
    start = turn % len(arms)
    rotated = [*arms[start:], *arms[:start]]
    return rotated[::-1] if (turn // len(arms)) % 2 else rotated


def abba(arms: Sequence[str], blocks: int) -> Iterator[tuple[int, str]]:
    """Order the arms in each block as ABBA; each block begins with another arm.

    Yields:
        The block's number and the next arm; ``2 * len(arms) * blocks`` of them.
    """
    for block in range(blocks):
        start = block % len(arms)
        forth = [*arms[start:], *arms[:start]]
        for arm in (*forth, *reversed(forth)):
            yield block, arm


GIVE_UP_AFTER = 5  #: failed prompts in a row of one arm; with such gaps a comparison is useless
OnRun = Callable[[LoadRun], None]
"""Callback for the result of a turn or window. It runs between two of them, so it may be slow."""


@dataclass(frozen=True)
class Contender:
    """An arm under load, and the salt of its prompts."""

    target: Target
    salt: str


def warming(item: WorkItem, salt: str = "") -> WorkItem:
    """Make a warm-up item: another id, and a salt that keeps the measured prompt out of the cache."""
    return replace(salted(item, f"warm-up{salt}"), prompt_id=f"{item.prompt_id}#warm-up", then=None)


@dataclass(frozen=True)
class TurnContext:
    """Timeouts, observer, callback, clock and connections that all turns of a run share."""

    timeouts: Timeouts
    began: float  #: start of the run on ``clock``
    observer: Observer
    on_run: OnRun
    clock: Clock = time.perf_counter
    connect: Connect = open_sender
    keep_text: bool = False  #: in the records: judges of workload packs read the answers

    @asynccontextmanager
    async def connected(self, contenders: Sequence[Contender], places: int) -> AsyncIterator[Connect]:
        """Open connections to all arms and share them between the loads."""
        targets = [contender.target for contender in contenders]
        async with self.connect(targets, self.timeouts, places, self.clock) as sender:
            yield lambda *_: _lent(sender)

    def options(self, requests: int, warm_up: int, block: int) -> LoadOptions:
        """Return the load options of one turn or window."""
        return LoadOptions(
            requests=requests,
            warm_up_requests=warm_up,
            timeouts=self.timeouts,
            began=self.began,
            block=block,
            keep_text=self.keep_text,
        )


@asynccontextmanager
async def _lent(sender: Sender) -> AsyncIterator[Sender]:
    yield sender


async def by_prompt(
    contenders: Sequence[Contender],
    load: Load,
    items: Sequence[WorkItem],
    warm_up: Sequence[WorkItem],
    context: TurnContext,
    ended: Callable[[], bool] = lambda: False,
) -> None:
    """Measure with one request in flight: each prompt goes to every arm, in a rotating order.

    ``ended`` is asked when every arm had a prompt; True leaves out the others.

    Raises:
        LoadStopped: an arm failed `GIVE_UP_AFTER` prompts in a row.
        SpecError: the workload is empty.
    """
    _demand(len(items), 1, load)
    by_name = {contender.target.arm: contender for contender in contenders}
    failed: Counter[str] = Counter()
    async with context.connected(contenders, len(contenders)) as connect:
        for turn, item in enumerate([*warm_up, *items], start=-len(warm_up)):
            for name in turn_order(list(by_name), max(turn, 0)):
                # No pause after an error: it would only delay the other arms' turns.
                options = replace(context.options(1, 0, max(turn, 0)), pause_after_error_s=0.0)
                run = await _drive(by_name[name], load, [item], options, context, connect)
                if turn < 0:
                    warm = tuple(replace(record, phase="warm-up") for record in run.records)
                    run = replace(run, records=warm)
                context.on_run(run)
                _stop_after_failures(run, failed)
            if turn >= 0 and ended():
                return


def _stop_after_failures(run: LoadRun, failed: Counter[str]) -> None:
    bad = [record for record in run.records if record.error is not None]
    failed[run.arm] = failed[run.arm] + 1 if bad else 0
    if failed[run.arm] >= GIVE_UP_AFTER:
        raise _stopped(f"the last {failed[run.arm]} prompts failed", bad)


def _stopped(
    what: str, bad: Sequence[RequestRecord], *, untaken: tuple[RequestRecord, ...] = ()
) -> LoadStopped:
    last = bad[-1]
    return LoadStopped(
        f"{last.arm}: {what}; last error: {last.error}: {last.error_message}",
        untaken,
        next_step="Check the endpoint with `peagle-sm status`. Earlier measurements are kept.",
    )


async def by_block(
    contenders: Sequence[Contender],
    load: Load,
    items: Sequence[WorkItem],
    *,
    blocks: int,
    repeat: bool,
    context: TurnContext,
) -> None:
    """Measure with several requests in flight: one arm at a time, in windows in ABBA order.

    In each block every arm has two windows, each with other prompts; all arms get the same ones. A warm-up of
    ``load.concurrency`` requests precedes each window.

    Raises:
        LoadStopped: an arm failed every request.
        SpecError: the workload has too few prompts for this number of blocks.
    """
    places = load.concurrency or 1
    each = requests_per_window(len(items), places, blocks, repeat=repeat, load=load)
    by_name = {contender.target.arm: contender for contender in contenders}
    source = rounds(items, repeat=repeat)
    parts = [list(islice(source, each)) for _ in range(2 * blocks)]
    first = list(islice(rounds(items, repeat=True), places))
    windows: Counter[tuple[int, str]] = Counter()
    async with context.connected(contenders, places) as connect:
        for block, name in abba(list(by_name), blocks):
            half = windows[block, name]
            windows[block, name] += 1
            warm_up = [warming(item, f" {block}.{half} ") for item in first]
            work = [*warm_up, *parts[2 * block + half]]
            run = await _drive(
                by_name[name], load, work, context.options(each, places, block), context, connect
            )
            if all(record.error is not None for record in run.records):
                raise _stopped(f"every request of block {block + 1} failed", run.records, untaken=run.records)
            context.on_run(run)


def requests_per_window(prompts: int, places: int, blocks: int, *, repeat: bool, load: Load) -> int:
    """Compute the requests of a window: an equal share of the workload, or 2 x concurrency with ``repeat``.

    Raises:
        SpecError: without ``repeat`` the share is smaller than the concurrency.
    """
    each = prompts // (2 * blocks)
    if repeat:
        return max(each, 2 * places)
    _demand(prompts, 2 * blocks * places, load)
    return each


def _demand(prompts: int, needed: int, load: Load) -> None:
    if prompts < needed:
        raise SpecError(
            f"the workload has {prompts} prompts; {load.label} needs {needed} different ones.",
            next_step="Give more prompts, or a lower concurrency.",
            details={"found": prompts, "needed": needed},
        )


async def _drive(
    contender: Contender,
    load: Load,
    items: Sequence[WorkItem],
    options: LoadOptions,
    context: TurnContext,
    connect: Callable[..., AbstractAsyncContextManager[Sender]],
) -> LoadRun:
    return await drive_load(
        contender.target,
        load,
        [salted(item, contender.salt) for item in items],
        options=options,
        observer=context.observer,
        clock=context.clock,
        connect=connect,
    )
