"""The pages of what the tutorial's training gained: from a folder to a record, and from that to the pages."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from peagle_learn.core.proof import (
    Bound,
    Proof,
    ProofCheck,
    ProofDecision,
    ProofEvidence,
    Ratio,
    SetEvidence,
    Thresholds,
    decide,
)
from peagle_sm.core.errors import SpecError
from scripts.bench.house_style import learn_yaml
from scripts.bench.learn_record import read_run
from scripts.reference_pages.learning_gain import BEGIN, END, gain_page, tutorial_page

HEAD = "s3://b/learn/house-style/jobs/j/output/model.tar.gz"
ORIGIN = {
    "date": "2026-11-28T12:00:00+00:00",
    "seed": 0,
    "note": "Nothing else ran.",
    "machine": {"cores": 2, "processor": "AMD EPYC"},
    "versions": {"peagle-sm": "0.1.0"},
}
SECONDS = {"server": 10.0, "deploy": 40.0, "data": 222.0, "train": 444.0, "prove": 876.0}


def measured(value: float) -> SetEvidence:
    ratio = Ratio(value, value - 0.05, value + 0.05)
    return SetEvidence(37, ratio, ratio, 1.57, 1.57 * value, identical=30, compared=37)


def proof(evidence: ProofEvidence) -> Proof:
    bound = Bound("h", "s3://b/h/", "d", "smollm2-135m-instruct", None, "learn-demo", "c", 5)
    decision = decide(evidence, Thresholds(most_general_loss=0.05))
    return Proof(bound, Thresholds(most_general_loss=0.05), evidence, decision, ORIGIN["date"], "0.1.0")  # type: ignore[arg-type]


OFFERED = ProofEvidence(
    held_out=measured(1.62),
    general=measured(1.04),
    long_context=measured(1.01),
    identity=(ProofCheck("greedy", True, "30 of 32 prompts answered with identical tokens"),),
    trained_apart=True,
    other_requests=0.0,
)


def finished(folder: Path, *proofs: Proof) -> Path:
    """Write what `learn run` leaves in its folder."""
    work = folder / ".peagle-learn" / "house-style"
    fetched = work / "fetched" / hashlib.sha256(HEAD.encode()).hexdigest()[:16]
    files = ("training/train.tokens.jsonl", "validation/held-out.tokens.jsonl")
    manifest = {
        "data": "d",
        "sources": {"/somewhere/traffic.jsonl": "e"},
        "settings": {"max_tokens": 96},
        "files": {name: {"rows": 175 - 138 * place, "tokens": 9000} for place, name in enumerate(files)},
        "sets": [
            {"name": "training", "prompts": 123},
            {"name": "held out", "prompts": 37},
            {"name": "general, trained", "prompts": 52},
        ],
    }
    training = {
        "settings": {"micro_batch_size": 1, "grad_accumulation_steps": 4, "learning_rate": 0.0005},
        "libraries": {"torch": "2.13.0+cpu"},
        "steps": 88,
        "parameters": 13349952,
        "seconds": 300.0,
        "peak_memory_gib": 3.1,
        "history": {"validation": [{"step": 0, "loss": 2.5, "accuracy": 0.4}, {"step": 88, "loss": 1.25}]},
    }
    texts: dict[Path, Any] = {
        work / "state.json": {"steps": {"train": {"result": {"head": HEAD}}}},
        work / "data" / "manifest.json": manifest,
        fetched / "training.json": training,
    }
    for path, document in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document))
    (work / "proofs").mkdir(parents=True)
    for number, each in enumerate(proofs):
        (work / "proofs" / f"{number}.json").write_text(each.to_json())
    (folder / "learn.yaml").write_text(learn_yaml())
    return folder


def test_the_pages_have_the_figures_of_a_run(tmp_path: Path) -> None:
    record = json.loads(json.dumps(read_run(finished(tmp_path, proof(OFFERED)), SECONDS, 2, ORIGIN)))
    text = gain_page(record)
    assert (
        "| held-out questions to the shop | 37 | 1.57 | 2.54 | 1.62 [1.57, 1.67] | 1.62 [1.57, 1.67] |"
        in text
    )
    assert "| training | 7.4 | 88 steps of 4 answers, rate 0.0005; 13,349,952 parameters" in text
    for figure in (
        "212 answers",
        "2.50 to 1.25",
        "5 draft tokens",
        "64 tokens",
        "with 1 stop",
        "was offered",
    ):
        assert figure in " ".join(text.split())
    assert "NNN" not in text
    page = tutorial_page(f"before\n{BEGIN}\nold\n{END}\nafter\n", record)
    assert "26.5 minutes" in page
    assert "old" not in page


def test_a_head_that_was_not_offered_is_shown_with_the_reason(tmp_path: Path) -> None:
    hopeless = ProofEvidence(held_out=measured(0.5), hopeless=Ratio(0.5, 0.4, 0.6))
    earlier = replace(proof(OFFERED), made_at="2026-11-27T12:00:00+00:00")
    record = read_run(finished(tmp_path, proof(hopeless), earlier), SECONDS, 1, ORIGIN)
    assert record["proof"]["decision"] != ProofDecision(True, ())
    text = gain_page(record)
    assert "**not** offered" in text
    assert "out of reach" in " ".join(text.split())
    assert "| general" not in text


def test_without_a_record_every_figure_is_missing() -> None:
    text = gain_page(None)
    assert text.count("NNN") > 15
    assert tutorial_page(f"{BEGIN}\n{END}\n", None).count("NNN") > 10


def test_a_folder_without_a_finished_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="found 0 runs"):
        read_run(tmp_path, SECONDS, 1, ORIGIN)
    with pytest.raises(SpecError, match="lacks a part of a finished run"):
        read_run(finished(tmp_path), SECONDS, 1, ORIGIN)
