"""Checks of a head's tensors: header, expected tensors, vocabulary. Pure.

vLLM loads a head without ``d2t``, or without a layer's weights, and drafts wrong tokens with it: the
acceptance length falls to 1, the outputs stay right, and no error is reported. So the head is checked before.
``d2t`` has the offsets from the head's smaller vocabulary to the target's, ``t2d`` flags the target's tokens
that the head has.

Source of the safetensors rules: the format's page (github.com/safetensors/safetensors, "Format") and its
loader, which refuses headers over 100 MB, duplicate names, gaps and overlaps. All checks run before a tensor
is loaded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeGuard

from peagle_sm.core.heads.layout import Layout
from peagle_sm.core.words import Finding, error_finding

Shape = tuple[int, ...]

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000
MAX_DIMENSIONS = 16
"""Upper bound on tensor rank; larger headers are treated as hostile."""

BITS: Mapping[str, int] = {
    **{"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6},
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}
FLOATS = frozenset({"F16", "BF16", "F32"})


class HeaderFault(ValueError):
    """A safetensors file is incomplete or invalid; the message has the file's name."""


@dataclass(frozen=True)
class Tensor:
    """One tensor; ``start`` and ``end`` are byte offsets in ``file``."""

    dtype: str
    shape: Shape
    file: str = ""
    start: int = 0
    end: int = 0

    @property
    def count(self) -> int:
        """Number of values."""
        return prod(self.shape)


def header_length(first: bytes, size: int, name: str) -> int:
    """Return the header's length from the first eight bytes of a file.

    Raises:
        HeaderFault: the file is cut short, is another format, or has a header that is too long.
    """
    if len(first) < LENGTH_BYTES or size < LENGTH_BYTES:
        raise HeaderFault(f"{name} is cut short or not a safetensors file ({size} bytes)")
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    if length > MAX_HEADER_BYTES and length <= size - LENGTH_BYTES:
        raise HeaderFault(f"{name} has a header of {length} bytes; allowed: at most {MAX_HEADER_BYTES}")
    if not 0 < length <= size - LENGTH_BYTES:
        raise HeaderFault(f"{name} is cut short or not a safetensors file ({size} bytes)")
    return length


def parse_header(text: bytes, size: int, name: str) -> dict[str, Tensor]:
    """Parse a header; ``size`` is the file's size.

    Raises:
        HeaderFault: it is not a JSON object, a name occurs twice, or offsets leave gaps, overlap, pass the
            end of the file, or do not fit the tensor's shape.
    """
    entries = _json_object(text, name)
    begin = LENGTH_BYTES + len(text)
    tensors = {
        key: _tensor(key, entry, name, begin) for key, entry in entries.items() if key != "__metadata__"
    }
    about = entries.get("__metadata__", {})
    if not isinstance(about, dict) or not all(isinstance(each, str) for each in about.values()):
        raise HeaderFault(f"{name}: __metadata__ is not a mapping of text to text")
    _covers(tensors, begin, size, name)
    return tensors


def _json_object(text: bytes, name: str) -> dict[str, Any]:
    if not text.startswith(b"{"):
        raise HeaderFault(f"{name} has no safetensors header: it does not start with a brace")

    def once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for key, value in pairs:
            if key in entries:
                raise HeaderFault(f"{name}: {key!r} occurs twice in the header")
            entries[key] = value
        return entries

    try:
        document = json.loads(text.decode("utf-8"), object_pairs_hook=once)
    except HeaderFault:
        raise
    except (ValueError, RecursionError) as error:
        raise HeaderFault(f"{name} has no safetensors header: {error}") from error
    if not isinstance(document, dict):
        raise HeaderFault(f"{name} has no safetensors header: it is not a JSON object")
    return document


