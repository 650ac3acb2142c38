"""Sizes of a model from its config.json: attention heads, KV cache, context. Pure.

``core/data/architectures.yaml`` has the defaults of `transformers`, since a config.json may leave them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from peagle_sm.core.catalog import FLOAT32
from peagle_sm.core.engines import read_data
from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.validation import show

_TEXT_PARTS = ("text_config", "llm_config", "language_config")
_NAMES = {
    "hidden_size": ("n_embd", "d_model", "dim"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
    "num_key_value_heads": ("num_kv_heads",),
    "max_position_embeddings": ("n_positions", "max_sequence_length", "seq_length", "max_seq_len"),
}
_NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_HEAD_KEYS = ("speculators_model_type", "draft_vocab_size", "eagle_config", "medusa_num_heads")
_MAX_SIZE, _MOST_FACTOR = 10**9, 1000


@dataclass(frozen=True)
class ConfigFacts:
    """What a config.json says.

    ``shrinks_by`` is 2 for float32 files, which vLLM loads with 16 bits (0.32.0: config/model.py,
    _resolve_auto_dtype). ``number_type`` is None for a quantized model. ``attention`` has the fields of the
    catalogue's `AttentionGroup`, and is None if no shape of the KV cache is known.
    """

    architecture: str
    hidden_size: int
    heads: int
    vocabulary: int
    attention: tuple[Mapping[str, int], ...] | None
    max_context: int | None
    shrinks_by: int
    number_type: str | None


@cache
def _architectures() -> Mapping[str, Mapping[str, Any]]:
    architectures: Mapping[str, Mapping[str, Any]] = read_data("architectures")["architectures"]
    return architectures


def read_config(config: Any, place: str) -> ConfigFacts:
    """Read the facts of a config.json; ``place`` names it in messages.

    Raises:
        SpecError: it is not the config of a decoder, or has no sizes; the message names ``model.config``.
    """
    if not isinstance(config, Mapping):
        raise SpecError(
            f"model.config: {place} is {show(config)}; allowed: a JSON object",
            next_step="Give the config.json of a Hugging Face model.",
        )
    if _is_head(config):
        raise SpecError(
            f"model.config: {place} is the config of a draft head, not of a target model",
            next_step="Give the target's config as model.config, and the head as speculation.draft_head.",
        )
    if config.get("is_encoder_decoder"):
        raise SpecError(
            f"model.config: {place} is an encoder-decoder ({_architecture(config)}); allowed: a decoder that "
            "generates text",
            next_step="Give another model; EAGLE-3 and P-EAGLE heads need a decoder.",
        )
    sizes = _Sizes(config)
    missing = [name for name in _NEEDED if sizes.number(name) is None]
    if missing:
        raise SpecError(
            f"model.config: {place} has no {', '.join(missing)}, and the defaults of model_type "
            f"{sizes.kind!r} are not known",
            next_step="Give the config.json of a Hugging Face language model, with all of its sizes.",
        )
    number_type = None if _is_quantized(config, sizes) else _number_type(sizes)
    return ConfigFacts(
        architecture=_architecture(config),
        hidden_size=sizes.need("hidden_size"),
        heads=sizes.heads,
        vocabulary=sizes.need("vocab_size"),
        attention=_attention(sizes),
        max_context=_context(sizes),
        shrinks_by=2 if number_type in FLOAT32 else 1,
        number_type=number_type,
    )


def _is_head(config: Mapping[str, Any]) -> bool:
    names = config.get("architectures")
    joined = " ".join(map(str, names)) if isinstance(names, list) else ""
    kinds = ("Eagle", "Speculator", "Medusa", "DraftModel")
    return any(key in config for key in _HEAD_KEYS) or any(kind in joined for kind in kinds)


def _architecture(config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    return str(names[0] if isinstance(names, list) and names else config.get("model_type") or "unknown")


@cache
def _kinds_by_class() -> Mapping[str, str]:
    """Return the known architectures by the name of their class: DeepseekV3ForCausalLM for deepseek_v3."""
    return {
        "".join(word.capitalize() for word in kind.split("_")) + "ForCausalLM": kind
        for kind in _architectures()
    }


class _Sizes:
    """The text part of a config, with the defaults of its architecture and the usual names."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        whole: Mapping[str, Any] = config
        inner = config.get("thinker_config")
        if isinstance(inner, Mapping):
            whole = inner
        part = next((whole[name] for name in _TEXT_PARTS if isinstance(whole.get(name), Mapping)), None)
        text = part if part is not None else whole
        outer = str(whole.get("model_type") or "")
        self.kind = str(text.get("model_type") or outer)
        architectures = _architectures()
        if self.kind not in architectures and outer in architectures:
            self.kind = outer
        if self.kind not in architectures:
            # vLLM goes by the class, too: Kimi-K2 is a DeepSeek-V3 with a name of its own.
            self.kind = _kinds_by_class().get(_architecture(whole), self.kind)
        self.traits: Mapping[str, Any] = architectures.get(self.kind, {})
        self.known = self.kind in architectures
        self.whole = whole
        # a flat config of a model with a picture part has the text's sizes at the top
        self._values = {**self.traits.get("defaults", {}), **_top(whole, part), **text}

    def get(self, name: str) -> Any:
        """Return a value by its usual name; None if the config and the defaults lack it."""
        for alias in (name, *_NAMES.get(name, ())):
            if self._values.get(alias) is not None:
                return self._values[alias]
        return None

    def number(self, name: str) -> int | None:
        """Return a whole number, of the largest layer where a config has a list.

        Raises:
            SpecError: the value is not a size.
        """
        value = self.get(name)
        if isinstance(value, list) and value and all(type(size) is int for size in value):
            value = max(value)
        if value is None or value is False:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_SIZE:
            raise SpecError(
                f"model.config: {name}: found {show(value)}; allowed: a whole number",
                next_step="Give the config.json of a Hugging Face language model.",
            )
        return value

    def need(self, name: str) -> int:
        """Return a number that was checked to exist."""
        return self.number(name) or 0

    @property
    def heads(self) -> int:
        return max(1, self.need("num_attention_heads"))

    @property
    def kv_heads(self) -> int:
        if self.get("multi_query") is True and not self.get("new_decoder_architecture"):
            return 1
        return self.number("num_key_value_heads") or self.heads

    @property
    def head_dim(self) -> int:
        return self.number("head_dim") or self.need("hidden_size") // self.heads

    @property
    def layers(self) -> int:
        return self.need("num_hidden_layers")

    def layer_kinds(self) -> list[str]:
        """Return each layer's kind of attention: full, sliding or linear."""
        layer_types = self.get("layer_types") or self.get("attention_layer_types")
        if isinstance(layer_types, list) and len(layer_types) == self.layers:
            return [_kind(str(layer_type)) for layer_type in layer_types]
        window = self.window
        every = self.number("full_attention_interval")
        if every and self.get("linear_num_value_heads"):
            return ["full" if (layer + 1) % every == 0 else "linear" for layer in range(self.layers)]
        if window is None:
            return ["full"] * self.layers
        pattern = self.get("sliding_window_pattern") or self.get("_sliding_window_pattern")
        if isinstance(pattern, str) and pattern:  # EXAONE: "LLLG"
            return [
                "full" if pattern[layer % len(pattern)] == "G" or layer == self.layers - 1 else "sliding"
                for layer in range(self.layers)
            ]
        if isinstance(pattern, int) and pattern > 0:
            return ["sliding" if (layer + 1) % pattern else "full" for layer in range(self.layers)]
        every = self.traits.get("full_every")
        if every:
            return ["sliding" if (layer + 1) % every else "full" for layer in range(self.layers)]
        from_layer = self.number("max_window_layers") if self.get("use_sliding_window") is not None else None
        return ["full" if from_layer and layer < from_layer else "sliding" for layer in range(self.layers)]

    @property
    def window(self) -> int | None:
        """Return the tokens that a sliding layer keeps; None without one."""
        if self.get("use_sliding_window") is False:
            return None
        return self.number("sliding_window") or self.number("attention_chunk_size") or None


