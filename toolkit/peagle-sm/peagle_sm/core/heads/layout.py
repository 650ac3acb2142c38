"""Layout of a head from its ``config.json``, as vLLM reads it. Pure.

`HeadReport` is all that is known of a head. A head drafts in one pass or one token after the other, from
certain layers of the target, up to a trained depth. Source: vLLM 0.32.0,
``model_executor/models/llama_eagle3.py`` and ``qwen3_eagle3.py``,
``transformers_utils/configs/speculators/algos.py``, ``v1/spec_decode/llm_base_proposer.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from peagle_sm.core.errors import PlanRefused
from peagle_sm.core.heads.formats import (
    context_of,
    engine_needs,
    first_engine,
    kind_of,
    load_head_formats,
    rope_settings,
    unread_fields,
)
from peagle_sm.core.spec.modes import Mode
from peagle_sm.core.words import Finding, error_finding

# The trainer has the same names in peagle_train/rules.py.
MASK_KEYS = ("mask_token_id", "pard_token", "ptd_token_id")  #: names of the mask token, in vLLM's order
HEAD_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
HeadFormat = Literal["eagle3", "speculators", "native"]


class HeadRefused(PlanRefused):
    """A draft head must not be deployed; ``details["findings"]`` lists the faults."""


@dataclass(frozen=True)
class FileRecord:
    """One file of a head: size in bytes, and sha256 in hex (None if unknown)."""

    name: str
    size: int
    sha256: str | None = None


@dataclass(frozen=True)
class HeadReport:
    """Facts and faults of a head's files; an unknown field is None.

    ``trained_k`` is its trained number of draft tokens, ``dtype`` that of its weights. ``target_known`` is
    True if it was compared with its target's config. ``context`` is the number of positions it can draft for,
    ``vllm`` the first version that uses all of its config, if that is newer than P-EAGLE itself.
    """

    place: str
    format: HeadFormat | None = None
    method: Mode | None = None
    architecture: str | None = None
    layers: int | None = None
    hidden_size: int | None = None
    target_hidden_size: int | None = None
    vocab_size: int | None = None
    draft_vocab_size: int | None = None
    mask_token_id: int | None = None
    aux_layer_ids: tuple[int, ...] = ()
    trained_k: int | None = None
    dtype: str | None = None
    parameters: int = 0
    licence: str | None = None
    revision: str | None = None
    target: str | None = None
    target_known: bool = False
    context: int | None = None
    vllm: str | None = None
    vllm_reason: str | None = None
    files: tuple[FileRecord, ...] = ()
    faults: tuple[Finding, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """True if it may be deployed."""
        return not any(fault.severity == "error" for fault in self.faults)

    @property
    def size(self) -> int:
        """Total size of its files in bytes."""
        return sum(file.size for file in self.files)

    def raise_for_faults(self) -> None:
        """Raise an error if the head must not be deployed.

        Raises:
            HeadRefused: the head has errors; the message lists all of them.
        """
        if not self.ok:
            raise refused(self.place, self.faults)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**asdict(self), "ok": self.ok}


def refused(place: str, faults: Sequence[Finding], *, shown: bool = False) -> HeadRefused:
    """Return the error that lists all "error" faults; only codes if already shown."""
    errors = [fault for fault in faults if fault.severity == "error"]
    steps = dict.fromkeys(fault.next_step for fault in errors if fault.next_step)
    codes = ", ".join(dict.fromkeys(fault.check for fault in errors))
    listed = f" {codes}" if shown else "".join(f"\n{fault.check}: {fault.message}" for fault in errors)
    return HeadRefused(
        f"the draft head at {place} must not be deployed:{listed}",
        next_step=next(iter(steps), "Use another head, or export it again."),
        details={"findings": [fault.to_dict() for fault in faults]},
    )


@dataclass(frozen=True)
class HeadLook:
    """Result of checking a spec's head, by its manifest or else by its files."""

    uri: str
    by: Literal["manifest", "files"]
    faults: tuple[Finding, ...]
    context: int | None = None
    vllm: str | None = None


