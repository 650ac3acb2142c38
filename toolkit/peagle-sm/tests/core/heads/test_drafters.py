"""Drafters of the other modes: recognised by their config, compared with the mode and the target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from peagle_sm.core.heads.inspect import inspect_head
from peagle_sm.core.heads.layout import HeadReport
from peagle_sm.core.spec.modes import Mode
from tests.heads import (
    HIDDEN,
    VOCAB,
    filled,
    folder_of,
    head_config,
    speculators_config,
    target_config,
)

_QWEN = head_config(parallel=False, model_type="qwen3")
DFLASH = {**_QWEN, "architectures": ["DFlashDraftModel"], "block_size": 8}
DSPARK = {**_QWEN, "architectures": ["Qwen3DSparkModel"], "block_size": 7}
SPECULATORS_DSPARK = speculators_config(speculators_model_type="dspark")
ASSISTANT = {
    "architectures": ["Gemma4AssistantForCausalLM"],
    "model_type": "gemma4_assistant",
    "backbone_hidden_size": HIDDEN,
    "text_config": {"hidden_size": 8, "num_hidden_layers": 4, "vocab_size": VOCAB},
}
SMALL = {**head_config(parallel=False), "architectures": ["LlamaForCausalLM"]}


def report_of(tmp_path: Path, config: dict[str, Any], mode: Mode | None = None, **more: Any) -> HeadReport:
    folder = folder_of(tmp_path, config=config, tensors={"fc.weight": filled((4, 4))})
    return inspect_head(folder, mode=mode, target=target_config(), **more)


def errors(report: HeadReport) -> list[str]:
    return [fault.check for fault in report.faults if fault.severity == "error"]


@pytest.mark.parametrize(
    ("config", "mode", "trained", "vllm"),
    [
        (DFLASH, "dflash", 7, "0.20.0"),
        ({**DFLASH, "dflash_config": {"sample_from_anchor": True}}, "dflash", 8, "0.20.0"),
        (DSPARK, "dspark", 7, "0.25.0"),
        (SPECULATORS_DSPARK, "dspark", 8, "0.25.0"),
        (ASSISTANT, "mtp", None, "0.21.0"),
    ],
)
def test_a_config_names_its_mode(
    tmp_path: Path, config: dict[str, Any], mode: Mode, trained: int | None, vllm: str
) -> None:
    report = report_of(tmp_path, config)
    assert (report.method, report.trained_k, report.vllm) == (mode, trained, vllm)
    assert errors(report) == []
    assert "layout" in [fault.check for fault in report.faults], "the report says what is not checked"


def test_another_mode_is_refused_with_the_one_to_set(tmp_path: Path) -> None:
    report = report_of(tmp_path, DFLASH, "p-eagle")
    assert errors(report) == ["method"]
    assert report.faults[0].next_step.startswith("Set speculation.mode: dflash")


def test_an_eagle_head_is_no_drafter_of_another_mode(tmp_path: Path) -> None:
    report = report_of(tmp_path, head_config(), "dspark")
    assert "format" in errors(report)
    assert "Qwen3DSparkModel" in report.faults[0].message


def test_a_block_drafts_no_more_than_it_was_trained_for(tmp_path: Path) -> None:
    assert errors(report_of(tmp_path, DFLASH, num_speculative_tokens=8)) == ["trained-k"]
    assert errors(report_of(tmp_path, DFLASH, num_speculative_tokens=7)) == []


@pytest.mark.parametrize(
    ("config", "mode", "check"),
    [
        ({**DFLASH, "target_hidden_size": 8}, None, "target-size"),
        ({**ASSISTANT, "backbone_hidden_size": 8}, None, "target-size"),
        ({**SMALL, "vocab_size": 32}, "draft-model", "target-vocabulary"),
    ],
)
def test_a_drafter_of_another_target_is_refused(
    tmp_path: Path, config: dict[str, Any], mode: Mode | None, check: str
) -> None:
    assert errors(report_of(tmp_path, config, mode)) == [check]


def test_any_model_of_the_targets_vocabulary_may_draft(tmp_path: Path) -> None:
    report = report_of(tmp_path, SMALL, "draft-model")
    assert (report.method, errors(report)) == ("draft-model", [])
