"""200 damaged heads: files that show it are refused before an engine starts; none is offered unmeasured."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from peagle_sm.aws.session.local_server import stand_in_weights
from peagle_sm.core.learn.proof import ProofEvidence, Thresholds, decide
from peagle_sm.service.heads.checking import check_head
from tests.learn.damaged import KINDS, STATIC, make, read


@pytest.mark.parametrize("count", [24, pytest.param(200, marks=pytest.mark.campaign)])
@pytest.mark.slow
def test_no_damaged_head_is_offered_by_its_files_alone(tmp_path: Path, count: int) -> None:
    shipped = stand_in_weights()
    config = json.loads((shipped / "p-eagle" / "config.json").read_text())
    target = json.loads((shipped / "target" / "config.json").read_text())
    tensors = read(shipped / "p-eagle" / "model.safetensors")
    refused, passed = Counter[str](), list[str]()
    for seed in range(count):
        kind = KINDS[seed % len(KINDS)]
        folder = make(tmp_path / "head", kind, seed, config, tensors)
        report = check_head(folder, target=target, mode="p-eagle", num_speculative_tokens=11)
        if report.ok:
            passed.append(kind)
        else:
            refused[kind] += 1
            errors = tuple(each.message for each in report.faults if each.severity == "error")
            assert not decide(ProofEvidence(head_faults=errors), Thresholds()).offered
        shutil.rmtree(folder)
    made = Counter(KINDS[seed % len(KINDS)] for seed in range(count))
    assert {kind: refused[kind] for kind in STATIC} == {kind: made[kind] for kind in STATIC}
    assert set(passed) <= set(KINDS) - set(STATIC)
    # Whole files say nothing about what is in them: without a measurement there is no offer.
    assert not decide(ProofEvidence(), Thresholds()).offered