SPECULATORS_TYPES = ("eagle3", "peagle")
DEFAULT_AUX_STATES = 3

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Layout:
    """Model that the engine builds from the config; sizes are numbers of values."""

    format: HeadFormat
    family: Literal["llama", "qwen3"]
    architecture: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int
    draft_vocab: int
    target_hidden: int
    aux_states: int
    uses_aux: bool
    norm_before_fc: bool
    fc_norm: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    aux_layer_ids: tuple[int, ...]
    mask_tokens: Mapping[str, Any]
    trained_k: int | None
    tied: bool
    quantized: bool
    dtype: str | None
    declared_parallel: bool | None
    verifier: str | None
    context: int | None
    engine: tuple[str, str] | None

    @property
    def fc_input(self) -> int:
        """Width of the target's hidden states that the head reads."""
        return self.target_hidden * self.aux_states if self.uses_aux else self.target_hidden

    @property
    def mask_token(self) -> Any:
        """Mask token that vLLM uses; None without one."""
        return next((self.mask_tokens[key] for key in MASK_KEYS if key in self.mask_tokens), None)


def is_speculators(config: Config) -> bool:
    """Return whether the config has the format of the `speculators` library."""
    return "speculators_model_type" in config


def read_layout(config: Config) -> tuple[Layout | None, list[Finding]]:
    """Read a config; return None and the faults if an engine cannot load it."""
    faults: list[Finding] = []
    layer = config.get("transformer_layer_config") if is_speculators(config) else config
    if is_speculators(config):
        faults += _speculators_faults(config)
    if not isinstance(layer, Mapping):
        return None, [
            *faults,
            error_finding("config", "config.json has no transformer_layer_config"),
        ]
    family, architecture, unknown = _family(config, layer)
    faults += unknown
    faults += _unread(config)
    faults += [_size_fault(layer, key) for key in HEAD_SIZES if not _positive(layer.get(key))]
    faults += _kind_faults(config, layer)
    if family is None or any(fault.severity == "error" for fault in faults):
        return None, faults
    return _layout(config, layer, family, architecture), faults


def _layout(config: Config, layer: Config, family: Literal["llama", "qwen3"], architecture: str) -> Layout:
    speculators = is_speculators(config)
    eagle = config.get("eagle_config")
    eagle = eagle if isinstance(eagle, Mapping) else {}
    hidden, heads = layer["hidden_size"], layer["num_attention_heads"]
    bias = bool(layer.get("attention_bias") or layer.get("bias"))
    ids = (
        config.get("eagle_aux_hidden_state_layer_ids") or eagle.get("eagle_aux_hidden_state_layer_ids") or ()
    )
    ids = tuple(ids) if isinstance(ids, list | tuple) else ()
    draft = config.get("draft_vocab_size")
    aux_states = _aux_states(layer, eagle, ids, family)
    masks = {key: config[key] for key in MASK_KEYS if config.get(key) is not None}
    dtype = layer.get("dtype") or layer.get("torch_dtype") or config.get("dtype") or config.get("torch_dtype")
    return Layout(
        format="speculators" if speculators else "eagle3",
        family=family,
        architecture=architecture,
        hidden=hidden,
        layers=layer["num_hidden_layers"],
        heads=heads,
        kv_heads=_int(layer.get("num_key_value_heads")) or heads,
        head_dim=_int(layer.get("head_dim")) or hidden // heads,
        inner=layer["intermediate_size"],
        vocab=layer["vocab_size"],
        draft_vocab=_int(draft) or layer["vocab_size"],
        target_hidden=_int(config.get("target_hidden_size"))
        or _int(layer.get("target_hidden_size"))
        or hidden,
        aux_states=aux_states,
        uses_aux=bool(eagle.get("use_aux_hidden_state", True)),
        norm_before_fc=bool(eagle.get("norm_before_fc", config.get("norm_before_fc", False))),
        # vLLM's update of a speculators peagle config does not carry fc_norm over
        fc_norm=bool(config.get("fc_norm")) and config.get("speculators_model_type") != "peagle",
        qkv_bias=bool(layer.get("qkv_bias", bias)),
        o_bias=bias and family == "llama",
        mlp_bias=bool(layer.get("mlp_bias")) and family == "llama",
        aux_layer_ids=ids,
        mask_tokens=masks,
        trained_k=_int((first_method(config) or {}).get("speculative_tokens")),
        tied=bool(layer.get("tie_word_embeddings", config.get("tie_word_embeddings", False))),
        quantized="quantization_config" in config or "quantization_config" in layer,
        dtype=dtype if isinstance(dtype, str) else None,
        declared_parallel=config["speculators_model_type"] == "peagle" if speculators else None,
        verifier=verifier_of(config),
        context=context_of(layer, kind_of(config), family),
        engine=first_engine(engine_needs(config, family, architecture, aux_states, tuple(masks))),
    )


