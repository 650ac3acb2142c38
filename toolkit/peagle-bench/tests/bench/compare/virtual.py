"""Engines that answer in virtual time."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from peagle_bench.load import Target, Timeouts
from peagle_bench.load.answer import Answer
from peagle_bench.load.http_client import Sender
from tests.bench.load.virtual import VirtualTime


@dataclass(frozen=True)
class FakeTarget:
    arm: str
    framed: bool = False
    remote: bool = False

    def request(self, body: Mapping[str, Any], data: bytes) -> tuple[str, dict[str, str]]:
        return self.arm, {}

    def failure(self, status: int, headers: Mapping[str, str], content: bytes) -> tuple[str, str]:
        return "", ""


@dataclass
class Engines:
    """One engine an arm: ``acceptance`` tokens a step of ``step_s``, slower by 5% for each other in flight.

    ``drift``: every engine gets slower by this share a second, as one machine does. ``dies_after``: an arm
    that answers so many requests and then none. What was sent is in ``bodies``.
    """

    time: VirtualTime
    acceptance: Mapping[str, float]
    step_s: Mapping[str, float]
    drift: float = 0.0
    noise: float = 0.0
    dies_after: Mapping[str, int] = field(default_factory=dict)
    interrupt_after: int | None = None
    bodies: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    in_flight: int = 0

    @asynccontextmanager
    async def connect(
        self, targets: Any, timeouts: Timeouts, places: int, clock: Any
    ) -> AsyncIterator[Sender]:
        yield self

    async def send(self, target: Target, body: Mapping[str, Any]) -> Answer:
        arm = target.arm.removesuffix(" (A/A)")
        sent = self.time.clock()
        self.bodies.append((target.arm, body))
        if self.interrupt_after is not None and len(self.bodies) > self.interrupt_after:
            raise KeyboardInterrupt
        if sum(name == target.arm for name, _ in self.bodies) > self.dies_after.get(target.arm, 10**9):
            await asyncio.sleep(0.01)
            return failed(sent, self.time.clock())
        draws = random.Random(hashlib.sha256(str(body["prompt"]).encode()).digest())
        tokens = draws.randint(40, 200)
        noise = random.Random(f"{len(self.bodies)}").gauss(0, self.noise)
        self.in_flight += 1
        steps = max(2, round(tokens / self.acceptance[arm]))
        each = self.step_s[arm] * (1 + 0.05 * self.in_flight) * (1 + self.drift * sent) * (1 + noise)
        try:
            await asyncio.sleep(steps * each)
        finally:
            self.in_flight -= 1
        speculates = self.acceptance[arm] > 1
        return Answer(
            sent=sent,
            done=sent + steps * each,
            first=sent + each,
            last=sent + steps * each,
            gaps_ms=(each * 1000,) * (steps - 1),
            chunks=steps,
            input_tokens=10,
            output_tokens=tokens,
            finish_reason="stop",
            text="x",
            output_sha256=hashlib.sha256(str(body["prompt"]).encode()).hexdigest(),
            drafts=steps if speculates else None,
            accepted=tokens - steps if speculates else None,
        )


def failed(sent: float, done: float) -> Answer:
    return Answer(
        sent, done, None, None, (), 0, None, None, None, "", None, error="ModelError", error_message="gone"
    )
