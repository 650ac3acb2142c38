"""200 damaged heads: files that show it are refused before an engine starts; none is offered unmeasured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from peagle_learn.core.proof import ProofEvidence, Thresholds, decide
from peagle_sm.aws.session.local_server import stand_in_weights
from peagle_sm.service.heads.checking import check_head
from scripts.bench.training import safety_record
from scripts.bench.training.damaged_heads import KINDS, STATIC, TRAINED, VARIANTS, Damage, make


@pytest.mark.parametrize("count", [36, pytest.param(200, marks=pytest.mark.campaign)])
@pytest.mark.slow
def test_no_damaged_head_is_offered_by_its_files_alone(tmp_path: Path, count: int) -> None:
    shipped = stand_in_weights()
    target = json.loads((shipped / "target" / "config.json").read_text())
    for what in map(Damage.of, range(count)):
        if what.variant in TRAINED:  # `scripts/learn-safety damage` trains and measures them
            continue
        folder = make(tmp_path / "head", what, shipped / "p-eagle")
        report = check_head(folder, target=target, mode="p-eagle", num_speculative_tokens=11)
        assert report.ok is not what.is_static, what
        if not report.ok:
            errors = tuple(each.message for each in report.faults if each.severity == "error")
            assert not decide(ProofEvidence(head_faults=errors), Thresholds()).offered
        shutil.rmtree(folder)
    # Whole files say nothing about what is in them: without a measurement there is no offer.
    assert not decide(ProofEvidence(), Thresholds()).offered


def test_the_seeds_have_every_kind_and_variant() -> None:
    seen = [Damage.of(seed) for seed in range(200)]
    assert {(each.kind, each.variant) for each in seen} == {
        (kind, variant) for kind in KINDS for variant in VARIANTS[kind]
    }
    assert TRAINED.isdisjoint(STATIC)


def test_the_page_counts_the_records_and_they_have_nothing_wrong() -> None:
    heads, kills = (safety_record.recorded(path) for path in (safety_record.HEADS, safety_record.KILLS))
    assert safety_record.PAGE.read_text() == safety_record.page(heads, kills)
    assert safety_record.wrong_heads(heads) == []
    assert [fault for row in kills for fault in row["faults"]] == []
    for row in heads:
        what = Damage.of(row["seed"])
        assert (row["kind"], row["variant"]) == (what.kind, what.variant)
        assert (row["decided_by"] == "files") == what.is_static
    assert len({row["seed"] for row in heads}) == len(heads)
