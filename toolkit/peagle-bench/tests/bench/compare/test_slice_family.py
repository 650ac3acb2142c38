"""All intervals of a run hold together, also for slices that are tiny or chosen by the answers' lengths.

Seeded worlds in which both arms are equally fast: a run in which any slice is shown to differ is a false
alarm. The table of docs/how-to/slices.md has these worlds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from peagle_bench.compare.slices import slices_of_pairs
from peagle_bench.results.records import RequestRecord, SliceRecord
from tests.bench.compare.test_slices import PAIR, answer, measured

Slices = Mapping[str, str]


def tiny(draw: random.Random, number: int, of: int) -> Slices:
    return {f"label:{n}": str((number + n) // 9) for n in range(5)}


@dataclass(frozen=True)
class World:
    """Prompts with their slices; lengths and times vary."""

    name: str
    prompts: int
    slices: Callable[[random.Random, int, int], Slices]
    over_lengths: float = 0.4
    sampled: bool = False  #: answers of the two arms have other lengths, and time to the first token

    def run(self, draw: random.Random) -> list[SliceRecord]:
        """Draw one run and compute its slices."""
        records: list[RequestRecord] = []
        for number in range(self.prompts):
            slices = {"api": "chat", **self.slices(draw, number, self.prompts)}
            length = 200 * draw.lognormvariate(0, self.over_lengths)
            for arm in ("none", "p-eagle"):
                tokens = max(4, round(length * (draw.lognormvariate(0, 0.7) if self.sampled else 1)))
                seconds = (self.sampled + 0.01 * tokens) * draw.lognormvariate(0, 0.1)
                record = answer(arm, number, seconds, slices)
                records.append(
                    replace(
                        record,
                        output_tokens=tokens,
                        accepted=max(0, tokens - 25) if arm == "p-eagle" else None,
                    )
                )
        return slices_of_pairs([(PAIR, [measured(records)])], temperature=0)

    def alarms(self, trials: int) -> int:
        """Count the runs in which any slice is shown to be faster or slower."""
        draw = random.Random(self.name)
        return sum(
            any(record.speed_up and record.speed_up.shown for record in self.run(draw)) for _ in range(trials)
        )


#: The worst of the table in docs/how-to/slices.md.
WORST = [
    World("tiny, long-tailed lengths", 45, tiny, over_lengths=1.2),
    World("sampled answers, by their length", 200, lambda *_: {}, sampled=True, over_lengths=0.8),
]


@pytest.mark.parametrize("world", WORST, ids=lambda world: world.name)
def test_the_worst_worlds_raise_few_alarms(world: World) -> None:
    assert world.alarms(40) <= 6  # binomial with p = 0.05 and n = 40: more in 1 of 200 samples


def test_few_effective_prompts_have_no_interval_and_end_no_run() -> None:
    """One answer is a thousand times as long as the others: in effect its slice has one prompt."""
    records = [
        replace(
            answer(arm, number, seconds, {"script": "latin" if number % 2 else "han"}),
            output_tokens=tokens,
        )
        for number in range(24)
        for arm in ("none", "p-eagle")
        for tokens, seconds in [
            (20_000, 200.0 * (1 + (arm == "none"))) if number == 1 else (20, 0.2 + 0.01 * number)
        ]
    ]
    slices = slices_of_pairs([(PAIR, [measured(records)])], temperature=0)
    by_value = {slice.value: slice for slice in slices if slice.dimension == "script"}
    assert by_value["latin"].speed_up is None
    assert by_value["han"].speed_up is not None
