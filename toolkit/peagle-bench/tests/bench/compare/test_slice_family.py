"""All intervals of a run hold together, also for slices that are tiny, unbalanced, overlapping or noisy.

Seeded worlds in which both arms are equally fast: a run in which any slice is shown to differ is a false
alarm.
``python -m tests.bench.compare.test_slice_family`` prints the table of docs/how-to/slices.md.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from peagle_bench.compare.slices import slices_of_pairs
from peagle_bench.results.records import RequestRecord, SliceRecord
from tests.bench.compare.test_slices import ALONE, EIGHT, PAIR, answer, measured

Slices = Mapping[str, str]
TRIALS = 200
MOST = 19  #: binomial with p = 0.05 and n = 200: more in 1 of 400 samples


def balanced(draw: random.Random, number: int, of: int) -> Slices:
    return {f"label:{n}": str(draw.randrange(4)) for n in range(5)}


def tiny(draw: random.Random, number: int, of: int) -> Slices:
    return {f"label:{n}": str((number + n) // 9) for n in range(5)}


def unbalanced(draw: random.Random, number: int, of: int) -> Slices:
    return {f"label:{n}": "rare" if (7 * number + 5 * n) % of < 9 else "usual" for n in range(10)}


def overlapping(draw: random.Random, number: int, of: int) -> Slices:
    """Eight labels that say nearly the same."""
    return {f"label:{n}": str(number % 4 if draw.random() < 0.95 else draw.randrange(4)) for n in range(8)}


def usual(draw: random.Random) -> float:
    return draw.lognormvariate(0, 0.1)


def stragglers(draw: random.Random) -> float:
    return draw.lognormvariate(0, 0.05) * (5 if draw.random() < 0.03 else 1)


def wild(draw: random.Random) -> float:
    return draw.lognormvariate(0, 0.6)


@dataclass(frozen=True)
class World:
    """Prompts with their slices; lengths and times vary. ``slow``: the factor of one slice's times."""

    name: str
    prompts: int
    slices: Callable[[random.Random, int, int], Slices]
    noise: Callable[[random.Random], float] = usual
    over_lengths: float = 0.4
    blocks: int = 1
    sampled: bool = False  #: answers of the two arms have other lengths, and time to the first token
    slow: float = 1.0
    gain: float = 1.0  #: in all other slices: with it they are no slower, although they share its prompts

    def run(self, draw: random.Random) -> list[SliceRecord]:
        """Draw one run and compute its slices."""
        records: list[RequestRecord] = []
        machine = {
            (arm, n): draw.lognormvariate(0, 0.05) for arm in ("none", "p-eagle") for n in range(self.blocks)
        }
        for number in range(self.prompts):
            slices = {"api": "chat", **self.slices(draw, number, self.prompts)}
            length = 200 * draw.lognormvariate(0, self.over_lengths)
            for arm in ("none", "p-eagle"):
                tokens = max(4, round(length * (draw.lognormvariate(0, 0.7) if self.sampled else 1)))
                seconds = (self.sampled + 0.01 * tokens) * self.noise(draw)
                if self.blocks > 1:
                    seconds *= machine[arm, number % self.blocks]
                if arm == "p-eagle":
                    seconds *= self.slow if slices.get("label:0") == "0" else 1 / self.gain
                accepted = max(0, tokens - 25) if arm == "p-eagle" else None
                records.append(answer(arm, number, seconds, slices, output_tokens=tokens, accepted=accepted))
        load = EIGHT if self.blocks > 1 else ALONE
        return slices_of_pairs([(PAIR, [measured(records, load, self.blocks)])], temperature=0)

    def alarms(self, trials: int) -> int:
        """Count the runs in which any slice is shown to be faster or slower."""
        draw = random.Random(self.name)
        return sum(
            any(record.speed_up and record.speed_up.shown for record in self.run(draw)) for _ in range(trials)
        )


NULL = [
    World("balanced, 64 prompts", 64, balanced),
    World("balanced, stragglers", 64, balanced, stragglers),
    World("balanced, times vary by 60%", 64, balanced, wild),
    World("tiny: 9 prompts each", 45, tiny),
    World("tiny, long-tailed lengths", 45, tiny, over_lengths=1.2),
    World("tiny, times vary by 60%", 45, tiny, wild),
    World("unbalanced: 9 of 200", 200, unbalanced, over_lengths=0.8),
    World("unbalanced, stragglers", 200, unbalanced, stragglers, over_lengths=0.8),
    World("overlapping labels", 64, overlapping, over_lengths=0.8),
    World("8 in flight, 2 blocks", 240, balanced, over_lengths=0.8, blocks=2),
    World("8 in flight, 6 blocks, stragglers", 200, unbalanced, stragglers, over_lengths=0.8, blocks=6),
    World("sampled answers, by their length", 200, lambda *_: {}, sampled=True, over_lengths=0.8),
]


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("world", NULL, ids=lambda world: world.name)
def test_a_run_without_a_difference_raises_an_alarm_in_at_most_5_percent(world: World) -> None:
    assert world.alarms(TRIALS) <= MOST


@pytest.mark.parametrize("world", [NULL[4], NULL[-1]], ids=lambda world: world.name)
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


SLOW = World(
    "one slice of 16 prompts is slower", 64, balanced, lambda draw: draw.lognormvariate(0, 0.15), gain=1.2
)


def found_slow(factor: float, trials: int) -> tuple[int, int]:
    """Count the runs that name the slow slice, and those that name any other."""
    draw, world = random.Random(f"{factor}"), replace(SLOW, slow=factor)
    found = others = 0
    for _ in range(trials):
        named = {(record.dimension, record.value) for record in world.run(draw) if record.costs_money}
        found += ("label:0", "0") in named
        others += bool(named - {("label:0", "0")})
    return found, others


def test_a_slice_that_is_really_slower_is_named() -> None:
    found, others = found_slow(1.5, 20)
    assert found >= 18
    assert others <= 2


def main() -> None:
    """Print the tables."""
    for world in NULL:
        print(f"| {world.name} | {world.alarms(400) / 400:.1%} |", flush=True)
    for factor in (1.2, 1.3, 1.4, 1.5):
        found, others = found_slow(factor, 200)
        print(f"| {factor} | {found / 200:.0%} | {others / 200:.1%} |", flush=True)


if __name__ == "__main__":
    main()
