"""A head's two layouts, and heads that cannot be trained further for a target."""

from __future__ import annotations

import json
import shutil
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.core.heads.inspect import inspect_head
from peagle_sm.service.heads.checking import local_folder
from peagle_train import Mistake
from peagle_train.heads import library_name, read_head, unpacked, vllm_config, vllm_name
from peagle_train.target import fingerprint, read_target, tensors_of
from sagemaker_local.paths import weights_dir

TARGET, HEAD = weights_dir() / "target", weights_dir() / "p-eagle"


def test_names_go_to_the_librarys_and_back() -> None:
    for name in tensors_of(HEAD / "model.safetensors"):
        assert vllm_name(library_name(name)) == name
    assert library_name("midlayer.self_attn.q_proj.weight") == "model.layers.0.self_attn.q_proj.weight"
    assert library_name("mask_hidden") == "mask_hidden"
    assert vllm_name("model.fc.weight") == "fc.weight"


@given(st.sampled_from(["d2t", "t2d", "lm_head.weight", "norm.weight", "layers.3.mlp.up_proj.weight"]))
def test_a_name_without_a_first_layer_goes_there_and_back(name: str) -> None:
    assert vllm_name(library_name(name)) == name


def test_the_shipped_head_is_read() -> None:
    head = read_head(HEAD, read_target(TARGET))
    assert (head.layers, head.heads, head.kv_heads, head.inner) == (2, 16, 8, 768)
    assert (head.mask_token_id, head.aux_layer_ids) == (1, (1, 3, 5))


def test_the_config_for_vllm_is_that_of_the_shipped_head() -> None:
    shipped = json.loads((HEAD / "config.json").read_text())
    draft = {**shipped, "layer_types": ["sliding_attention"] * 2, "sliding_window": 16}
    created = vllm_config(draft, (1, 3, 5), 1)
    assert {key: shipped.get(key) for key in created if key in shipped} == {
        key: created[key] for key in created if key in shipped
    }
    assert "layer_types" not in created, "vLLM would take the target's window, which training has not"
    assert "sliding_window" not in created


def test_a_config_of_our_making_passes_heads_check(tmp_path: Path) -> None:
    shutil.copy(HEAD / "model.safetensors", tmp_path)
    shipped = json.loads((HEAD / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(vllm_config(shipped, (1, 3, 5), 1)))
    target = json.loads((TARGET / "config.json").read_text())
    report = inspect_head(local_folder(tmp_path), target=target, mode="p-eagle", num_speculative_tokens=7)
    assert [str(each) for each in report.faults if each.severity == "error"] == []


Change = Callable[[dict[str, Any]], None]


def _set(**values: Any) -> Change:
    return lambda config: config.update(values)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_set(hidden_size=512), "hidden_size is 512, the target has 256; it was trained for another target"),
        (_set(vocab_size=4096, draft_vocab_size=4096), "vocab_size is 4096, the target has 2048"),
        (_set(eagle_aux_hidden_state_layer_ids=[1, 3, 9]), "it reads layer 9, the target has 6"),
        (_set(eagle_aux_hidden_state_layer_ids=[1, 3]), "allowed: three layers"),
        (_set(ptd_token_id=None), "has no mask token: it was not trained to draft in parallel"),
        (_set(ptd_token_id=2048), "its mask token 2048 is not in the target's vocabulary"),
        (_set(norm_before_residual=True), "norm_before_residual is true, which NeMo AutoModel"),
        (_set(hidden_act="gelu"), "vLLM serves silu alone"),
        (_set(quantization_config={}), "its weights are quantised"),
        (_set(num_hidden_layers="2"), "num_hidden_layers is '2'; it is not in vLLM's layout"),
    ],
)
def test_a_head_that_does_not_fit(tmp_path: Path, change: Change, words: str) -> None:
    folder = shutil.copytree(HEAD, tmp_path / "head")
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(Mistake) as caught:
        read_head(folder, read_target(TARGET))
    assert words in str(caught.value)


def test_weights_that_are_cut_short_at_any_place(tmp_path: Path) -> None:
    folder = shutil.copytree(HEAD, tmp_path / "head")
    whole = (HEAD / "model.safetensors").read_bytes()
    for size in (0, 4, 8, 500, len(whole) // 2, len(whole) - 1):
        (folder / "model.safetensors").write_bytes(whole[:size])
        with pytest.raises(Mistake, match=r"model\.safetensors (cannot be read|is cut short)"):
            read_head(folder, read_target(TARGET))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2**62) + b"{}")
    with pytest.raises(Mistake, match="cannot be read"):
        read_head(folder, read_target(TARGET))


def test_a_jobs_archive_is_taken_as_the_head(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    with tarfile.open(given / "model.tar.gz", "w:gz") as archive:
        archive.add(HEAD / "config.json", "config.json")
    result = unpacked(given, tmp_path / "work")
    assert (result / "config.json").read_bytes() == (HEAD / "config.json").read_bytes()
    assert unpacked(HEAD, tmp_path / "other") == HEAD


def test_an_archive_that_writes_outside_itself_is_refused(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    with tarfile.open(given / "model.tar.gz", "w:gz") as archive:
        archive.add(HEAD / "config.json", "../outside.json")
    with pytest.raises(Mistake, match=r"model\.tar\.gz cannot be read"):
        unpacked(given, tmp_path / "work")
    assert not (tmp_path / "outside.json").exists()


def test_a_target_is_told_from_another(tmp_path: Path) -> None:
    copy = shutil.copytree(TARGET, tmp_path / "target")
    assert fingerprint(copy) == fingerprint(TARGET)
    weights = bytearray((copy / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copy / "model.safetensors").write_bytes(weights)
    assert fingerprint(copy) != fingerprint(TARGET)