def _tensor(key: str, entry: Any, name: str, begin: int) -> Tensor:
    if not isinstance(entry, dict):
        raise HeaderFault(f"{name}: {key} must be an object with dtype, shape and data_offsets")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in BITS:
        raise HeaderFault(f"{name}: {key} has dtype {dtype!r}; allowed: {', '.join(sorted(BITS))}")
    if not _whole_numbers(shape) or len(shape) > MAX_DIMENSIONS:
        raise HeaderFault(f"{name}: the shape of {key} must be at most {MAX_DIMENSIONS} whole numbers")
    if not _whole_numbers(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise HeaderFault(f"{name}: the data_offsets of {key} must be two ascending whole numbers")
    bits = prod(shape) * BITS[dtype]
    if bits != 8 * (offsets[1] - offsets[0]):
        raise HeaderFault(
            f"{name}: {key} is {'x'.join(map(str, shape)) or 'a scalar'} of {dtype}, {bits // 8} bytes, "
            "but its "
            f"offsets span {offsets[1] - offsets[0]}"
        )
    return Tensor(dtype, tuple(shape), name, begin + offsets[0], begin + offsets[1])


def _whole_numbers(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(each) is int and 0 <= each < 2**63 for each in value)


def _covers(tensors: Mapping[str, Tensor], begin: int, size: int, name: str) -> None:
    reached, last = begin, "the header"
    for key, tensor in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].end)):
        if tensor.start < reached:
            raise HeaderFault(f"{name}: {key} overlaps {last}")
        if tensor.start > reached:
            raise HeaderFault(
                f"{name}: {tensor.start - reached} bytes between {last} and {key} belong to no tensor"
            )
        reached, last = tensor.end, key
    if reached > size:
        raise HeaderFault(f"{name} is cut short: {size} bytes, but its header needs {reached}")
    if reached < size:
        raise HeaderFault(f"{name}: {size - reached} bytes after {last} belong to no tensor")


EMBEDDING, OUTPUT = "embed_tokens.weight", "lm_head.weight"
MASK, TO_TARGET, TO_DRAFT = "mask_hidden", "d2t", "t2d"
_UNUSED = re.compile(r"rotary_(pos_)?emb\.(inv_freq|cos_cached|sin_cached)$")
_SCALES = re.compile(r"(_scale(_inv)?|_zero_point|_packed|_shape|_g_idx|g_idx|qweight|qzeros|scales)$")
_NEEDS_SCALE = frozenset({"I8", "F8_E4M3", "F8_E5M2"})
_INTEGERS = frozenset({"I64", "I32"})
_FLAGS = frozenset({"BOOL", "U8", "I8", "I64", "I32"})


def expected_tensors(layout: Layout, *, parallel: bool) -> dict[str, Shape]:
    """Return the tensors that the engine needs; the first layer is ``layers.0``.

    The embedding and the output matrix are included only if the target's cannot replace them.
    """
    shapes: dict[str, Shape] = {"norm.weight": (layout.hidden,)}
    if layout.uses_aux:
        shapes["fc.weight"] = (layout.hidden, layout.fc_input)
        if layout.norm_before_fc:
            shapes["input_norm.weight"] = (layout.fc_input,)
        if layout.fc_norm:
            shapes |= {f"fc_norm.{n}.weight": (layout.target_hidden,) for n in range(layout.aux_states)}
    for index in range(layout.layers):
        shapes |= _layer(layout, index)
    if layout.draft_vocab != layout.vocab:
        shapes[TO_TARGET] = (layout.draft_vocab,)
    if layout.draft_vocab != layout.vocab or layout.hidden != layout.target_hidden:
        shapes[OUTPUT] = (layout.draft_vocab, layout.hidden)
    if layout.hidden != layout.target_hidden:
        shapes[EMBEDDING] = (layout.vocab, layout.hidden)
    if parallel:
        shapes[MASK] = (1, 1, layout.fc_input)
    return shapes


def optional_tensors(layout: Layout) -> dict[str, Shape]:
    """Return optional tensors: own embedding and output matrix, and ``t2d``."""
    shapes: dict[str, Shape] = {
        EMBEDDING: (layout.vocab, layout.hidden),
        OUTPUT: (layout.draft_vocab, layout.hidden),
        MASK: (1, 1, layout.fc_input),
    }
    if layout.draft_vocab != layout.vocab:
        shapes[TO_DRAFT] = (layout.vocab,)
    return shapes


