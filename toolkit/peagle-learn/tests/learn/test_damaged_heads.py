"""200 damaged heads: files that show it are refused before an engine starts; none is offered unmeasured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from peagle_learn.core.proof import ProofEvidence, Thresholds, decide
from peagle_sm.aws.session.local_server import stand_in_weights
from peagle_sm.service.heads.checking import check_head
from tests.learn.damaged_heads import KINDS, VARIANTS, Damage, make


@pytest.mark.parametrize("count", [36, pytest.param(200, marks=pytest.mark.campaign)])
@pytest.mark.slow
def test_no_damaged_head_is_offered_by_its_files_alone(tmp_path: Path, count: int) -> None:
    shipped = stand_in_weights()
    target = json.loads((shipped / "target" / "config.json").read_text())
    for what in map(Damage.of, range(count)):
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
    seen = {(each.kind, each.variant) for each in map(Damage.of, range(36))}
    assert seen == {(kind, variant) for kind in KINDS for variant in VARIANTS[kind]}
