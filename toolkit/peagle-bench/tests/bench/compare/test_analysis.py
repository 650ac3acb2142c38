from __future__ import annotations

from dataclasses import replace

import pytest

from peagle_bench.compare.analysis import (
    ArmDeployments,
    Measured,
    Pair,
    compare,
    control_of,
    in_order,
    pairs_of,
)
from peagle_bench.load import ClientUsage, LoadRun, Window
from peagle_bench.load.points import with_doubts
from peagle_bench.results.records import ArmRecord, Load, Mode, RequestRecord
from tests.bench.compare.simulating import ALONE, EIGHT, request


def side(mode: Mode, *names: str) -> ArmDeployments:
    names = names or (mode,)
    return ArmDeployments(tuple(ArmRecord(name, mode, None, f"{name}-endpoint") for name in names))


PLAIN, EAGLE3, P_EAGLE = side("none"), side("eagle3"), side("p-eagle")
PAIR = Pair(P_EAGLE, PLAIN)


def answered(load: Load, records: dict[str, list[RequestRecord]], deployment: int = 0) -> Measured:
    return Measured(load, deployment, {arm: [window_run(arm, load, some)] for arm, some in records.items()})


def window_run(
    arm: str, load: Load, records: list[RequestRecord], block: int = 0, start: float = 0.0, end: float = 1.0
) -> LoadRun:
    return LoadRun(arm, load, block, tuple(records), Window(start, end, end - start), ClientUsage((), 0.0))


def turns(
    faster: str = "p-eagle",
    slower: str = "none",
    factor: float = 1.0,
    *,
    prompts: int = 8,
    deployment: int = 0,
) -> Measured:
    """Four prompts of two categories; the faster arm is 1.5 and 2 times as fast, and once as ``factor``."""
    records: dict[str, list[RequestRecord]] = {faster: [], slower: []}
    for number in range(prompts):
        category, gain = ("code", 2.0) if number % 2 else ("prose", 1.5)
        prompt, seconds = f"p{number}", 1 + number / 10
        records[slower].append(
            request(slower, prompt, seconds=seconds, category=category, output=f"sha{number}")
        )
        records[faster].append(
            request(
                faster,
                prompt,
                seconds=seconds / gain / factor,
                category=category,
                drafts=25,
                accepted=74,
                output=f"sha{number if number else 'x'}",
            )
        )
    return answered(ALONE, records, deployment)


def test_one_deployment_at_one_request_in_flight_is_over_prompts() -> None:
    result = compare(PAIR, [turns()], temperature=0)
    assert (result.faster, result.slower, result.over) == ("p-eagle", "none", "prompts")
    assert (result.units, result.deployments, result.control) == (8, 1, False)
    assert 1.5 < result.ratio.value < 2
    assert result.ratio.shown
    assert result.acceptance_ratio is not None
    assert result.step_time_ratio is not None
    assert result.acceptance_ratio.value == pytest.approx(99 / 25)
    assert result.acceptance_ratio.value * result.step_time_ratio.value == pytest.approx(result.ratio.value)
    assert (result.identical_outputs, result.compared_outputs) == (7, 8)


@pytest.mark.parametrize("load", [ALONE, EIGHT], ids=["alone", "eight"])
def test_only_conversations_that_both_arms_answered_are_counted(load: Load) -> None:
    """The slower arm fails 7 of 10 prompts: three are compared, too few for a verdict."""
    measured = turns(prompts=10)
    plain = [
        replace(each, error="StreamError" if number >= 3 else None)
        for number, each in enumerate(measured.requests("none"))
    ]
    runs = {"none": plain, "p-eagle": measured.requests("p-eagle")}
    halves = [
        window_run(arm, load, [replace(each, block=block) for each in records[block::2]], block, -1.0, 99.0)
        for arm, records in runs.items()
        for block in (0, 1)
    ]
    half = Measured(load)
    for run in halves:
        half.take(run)
    row = compare(PAIR, [half], temperature=0)
    assert row.conversations == 3
    (judged,) = with_doubts((), [row])
    assert judged.doubt is not None
    assert not judged.significant


def test_several_deployments_are_paired_by_prompt_and_told_as_such() -> None:
    plain, fast = side("none", "none", "none@2"), side("p-eagle", "p-eagle", "p-eagle@2")
    measured = [turns(), turns("p-eagle@2", "none@2", factor=1.1, deployment=1)]
    result = compare(Pair(fast, plain), measured, temperature=0)
    assert (result.over, result.units, result.deployments) == ("deployments", 2, 2)
    assert (result.faster, result.slower) == ("p-eagle", "none")
    alone = compare(PAIR, [turns()], temperature=0)
    assert result.ratio.high / result.ratio.low > alone.ratio.high / alone.ratio.low


WINDOWS = [(0, 0.0, 10.0), (0, 30.0, 40.0), (1, 50.0, 60.0), (1, 70.0, 80.0)]


def under_load() -> Measured:
    """Eight streams at a time; in each window of 10 s every one of them brings its tokens over 12 s."""
    return Measured(
        EIGHT,
        runs={
            arm: [
                window_run(
                    arm,
                    EIGHT,
                    [
                        request(
                            arm,
                            f"p{start}",
                            sent=start - 1,
                            seconds=12,
                            tokens=tokens,
                            load=EIGHT,
                            block=block,
                        )
                        for _ in range(8)
                    ],
                    block,
                    start,
                    end,
                )
                for block, start, end in WINDOWS
            ]
            for arm, tokens in (("p-eagle", 180), ("none", 120))
        },
    )


def test_under_load_blocks_are_the_units_and_the_clock_counts() -> None:
    result = compare(PAIR, [under_load()], temperature=0)
    assert (result.over, result.units) == ("blocks", 2)
    assert result.ratio.value == pytest.approx(1.5)


def test_a_block_that_was_cut_short_is_left_out() -> None:
    measured = under_load()
    assert measured.whole() == measured
    measured.runs["none"].pop()
    kept = measured.whole()
    assert [run.block for run in kept.runs["none"]] == [0, 0]
    assert [run.block for run in kept.runs["p-eagle"]] == [0, 0]


def test_too_little_in_common_is_refused() -> None:
    with pytest.raises(ValueError, match="measured in both arms: 0"):
        compare(PAIR, [answered(ALONE, {"p-eagle": [request("p-eagle", "p")], "none": []})], temperature=0)


def test_modes_are_compared_with_every_slower_one_and_a_control_with_what_it_repeats() -> None:
    sides = in_order([P_EAGLE, PLAIN, EAGLE3])
    pairs = pairs_of([*sides, control_of(sides[0])])
    assert [(pair.faster.name, pair.slower.name) for pair in pairs] == [
        ("eagle3", "none"),
        ("p-eagle", "none"),
        ("p-eagle", "eagle3"),
        ("none (A/A)", "none"),
    ]
    assert [pair.faster.is_control for pair in pairs] == [False, False, False, True]


@pytest.mark.parametrize("modes", [("p-eagle", "p-eagle"), ("p-eagle", "unknown")])
def test_without_a_mode_of_its_own_each_the_given_order_stays(modes: tuple[Mode, Mode]) -> None:
    sides = [side(mode, f"arm{number}") for number, mode in enumerate(modes)]
    assert in_order(sides) == sides