def weight_faults(layout: Layout, tensors: Mapping[str, Tensor], *, parallel: bool) -> list[Finding]:
    """Return tensors that are missing, unexpected, or of a wrong shape or dtype."""
    by_name, twice = _under_one_name(tensors)
    faults = [error_finding("weights-unexpected", f"{name} exists under two names") for name in twice]
    expected = expected_tensors(layout, parallel=parallel)
    known = {**optional_tensors(layout), **expected}
    faults += [error_finding("weights-missing", f"{n} is missing") for n in expected if n not in by_name]
    for name, tensor in by_name.items():
        faults += _one(name, tensor, known, layout)
    return [*faults, *_unlike(layout, by_name)]


def _layer(layout: Layout, index: int) -> dict[str, Shape]:
    hidden, inner = layout.hidden, layout.inner
    taken = 2 * hidden if index == 0 else hidden
    queries, keys = layout.heads * layout.head_dim, layout.kv_heads * layout.head_dim
    name = f"layers.{index}."
    shapes: dict[str, Shape] = {
        f"{name}self_attn.q_proj.weight": (queries, taken),
        f"{name}self_attn.k_proj.weight": (keys, taken),
        f"{name}self_attn.v_proj.weight": (keys, taken),
        f"{name}self_attn.o_proj.weight": (hidden, queries),
        f"{name}mlp.gate_proj.weight": (inner, hidden),
        f"{name}mlp.up_proj.weight": (inner, hidden),
        f"{name}mlp.down_proj.weight": (hidden, inner),
        f"{name}input_layernorm.weight": (hidden,),
        f"{name}post_attention_layernorm.weight": (hidden,),
    }
    if index == 0:
        shapes[f"{name}hidden_norm.weight"] = (hidden,)
    if layout.family == "qwen3":
        shapes |= {f"{name}self_attn.{n}_norm.weight": (layout.head_dim,) for n in "qk"}
    if layout.qkv_bias:
        sizes = {"q": queries, "k": keys, "v": keys}
        shapes |= {f"{name}self_attn.{n}_proj.bias": (size,) for n, size in sizes.items()}
    if layout.o_bias:
        shapes[f"{name}self_attn.o_proj.bias"] = (hidden,)
    if layout.mlp_bias:
        shapes |= {f"{name}mlp.{n}_proj.bias": (inner,) for n in ("gate", "up")}
        shapes[f"{name}mlp.down_proj.bias"] = (hidden,)
    return shapes