def _top(whole: Mapping[str, Any], part: Any) -> dict[str, Any]:
    """Return the fields above a config's text part that belong to it: `transformers` may have moved them."""
    if part is None:
        return {}
    return {
        name: whole[name] for name in ("tie_word_embeddings", "vocab_size") if whole.get(name) is not None
    }


def _kind(layer_type: str) -> str:
    if "linear" in layer_type or layer_type in ("mamba", "conv", "recurrent", "kda"):
        return "linear"
    return "sliding" if "sliding" in layer_type or "chunked" in layer_type else "full"


def _attention(sizes: _Sizes) -> tuple[Mapping[str, int], ...] | None:
    """Return the number of layers for each shape of the KV cache; None if a shape is not known."""
    if not sizes.known and (sizes.get("layers_block_type") or sizes.get("hybrid_override_pattern")):
        return None  # a hybrid of which only some layers have a KV cache
    kinds = sizes.layer_kinds()
    latent = sizes.number("kv_lora_rank")
    if latent:
        values = latent + (sizes.number("qk_rope_head_dim") or 0)
        return ({"layers": sizes.layers, "kv_heads": 1, "head_dim": values, "tensors": 1},)
    groups: list[Mapping[str, int]] = []
    sliding, full = kinds.count("sliding"), kinds.count("full")
    if sliding:
        shape = {"layers": sliding, "kv_heads": sizes.kv_heads, "head_dim": sizes.head_dim}
        groups.append({**shape, "window": sizes.window} if sizes.window else shape)
    if full:
        of_full = sizes.number("num_global_key_value_heads") if sizes.get("attention_k_eq_v") else None
        groups.append(
            {
                "layers": full,
                "kv_heads": of_full or sizes.kv_heads,
                "head_dim": sizes.number("global_head_dim") or sizes.head_dim,
            }
        )
    return tuple(groups)


def _context(sizes: _Sizes) -> int | None:
    """Return the longest context, as vLLM derives it: a factor counts from the original length."""
    longest = sizes.number("max_position_embeddings")
    scaling = sizes.get("rope_scaling") or sizes.get("rope_parameters")
    if not isinstance(scaling, Mapping) or longest is None:
        return longest
    kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
    factor = scaling.get("factor")
    if "gemma3" in sizes.kind or not isinstance(factor, int | float) or not 1 <= factor <= _MOST_FACTOR:
        return longest  # Gemma's positions are counted with the factor already
    if kind in ("linear", "dynamic", "ntk"):
        return int(longest * factor)
    original = scaling.get("original_max_position_embeddings")
    if kind == "yarn" and isinstance(original, int):  # older versions of vLLM multiply, 0.32 does not
        return max(longest, int(original * factor))
    return longest


def _is_quantized(config: Mapping[str, Any], sizes: _Sizes) -> bool:
    settings = config.get("quantization_config") or config.get("compression_config")
    settings = settings or sizes.get("quantization_config")
    return isinstance(settings, Mapping) and bool(settings)


def _number_type(sizes: _Sizes) -> str:
    whole = sizes.whole
    name = sizes.get("dtype") or sizes.get("torch_dtype") or whole.get("dtype") or whole.get("torch_dtype")
    return str(name).removeprefix("torch.")
