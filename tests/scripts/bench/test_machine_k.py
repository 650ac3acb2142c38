"""The quickstart's choice of K, from readings made up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from peagle_bench.load.answer import Answer, AnswerReader
from peagle_bench.results.records import Reading
from peagle_bench.tune.windows import with_k
from peagle_sm.core.plan.environment import RUNTIME_K
from peagle_sm.core.spec.modes import Mode
from scripts.bench.comparison import SenderWithK
from scripts.bench.machine_k import ROUNDS, candidates, choose_k, runtime_spec


@dataclass
class Engine:
    """A step takes ``base_ms``, and ``each_ms`` for each drafted token; drafts survive at 0.85."""

    base_ms: float
    each_ms: float
    noise: float = 0.005
    asked: list[tuple[int, int]] = field(default_factory=list)

    def read(self, k: int, concurrency: int, block: int) -> Reading:
        self.asked.append((k, block))
        survival = tuple(0.85 ** (i + 1) for i in range(k))
        chance = np.random.default_rng([k, block]).normal(0, self.noise)
        step = (self.base_ms + self.each_ms * k) * float(np.exp(chance))
        length = 1 + sum(survival)
        return Reading(k, concurrency, length, survival, step, 1000 * length / step, 200, "metrics", block)


@pytest.mark.parametrize(
    ("each_ms", "best"),
    [(0.01, 11), (1.0, 5)],
    ids=["drafts cost nothing", "drafts are dear"],
)
def test_the_machine_decides_and_not_the_catalogue(each_ms: float, best: int) -> None:
    engine = Engine(base_ms=5, each_ms=each_ms)
    chosen = choose_k("p-eagle", engine)
    assert chosen.k == best
    assert chosen.catalogue == 11
    assert f"p-eagle: K={best} (catalogue: 11); tokens/s while decoding: K=5 " in chosen.text()


def test_every_candidate_is_measured_in_every_round_in_alternating_order() -> None:
    engine = Engine(5, 0.2)
    choose_k("eagle3", engine)
    ks = candidates("eagle3")
    assert engine.asked == [
        (k, block) for block in range(ROUNDS) for k in (ks if block % 2 == 0 else ks[::-1])
    ]


@pytest.mark.parametrize("mode", ["eagle3", "p-eagle"])
def test_the_engine_starts_with_the_largest_candidate_and_takes_smaller_ones(mode: Mode) -> None:
    spec = runtime_spec(mode)
    assert spec.name == f"tiny-{mode}"
    assert spec.speculation.num_speculative_tokens == max(candidates(mode))
    assert spec.serving.env[RUNTIME_K] == "1"


class Sender:
    def __init__(self) -> None:
        self.sent: list[Mapping[str, Any]] = []

    async def send(self, target: Any, body: Mapping[str, Any]) -> Answer:
        self.sent.append(body)
        return AnswerReader(framed=False).finish(1.0, sent=0.0)


@dataclass
class NamedTarget:
    arm: str


def test_only_the_arms_with_a_k_name_it() -> None:
    inner = Sender()
    sender: Any = SenderWithK(inner, {"fast": 9})
    for arm in ("fast", "plain"):
        asyncio.run(sender.send(NamedTarget(arm), {"prompt": "x"}))
    assert inner.sent == [{"prompt": "x", "vllm_xargs": {"num_speculative_tokens": 9}}, {"prompt": "x"}]
    assert with_k({"prompt": "x"}, None) == {"prompt": "x"}
