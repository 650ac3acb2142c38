"""Engines in virtual time that compute in steps and look up K by batch size, as vLLM does."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from peagle_bench.load import Target, Timeouts
from peagle_bench.load.answer import Answer
from peagle_bench.load.http_client import Sender
from peagle_sm.core.spec.endpoint_spec import Row, k_at
from tests.bench.compare.virtual import VirtualTime


@dataclass
class Running:
    """One request in an engine."""

    left: float
    done: asyncio.Event


@dataclass
class SteppingEngine:
    """One engine: in each step every running request gets AL(K) tokens, and K follows the batch size.

    A step takes 5 ms, 10% longer for each token of the batch above ``free_tokens``, and ``overhead`` more in
    all. ``stall_s``: seconds lost in each change between drafting and K=0 (vllm#49548).
    """

    rows: Sequence[Row]
    stall_s: float = 0.0
    overhead: float = 0.0
    survival: float = 0.75
    free_tokens: int = 16
    noise: float = 0.0
    running: list[Running] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    draws: random.Random = field(default_factory=lambda: random.Random(1))

    def rate(self, k: int, batch: int) -> float:
        """Tokens a second of a constant batch."""
        return batch * self.length(k) / self.step_s(k, batch)

    def length(self, k: int) -> float:
        return sum(self.survival**position for position in range(k + 1))

    def step_s(self, k: int, batch: int) -> float:
        over = max(0, batch * (k + 1) - self.free_tokens)
        return 0.005 * (1 + 0.1 * over) * (1 + self.overhead)

    async def serve(self, tokens: int) -> None:
        mine = Running(tokens, asyncio.Event())
        self.running.append(mine)
        if self.task is None or self.task.done():
            self.task = asyncio.get_running_loop().create_task(self.loop())
        await mine.done.wait()

    async def loop(self) -> None:
        before = None
        pace = 1.0
        while self.running:
            batch = len(self.running)
            k = k_at(self.rows, batch)
            if before is not None and (k == 0) != (before == 0):
                await asyncio.sleep(self.stall_s)
            if self.draws.random() < 0.02:
                pace = 1 + self.draws.gauss(0, self.noise)
            before = k
            await asyncio.sleep(self.step_s(k, batch) * pace)
            for one in list(self.running):
                one.left -= self.length(k)
                if one.left <= 0:
                    self.running.remove(one)
                    one.done.set()


@dataclass
class SteppingEngines:
    """Sender to one engine for each arm."""

    time: VirtualTime
    engines: Mapping[str, SteppingEngine]
    in_flight: dict[str, int] = field(default_factory=dict)
    seen: list[tuple[str, int]] = field(default_factory=list)  #: arm and its requests in flight at each send

    @asynccontextmanager
    async def connect(
        self, targets: Any, timeouts: Timeouts, places: int, clock: Any
    ) -> AsyncIterator[Sender]:
        yield self

    async def send(self, target: Target, body: Mapping[str, Any]) -> Answer:
        sent = self.time.clock()
        digest = hashlib.sha256(str(body["prompt"]).encode())
        tokens = random.Random(digest.digest()).randint(60, 180)
        self.in_flight[target.arm] = self.in_flight.get(target.arm, 0) + 1
        self.seen.append((target.arm, self.in_flight[target.arm]))
        try:
            await self.engines[target.arm].serve(tokens)
        finally:
            self.in_flight[target.arm] -= 1
        done = self.time.clock()
        chunks = 20
        return Answer(
            sent=sent,
            done=done,
            first=sent + (done - sent) / chunks,
            last=done,
            gaps_ms=((done - sent) / chunks * 1000,) * (chunks - 1),
            chunks=chunks,
            input_tokens=10,
            output_tokens=tokens,
            finish_reason="stop",
            text="x",
            output_sha256=digest.hexdigest(),
        )