def _under_one_name(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    by_name: dict[str, Tensor] = {}
    twice = []
    for name, tensor in tensors.items():
        plain = name.replace("midlayer.", "layers.0.", 1)
        if plain in by_name:
            twice.append(plain)
        by_name[plain] = tensor
    return by_name, twice


def _one(name: str, tensor: Tensor, known: Mapping[str, Shape], layout: Layout) -> Iterator[Finding]:
    if _UNUSED.search(name) or (layout.quantized and _SCALES.search(name)):
        return
    if name not in known:
        if name in (TO_TARGET, TO_DRAFT):
            if name == TO_TARGET:
                yield error_finding(
                    "vocabulary-map",
                    f"{name} exists although the vocabularies are equal: vLLM does not expect it and "
                    "refuses it",
                    "Remove d2t and t2d.",
                )
            return
        yield error_finding("weights-unexpected", f"{name} is not expected in this head{_why(name)}")
        return
    wanted = known[name]
    same = tensor.count == wanted[-1] if name == MASK else tensor.shape == wanted
    if not same and not layout.quantized:
        yield error_finding(
            "weights-shape", f"{name}: found shape {_text(tensor.shape)}; expected {_text(wanted)}"
        )
    allowed = _INTEGERS if name == TO_TARGET else _FLAGS if name == TO_DRAFT else FLOATS
    if tensor.dtype not in allowed and not layout.quantized:
        yield error_finding(
            "dtype", f"{name}: found dtype {tensor.dtype}; allowed: {', '.join(sorted(allowed))}"
        )


def _why(name: str) -> str:
    if name.startswith("verifier_"):
        return ": it belongs to the target in a training checkpoint; export the head"
    if name.startswith("model."):
        return ": vLLM adds `model.` itself"
    return ""


def _unlike(layout: Layout, tensors: Mapping[str, Tensor]) -> Iterator[Finding]:
    if layout.quantized:
        for name, tensor in tensors.items():
            scales = (f"{name}_scale", f"{name}_scale_inv")
            if tensor.dtype in _NEEDS_SCALE and name.endswith(".weight") and not tensors.keys() & set(scales):
                yield error_finding(
                    "dtype",
                    f"{name}: found dtype {tensor.dtype} without {scales[0]}: its values mean nothing",
                )
        yield Finding(
            "warning",
            "the head is quantised: shapes and scales of its weights were not checked",
            check="dtype",
        )
        return
    names = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
    dtypes = sorted({each.dtype for each in tensors.values() if each.dtype in FLOATS})
    if len(dtypes) > 1:
        yield Finding("warning", f"its weights have several dtypes: {', '.join(dtypes)}", check="dtype")
    elif dtypes and layout.dtype in names and names[layout.dtype] != dtypes[0]:
        yield Finding(
            "warning", f"config.json has {layout.dtype}, but its weights are {dtypes[0]}", check="dtype"
        )
    if layout.tied and EMBEDDING in tensors and OUTPUT not in tensors:
        yield error_finding(
            "tied-embeddings",
            "tie_word_embeddings is true, but vLLM does not tie a head's embeddings: it would draft with the "
            "target's lm_head instead of the head's embedding",
            "Add lm_head.weight to the head, and set tie_word_embeddings: false.",
        )


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "a scalar"


_CODE = "vocabulary-map"


def vocabulary_faults(layout: Layout, values: Mapping[str, Sequence[int]]) -> list[Finding]:
    """Compare the maps with the vocabularies and each other; ``values`` has the maps."""
    if layout.draft_vocab > layout.vocab:
        message = (
            f"draft_vocab_size {layout.draft_vocab} is larger than the target's vocabulary, {layout.vocab}"
        )
        return [error_finding(_CODE, message)]
    offsets = values.get(TO_TARGET)
    if layout.draft_vocab == layout.vocab or offsets is None or len(offsets) != layout.draft_vocab:
        return []  # nothing to map, or weight_faults has said it
    targets = [index + offset for index, offset in enumerate(offsets)]
    faults = _range_faults(targets, layout.vocab)
    flags = values.get(TO_DRAFT)
    if not faults and flags is not None and len(flags) == layout.vocab:
        faults += _flag_faults(set(targets), flags)
    elif not faults and flags is None and not any(offsets):
        message = (
            f"d2t is all zeros and t2d is missing: the head would draft only the first {layout.draft_vocab} "
            "tokens, "
            "as if the map was lost"
        )
        faults.append(Finding("warning", message, check=_CODE))
    return faults


def _range_faults(targets: Sequence[int], vocab: int) -> list[Finding]:
    for index, target in enumerate(targets):
        if not 0 <= target < vocab:
            message = f"d2t maps draft token {index} to {target}; allowed: 0 to {vocab - 1}, the vocabulary"
            return [error_finding(_CODE, message)]
    if len(set(targets)) < len(targets):
        message = (
            f"d2t maps {len(targets)} draft tokens to {len(set(targets))} tokens; expected one each. It may "
            "have token ids instead of offsets (id = index + d2t[index])"
        )
        return [error_finding(_CODE, message)]
    return []


def _flag_faults(targets: set[int], flags: Sequence[int]) -> list[Finding]:
    marked = {index for index, flag in enumerate(flags) if flag}
    if marked == targets:
        return []
    message = (
        f"t2d marks {len(marked)} tokens and d2t maps to {len(targets)}; they differ in "
        f"{len(marked ^ targets)}"
    )
    return [error_finding(_CODE, message)]
