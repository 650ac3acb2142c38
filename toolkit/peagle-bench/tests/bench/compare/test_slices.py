"""Figures by slice: a slower slice is found, and many slices without a difference raise no alarm."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

from peagle_bench.commands.options import render_slices
from peagle_bench.compare.analysis import ArmDeployments, Measured, Pair, control_of
from peagle_bench.compare.slices import slices_of_pairs
from peagle_bench.dialogues import FEWEST_CONVERSATIONS
from peagle_bench.load import ClientUsage, LoadRun, Window
from peagle_bench.report.page import html_page
from peagle_bench.report.slices import data as slice_data
from peagle_bench.report.slices import sentences
from peagle_bench.results.records import ArmRecord, Header, Load, RequestRecord, SliceRecord
from peagle_bench.results.result_file import Results

ALONE, EIGHT = Load("closed", concurrency=1), Load("closed", concurrency=8)
NONE, P_EAGLE = ArmRecord("none", "none", None, "e0"), ArmRecord("p-eagle", "p-eagle", 7, "e1")
NOISE = 0.15  #: of a request's time; the mean of its factor is 1, so that the sums have the true ratio
PAIR = Pair(ArmDeployments((P_EAGLE,)), ArmDeployments((NONE,)))


def answer(arm: str, number: int, seconds: float, slices: dict[str, str], **more: object) -> RequestRecord:
    drafts, accepted = (25, 74) if arm == "p-eagle" else (None, None)
    base = RequestRecord(
        arm, ALONE, f"p{number}", "measured", 0, 0, 0.1, seconds, seconds, 100, 99, 9, drafts=drafts,
        accepted=accepted, output_sha256=f"sha{number}", slices=slices,
    )  # fmt: skip
    return replace(base, **more)  # type: ignore[arg-type]


def measured(records: list[RequestRecord], load: Load = ALONE, blocks: int = 1) -> Measured:
    result = Measured(load)
    for arm in ("none", "p-eagle"):
        for block in range(blocks):
            mine = [record for record in records if record.arm == arm][block::blocks]
            own = tuple(replace(record, load=load, block=block) for record in mine)
            result.take(LoadRun(arm, load, block, own, Window(0, 1, 1), ClientUsage((), 0)))
    return result


def traffic(
    draw: random.Random, gains: dict[str, float], prompts: int, dimensions: int = 1
) -> list[RequestRecord]:
    """Prompts of the scripts in ``gains``, and of ``dimensions`` labels that do not matter."""
    rows = []
    for number in range(prompts):
        script = list(gains)[number % len(gains)]
        slices = {"api": "chat", "script": script}
        slices |= {f"label:{d}": str(draw.randrange(4)) for d in range(dimensions)}
        seconds = draw.lognormvariate(0, 0.4)
        rows.append(answer("none", number, seconds, slices))
        rows.append(
            answer(
                "p-eagle",
                number,
                seconds / gains[script] * draw.lognormvariate(-(NOISE**2) / 2, NOISE),
                slices,
            )
        )
    return rows


def slices(records: list[RequestRecord]) -> dict[str, SliceRecord]:
    result = slices_of_pairs([(PAIR, [measured(records)])], temperature=0)
    return {f"{record.dimension}={record.value}": record for record in result}


def test_the_slice_in_which_speculation_costs_money_is_named_and_no_other() -> None:
    result = slices(traffic(random.Random(1), {"latin": 2.0, "han": 0.7}, 80))
    assert [name for name, record in result.items() if record.costs_money] == ["script=han"]
    assert result["script=latin"].speed_up is not None
    assert result["script=latin"].speed_up.low > 1.5
    (line,) = sentences(list(result.values()), [NONE, P_EAGLE])
    assert line.startswith("speculation costs money in script: han at c=1: the speed-up of p-eagle is 0.69x")
    assert "api=chat" not in result, "a dimension with one value shows nothing"


def test_all_intervals_of_a_run_cover_together() -> None:
    """100 runs of 20 slices without a difference: a false alarm in at most 5% of the runs, give or take."""
    draw = random.Random(20261124)
    alarms = 0
    for _ in range(100):
        result = slices(traffic(draw, {"latin": 1.0}, 64, dimensions=5))
        assert len(result) == 20
        alarms += any(record.speed_up is not None and record.speed_up.shown for record in result.values())
    # Binomial with p = 0.05 and n = 100: more than 11 in 1 of 200 samples.
    assert alarms <= 11


def test_one_interval_alone_has_the_confidence_of_all() -> None:
    records = traffic(random.Random(2), {"latin": 1.3, "han": 1.3}, 40, dimensions=0)
    alone = [record for record in records if record.slices["script"] == "latin"]
    few = [replace(record, slices={"script": "han"}) for record in alone[: 2 * (FEWEST_CONVERSATIONS - 1)]]
    for at, record in enumerate(few):
        few[at] = replace(record, prompt_id=f"few{record.prompt_id}")
    result = slices([*alone, *few])
    assert result["script=latin"].confidence == pytest.approx(0.97)
    assert result["script=han"].speed_up is None, "too few prompts"
    assert result["script=han"].prompts == FEWEST_CONVERSATIONS - 1


def test_the_mean_of_both_answers_decides_the_slice_of_a_prompt() -> None:
    """So both arms of a slice answered the same prompts, and none is chosen for its own long answers."""
    records = [
        answer(
            arm, number, 1.0, {"api": "chat"}, output_tokens=306 if arm == "p-eagle" or number % 2 else 200
        )
        for number in range(32)
        for arm in ("none", "p-eagle")
    ]
    result = slices(records)
    assert (result["output tokens=below 256"].prompts, result["output tokens=256 to 1k"].prompts) == (16, 16)


def test_acceptance_and_identical_answers_are_those_of_the_slice() -> None:
    records = traffic(random.Random(3), {"latin": 1.5, "han": 1.2}, 40, dimensions=0)
    records = [
        replace(record, accepted=25, histogram=(0, 25))
        if record.arm == "p-eagle" and record.slices["script"] == "han"
        else record
        for record in records
    ]
    records = [
        replace(record, output_sha256="x") if record.arm == "p-eagle" and record.prompt_id == "p1" else record
        for record in records
    ]
    result = slices(records)
    latin, han = result["script=latin"], result["script=han"]
    assert latin.acceptance_length is not None
    assert han.acceptance_length is not None
    assert (latin.acceptance_length.value, han.acceptance_length.value) == (pytest.approx(99 / 25), 2.0)
    assert (latin.identical_outputs, latin.compared_outputs) == (20, 20)
    assert (han.identical_outputs, han.compared_outputs) == (19, 20)


def test_a_property_with_many_values_has_twenty_and_the_rest_is_other() -> None:
    records = [
        replace(record, category=f"{int(record.prompt_id[1:]) % 200:03}" if number % 3 else "often")
        for number, record in enumerate(traffic(random.Random(2), {"latin": 2.0}, 600, dimensions=0))
    ]
    # Both answers to a prompt have its category.
    category = {record.prompt_id: record.category for record in records}
    result = slices([replace(record, category=category[record.prompt_id]) for record in records])
    values = [name.removeprefix("category=") for name in result if name.startswith("category=")]
    assert len(values) == 21
    assert {"often", "other"} <= set(values)
    assert sum(result[f"category={value}"].prompts for value in values) == 600


def test_controls_are_left_out() -> None:
    control = Pair(control_of(PAIR.slower), PAIR.slower)
    records = traffic(random.Random(4), {"latin": 1.5, "han": 1.2}, 40)
    assert slices_of_pairs([(control, [measured(records)])], temperature=0) == []


def test_at_several_requests_in_flight_the_units_are_blocks() -> None:
    records = traffic(random.Random(5), {"latin": 2.0, "han": 0.7}, 240, dimensions=0)
    result = slices_of_pairs([(PAIR, [measured(records, EIGHT, blocks=12)])], temperature=0)
    assert {record.value: record.costs_money for record in result} == {"latin": False, "han": True}


def results(records: list[RequestRecord], command: str = "compare") -> Results:
    result = slices_of_pairs([(PAIR, [measured(records)])], temperature=0) if command == "compare" else ()
    arms = (NONE, P_EAGLE) if command == "compare" else (P_EAGLE,)
    return Results(Header("r", command, {}, {}, False), arms, tuple(records), slices=tuple(result))


def test_the_whole_of_a_comparison_by_slice() -> None:
    message = render_slices(results(traffic(random.Random(1), {"latin": 2.0, "han": 0.7}, 80, dimensions=0)))
    assert message == (
        "p-eagle over none at c=1, by slice:\n"
        "SLICE          PROMPTS      X  INTERVAL      ACCEPTED  RESULT\n"
        "script: han         40  0.68x  [0.63, 0.72]      3.96  slower\n"
        "script: latin       40  2.07x  [1.92, 2.23]      3.96  faster\n"
        "(The intervals are wider than usual, so that all of them hold together with 95%\n"
        "confidence (Bonferroni).)\n"
        "speculation costs money in script: han at c=1: the speed-up of p-eagle is 0.68x\n"
        "[0.63, 0.72]"
    )


def test_the_data_says_where_it_costs_money_and_the_page_has_a_row_a_slice() -> None:
    result = results(traffic(random.Random(1), {"latin": 2.0, "han": 0.7}, 80, dimensions=0))
    assert {record["value"]: (record["verdict"], record["costs_money"]) for record in slice_data(result)} == {
        "latin": ("faster", False),
        "han": ("slower", True),
    }
    page = html_page([result])
    assert "By slice of the traffic" in page
    assert all(f">{word}</th>" in page for word in ("script", "han", "latin"))


def test_the_page_has_each_figure_of_a_slice_with_its_interval() -> None:
    page = html_page([results(traffic(random.Random(1), {"latin": 2.0, "han": 0.7}, 80, dimensions=0))])
    drawn, folded = re.findall(r"<tr><th[^>]*>(?:script: )?han</th>(.*?)</tr>", page.replace("\n", ""))
    assert "costs money" in drawn
    assert "<strong>0.68x</strong>" in drawn
    cells = re.findall(r"<td[^>]*>(.*?)</td>", folded)
    assert cells == ["40", "0.68x", "[0.63, 0.72]", "3.96", "[3.96, 3.96]", "40 of 40", "[88%, 100%]"]


def test_the_terminal_stays_within_80_columns() -> None:
    labels = {"16k to 64k": 2.0, "half or more": 0.7}
    lines = render_slices(results(traffic(random.Random(1), labels, 80))).splitlines()
    assert max(map(len, lines)) <= 80