def _aux_states(layer: Config, eagle: Config, ids: tuple[Any, ...], family: str) -> int:
    declared = _int(layer.get("num_aux_hidden_states"))
    if family == "qwen3":
        return _int(layer.get("num_aux_layers")) or declared or len(ids) or DEFAULT_AUX_STATES
    # the Llama head of vLLM counts those of eagle_config alone, and takes three otherwise
    nested = eagle.get("eagle_aux_hidden_state_layer_ids")
    return declared or (len(nested) if isinstance(nested, list) and nested else DEFAULT_AUX_STATES)


def _family(config: Config, layer: Config) -> tuple[Literal["llama", "qwen3"] | None, str, list[Finding]]:
    if is_speculators(config):
        kind = layer.get("model_type", "llama")
        model_type = config.get("model_type")
        if model_type not in (None, "speculators"):
            allowed = "speculators, or none; with another one vLLM does not read the speculators format"
            return None, "", [_model_type(model_type, allowed, "Remove model_type from config.json.")]
        if kind in ("llama", "qwen3"):
            return kind, f"speculators {config['speculators_model_type']}, {kind}", []
        message = f"transformer_layer_config.model_type: found {kind!r}; allowed: llama, qwen3"
        return None, "", [error_finding("format", message)]
    formats, listed = load_head_formats(), config.get("architectures")
    names = [str(name) for name in listed] if isinstance(listed, list) else []
    name = next(
        (candidate for candidate in names if formats.loaded_as(candidate) in formats.architectures), None
    )
    kind = str(config.get("model_type", ""))
    if name is None or kind == "eagle" or kind.endswith("_mtp"):
        return None, "".join(names[:1]), [_refused_architecture(names, kind)]
    if (fault := _model_type_fault(config)) is not None:
        return None, name, [fault]
    loaded = formats.loaded_as(name)
    layout = formats.architectures[loaded].layout
    if layout is None:
        message = f"architectures: vLLM loads {loaded}, but this check does not know its weights"
        return None, loaded, [Finding("warning", message, check="format")]
    return layout, name, []


def _model_type_fault(config: Config) -> Finding | None:
    """Return the error of a model_type with which vLLM does not load the config as it is."""
    allowed_types = load_head_formats().model_types
    kind = config.get("model_type")
    step = "Set model_type: llama if its weights have the layout of vLLM's Llama head."
    return None if kind in allowed_types else _model_type(kind, ", ".join(allowed_types), step)


def _model_type(value: Any, allowed: str, step: str) -> Finding:
    return error_finding("format", f"model_type: found {value!r}; allowed: {allowed}", step)


def _refused_architecture(names: Sequence[str], kind: str) -> Finding:
    """Return the error of a head of another method: EAGLE-1, Medusa and others."""
    formats = load_head_formats()
    missing = [name for name in map(formats.loaded_as, names) if name not in formats.architectures]
    looked_up = f", which vLLM looks up as {', '.join(missing)} and does not have" if missing else ""
    return error_finding(
        "format",
        f"architectures: found {', '.join(names) or None} with model_type {kind or 'none'}"
        f"{looked_up}; allowed for an EAGLE-3 or P-EAGLE head: {', '.join(formats.names)}, or the "
        "speculators format",
        "If its weights have the layout of vLLM's Llama head, set architectures: [LlamaForCausalLMEagle3] "
        "and model_type: llama. A head of another method (EAGLE-1, Medusa) cannot be served.",
    )


def _unread(config: Config) -> Iterator[Finding]:
    for name in unread_fields(config):
        yield error_finding(
            "engine-version",
            f"{name}: no vLLM up to {load_head_formats().newest} reads it from a speculators head of type "
            "peagle, so the head would draft worse tokens without a message",
            f"Train or export the head without {name}.",
        )


def _speculators_faults(config: Config) -> list[Finding]:
    kind = config["speculators_model_type"]
    if kind not in SPECULATORS_TYPES:
        message = f"speculators_model_type: found {kind!r}; allowed: {', '.join(SPECULATORS_TYPES)}"
        return [error_finding("format", message, "Use an EAGLE-3 or P-EAGLE head.")]
    method = first_method(config)
    if method is None or verifier_of(config) is None or _int(method.get("speculative_tokens")) is None:
        message = "speculators_config lacks the verifier, or speculative_tokens of its first proposal method"
        return [error_finding("config", message, "Export the head with `speculators` again.")]
    return []


def first_method(config: Config) -> Config | None:
    """Return the first proposal method of a speculators config; None without one."""
    inner = config.get("speculators_config")
    methods = inner.get("proposal_methods") if isinstance(inner, Mapping) else None
    first = methods[0] if isinstance(methods, list) and methods else None
    return first if isinstance(first, Mapping) else None


