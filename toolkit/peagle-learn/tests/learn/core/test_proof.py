"""The decision: what is missing, worse or uncertain is never offered, and a proof holds for one head only."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.dialogues import FEWEST_CONVERSATIONS
from peagle_learn.core.proof import (
    UNKNOWN_TRAINING,
    Bound,
    Proof,
    ProofCheck,
    ProofDecision,
    ProofEvidence,
    Ratio,
    SetEvidence,
    Thresholds,
    decide,
    faults_of,
    head_hash,
    parse_proof,
)
from peagle_sm.core.errors import SpecError

GOOD = ProofEvidence(
    held_out=SetEvidence(40, Ratio(1.12, 1.08, 1.16), Ratio(1.1, 1.0, 1.2), 3.0, 3.36),
    general=SetEvidence(40, Ratio(1.0, 0.985, 1.015), Ratio(1.0, 0.95, 1.05), 3.0, 3.0),
    long_context=SetEvidence(20, Ratio(1.0, 0.9, 1.1), None, 2.5, 2.5),
    identity=(ProofCheck("greedy", True), ProofCheck("long-context", True)),
    trained_apart=True,
    other_requests=0.0,
)
WANTED = Thresholds()
BOUND = Bound("ab" * 32, "s3://b/h/", "cd" * 32, "tiny-code", None, "demo", "demo-1", 11)


def proof(evidence: ProofEvidence = GOOD, **more: Any) -> Proof:
    values = {"made_at": "2026-11-24T15:00:00+00:00", "tool_version": "0.1.0", **more}
    return Proof(BOUND, WANTED, evidence, decide(evidence, WANTED), **values)


def test_a_good_head_is_offered() -> None:
    assert decide(GOOD, WANTED) == ProofDecision(True, ())


def test_a_proof_of_a_version_that_had_other_notes_is_read() -> None:
    unknown = replace(GOOD, trained_apart=None)
    assert decide(unknown, WANTED) == ProofDecision(True, (), (UNKNOWN_TRAINING,))
    older = replace(proof(unknown), decision=ProofDecision(True, ()))
    assert parse_proof(older.to_json(), "proof.json") == older


def test_the_speed_beside_a_head_with_other_traffic_is_no_verdict_but_may_refuse() -> None:
    """An idle candidate looks faster than a serving head that others use, too: 1.235 at equal acceptance."""
    for busy, says in ((1.5, ["speed: no verdict"]), (None, ["not known"]), (0.0, [])):
        result = decide(replace(held_out(speed=Ratio(1.235, 1.2, 1.27)), other_requests=busy), WANTED)
        assert result.offered
        assert len(result.notes) == len(says)
        assert all(words in note for words, note in zip(says, result.notes, strict=True))
    slower = decide(replace(held_out(speed=Ratio(0.9, 0.85, 0.95)), other_requests=1.5), WANTED)
    assert not slower.offered, "the traffic of others slows the serving head alone"


def held_out(**more: Any) -> ProofEvidence:
    assert GOOD.held_out is not None
    return replace(GOOD, held_out=replace(GOOD.held_out, **more))


def general(**more: Any) -> ProofEvidence:
    assert GOOD.general is not None
    return replace(GOOD, general=replace(GOOD.general, **more))


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        (
            ProofEvidence(head_faults=("model.safetensors is cut short",)),
            "heads check: model.safetensors is cut short",
        ),
        (ProofEvidence(), "verify: the answers were not compared with the target's own"),
        (
            replace(GOOD, identity=(ProofCheck("greedy", False, "3 of 32 differ"),)),
            "verify: greedy failed: 3 of 32 differ",
        ),
        (replace(GOOD, identity=(ProofCheck("greedy", None),)), "verify: greedy could not decide"),
        (replace(GOOD, held_out=None), "held-out prompts were not measured"),
        (replace(GOOD, general=None), "general prompts were not measured"),
        (held_out(failed=1), "held-out prompts: 1 requests of the candidate failed"),
        (held_out(serving_failed=2), "held-out prompts: 2 requests of the serving head failed"),
        (general(serving_failed=2), "general prompts: 2 requests of the serving head failed"),
        (held_out(prompts=7), "held-out prompts: 7 were measured; at least 8 are needed"),
        (held_out(acceptance=None), "held-out prompts: the answers report no drafts"),
        (held_out(speed=None), "held-out prompts: the speed was not measured"),
        (held_out(acceptance=Ratio(1.05, 0.999, 1.1)), "held-out prompts: acceptance 1.050 [0.999, 1.100]"),
        (held_out(speed=Ratio(0.9, 0.85, 0.95)), "significantly slower, 0.900 [0.850, 0.950]"),
        (replace(GOOD, canary_fault="speculation is off"), "canary: speculation is off"),
        (
            replace(held_out(prompts=16), hopeless=Ratio(0.5, 0.4, 0.6)),
            "held-out prompts: the measurement ended after 16: acceptance 0.500 [0.400, 0.600] times that of"
            " the serving head (99.9% interval), so 1 is out of reach; nothing else was measured",
        ),
        (general(acceptance=Ratio(1.0, 0.97, 1.03)), "general prompts: acceptance 1.000 [0.970, 1.030]"),
        (
            replace(GOOD, long_context=SetEvidence(20, Ratio(0.5, 0.4, 0.6), None)),
            "long prompts: acceptance 0.500 [0.400, 0.600] times that of the serving head, significantly"
            " worse",
        ),
    ],
)
def test_each_fault_refuses_with_its_reason(evidence: ProofEvidence, reason: str) -> None:
    result = decide(evidence, WANTED)
    assert not result.offered
    assert any(reason in each for each in result.reasons), result.reasons


NUMBER = st.floats(0.2, 3.0) | st.sampled_from([math.nan, math.inf, 0.0, -1.0])
RATIO = st.none() | st.builds(Ratio, NUMBER, NUMBER, NUMBER)
SET = st.none() | st.builds(
    SetEvidence, st.integers(0, 60), RATIO, RATIO, st.none(), st.none(), st.integers(0, 2)
)
CHECK = st.builds(ProofCheck, st.sampled_from(["greedy", "streaming"]), st.sampled_from([True, False, None]))
EVIDENCE = st.builds(
    ProofEvidence,
    st.lists(st.just("bad"), max_size=1).map(tuple),
    SET,
    SET,
    SET,
    st.lists(CHECK, max_size=2).map(tuple),
    st.none() | st.just("speculation is off"),
    RATIO,
)


@given(EVIDENCE, st.floats(0, 0.3), st.floats(0, 0.3))
def test_whatever_is_offered_passed_everything(evidence: ProofEvidence, gain: float, loss: float) -> None:
    """Written from the issue: significantly better, at most ``loss`` worse, identical, every check passed."""
    decision = decide(evidence, Thresholds(0.95, gain, loss))
    assert decision.offered == (not decision.reasons)
    if not decision.offered:
        return
    assert not evidence.head_faults
    assert (evidence.canary_fault, evidence.hopeless) == (None, None)
    assert evidence.identity
    assert all(check.passed is True for check in evidence.identity)
    assert evidence.held_out is not None
    assert evidence.general is not None
    for one in (evidence.held_out, evidence.general):
        assert one.prompts >= FEWEST_CONVERSATIONS
        assert one.failed == 0
        assert one.acceptance is not None
        assert one.speed is not None
    assert evidence.held_out.acceptance is not None
    assert evidence.held_out.acceptance.low > 1 + gain
    assert evidence.general.acceptance is not None
    assert evidence.general.acceptance.low >= 1 - loss
    assert evidence.held_out.speed is not None
    assert evidence.held_out.speed.high >= 1


@given(EVIDENCE)
def test_a_proof_is_read_back_as_it_was_written(evidence: ProofEvidence) -> None:
    text = proof(evidence).to_json()
    assert parse_proof(text, "p").to_json() == text


def test_an_edited_proof_is_none() -> None:
    refused = replace(GOOD, held_out=None)
    document = json.loads(proof(refused).to_json())
    document["decision"] = {"offered": True, "reasons": [], "notes": []}
    with pytest.raises(SpecError, match="it was changed after it was written"):
        parse_proof(json.dumps(document), "p.json")
    sealed = replace(proof(refused), decision=ProofDecision(True, ())).to_json()
    with pytest.raises(SpecError, match="its decision does not follow from its evidence"):
        parse_proof(sealed, "p.json")
    for text in ("", "{}", "[]", '{"schema": "peagle-sm/learn-proof/2"}'):
        with pytest.raises(SpecError, match="is not a proof"):
            parse_proof(text, "p.json")


@pytest.mark.parametrize("name", [each.name for each in fields(Bound)])
def test_a_proof_holds_for_exactly_what_it_was_made_with(name: str) -> None:
    assert faults_of(proof(), BOUND, WANTED) == ()
    changed: dict[str, Any] = {name: 3 if name == "num_speculative_tokens" else "other"}
    other = replace(BOUND, **changed)
    assert len(faults_of(proof(), other, WANTED)) == 1


def test_a_head_that_was_not_offered_cannot_be_promoted() -> None:
    assert "the head was not offered" in faults_of(proof(replace(GOOD, held_out=None)), BOUND, WANTED)[0]
    stricter = faults_of(proof(), BOUND, Thresholds(0.95, 0.2, 0.0))
    assert len(stricter) == 2
    assert all("learn.yaml now asks for more" in each for each in stricter)


def test_the_hash_of_a_head_is_of_what_the_engine_loads() -> None:
    files = {"config.json": "a", "model.safetensors": "b", "README.md": "c", "manifest.json": "d"}
    assert head_hash(files) == head_hash({**files, "README.md": "x", "training.json": "y"})
    assert head_hash(files) != head_hash({**files, "model.safetensors": "x"})
    assert head_hash(files) != head_hash({**files, "config.json": "x"})
