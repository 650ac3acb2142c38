"""Turns of one conversation: intervals over conversations hold as often as they say, on worlds with a seed.

The worlds know nothing of the toolkit's statistics: a candidate that is exactly as good as the serving head
over all conversations there could be, better on some people's and worse on others'. An interval over prompts
holds the truth in 73 to 78% of the runs with 2 to 4 conversations, and calls the equal head better in up to
43%. ``python -m tests.bench.compare.test_conversations`` prints the table of docs/how-to/measure.md.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

import pytest

from peagle_bench.compare.analysis import ArmDeployments, Measured, Pair, compare, ratios_of
from peagle_bench.dialogues import FEWEST_CONVERSATIONS
from peagle_bench.load import ClientUsage, LoadRun, Window
from peagle_bench.results.records import ArmRecord, ComparisonRecord, Interval, Load
from tests.bench.compare.simulating import ALONE, EIGHT, request

PAIR = Pair(
    ArmDeployments((ArmRecord("candidate", "p-eagle", 5, "new"),)),
    ArmDeployments((ArmRecord("serving", "p-eagle", 5, "old"),)),
)


@dataclass(frozen=True)
class World:
    """Standard deviations of the log ratio: from one conversation to the next, and from turn to turn.

    ``uneven``: some conversations have many turns, most have few.
    """

    conversations: int
    turns: int
    uneven: bool = False
    between: float = 0.15
    within: float = 0.10

    def draw(self, draws: random.Random, load: Load = ALONE) -> Measured:
        """Measure both arms on new conversations; the true ratio of acceptance lengths is 1."""
        # Drafts add up, so the mean of 1 / ratio is 1 if the mean log ratio is half of the variance.
        middle = (self.between**2 + self.within**2) / 2
        rows: list[tuple[int, int, float, float, float]] = []
        for conversation in range(self.conversations):
            gain, level = draws.gauss(middle, self.between), draws.gauss(math.log(3), 0.2)
            turns = 1 + int(draws.expovariate(1 / self.turns)) if self.uneven else self.turns
            for turn in range(turns):
                tokens = 40 + math.exp(draws.gauss(4, 0.5))
                length = math.exp(level + draws.gauss(0, 0.1))
                rows.append((conversation, turn, tokens, length, gain + draws.gauss(0, self.within)))
        draws.shuffle(rows)
        measured = Measured(load)
        for arm in ("candidate", "serving"):
            records = []
            for place, (conversation, turn, tokens, length, gain) in enumerate(rows):
                own = length * math.exp(gain) if arm == "candidate" else length
                drafts = 1000 * tokens / own  # as if each answer were long: no rounding
                one = request(
                    arm,
                    f"{conversation}/{turn}",
                    seconds=drafts / 1000,
                    tokens=round(1000 * tokens),
                    drafts=round(drafts),
                    accepted=round(1000 * tokens) - round(drafts),
                    block=place * 6 // len(rows),
                    load=load,
                )
                records.append(replace(one, conversation=f"c{conversation}"))
            usage, end = ClientUsage((), 0.0), 1e9
            for block in range(6):
                own_block = tuple(each for each in records if each.block == block)
                seconds = math.fsum(each.done_s - each.sent_s for each in own_block) / 8
                measured.take(LoadRun(arm, load, block, own_block, Window(-1.0, end, seconds), usage))
        return measured


WORLDS = [
    *(World(conversations, 10) for conversations in (2, 4, 8, 16, 50)),
    *(World(conversations, 10, uneven=True) for conversations in (8, 16, 50)),
    World(8, 2),
    World(50, 1),
]


def intervals(world: World, trials: int, load: Load = ALONE) -> list[Interval]:
    """Return the intervals of the acceptance ratio, of a load; those that have one."""
    draws, drawn = random.Random(f"{world}"), []
    for _ in range(trials):
        interval = ratios_of(PAIR, [world.draw(draws, load)]).acceptance
        assert interval is not None
        drawn.append(interval)
    return drawn


def shares(intervals: list[Interval]) -> tuple[float, float]:
    """Return how often intervals hold the truth, and how often they say that the equal head is better."""
    holds = sum(each.low <= 1 <= each.high for each in intervals) / len(intervals)
    return holds, sum(each.low > 1 for each in intervals) / len(intervals)


@pytest.mark.parametrize("trials", [60, pytest.param(250, marks=pytest.mark.campaign)])
@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_an_equal_head_is_offered_as_rarely_as_the_interval_says(world: World, trials: int) -> None:
    """With 60 trials roughly; test_false_offers draws the same worlds 2,000 times, without `compare`."""
    holds, better = shares(intervals(world, trials))
    assert holds >= 0.93 - 2.5 * math.sqrt(0.93 * 0.07 / trials)  # two and a half standard deviations
    # Fewer conversations give no verdict at all, so their interval offers nothing.
    allowed = 0.025 + 2.5 * math.sqrt(0.025 * 0.975 / trials)
    assert better <= allowed or world.conversations < FEWEST_CONVERSATIONS


def test_the_interval_is_over_conversations_and_says_so() -> None:
    measured = World(8, 10).draw(random.Random(1))
    row: ComparisonRecord = compare(PAIR, [measured], temperature=0.0)
    assert (row.over, row.units, row.conversations) == ("conversations", 8, 8)
    alone = Measured(ALONE)
    for runs in measured.runs.values():
        for run in runs:
            alone.take(replace(run, records=tuple(replace(each, conversation="") for each in run.records)))
    row = compare(PAIR, [alone], temperature=0.0)
    assert (row.over, row.units, row.conversations) == ("prompts", 80, 80)


@pytest.mark.parametrize("conversations", [FEWEST_CONVERSATIONS, 16])
def test_windows_that_share_conversations_do_not_hide_their_spread(conversations: int) -> None:
    """With several requests in flight the units are windows, and each has turns of every conversation."""
    holds, better = shares(intervals(World(conversations, 20), 100, EIGHT))
    assert holds >= 0.93 - 0.06
    assert better <= 0.025 + 0.045


def main() -> None:
    """Print a row for each world."""
    print("| conversations | turns | holds the truth | calls an equal head better | half width |")
    print("|---:|---:|---:|---:|---:|")
    for world in WORLDS:
        result = intervals(world, 1000)
        holds, better = shares(result)
        half = math.fsum(math.log(each.high / each.low) / 2 for each in result) / len(result)
        turns = f"about {world.turns}, uneven" if world.uneven else f"{world.turns}"
        print(f"| {world.conversations} | {turns} | {holds:.1%} | {better:.1%} | +-{half:.1%} |")


if __name__ == "__main__":
    main()