def verifier_of(config: Config) -> str | None:
    """Return the target that a speculators config names; None without one."""
    inner = config.get("speculators_config")
    verifier = inner.get("verifier") if isinstance(inner, Mapping) else None
    name = verifier.get("name_or_path") if isinstance(verifier, Mapping) else None
    return name if isinstance(name, str) else None


def _value_fault(message: str) -> Finding:
    return error_finding("config", message, "Correct the head's config.json, or use another head.")


def _size_fault(layer: Config, key: str) -> Finding:
    if key not in layer:
        return _value_fault(f"config.json lacks {key}")
    return _value_fault(f"{key}: found {layer[key]!r}; allowed: a whole number above 0")


_OPTIONAL_SIZES = ("num_key_value_heads", "head_dim", "draft_vocab_size", "target_hidden_size")
_POSITIONS = ("max_position_embeddings", "n_positions", "seq_length", "model_max_length")


def _kind_faults(config: Config, layer: Config) -> Iterator[Finding]:
    """Yield values of another kind: Transformers refuses them while the engine starts."""
    for key in _OPTIONAL_SIZES:
        value = layer.get(key, config.get(key))
        if value is not None and not _positive(value):
            yield _size_fault({**config, **layer}, key)
    for key in _POSITIONS:
        if key in layer and not _positive(layer[key]):
            yield _size_fault(layer, key)
    epsilon = layer.get("rms_norm_eps", 1e-6)
    if type(epsilon) not in (int, float) or not 0 < epsilon < 1:
        yield _value_fault(f"rms_norm_eps: found {epsilon!r}; allowed: a number between 0 and 1")
    act = layer.get("hidden_act", "silu")
    if act != "silu":
        yield _value_fault(f"hidden_act: found {act!r}; allowed: 'silu', which vLLM's heads have")
    for key in ("attention_bias", "mlp_bias", "tie_word_embeddings"):
        if not isinstance(layer.get(key) or False, bool):
            yield _value_fault(f"{key}: found {layer[key]!r}; allowed: true or false")
    dtype = layer.get("dtype", layer.get("torch_dtype"))
    if dtype is not None and str(dtype).removeprefix("torch.") not in _DTYPES:
        yield _value_fault(f"dtype: found {dtype!r}; allowed: {', '.join(_DTYPES)}")
    yield from _rope_faults(layer)
    yield from _eagle_faults(config)


_DTYPES = ("auto", "bfloat16", "float16", "float32")
_ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional", "su", "mrope")


def _rope_faults(layer: Config) -> Iterator[Finding]:
    for rope in rope_settings(layer):
        kind, theta = rope.get("rope_type", rope.get("type", "default")), rope.get("rope_theta", 1e4)
        if kind not in _ROPE_TYPES:
            yield _value_fault(f"rope_type: found {kind!r}; allowed: {', '.join(_ROPE_TYPES)}")
        if type(theta) not in (int, float) or not theta > 0:
            yield _value_fault(f"rope_theta: found {theta!r}; allowed: a number above 0")


def _eagle_faults(config: Config) -> Iterator[Finding]:
    eagle = config.get("eagle_config")
    if eagle is not None and not isinstance(eagle, Mapping):
        yield _value_fault(f"eagle_config: found {eagle!r:.60}; allowed: a mapping of fields")
    elif eagle:
        key = "eagle_aux_hidden_state_layer_ids"
        top, nested = config.get(key), eagle.get(key)
        if top and nested and top != nested:
            yield error_finding(
                "aux-layers",
                f"{key}: found {top!r:.60}, and {nested!r:.60} in eagle_config; vLLM reads the first",
                "Write the layers that the head was trained with in both places.",
            )


def _int(value: Any) -> int | None:
    return value if _positive(value) else None


def _positive(value: Any) -> bool:
    return type(value) is int and value > 0


def drafting_faults(layout: Layout, *, parallel: bool, has_mask: bool) -> Iterator[Finding]:
    """Mask token, parallel drafting and the layers that the head reads.

    Args:
        layout: the head's layout.
        parallel: whether it must draft in one pass.
        has_mask: whether its files contain ``mask_hidden``.
    """
    if parallel:
        yield from _mask_token(layout)
        if layout.declared_parallel is False:
            yield error_finding(
                "method", "it is an EAGLE-3 head (speculators_model_type eagle3); found mode p-eagle"
            )
    elif has_mask or layout.declared_parallel:
        yield error_finding(
            "method",
            "it is a P-EAGLE head, and without parallel_drafting vLLM silently uses it as an "
            "autoregressive head: "
            "the acceptance collapses",
            "Set speculation.mode: p-eagle.",
        )
    yield from _aux_layers(layout)
    yield from _attention(layout)


