"""Sizes of a model from its config.json: parameters, bytes of weights, KV cache, context. Pure.

Parameters are counted from the layers' shapes, for the architectures of ``core/data/architectures.yaml``: for
each of them the count was compared with the model that `transformers` builds (`scripts/architectures`).
The file also has the defaults of `transformers`, since a config.json may leave them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeGuard

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
    "intermediate_size": ("n_inner", "ffn_dim"),
    "max_position_embeddings": ("n_positions", "max_sequence_length", "seq_length", "max_seq_len"),
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "experts_per_token": ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts"),
}
_NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_HEAD_KEYS = ("speculators_model_type", "draft_vocab_size", "eagle_config", "medusa_num_heads")
_MAX_SIZE, _MOST_FACTOR = 10**9, 1000
_BYTES = {"float32": 2, "float": 2, "float16": 2, "half": 2, "bfloat16": 2, "float8_e4m3fn": 1}
"""Bytes of a value in the engine: vLLM turns float32 weights into 16 bits unless it is told otherwise."""
_MXFP4_BYTES = 0.5 + 1 / 32


@dataclass(frozen=True)
class Parameters:
    """Parameters by kind, since a quantization covers only some of them."""

    linear: int
    experts: int
    tables: int
    vision: int
    active_experts: int

    @property
    def total(self) -> int:
        """All parameters."""
        return self.linear + self.experts + self.tables + self.vision

    @property
    def active(self) -> int:
        """Parameters that one token uses."""
        return self.total - self.experts + self.active_experts


@dataclass(frozen=True)
class ConfigFacts:
    """What a config.json says; ``parameters`` is None for an unknown architecture.

    ``weights_gb`` and ``bytes_per_parameter`` are None if the quantization is unknown. ``shrinks_by`` is 2
    for float32 files, which vLLM loads with 16 bits (0.32.0: config/model.py,
    _resolve_auto_dtype). ``attention`` has the fields of the catalogue's `AttentionGroup`, and is None if no
    shape of the KV cache is known.
    """

    architecture: str
    hidden_size: int
    layers: int
    heads: int
    vocabulary: int
    parameters: Parameters | None
    weights_gb: float | None
    attention: tuple[Mapping[str, int], ...] | None
    max_context: int | None
    quantization: str | None
    bytes_per_parameter: float | None
    shrinks_by: int
    number_type: str


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
    parameters = _parameters(sizes) if sizes.known else None
    quantization = _quantization(config, sizes)
    weights = None if parameters is None else _weights_gb(parameters, sizes, quantization)
    return ConfigFacts(
        architecture=_architecture(config),
        hidden_size=sizes.need("hidden_size"),
        layers=sizes.need("num_hidden_layers"),
        heads=sizes.heads,
        vocabulary=sizes.need("vocab_size"),
        parameters=parameters,
        weights_gb=weights,
        attention=_attention(sizes),
        max_context=_context(sizes),
        quantization=str(quantization.get("quant_method") or "unknown") if quantization else None,
        bytes_per_parameter=_each_bytes(sizes, quantization),
        shrinks_by=2 if quantization is None and _number_type(sizes) in FLOAT32 else 1,
        number_type=_number_type(sizes),
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
        pictured = isinstance(whole.get("vision_config"), Mapping)
        self.known = self.kind in architectures and (not pictured or "vision" in architectures.get(outer, {}))
        self.whole = whole
        # a flat config of a model with a picture part has the text's sizes at the top
        self._values = {**self.traits.get("defaults", {}), **_top(whole, part), **text}
        if self.get("hidden_size_per_layer_input"):  # Gemma's E models: embeddings in each layer
            self.known = False

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


def _parameters(sizes: _Sizes) -> Parameters:
    hidden, layers = sizes.need("hidden_size"), sizes.layers
    tied = sizes.get("tie_word_embeddings")
    tables = sizes.need("vocab_size") * hidden * (1 if tied else 2)
    if sizes.traits.get("positions"):
        tables += sizes.need("max_position_embeddings") * hidden
    kinds, sparse = sizes.layer_kinds(), _sparse_layers(sizes)
    linear = sum(_linear_attention(sizes) if kind == "linear" else _full(sizes, kind) for kind in kinds)
    dense = sum(1 for has_experts in sparse if not has_experts)
    linear += dense * _mlp(sizes, _dense_width(sizes)) + layers * int(sizes.traits.get("norms", 2)) * hidden
    one_expert = _mlp(sizes, _expert_width(sizes))
    count = sizes.number("num_experts") or 0
    active = min(sizes.number("experts_per_token") or count, count)
    sparse_layers = layers - dense
    linear += sparse_layers * (hidden * count + _shared(sizes, one_expert))
    if sizes.traits.get("dense_beside_experts"):
        linear += sparse_layers * _mlp(sizes, _dense_width(sizes))
    return Parameters(
        linear=linear + hidden,
        experts=sparse_layers * count * one_expert,
        tables=tables,
        vision=_vision(sizes),
        active_experts=sparse_layers * active * one_expert,
    )


def _sparse_layers(sizes: _Sizes) -> list[bool]:
    """Return whether each layer has experts."""
    if not (sizes.number("num_experts") or 0) > 1:
        return [False] * sizes.layers
    listed = sizes.get("mlp_layer_types")
    if isinstance(listed, list) and len(listed) == sizes.layers:
        return [str(layer_type) == "sparse" for layer_type in listed]
    chosen = sizes.get("moe_layers")
    if isinstance(chosen, list):
        return [layer in chosen for layer in range(sizes.layers)]
    first_sparse = sizes.number("first_k_dense_replace") or sizes.number("num_dense_layers") or 0
    first_sparse = max(first_sparse, sizes.number("moe_layer_start_index") or 0)
    step = sizes.number("decoder_sparse_step") or sizes.number("interleave_moe_layer_step") or 1
    if isinstance(sizes.get("moe_layer_freq"), int):
        step = sizes.number("moe_layer_freq") or 1
    dense = sizes.get("mlp_only_layers")
    without = dense if isinstance(dense, list) else []
    return [
        layer >= first_sparse and (layer + 1) % step == 0 and layer not in without
        for layer in range(sizes.layers)
    ]


def _dense_width(sizes: _Sizes) -> int:
    wide = sizes.number("intermediate_size_mlp") or sizes.number("intermediate_size")
    return wide or 4 * sizes.need("hidden_size")


def _expert_width(sizes: _Sizes) -> int:
    return sizes.number("moe_intermediate_size") or sizes.need("intermediate_size")


def _shared(sizes: _Sizes, one_expert: int) -> int:
    width = sizes.number("shared_expert_intermediate_size") or sizes.number("shared_intermediate_size")
    if width:
        return _mlp(sizes, width)
    count = sizes.number("n_shared_experts") or sizes.number("num_shared_experts")
    count = count or sizes.number("moe_num_shared_experts") or int(sizes.traits.get("shared_experts", 0))
    return count * one_expert


def _mlp(sizes: _Sizes, width: int) -> int:
    """Return the parameters of a feed-forward part: gate, up and down; or up and down."""
    return int(sizes.traits.get("mlp_matrices", 3)) * sizes.need("hidden_size") * width


def _full(sizes: _Sizes, kind: str) -> int:
    hidden, heads = sizes.need("hidden_size"), sizes.heads
    rank = sizes.number("kv_lora_rank")
    if rank:
        rope, nope = sizes.need("qk_rope_head_dim"), sizes.need("qk_nope_head_dim")
        value = sizes.number("v_head_dim") or nope
        down = sizes.number("q_lora_rank")
        query = heads * (nope + rope)
        query_projection = hidden * down + down * query if down else hidden * query
        return (
            query_projection + hidden * (rank + rope) + rank * heads * (nope + value) + heads * value * hidden
        )
    size, keys = sizes.head_dim, sizes.kv_heads
    doubled = 1
    if kind == "full":
        size = sizes.number("global_head_dim") or size
        if sizes.get("attention_k_eq_v"):  # the keys are also the values
            keys = sizes.number("num_global_key_value_heads") or keys
            return hidden * size * (2 * heads + keys)
    if sizes.traits.get("gated_attention"):
        doubled = 2
    return hidden * size * ((1 + doubled) * heads + 2 * keys)


def _linear_attention(sizes: _Sizes) -> int:
    """Return the parameters of a gated delta net, as in Qwen3-Next."""
    hidden = sizes.need("hidden_size")
    keys = sizes.need("linear_num_key_heads") * sizes.need("linear_key_head_dim")
    heads = sizes.need("linear_num_value_heads")
    values = heads * sizes.need("linear_value_head_dim")
    kernel = sizes.number("linear_conv_kernel_dim") or 4
    return hidden * (2 * keys + 2 * values + 2 * heads) + kernel * (2 * keys + values) + values * hidden


def _merge(sizes: _Sizes) -> int:
    merge_size = sizes.whole.get("spatial_merge_size")
    return int(merge_size) if merge_size and _is_size(merge_size) else 1


def _is_size(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and 0 <= value <= _MAX_SIZE  # not for infinity and NaN


def _vision(sizes: _Sizes) -> int:
    """Return the parameters of the picture part and of its projection to the text's size."""
    vision = sizes.whole.get("vision_config")
    defaults = _architectures().get(str(sizes.whole.get("model_type")), {}).get("vision")
    if not isinstance(vision, Mapping) or defaults is None:
        return 0
    part = {**defaults["defaults"], **vision}

    def number(*names: str) -> int:
        return next((int(part[n]) for n in names if _is_size(part.get(n))), 0)

    width, depth = number("embed_dim", "hidden_size"), number("depth", "num_hidden_layers", "num_layers")
    ratio = part.get("mlp_ratio")
    inner = number("intermediate_size") or int(width * (ratio if _is_size(ratio) else 4))
    matrices = int(defaults.get("mlp_matrices", 2))
    patch = number("patch_size") ** 2 * (number("temporal_patch_size") or 1) * 3 * width
    layers = depth * (4 * width * width + matrices * width * inner)
    merged = width * (number("spatial_merge_size") or _merge(sizes)) ** 2
    text = sizes.need("hidden_size")
    deepest = part.get("deepstack_visual_indexes")
    projection = {
        "linear": width * text,
        "mlp": width * text + text * text,
        "merger": merged * merged + merged * text,
    }[defaults.get("projection", "mlp")]
    return layers + patch + projection * (1 + len(deepest if isinstance(deepest, list) else ()))


