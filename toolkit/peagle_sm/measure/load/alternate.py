"""Several arms in turns, so that whatever the machine does befalls all of them alike.

At concurrency 1 every prompt goes to every arm before the next one: requests are then paired by prompt.
Above, requests of one arm interact, so the arms take turns by blocks of time (AB BA BA AB), and blocks are
compared.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from peagle_sm.core.errors import SpecError
from peagle_sm.measure.load.drive import Drive
from peagle_sm.measure.load.meter import Meter
from peagle_sm.measure.load.run import Connect, drive_load
from peagle_sm.measure.load.sender import open_sender
from peagle_sm.measure.load.targets import Target
from peagle_sm.measure.load.work import (
    ClientUsage,
    Clock,
    LoadOptions,
    LoadRun,
    Observer,
    Silent,
    Window,
    WorkItem,
    check_load,
)
from peagle_sm.measure.records import Load, Phase
from peagle_sm.measure.turns import turn_order


async def alternate(
    targets: Sequence[Target],
    load: Load,
    items: Sequence[WorkItem],
    *,
    options: LoadOptions,
    blocks: int = 8,
    observer: Observer | None = None,
    clock: Clock = time.perf_counter,
    connect: Connect = open_sender,
) -> list[LoadRun]:
    """Let every arm answer the same items under the same load; targets need arms of different names.

    ``options.requests`` are measured for each arm. At concurrency 1 one run comes back for each arm: its
    records' ``block`` is the number of the turn, and its window's ``seconds`` are those in which the arm was
    asked. Above it, one run for each block and arm, each with its own warm-up (``options.warm_up_requests``,
    by default the concurrency), which takes items of its own.

    Raises:
        SpecError: names of arms repeat, seconds instead of requests are asked for, or items are too few.
        NotFound: aiohttp is not installed.
        LoadStopped: an endpoint fails every request.
    """
    check_load(load)
    by_name = {target.arm: target for target in targets}
    if len(by_name) != len(targets):
        raise SpecError(
            f"arms: found {', '.join(target.arm for target in targets)}; allowed: names that differ.",
            next_step="Name each arm differently, the two of an A/A pair too.",
        )
    if options.requests is None:
        raise SpecError(
            "arms that take turns are measured by requests, not by seconds: each gets the same ones.",
            next_step="Give how many requests to measure.",
        )
    options = replace(options, began=clock() if options.began is None else options.began)
    observer = observer or Silent()
    if load.kind == "closed" and load.concurrency == 1:
        return await _by_prompt(by_name, load, items, options, observer, clock, connect)
    return await _by_block(by_name, load, items, options, blocks, observer, clock, connect)


async def _by_prompt(
    targets: dict[str, Target],
    load: Load,
    items: Sequence[WorkItem],
    options: LoadOptions,
    observer: Observer,
    clock: Clock,
    connect: Connect,
) -> list[LoadRun]:
    began, wanted = options.began or 0.0, options.requests or 0
    warm_up = 1 if options.warm_up_requests is None else options.warm_up_requests
    _demand(items, warm_up + wanted, load)
    meter = Meter(clock)
    async with connect(list(targets.values()), options.timeouts, len(targets), clock) as sender:
        drive = Drive(load, options, sender, observer, clock, began)

        async def turn(number: int, item: WorkItem, phase: Phase) -> None:
            for name in turn_order(list(targets), max(number, 0)):
                await drive.converse(targets[name], item, clock(), number, lambda: phase)

        observer.phase("warm-up")
        for item in items[:warm_up]:
            await turn(-1, item, "warm-up")
        observer.phase("measured")
        start, cpu = clock(), meter.cpu_s()
        meter.start()
        try:
            for number, item in enumerate(items[warm_up : warm_up + wanted]):
                await turn(number, item, "measured")
        finally:
            meter.stop()
        end = clock()
    usage = ClientUsage(meter.lags_between(start, end), meter.cpu_s() - cpu)
    runs = []
    for name in targets:
        records = tuple(record for record in drive.records if record.arm == name)
        asked = sum(record.done_s - record.sent_s for record in records if record.phase == "measured")
        runs.append(LoadRun(name, load, 0, records, Window(start - began, end - began, asked), usage))
    return runs


async def _by_block(
    targets: dict[str, Target],
    load: Load,
    items: Sequence[WorkItem],
    options: LoadOptions,
    blocks: int,
    observer: Observer,
    clock: Clock,
    connect: Connect,
) -> list[LoadRun]:
    wanted = options.requests or 0
    each = wanted // blocks
    default = load.concurrency or 0 if load.kind == "closed" else 0
    warm_up = default if options.warm_up_requests is None else options.warm_up_requests
    if each < max(load.concurrency or 0, 1):
        raise SpecError(
            f"{wanted} requests in {blocks} blocks are {each} a block; {load.label} needs at least"
            f" {load.concurrency or 1}.",
            next_step="Measure more requests, or take fewer blocks.",
        )
    share = warm_up + each
    _demand(items, share * blocks, load)
    runs = []
    for block in range(blocks):
        part = items[block * share : (block + 1) * share]
        asked = replace(
            options, requests=each, warm_up_requests=warm_up, block=block, seed=options.seed + block
        )
        for name in turn_order(list(targets), block):
            runs.append(
                await drive_load(
                    targets[name], load, part, options=asked, observer=observer, clock=clock, connect=connect
                )
            )
    return runs


def _demand(items: Sequence[WorkItem], needed: int, load: Load) -> None:
    if len(items) < needed:
        raise SpecError(
            f"the workload has {len(items)} prompts; {load.label} needs {needed} of them for each arm,"
            " warm-up included, none of them twice.",
            next_step="Take a larger workload, fewer requests, or allow that prompts repeat.",
        )
