"""The head is read from its files' headers before an engine starts with it."""

import json
from pathlib import Path
from typing import Any

import pytest

from peagle_sm.service.heads.checking import refused_head
from sagemaker_local.engine.checks import installed_checks, refusal_of
from tests.heads import head_config, safetensors, target_config, tensors_for, write_head

MOUNT = "/opt/ml/additional-model-data-sources/eagle"


def environment(**more: Any) -> dict[str, str]:
    config = {"method": "eagle3", "model": MOUNT, "num_speculative_tokens": 3, "parallel_drafting": True}
    return {"SM_VLLM_SPECULATIVE_CONFIG": json.dumps({**config, **more})}


@pytest.fixture
def head(tmp_path: Path) -> Path:
    target = tmp_path / "opt/ml/model"
    target.mkdir(parents=True)
    (target / "config.json").write_text(json.dumps(target_config()))
    return write_head(tmp_path / MOUNT.lstrip("/"))


def test_a_whole_head_is_accepted(tmp_path: Path, head: Path) -> None:
    assert refused_head(environment(), tmp_path) is None


def test_missing_weights_are_named(tmp_path: Path, head: Path) -> None:
    kept = {name: each for name, each in tensors_for(head_config()).items() if "norm" not in name}
    (head / "model.safetensors").write_bytes(safetensors(kept))
    assert refused_head(environment(), tmp_path) == (
        f"the draft head at {MOUNT} is unusable: norm.weight is missing; "
        "layers.0.input_layernorm.weight is missing; layers.0.post_attention_layernorm.weight is missing; "
        "layers.0.hidden_norm.weight is missing; layers.1.input_layernorm.weight is missing (and 1 more)"
    )


def test_a_head_without_any_weights_file_is_refused(tmp_path: Path, head: Path) -> None:
    (head / "model.safetensors").unlink()
    assert refused_head(environment(), tmp_path) == (
        f"the draft head at {MOUNT} is unusable: it has no .safetensors file"
    )


@pytest.mark.parametrize("cut", [1, 100])
def test_a_cut_download_is_refused(tmp_path: Path, head: Path, cut: int) -> None:
    whole = (head / "model.safetensors").read_bytes()
    (head / "model.safetensors").write_bytes(whole[:-cut])
    assert "is unusable: model.safetensors is cut short" in (refused_head(environment(), tmp_path) or "")


def test_a_head_of_another_target_is_refused(tmp_path: Path, head: Path) -> None:
    (tmp_path / "opt/ml/model/config.json").write_text(json.dumps({**target_config(), "hidden_size": 32}))
    assert "hidden states of size 16; the target has 32" in (refused_head(environment(), tmp_path) or "")


def test_a_p_eagle_head_without_parallel_drafting_is_refused(tmp_path: Path, head: Path) -> None:
    request = environment(parallel_drafting=False)
    assert "silently uses it as an autoregressive head" in (refused_head(request, tmp_path) or "")


def test_without_speculation_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    assert refused_head({}, tmp_path) is None
    assert refused_head({"SM_VLLM_SPECULATIVE_CONFIG": "no JSON"}, tmp_path) is None


def test_the_local_sagemaker_asks_it_before_it_starts_an_engine(tmp_path: Path, head: Path) -> None:
    checks = installed_checks()
    assert refused_head in checks, "the entry point of pyproject.toml: install the package again"
    assert refusal_of(checks, environment(), tmp_path) is None
    (head / "model.safetensors").unlink()
    assert "is unusable" in (refusal_of(checks, environment(), tmp_path) or "")
