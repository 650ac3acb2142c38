"""Every head that vLLM is known to choke on, or to load in silence and draft nonsense with, is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from peagle_sm.core.heads.inspect import inspect_head
from peagle_sm.core.heads.layout import HeadRefused, read_layout
from tests.heads import (
    DRAFT,
    HIDDEN,
    VOCAB,
    filled,
    flags,
    folder_of,
    head_config,
    integers,
    safetensors,
    speculators_config,
    target_config,
    tensors_for,
)

Tensors = dict[str, tuple[str, tuple[int, ...], bytes]]


@dataclass(frozen=True)
class Bad:
    """How a head is broken, and what is said of it."""

    code: str
    message: str
    config: dict[str, Any] | None = None
    change: Callable[[Tensors], object] = lambda tensors: None
    files: Callable[[], dict[str, str | bytes]] = dict
    mode: str = "p-eagle"
    k: int | None = None


def without(*names: str) -> Callable[[Tensors], object]:
    return lambda tensors: [tensors.pop(name) for name in names]


def drop(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in keys}


OFFSETS = [5] * DRAFT
INDEX = {"weight_map": {"fc.weight": "model-2.safetensors"}}

BAD: dict[str, Bad] = {
    # vLLM: an error at load
    "no mask_hidden": Bad("weights-missing", "mask_hidden is missing", change=without("mask_hidden")),
    "no mask token": Bad("mask-token", "config.json has no mask token", drop(head_config(), "ptd_token_id")),
    "a mask token beyond the vocabulary": Bad(
        "mask-token", "the mask token is 64", head_config(ptd_token_id=VOCAB)
    ),
    "two mask tokens": Bad(
        "mask-token",
        "config.json has several mask tokens: pard_token 4, ptd_token_id 3",
        head_config(pard_token=4),
    ),
    "a wrong size": Bad(
        "weights-shape",
        "fc.weight: found shape 16x32; expected 16x48",
        change=lambda tensors: tensors.update({"fc.weight": filled((HIDDEN, 2 * HIDDEN))}),
    ),
    "a map of equal vocabularies": Bad(
        "vocabulary-map",
        "d2t exists although the vocabularies are equal",
        head_config(draft_vocab_size=VOCAB),
        change=lambda tensors: tensors.update({"d2t": integers([0] * VOCAB)}),
    ),
    # vLLM: loads without a word
    "no d2t": Bad("weights-missing", "d2t is missing", change=without("d2t")),
    "no layer weights": Bad(
        "weights-missing",
        "layers.1.mlp.up_proj.weight is missing",
        change=without("layers.1.mlp.up_proj.weight"),
    ),
    "no lm_head of its own": Bad(
        "weights-missing", "lm_head.weight is missing", change=without("lm_head.weight")
    ),
    "no embedding of its own width": Bad(
        "weights-missing",
        "embed_tokens.weight is missing",
        head_config(hidden_size=32, head_dim=16),
        change=without("embed_tokens.weight"),
    ),
    "d2t beyond the vocabulary": Bad(
        "vocabulary-map",
        "d2t maps draft token 15 to 64",
        change=lambda tensors: tensors.update({"d2t": integers([5] * 15 + [49])}),
    ),
    "d2t that maps two to one": Bad(
        "vocabulary-map",
        "d2t maps 16 draft tokens to 8 tokens",
        change=lambda tensors: tensors.update(
            {"d2t": integers([-(index // 2) - index % 2 for index in range(16)])}
        ),
    ),
    "t2d that says otherwise": Bad(
        "vocabulary-map",
        "t2d marks 16 tokens and d2t maps to 16",
        change=lambda tensors: tensors.update({"t2d": flags([6 <= index < 22 for index in range(VOCAB)])}),
    ),
    "a P-EAGLE head as an autoregressive one": Bad("method", "it is a P-EAGLE head", mode="eagle3"),
    "layers out of order": Bad(
        "aux-layers",
        "eagle_aux_hidden_state_layer_ids: found [6, 1, 4]",
        head_config(eagle_aux_hidden_state_layer_ids=[6, 1, 4]),
    ),
    "a layer twice": Bad(
        "aux-layers",
        "eagle_aux_hidden_state_layer_ids: found [1, 4, 4]",
        head_config(eagle_aux_hidden_state_layer_ids=[1, 4, 4]),
    ),
    "a layer that the target lacks": Bad(
        "aux-layers",
        "eagle_aux_hidden_state_layer_ids: found [1, 4, 9]",
        head_config(eagle_aux_hidden_state_layer_ids=[1, 4, 9]),
    ),
    "a tied output": Bad(
        "tied-embeddings",
        "tie_word_embeddings is true",
        head_config(draft_vocab_size=VOCAB, tie_word_embeddings=True),
        change=lambda tensors: tensors.update({"embed_tokens.weight": filled((VOCAB, HIDDEN))}),
    ),
    "no model_type": Bad("format", "model_type: found None", drop(head_config(), "model_type")),
    "a model_type nobody has": Bad("format", "model_type: found 'eagle3'", head_config(model_type="eagle3")),
    "a model_type that vLLM turns into another method": Bad(
        "format", "model_type: found 'deepseek_v3'", head_config(model_type="deepseek_v3")
    ),
    "a speculators head with another model_type": Bad(
        "format", "model_type: found 'llama'", speculators_config(model_type="llama")
    ),
    "positions as text": Bad(
        "config", "max_position_embeddings: found '8192'", head_config(max_position_embeddings="8192")
    ),
    "no positions": Bad("config", "max_position_embeddings: found 0", head_config(max_position_embeddings=0)),
    "key and value heads as text": Bad(
        "config", "num_key_value_heads: found '1'", head_config(num_key_value_heads="1")
    ),
    "the head's width as text": Bad("config", "head_dim: found '8'", head_config(head_dim="8")),
    "an epsilon as text": Bad("config", "rms_norm_eps: found '1e-5'", head_config(rms_norm_eps="1e-5")),
    "an epsilon that is no number": Bad(
        "config", "rms_norm_eps: found nan", head_config(rms_norm_eps=float("nan"))
    ),
    "an activation that vLLM's head lacks": Bad(
        "config", "hidden_act: found 'gelu'", head_config(hidden_act="gelu")
    ),
    "a bias as text": Bad("config", "attention_bias: found 'false'", head_config(attention_bias="false")),
    "a dtype that torch lacks": Bad("config", "dtype: found 'bf16'", head_config(dtype="bf16")),
    "an unknown scaling of positions": Bad(
        "config", "rope_type: found 'best'", head_config(rope_parameters={"rope_type": "best"})
    ),
    "an eagle_config that is a list": Bad("config", "eagle_config: found [1]", head_config(eagle_config=[1])),
    "two lists of layers": Bad(
        "aux-layers",
        "eagle_aux_hidden_state_layer_ids: found [1, 4, 6]",
        head_config(eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 3, 5]}),
    ),
    # fits another target, or asks too much
    "another target's states": Bad(
        "target-size", "the head expects hidden states of size 32", head_config(target_hidden_size=32)
    ),
    "another target's vocabulary": Bad(
        "target-vocabulary", "the head's vocab_size is 96", head_config(vocab_size=96)
    ),
    "more tokens than trained": Bad(
        "trained-k", "num_speculative_tokens: found 9", speculators_config(), k=9
    ),
    # not an exported head
    "a tensor of the target": Bad(
        "weights-unexpected",
        "verifier_norm.weight is not expected",
        change=lambda tensors: tensors.update({"verifier_norm.weight": filled((HIDDEN,))}),
    ),
    "half a byte a weight": Bad(
        "dtype",
        "norm.weight: found dtype F8_E4M3",
        change=lambda tensors: tensors.update({"norm.weight": filled((HIDDEN,), "F8_E4M3")}),
    ),
    "another method": Bad(
        "format",
        "speculators_model_type: found 'medusa'",
        speculators_config(speculators_model_type="medusa"),
    ),
    "no architecture": Bad("format", "architectures: found None", drop(head_config(), "architectures")),
    "a size that is none": Bad("config", "hidden_size: found 0", head_config(hidden_size=0)),
    # code
    "code beside it": Bad("remote-code", "modeling.py is code", files=lambda: {"modeling.py": "print(1)"}),
    "a pickle": Bad(
        "pickle",
        "pytorch_model.bin can run code when it is loaded",
        files=lambda: {"pytorch_model.bin": b"\x80"},
    ),
    "an auto_map of another repository": Bad(
        "remote-code",
        "config.json has an auto_map that names code: team/code--modeling.Head",
        head_config(auto_map={"AutoModel": "team/code--modeling.Head"}),
    ),
    "an auto_map of a file": Bad(
        "remote-code",
        "config.json has an auto_map that names code: modeling.Head",
        head_config(auto_map={"": "config.Eagle3SpeculatorConfig", "AutoModel": ["modeling.Head", None]}),
        files=lambda: {"modeling.py": "print(1)"},
    ),
    "EAGLE-1": Bad(
        "format",
        "architectures: found EagleLlamaForCausalLM with model_type eagle",
        head_config(architectures=["EagleLlamaForCausalLM"], model_type="eagle"),
    ),
    "Medusa": Bad(
        "format",
        "architectures: found MedusaModel with model_type medusa",
        head_config(architectures=["MedusaModel"], model_type="medusa"),
    ),
    "MTP": Bad(
        "format",
        "architectures: found DeepSeekMTPModel with model_type deepseek_mtp",
        head_config(architectures=["DeepSeekMTPModel"], model_type="deepseek_mtp"),
    ),
    "a name that vLLM renames": Bad(
        "format",
        "architectures: found PEagleDraftModel with model_type llama",
        head_config(architectures=["PEagleDraftModel"]),
    ),
    "a field that no version reads": Bad(
        "engine-version", "norm_output: no vLLM up to 0.33.0 reads it", speculators_config(norm_output=True)
    ),
    "8-bit weights without their scales": Bad(
        "dtype",
        "fc.weight: found dtype F8_E4M3 without fc.weight_scale",
        head_config(quantization_config={"quant_method": "fp8"}),
        change=lambda tensors: tensors.update({"fc.weight": filled((16, 48), "F8_E4M3")}),
    ),
    "not a number": Bad(
        "values",
        "fc.weight: found NaN or infinity",
        change=lambda tensors: tensors.update({"fc.weight": ("BF16", (16, 48), b"\xc0\x7f" * 768)}),
    ),
    # files that are not whole
    "a shard that is not there": Bad(
        "index",
        "model.safetensors.index.json lists model-2.safetensors",
        files=lambda: {"model.safetensors.index.json": json.dumps(INDEX)},
    ),
    "a cut file": Bad(
        "header",
        "model.safetensors is cut short",
        files=lambda: {"model.safetensors": safetensors(tensors_for(head_config()))[:-1]},
    ),
    "no weights": Bad(
        "header",
        "model.safetensors is cut short or not a safetensors file",
        files=lambda: {"model.safetensors": b""},
    ),
    "a config that is none": Bad(
        "config", "config.json is not JSON", files=lambda: {"config.json": "<html>"}
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_it_is_refused_and_says_why(tmp_path: Path, name: str) -> None:
    bad = BAD[name]
    config = bad.config or head_config()
    usable = config if _builds(config) else head_config()
    tensors = dict(tensors_for(usable, parallel=True))
    bad.change(tensors)
    folder = folder_of(tmp_path, config=config, tensors=tensors, files=bad.files())
    report = inspect_head(folder, target=target_config(), mode=bad.mode, num_speculative_tokens=bad.k)
    names = {(fault.check, fault.message) for fault in report.faults if fault.severity == "error"}
    assert any(code == bad.code and message.startswith(bad.message) for code, message in names), names
    with pytest.raises(HeadRefused, match="must not be deployed") as caught:
        report.raise_for_faults()
    assert caught.value.exit_code == 3
    assert caught.value.next_step


def _builds(config: dict[str, Any]) -> bool:
    return read_layout(config)[0] is not None