def _quantization(config: Mapping[str, Any], sizes: _Sizes) -> Mapping[str, Any] | None:
    settings = config.get("quantization_config") or config.get("compression_config")
    settings = settings or sizes.get("quantization_config")
    return settings if isinstance(settings, Mapping) and settings else None


def _number_type(sizes: _Sizes) -> str:
    whole = sizes.whole
    name = sizes.get("dtype") or sizes.get("torch_dtype") or whole.get("dtype") or whole.get("torch_dtype")
    return str(name).removeprefix("torch.")


def _each_bytes(sizes: _Sizes, quantization: Mapping[str, Any] | None) -> float | None:
    """Return the bytes of one parameter that is quantized, if any are."""
    if quantization is None:
        return _BYTES.get(_number_type(sizes), 2)
    return _quantized_bytes(_method(quantization), quantization)


def _method(quantization: Mapping[str, Any]) -> str:
    return str(quantization.get("quant_method") or quantization.get("quant_algo") or "").lower()


def _weights_gb(
    parameters: Parameters, sizes: _Sizes, quantization: Mapping[str, Any] | None
) -> float | None:
    plain, per_parameter = _BYTES.get(_number_type(sizes), 2), _each_bytes(sizes, quantization)
    if per_parameter is None:
        return None
    linear = plain if quantization is not None and _method(quantization) == "mxfp4" else per_parameter
    unquantized = (parameters.tables + parameters.vision) * plain
    return (parameters.linear * linear + parameters.experts * per_parameter + unquantized) / 1e9


