"""What the headline says, and what it must not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peagle_bench.report.merging import view_of
from peagle_bench.report.tiles import tiles
from peagle_bench.report.verdict import verdict
from peagle_bench.results.records import Interval
from peagle_bench.results.result_file import Results
from tests.bench.report import making


def said(*files: Results) -> str:
    return verdict(view_of(files)).headline


def test_a_gain() -> None:
    result = verdict(view_of([making.compared()]))
    assert result.headline == "P-EAGLE is 1.36x EAGLE-3 [1.29, 1.44] at c=1, in this deployment"
    assert result.second == "At c=64: 1.08x [1.02, 1.14]."
    assert result.limits == (
        "synthetic data",
        "this deployment only",
        "95% interval over 96 prompts",
        "HumanEval",
        "temperature 0",
    )
    assert result.gain


def test_the_far_end_where_nothing_is_shown() -> None:
    result = verdict(view_of([making.compared(wide=1.1)]))
    assert result.second == "No significant difference at c=64: 1.08x [0.98, 1.18]."


@pytest.mark.parametrize(
    ("ratio", "headline", "gain"),
    [
        (
            Interval(0.98, 0.94, 1.03),
            "No significant difference between P-EAGLE and EAGLE-3: 0.98x [0.94, 1.03] at c=1,"
            " in this deployment",
            False,
        ),
        (
            Interval(0.89, 0.86, 0.92),
            "P-EAGLE is slower than EAGLE-3: 0.89x [0.86, 0.92] at c=1, in this deployment",
            False,
        ),
        (Interval(1.31, 1.2, 1.4), "P-EAGLE is 1.31x EAGLE-3 [1.20, 1.40] at c=1, in this deployment", True),
    ],
)
def test_the_sentence_follows_the_interval(ratio: Interval, headline: str, gain: bool) -> None:
    result = verdict(view_of([making.stand_in(ratio)]))
    assert (result.headline, result.gain) == (headline, gain)
    assert result.limits[0] == "synthetic data, small stand-in weights"


def test_points_alone_claim_no_difference() -> None:
    results = replace(making.compared(), comparisons=())
    result = verdict(view_of([results]))
    assert result.headline == "P-EAGLE: 545 tokens/s at c=1"
    assert "no confidence interval: use `peagle-sm compare`" in result.limits


def test_a_tuning_and_a_verification_speak_for_themselves() -> None:
    assert said(making.tuned()) == "Best K for P-EAGLE: 12 at c=1, 10 at c=8, 6 at c=32"
    assert said(making.verified()) == "9 of 10 checks passed; undecided: parameters (gpt-oss-20b-p-eagle)"


@pytest.mark.parametrize(("certain", "sure"), [(True, ""), (False, ", not certain")])
def test_a_tuning_names_the_k_that_it_writes_and_whether_it_is_certain(certain: bool, sure: str) -> None:
    results = making.tuned()
    fits = tuple(replace(each, chosen_k=8, certain=certain) for each in results.fits)
    loads = "; each load alone: 12 at c=1, 10 at c=8, 6 at c=32"
    assert said(replace(results, fits=fits)) == f"K=8 for P-EAGLE{sure}{loads}"
    alone = tuple(each for each in fits if each.load.concurrency == 1)
    assert said(replace(results, fits=alone)) == f"K=8 for P-EAGLE{sure}"


def test_a_proof_is_of_the_candidate_over_the_serving_head() -> None:
    results = making.stand_in(Interval(1.31, 1.2, 1.4))
    names = {"none": "plain", "eagle3": "serving", "p-eagle": "candidate"}
    arms = tuple(
        replace(
            each,
            name=names[each.mode],
            mode="none" if each.mode == "none" else "p-eagle",
            num_speculative_tokens=None if each.mode == "none" else 7,
        )
        for each in results.arms
    )
    new = {old.name: arm.name for old, arm in zip(results.arms, arms, strict=True)}
    rows = [
        replace(each, faster=new[each.faster], slower=new[each.slower])
        for each in results.comparisons
        if not each.control
    ]
    plain = replace(rows[0], faster="serving", slower="plain", ratio=Interval(2.0, 1.9, 2.1))
    proof = replace(rows[0], faster="candidate", slower="serving")
    for order in ((plain, proof), (proof, plain)):
        result = replace(results, arms=arms, points=(), comparisons=order, requests=())
        headline = said(result)
        assert "1.31x" in headline
        assert headline.index("candidate") < headline.index("serving")
        limits = verdict(view_of([result])).limits
        assert any("decides by acceptance" in each for each in limits), "a busy serving head looks slow"


def test_all_checks_passed_and_one_failed() -> None:
    passed = replace(making.verified(), checks=tuple(c for c in making.checks() if c.passed))
    assert said(passed) == ("Outputs are the target's own: 9 of 9 checks passed (gpt-oss-20b-p-eagle)")
    failed = replace(passed, checks=(replace(passed.checks[3], passed=False), *passed.checks))
    assert said(failed) == ("Outputs are NOT the target's own: tool calls failed (gpt-oss-20b-p-eagle)")


def test_the_checks_are_never_the_figure_left_out() -> None:
    shown = tiles(view_of([making.compared(), making.tuned(), making.verified()]))
    assert [tile.figure for tile in shown] == ["2.95x", "3.77", "0.14", "9 of 10"]


def test_an_endpoint_s_name_stays_as_it_is_written() -> None:
    created = making.stand_in()
    named = replace(created, comparisons=(), arms=tuple(replace(arm, mode="unknown") for arm in created.arms))
    assert said(named) == "tiny-eagle3: 301 tokens/s at c=1"
    plain = replace(created, comparisons=(), points=created.points[:1])
    assert said(plain) == "No speculation: 163 tokens/s at c=1"
