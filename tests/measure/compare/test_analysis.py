from __future__ import annotations

import pytest

from peagle_sm.measure.compare.analysis import Measured, compare
from peagle_sm.measure.compare.cells import Window
from peagle_sm.measure.compare.sides import Pair, Side, control_of, in_order, pairs_of
from peagle_sm.measure.records import ArmRecord, Mode, RequestRecord
from tests.measure.compare.simulating import ALONE, EIGHT, request


def side(mode: Mode, *names: str) -> Side:
    names = names or (mode,)
    return Side(tuple(ArmRecord(name, mode, None, f"{name}-endpoint") for name in names))


PLAIN, EAGLE3, P_EAGLE = side("none"), side("eagle3"), side("p-eagle")
PAIR = Pair(P_EAGLE, PLAIN)


def turns(faster: str = "p-eagle", slower: str = "none", factor: float = 1.0) -> Measured:
    """Four prompts of two categories; the faster arm is 1.5 and 2 times as fast, and once as ``factor``."""
    records: dict[str, list[RequestRecord]] = {faster: [], slower: []}
    for number in range(8):
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
    return Measured(ALONE, records)


def test_one_deployment_at_one_request_in_flight_is_over_prompts() -> None:
    found = compare(PAIR, [turns()], temperature=0)
    assert (found.faster, found.slower, found.over) == ("p-eagle", "none", "prompts")
    assert (found.units, found.deployments, found.control) == (8, 1, False)
    assert 1.5 < found.ratio.value < 2
    assert found.ratio.shown
    assert found.acceptance_ratio is not None
    assert found.step_time_ratio is not None
    assert found.acceptance_ratio.value == pytest.approx(99 / 25)
    assert found.acceptance_ratio.value * found.step_time_ratio.value == pytest.approx(found.ratio.value)
    assert (found.identical_outputs, found.compared_outputs) == (7, 8)


def test_each_category_has_its_own_ratio() -> None:
    found = compare(PAIR, [turns()], temperature=0)
    assert {name: round(one.value, 3) for name, one in found.categories.items()} == {
        "code": 2.0,
        "prose": 1.5,
    }


def test_a_category_of_one_prompt_is_left_out() -> None:
    measured = turns()
    for records in measured.requests.values():
        del records[3:]
    assert set(compare(PAIR, [measured], temperature=0).categories) == {"prose"}


def test_sampled_outputs_are_not_compared() -> None:
    assert compare(PAIR, [turns()], temperature=0.6).compared_outputs is None


def test_several_deployments_are_paired_by_prompt_and_told_as_such() -> None:
    plain, fast = side("none", "none", "none@2"), side("p-eagle", "p-eagle", "p-eagle@2")
    measured = [turns(), turns("p-eagle@2", "none@2", factor=1.1)]
    found = compare(Pair(fast, plain), measured, temperature=0)
    assert (found.over, found.units, found.deployments) == ("deployments", 2, 2)
    assert (found.faster, found.slower) == ("p-eagle", "none")
    alone = compare(PAIR, [turns()], temperature=0)
    assert found.ratio.high / found.ratio.low > alone.ratio.high / alone.ratio.low


def test_under_load_blocks_are_the_units_and_the_clock_counts() -> None:
    windows = [Window(0, 0, 10), Window(0, 30, 40), Window(1, 50, 60), Window(1, 70, 80)]
    records = {
        arm: [
            request(arm, f"p{number}", sent=window.began_s - 1, seconds=12, tokens=tokens, load=EIGHT,
                    block=window.block, chunks=1200, category="code")
            for number, window in enumerate(windows)
            for _ in range(8)
        ]
        for arm, tokens in (("p-eagle", 180), ("none", 120))
    }  # fmt: skip
    measured = Measured(EIGHT, records, {arm: windows for arm in records})
    found = compare(PAIR, [measured], temperature=0)
    assert (found.over, found.units) == ("blocks", 2)
    assert found.ratio.value == pytest.approx(1.5)
    assert found.categories == {}, "one category is all there is"


def test_too_little_in_common_is_refused() -> None:
    with pytest.raises(ValueError, match="share 0"):
        compare(PAIR, [Measured(ALONE, {"p-eagle": [request("p-eagle", "p")], "none": []})], temperature=0)


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
