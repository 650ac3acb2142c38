"""Whole reports, as they are read."""

from __future__ import annotations

import json

import pytest

from scripts.bench.comparison.run import Run
from scripts.bench.comparison.sample import Sample
from scripts.bench.comparison.summary import Arm, make_report
from scripts.bench.comparison.table import load_text, markdown, plain, ratio_text
from tests.scripts.bench.comparison.making import sample

ARMS = [Arm("tiny-none", "none"), Arm("tiny-eagle3", "eagle3", 5), Arm("tiny-p-eagle", "p-eagle", 7)]
TOKENS = tuple(range(16))


def made(different: bool = False) -> list[Sample]:
    """Six prompts; P-EAGLE is uniformly faster than none, and about as fast as EAGLE-3."""
    samples = []
    for number in range(6):
        ids = TOKENS if number % 3 else (1, 2) * 8
        odd = (*ids[:-1], 99) if different and number == 4 else ids
        prompt = f"p{number}"
        samples += [
            sample("tiny-none", prompt, 0.08, ids),
            sample("tiny-eagle3", prompt, 0.035 + 0.01 * (number % 2), ids, (1, 0, 1, 1, 0, 1)),
            sample("tiny-p-eagle", prompt, 0.04, odd, (1, 1, 1, 0, 1, 0, 0, 0)),
        ]
    return samples


TABLE = """\
made up, small stand-in weights
mode     K  OTPS  acceptance  target steps  draft passes             vs none               vs eagle3  distinct
                      length    /1k tokens    /1k tokens      [95% interval]          [95% interval]   4-grams
-------  -  ----  ----------  ------------  ------------  ------------------  ----------------------  --------
none     -   200        1.00          1000             0                   -                       -      0.72
eagle3   5   400        3.50           312          1250  2.00x [1.73, 2.31]                       -      0.72
p-eagle  7   400        2.75           312           250  2.00x [2.00, 2.00]  not shown [0.87, 1.15]      0.72
identical outputs: yes, 6 of 6 prompts (by token ids)
95% intervals over the prompts of this deployment only
load average (1 min), from before to after: 0.50 -> 1.25"""


def test_the_table_of_a_terminal() -> None:
    report = make_report("made up, small stand-in weights", ARMS, made())
    assert plain(report, (0.5, 1.25)) == TABLE


def test_the_same_as_markdown() -> None:
    lines = markdown(make_report("made up", ARMS, made())).splitlines()
    assert lines[0] == "**made up**"
    assert lines[3] == "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    assert lines[4] == "| none | - | 200 | 1.00 | 1000 | 0 | - | - | 0.72 |"
    assert lines[-1] == (
        "Identical outputs: yes, 6 of 6 prompts (by token ids). "
        "95% intervals over the prompts of this deployment only."
    )
    assert {line.count("|") for line in lines[2:7]} == {10}


def test_a_difference_is_named() -> None:
    report = make_report("made up", ARMS, made(different=True))
    assert not report.identical_outputs
    assert "identical outputs: NO, 5 of 6 prompts (by token ids); different on p4" in plain(report)


def test_the_least_repetitive_third_leaves_the_loops_out() -> None:
    run = Run("made up", tuple(ARMS), tuple(made()), (0.0, 0.0))
    third = run.least_repetitive()
    assert third.prompts == 2
    assert {arm.distinct_4_grams for arm in third.arms} == {1.0}
    assert third.title == "made up; least repetitive third of the prompts"


def test_a_run_is_json_with_every_sample() -> None:
    run = Run("made up", tuple(ARMS), tuple(made()), (0.5, 0.7))
    document = json.loads(json.dumps(run.to_dict()))
    assert len(document["samples"]) == 18
    assert document["load"] == {"before": 0.5, "after": 0.7}
    assert document["report"]["speed_ups"]["tiny-p-eagle"]["tiny-none"]["shown"] is True
    assert document["report"]["speed_ups"]["tiny-p-eagle"]["tiny-eagle3"]["shown"] is False


def test_an_arm_without_samples_is_an_error_not_a_row() -> None:
    with pytest.raises(ValueError, match="same prompts"):
        make_report("made up", ARMS, [row for row in made() if row.arm != "tiny-eagle3"])


def test_the_same_samples_give_the_same_report() -> None:
    assert make_report("a", ARMS, made()) == make_report("a", ARMS, made())


def test_words_for_ratios_and_load() -> None:
    assert ratio_text(None) == "-"
    assert load_text((1.0, 2.0)).endswith("1.00 -> 2.00")