def depth_faults(requested: int | None, trained: int | None, *, parallel: bool) -> Iterator[Finding]:
    """Yield a fault if more tokens are requested than trained."""
    if requested is None or trained is None or requested <= trained:
        return
    if parallel:
        yield error_finding(
            "trained-k",
            f"num_speculative_tokens: found {requested}; allowed: 1 to {trained}, its trained depth",
            f"Set speculation.num_speculative_tokens to {trained} or less.",
        )
    else:
        yield Finding(
            "info",
            f"it was trained with depth {trained}; found {requested}, which may not be faster: "
            "peagle-sm tune",
            check="trained-k",
        )


def split_faults(layout: Layout, gpus: int | None) -> Iterator[Finding]:
    """Yield a fault if the attention heads cannot be split over so many GPUs.

    vLLM splits an EAGLE head like its target, whatever draft_tensor_parallel_size is (0.32.0,
    ``v1/spec_decode/llm_base_proposer.py``). Key and value heads fewer than the GPUs are repeated.
    """
    if gpus is None:
        return
    fewer, more = sorted((layout.kv_heads, gpus))
    if layout.heads % gpus or more % fewer:
        sizes = [n for n in range(1, layout.heads + 1) if not layout.heads % n]
        allowed = [n for n in sizes if not max(n, layout.kv_heads) % min(n, layout.kv_heads)]
        yield error_finding(
            "tensor-parallel",
            f"its {layout.heads} attention heads ({layout.kv_heads} for keys and values) cannot be split "
            f"over {gpus} GPUs; allowed: {', '.join(map(str, allowed))}",
            "Change serving.tensor_parallel_size, or use another head.",
        )


def _mask_token(layout: Layout) -> Iterator[Finding]:
    if not layout.mask_tokens:
        yield error_finding("mask-token", f"config.json has no mask token ({', '.join(MASK_KEYS)})")
        return
    if len({repr(value) for value in layout.mask_tokens.values()}) > 1:
        tokens = ", ".join(f"{key} {value!r}" for key, value in layout.mask_tokens.items())
        yield error_finding(
            "mask-token", f"config.json has several mask tokens: {tokens}; vLLM's versions use different ones"
        )
    token = layout.mask_token
    if type(token) is not int or not 0 <= token < layout.vocab:
        yield error_finding(
            "mask-token",
            f"the mask token is {token!r}; allowed: 0 to {layout.vocab - 1}, within the vocabulary",
        )


def _aux_layers(layout: Layout) -> Iterator[Finding]:
    ids = layout.aux_layer_ids
    if not layout.uses_aux:
        return
    if not ids:
        yield Finding(
            "warning",
            "config.json lacks the layers that it reads (eagle_aux_hidden_state_layer_ids): vLLM "
            "uses the "
            "3rd, the middle and the third last, which is right only if it was trained with them",
            check="aux-layers",
        )
        return
    if not all(type(each) is int and each >= 0 for each in ids):
        yield error_finding(
            "aux-layers", f"eagle_aux_hidden_state_layer_ids: found {list(ids)!r}; allowed: whole numbers"
        )
        return
    if len(set(ids)) < len(ids):
        yield error_finding(
            "aux-layers", f"eagle_aux_hidden_state_layer_ids: found {list(ids)}; allowed: each layer once"
        )
    elif list(ids) != sorted(ids):
        yield error_finding(
            "aux-layers",
            f"eagle_aux_hidden_state_layer_ids: found {list(ids)}; vLLM sorts them, so a head trained in "
            "this "
            "order would silently read the wrong states",
        )
    if len(ids) != layout.aux_states:
        yield error_finding(
            "aux-layers",
            f"it has {len(ids)} layers, and vLLM builds fc for {layout.aux_states}: set "
            "num_aux_hidden_states",
        )


def _attention(layout: Layout) -> Iterator[Finding]:
    if layout.heads % layout.kv_heads:
        yield error_finding(
            "attention",
            f"{layout.heads} attention heads are not a multiple of {layout.kv_heads} key and value heads",
        )
    if layout.head_dim % 2:
        yield error_finding(
            "attention", f"head_dim: found {layout.head_dim}; allowed: an even number (rotary positions)"
        )
