"""A proof's figures by slice: computed from what was measured, stored, shown, and no part of the decision."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from peagle_bench.results.records import ArmRecord, Header, RequestRecord
from peagle_bench.results.result_file import Results
from peagle_learn.commands.prove import proof_data, render_proof
from peagle_learn.core.proof import (
    Bound,
    Proof,
    ProofCheck,
    ProofEvidence,
    Ratio,
    SetEvidence,
    SliceEvidence,
    Thresholds,
    decide,
    parse_proof,
)
from peagle_learn.evidence import CANDIDATE, SERVING, set_evidence
from tests.bench.compare.simulating import ALONE

ARMS = tuple(ArmRecord(name, "p-eagle", 7, name, usd_per_hour=1.0) for name in (SERVING, CANDIDATE))
LENGTHS = {"code": {SERVING: 2.0, CANDIDATE: 3.0}, "prose": {SERVING: 3.0, CANDIDATE: 2.0}}
TOKENS = 120


def requests(counts: dict[str, int]) -> Iterator[RequestRecord]:
    """Answers of both heads to some prompts of each category; a pass takes 10 ms."""
    rng = random.Random(1)
    for category, count in counts.items():
        lengths = LENGTHS.get(category, dict.fromkeys((SERVING, CANDIDATE), 2.5))
        for number in range(count):
            for arm in (SERVING, CANDIDATE):
                drafts = round(TOKENS / lengths[arm] * rng.uniform(0.95, 1.05))
                yield RequestRecord(
                    arm=arm,
                    load=ALONE,
                    phase="measured",
                    prompt_id=f"{category}-{number}",
                    due_s=0.0,
                    sent_s=0.0,
                    first_s=0.01,
                    last_s=drafts / 100,
                    done_s=drafts / 100,
                    input_tokens=20,
                    output_tokens=TOKENS,
                    chunks=TOKENS,
                    category=category,
                    drafts=drafts,
                    accepted=TOKENS - drafts,
                    slices={"language": "en"},
                )


def evidence(counts: dict[str, int]) -> SetEvidence:
    header = Header("run", "compare", {}, {}, True)
    return set_evidence(Results(header, ARMS, tuple(requests(counts))), 0.95)


def test_requests_that_the_serving_head_failed_are_counted_not_only_left_out() -> None:
    """It may fail just those on which the candidate is worse: what fails is no random choice."""
    every = [
        replace(each, error="StreamError") if each.arm == SERVING and each.prompt_id == "prose-0" else each
        for each in requests({"code": 20, "prose": 20})
    ]
    evidence = set_evidence(Results(Header("run", "compare", {}, {}, True), ARMS, tuple(every)), 0.95)
    assert (evidence.prompts, evidence.failed, evidence.serving_failed) == (39, 0, 1)


def proof(held_out: SetEvidence) -> Proof:
    fine = replace(held_out, acceptance=Ratio(1.2, 1.1, 1.3), speed=Ratio(1.1, 1.0, 1.2))
    proof_evidence = ProofEvidence(
        held_out=fine,
        general=replace(fine, slices=()),
        identity=(ProofCheck("greedy", True),),
    )
    bound = Bound("h" * 64, "s3://b/h/", "d" * 64, "tiny-code", None, "demo", "demo-1", 7)
    return Proof(
        bound,
        Thresholds(),
        proof_evidence,
        decide(proof_evidence, Thresholds()),
        "2026-11-26T00:00:00",
        "0.1.0",
    )


def test_the_candidate_is_compared_in_each_slice_with_intervals_that_cover_together() -> None:
    result = evidence({"code": 40, "prose": 20, "other": 3})
    by_name = {(each.dimension, each.value): each for each in result.slices}
    assert {dimension for dimension, _ in by_name} == {"category"}
    code, prose, other = (by_name["category", name] for name in ("code", "prose", "other"))
    assert [each.prompts for each in (code, prose, other)] == [40, 20, 3]
    for each, ratio in ((code, 1.5), (prose, 2 / 3)):
        assert each.acceptance is not None
        assert each.speed is not None
        assert each.acceptance.value == pytest.approx(ratio, rel=0.05)
        assert each.acceptance.low < each.acceptance.value < each.acceptance.high
        assert each.speed.value == pytest.approx(ratio, rel=0.05)
        assert each.confidence == pytest.approx(1 - 0.03 / 2)
    assert (other.acceptance, other.speed) == (None, None)
    assert [each.is_worse for each in (code, prose, other)] == [False, True, False]


def test_a_proof_shows_the_worse_slices_in_80_columns_has_all_in_json_and_decides_without_them() -> None:
    created = proof(evidence({"code": 40, "prose": 20, "other": 3}))
    assert created.decision.offered
    shown = render_proof(created)
    assert "3 slices, 1 worse" in shown
    assert "category: prose" in shown
    assert "category: code" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert parse_proof(created.to_json(), "proof.json") == created
    slices = json.loads(json.dumps(proof_data(created)))["evidence"]["held_out"]["slices"]
    assert {each["value"] for each in slices} == {"code", "prose", "other"}


def test_many_long_names_and_wide_figures_still_fit() -> None:
    ratio = Ratio(0.912, 0.801, 1.023)
    many = tuple(
        SliceEvidence(f"label of a team {n}", "a value of its own " * 4, 12_345, ratio, ratio, 0.999)
        for n in range(12)
    )
    held_out = SetEvidence(40, ratio, ratio, 2.0, 2.1, slices=many)
    shown = render_proof(proof(held_out))
    assert "(and 4 more)" in shown
    assert max(map(len, shown.splitlines())) <= 80
    better = tuple(replace(each, acceptance=Ratio(1.1, 1.0, 1.2), speed=None) for each in many)
    assert "12 slices, none worse" in render_proof(proof(replace(held_out, slices=better)))


def test_the_speed_beside_a_busy_serving_head_is_not_shown() -> None:
    shown = proof(evidence({"code": 40}))
    assert "1.100 [1.000, 1.200]" in render_proof(shown)
    busy = replace(shown.evidence, other_requests=2.0)
    text = render_proof(replace(shown, evidence=busy, decision=decide(busy, Thresholds())))
    assert "1.100 [1.000, 1.200]" not in text
    assert text.count("no verdict") == 3  # of each set, and the note
