"""What the trainer takes: the target, the head to start from, documents, and settings that fit them. Pure.

The job checks by them, and a plan does before it is paid for. It is one file, since the image has no toolkit:
``peagle_learn.core.rules`` is a link to it. Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ARCHITECTURES = (
    "LlamaForCausalLM",
    "Phi3ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "GptOssForCausalLM",
    "Gemma4ForConditionalGeneration",
)
"""The targets whose heads the library trains and vLLM's Llama head can serve."""
MASK_KEYS = ("mask_token_id", "pard_token", "ptd_token_id")
"""Names of the mask token, in vLLM's order."""
_TARGET_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "vocab_size",
    "max_position_embeddings",
    "num_attention_heads",
)
HEAD_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
)
_MOST_LINE = 256 << 20


@dataclass(frozen=True)
class TargetShape:
    """What is known of a target from its ``config.json``; of a multimodal one, its text part."""

    architecture: str
    hidden: int
    layers: int
    vocab: int
    longest: int
    heads: int


@dataclass(frozen=True)
class HeadShape:
    """A head to start from, as its ``config.json`` describes it."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int
    draft_vocab: int
    target_hidden: int
    mask_token_id: int
    aux_layer_ids: tuple[int, ...]
    longest: int
    attention_bias: bool
    mlp_bias: bool
    fc_norm: bool
    norm_output: bool

    @property
    def as_settings(self) -> dict[str, Any]:
        """What it says of the settings of `peagle_train.settings.OF_THE_HEAD`."""
        return {
            "num_draft_layers": self.layers,
            "aux_layer_ids": self.aux_layer_ids,
            "mask_token_id": self.mask_token_id,
            "draft_num_attention_heads": self.heads,
            "draft_num_key_value_heads": self.kv_heads,
            "draft_intermediate_size": self.inner,
            "draft_vocab_size": self.draft_vocab,
        }


def target_shape(config: Mapping[str, Any], files: Collection[str]) -> TargetShape:
    """Read a target's ``config.json``; ``files`` are the names in its folder.

    Raises:
        ValueError: no head can be trained for this model.
    """
    named = config.get("architectures")
    architecture = named[0] if isinstance(named, list) and named else "none"
    if architecture not in ARCHITECTURES:
        raise ValueError(f"the target's architecture is {architecture}; allowed: {', '.join(ARCHITECTURES)}")
    inner = config.get("text_config")
    text = inner if isinstance(inner, dict) else config
    sizes = [text.get(name) for name in _TARGET_SIZES]
    for name, value in zip(_TARGET_SIZES, sizes, strict=True):
        if type(value) is not int or value < 1:
            raise ValueError(
                f"the target's config.json: {name} is {value!r}; allowed: a whole number above 0"
            )
    if not any("/" not in name and name.endswith(".safetensors") for name in files):
        raise ValueError("the target has no *.safetensors; give the folder of the model's weights")
    if not {"tokenizer.json", "tokenizer_config.json"}.intersection(files):
        raise ValueError("the target has no tokenizer.json; give the model's whole folder")
    return TargetShape(architecture, *sizes)  # type: ignore[arg-type]


def head_shape(config: Mapping[str, Any], longest: int) -> HeadShape:
    """Read a head's ``config.json`` in vLLM's layout; ``longest`` is the target's context.

    Raises:
        ValueError: its layout cannot be trained further.
    """
    eagle = config.get("eagle_config")
    eagle = eagle if isinstance(eagle, dict) else {}
    for name in HEAD_SIZES:
        if type(config.get(name)) is not int or config[name] < 1:
            raise ValueError(
                f"the head's config.json: {name} is {config.get(name)!r}; it is not in "
                "vLLM's layout (LlamaForCausalLMEagle3)"
            )
    layers = config.get("eagle_aux_hidden_state_layer_ids") or eagle.get("eagle_aux_hidden_state_layer_ids")
    mask = next((config[key] for key in MASK_KEYS if config.get(key) is not None), None)
    if type(mask) is not int:
        raise ValueError("the head's config.json has no mask token: it was not trained to draft in parallel")
    if not isinstance(layers, list) or len(layers) != 3 or any(type(each) is not int for each in layers):
        raise ValueError(
            f"the head's eagle_aux_hidden_state_layer_ids: found {layers!r}; allowed: three layers"
        )
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    return HeadShape(
        layers=config["num_hidden_layers"],
        hidden=hidden,
        heads=heads,
        kv_heads=_size(config.get("num_key_value_heads")) or heads,
        head_dim=_size(config.get("head_dim")) or hidden // heads,
        inner=config["intermediate_size"],
        vocab=config["vocab_size"],
        draft_vocab=_size(config.get("draft_vocab_size")) or config["vocab_size"],
        target_hidden=_size(config.get("target_hidden_size")) or hidden,
        mask_token_id=mask,
        aux_layer_ids=tuple(layers),
        longest=_size(config.get("max_position_embeddings")) or longest,
        attention_bias=bool(config.get("attention_bias")),
        mlp_bias=bool(config.get("mlp_bias")),
        fc_norm=bool(config.get("fc_norm")),
        norm_output=bool(config.get("norm_output")),
    )


def _size(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None


def head_faults(config: Mapping[str, Any], head: HeadShape, target: TargetShape) -> Iterator[str]:
    """Yield why a head cannot be trained further for a target; its weights are not looked at."""
    for what, has, wanted in (
        ("hidden_size", head.hidden, target.hidden),
        ("target_hidden_size", head.target_hidden, target.hidden),
        ("vocab_size", head.vocab, target.vocab),
    ):
        if has != wanted:
            yield f"{what} is {has}, the target has {wanted}; it was trained for another target"
    beyond = [each for each in head.aux_layer_ids if not 1 <= each <= target.layers]
    if beyond:
        yield f"it reads layer {beyond[0]}, the target has {target.layers}; it was trained for another target"
    if not 0 <= head.mask_token_id < target.vocab:
        yield f"its mask token {head.mask_token_id} is not in the target's vocabulary of {target.vocab}"
    for name in ("norm_before_residual", "norm_before_fc"):
        if config.get(name):
            yield f"{name} is true, which NeMo AutoModel 0.7.0 does not train"
    if config.get("hidden_act", "silu") != "silu":
        yield f"hidden_act is {config['hidden_act']}; vLLM serves silu alone"
    if "quantization_config" in config:
        yield "its weights are quantised; give the original"


def contradictions(given: Mapping[str, Any], head: Mapping[str, Any]) -> Iterator[str]:
    """Yield the given settings that are not those of the head to start from."""
    for name, has in head.items():
        setting = given.get(name)
        if setting is not None and _plain(setting) != _plain(has):
            yield f"{name}: found {_plain(setting)}, but the head to start from has {_plain(has)}"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def fit_faults(
    settings: Mapping[str, Any], target: TargetShape, head: HeadShape | None, world: int
) -> Iterator[str]:
    """Yield the settings that do not fit the target, the head, or the number of processes.

    The settings include what the head to start from says.
    """
    longest = min(target.longest, head.longest) if head else target.longest
    if settings["sequence_length"] > longest:
        whose = "the target's context" if longest == target.longest else "that of the head to start from"
        yield f"sequence_length: found {settings['sequence_length']}; allowed: at most {longest}, {whose}"
    mask, layers = settings.get("mask_token_id"), settings.get("aux_layer_ids")
    if mask is not None and mask >= target.vocab:
        yield f"mask_token_id: found {mask}; allowed: at most {target.vocab - 1}, the target's last token"
    drafted = settings.get("draft_vocab_size")
    if drafted is not None and drafted > target.vocab:
        yield f"draft_vocab_size: found {drafted}; allowed: at most {target.vocab}, the target's vocabulary"
    if layers is not None and max(layers) > target.layers:
        yield f"aux_layer_ids: found {list(layers)}; allowed: at most {target.layers}, the target's layers"
    if layers is not None and len(set(layers)) < len(layers):
        yield f"aux_layer_ids: found {list(layers)}; allowed: each layer once"
    queries = settings.get("draft_num_attention_heads") or target.heads
    keys = settings.get("draft_num_key_value_heads")
    if keys is not None and queries % keys:
        yield f"draft_num_key_value_heads: found {keys}; allowed: what divides the {queries} heads"
    shards = settings.get("expert_parallel_size") or 1
    if world % shards:
        yield f"expert_parallel_size: found {shards}; allowed: divisors of the job's {world} GPUs"
    parts = settings.get("target_shards") or 1
    if world % parts:
        yield f"target_shards: found {parts}; allowed: divisors of the job's {world} GPUs"
    if parts > 1 and shards > 1:
        yield (
            f"target_shards: found {parts} with expert_parallel_size {shards}; allowed: 1, since spreading "
            "the experts already shards the other weights"
        )


def read_line(line: bytes, vocab: int | None) -> tuple[list[int], list[int]]:
    """Return a line's tokens and the mask of those that are learned; ``vocab`` None: unknown.

    Raises:
        ValueError: it is not a document.
    """
    return checked_document(parse_line(line), vocab)


def parse_line(line: bytes) -> dict[str, Any]:
    """Return a line's JSON object.

    Raises:
        ValueError: it is not a JSON object, or too long.
    """
    if len(line) > _MOST_LINE:
        raise ValueError(f"it has {len(line)} bytes; allowed: {_MOST_LINE}")
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    return document


def checked_document(document: dict[str, Any], vocab: int | None) -> tuple[list[int], list[int]]:
    """Return a document's tokens and the mask of those that are learned; ``vocab`` None: unknown.

    Raises:
        ValueError: the trainer does not take it.
    """
    ids, mask = _numbers(document, "input_ids"), _numbers(document, "loss_mask")
    if len(ids) != len(mask):
        raise ValueError(f"input_ids has {len(ids)} values, loss_mask {len(mask)}; allowed: as many")
    if len(ids) < 2:
        raise ValueError(f"input_ids has {len(ids)} values; allowed: 2 and more")
    if min(ids) < 0:
        raise ValueError(f"input_ids has {min(ids)}; allowed: token ids, from 0")
    if vocab is not None and max(ids) >= vocab:
        raise ValueError(
            f"input_ids has {max(ids)}; the target's tokens go from 0 to {vocab - 1}: "
            "it has another tokenizer"
        )
    if not set(mask) <= {0, 1}:
        raise ValueError(f"loss_mask has {max(mask, key=abs)}; allowed: 0 and 1")
    if not any(mask[1:]):
        raise ValueError("loss_mask has no 1, so nothing is learned from it; remove the line")
    return ids, mask


def _numbers(document: dict[str, Any], key: str) -> list[int]:
    value = document.get(key)
    if not isinstance(value, list) or any(type(each) is not int for each in value):
        raise ValueError(f"{key} is not a list of whole numbers")
    return value
