"""All intervals over slices hold together, also for slices that are tiny, unbalanced, overlapping or noisy.

Seeded worlds in which both arms are equally fast: a run in which any slice is shown to differ is a false
alarm. ``python -m tests.bench.compare.test_slice_family`` prints the table of docs/how-to/prove-a-head.md.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from peagle_bench.compare.analysis import compare_cells, of_prompts
from peagle_bench.compare.slices import Slice, confidence_of_each, in_order, keys_by_slice, of_both
from peagle_bench.results.records import Interval, Load, RequestRecord
from peagle_sm.core.dialogues import FEWEST_CONVERSATIONS

ALONE = Load("closed", concurrency=1)
ARMS = ("none", "p-eagle")
Slices = Mapping[str, str]
TRIALS = 200
MOST = 19  #: binomial with p = 0.05 and n = 200: more in 1 of 400 samples


def answer(arm: str, number: int, seconds: float, slices: Slices, tokens: int = 99) -> RequestRecord:
    return RequestRecord(
        arm, ALONE, f"p{number}", "measured", 0, 0, 0.1, seconds, seconds, 100, tokens, 9, slices=dict(slices)
    )


def speed_ups(records: Sequence[RequestRecord]) -> dict[Slice, Interval | None]:
    """Return the speed-up of p-eagle over none in each slice, as `peagle_learn.evidence` computes it."""
    plain, fast = ([record for record in records if record.arm == arm] for arm in ARMS)
    keys = keys_by_slice(of_both(plain, fast))
    confidence = confidence_of_each(keys.values())
    cells = [of_prompts(own, speculates=None) for own in (fast, plain)]
    result: dict[Slice, Interval | None] = {}
    for name in in_order(keys):
        prompts = sorted({prompt for _, prompt, _ in keys[name]})
        enough = len(prompts) >= FEWEST_CONVERSATIONS
        own = [[{prompt: each[prompt] for prompt in prompts}] for each in cells]
        result[name] = compare_cells(*own, confidence=confidence).rate if enough else None
    return result


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
    sampled: bool = False  #: answers of the two arms have other lengths, and time to the first token
    slow: float = 1.0
    gain: float = 1.0  #: in all other slices: with it they are no slower, although they share its prompts

    def run(self, draw: random.Random) -> dict[Slice, Interval | None]:
        """Draw one run and compute its slices."""
        records: list[RequestRecord] = []
        for number in range(self.prompts):
            slices = {"api": "chat", **self.slices(draw, number, self.prompts)}
            length = 200 * draw.lognormvariate(0, self.over_lengths)
            for arm in ARMS:
                tokens = max(4, round(length * (draw.lognormvariate(0, 0.7) if self.sampled else 1)))
                seconds = (self.sampled + 0.01 * tokens) * self.noise(draw)
                if arm == "p-eagle":
                    seconds *= self.slow if slices.get("label:0") == "0" else 1 / self.gain
                records.append(answer(arm, number, seconds, slices, tokens))
        return speed_ups(records)

    def alarms(self, trials: int) -> int:
        """Count the runs in which any slice is shown to be faster or slower."""
        draw = random.Random(self.name)
        return sum(
            any(ratio is not None and ratio.shown for ratio in self.run(draw).values()) for _ in range(trials)
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


def test_few_prompts_have_no_interval_and_a_dimension_with_one_value_is_left_out() -> None:
    result = speed_ups(
        [
            answer(arm, number, 1.0, {"script": "han" if number < 7 else "latin", "api": "chat"})
            for number in range(20)
            for arm in ARMS
        ]
    )
    assert set(result) == {("script", "han"), ("script", "latin")}
    assert result["script", "han"] is None, "an interval needs 8 prompts"
    assert result["script", "latin"] is not None


def test_the_mean_of_both_answers_decides_the_slice_of_a_prompt() -> None:
    """So both arms of a slice answered the same prompts, and none is chosen for its own long answers."""
    plain, fast = (
        [
            answer(arm, number, 1.0, {"api": "chat"}, 306 if arm == "p-eagle" or number % 2 else 200)
            for number in range(32)
        ]
        for arm in ARMS
    )
    keys = keys_by_slice(of_both(plain, fast))
    counts = {value: len(prompts) for (_, value), prompts in keys.items()}
    assert counts == {"below 256": 16, "256 to 1k": 16}


def test_a_property_with_many_values_has_twenty_and_the_rest_is_other() -> None:
    records = [
        replace(answer("none", number, 1.0, {}), category=f"{number % 200:03}" if number % 3 else "often")
        for number in range(600)
    ]
    values = {value: len(keys) for (_, value), keys in keys_by_slice(records).items()}
    assert len(values) == 21
    assert {"often", "other"} <= set(values)
    assert sum(values.values()) == 600


SLOW = World(
    "one slice of 16 prompts is slower", 64, balanced, lambda draw: draw.lognormvariate(0, 0.15), gain=1.2
)


def found_slow(factor: float, trials: int) -> tuple[int, int]:
    """Count the runs that name the slow slice, and those that name any other."""
    draw, world = random.Random(f"{factor}"), replace(SLOW, slow=factor)
    found = others = 0
    for _ in range(trials):
        named = {name for name, ratio in world.run(draw).items() if ratio is not None and ratio.high < 1}
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