def _quantized_bytes(method: str, settings: Mapping[str, Any]) -> float | None:
    """Return the bytes of one quantized parameter, with its scales; None for an unknown method."""
    if method in ("fp8", "fbgemm_fp8"):
        return 1.0
    if method == "mxfp4":
        return _MXFP4_BYTES
    if method == "bitsandbytes":
        return 1.0 if settings.get("load_in_8bit") else 0.5 + 4 / 64
    if method.startswith("modelopt"):
        algorithm = str(settings.get("quant_algo") or method).lower()
        return 1.0 if "fp8" in algorithm else 0.5 + 1 / 16 if "fp4" in algorithm else None
    if method in ("awq", "gptq", "gptq_marlin", "awq_marlin", "auto-round", "intel/auto-round"):
        return _grouped(settings.get("bits") or settings.get("w_bit"), settings.get("group_size"))
    if method == "compressed-tensors":
        groups = settings.get("config_groups")
        first_group = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
        weights = first_group.get("weights") if isinstance(first_group, Mapping) else None
        if isinstance(weights, Mapping):
            return _grouped(weights.get("num_bits"), weights.get("group_size"))
    return None


def _grouped(bits: Any, group: Any) -> float | None:
    if not isinstance(bits, int) or not 1 <= bits <= 16:
        return None
    size = group if isinstance(group, int) and group > 0 else 0
    return bits / 8 + ((2 + bits / 8) / size if size else 0.0)
