"""The tensors of a head: those that its config calls for, and what is wrong with those it has. Pure.

vLLM itself loads a head without ``d2t``, or without some layer's weights, and drafts nonsense with it:
acceptance falls to 1, the outputs stay right, and no error is reported. So the head is checked first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from peagle_sm.core.heads.fault import HeadFault
from peagle_sm.core.heads.layout import Layout
from peagle_sm.core.heads.safetensors import FLOATS, Shape, Tensor

EMBEDDING, OUTPUT = "embed_tokens.weight", "lm_head.weight"
MASK, TO_TARGET, TO_DRAFT = "mask_hidden", "d2t", "t2d"
_UNUSED = re.compile(r"rotary_(pos_)?emb\.(inv_freq|cos_cached|sin_cached)$")
_SCALES = re.compile(r"(_scale(_inv)?|_zero_point|_packed|_shape|_g_idx|g_idx|qweight|qzeros|scales)$")
_INTEGERS = frozenset({"I64", "I32"})
_FLAGS = frozenset({"BOOL", "U8", "I8", "I64", "I32"})


def expected_tensors(layout: Layout, *, parallel: bool) -> dict[str, Shape]:
    """Every tensor that the engine needs, with its shape; the first layer is called ``layers.0``.

    The embedding and the output matrix are in it only where the target's cannot stand in for them.
    """
    made: dict[str, Shape] = {"norm.weight": (layout.hidden,)}
    if layout.uses_aux:
        made["fc.weight"] = (layout.hidden, layout.fc_input)
        if layout.norm_before_fc:
            made["input_norm.weight"] = (layout.fc_input,)
        if layout.fc_norm:
            made |= {f"fc_norm.{n}.weight": (layout.target_hidden,) for n in range(layout.aux_states)}
    for index in range(layout.layers):
        made |= _layer(layout, index)
    if layout.draft_vocab != layout.vocab:
        made[TO_TARGET] = (layout.draft_vocab,)
    if layout.draft_vocab != layout.vocab or layout.hidden != layout.target_hidden:
        made[OUTPUT] = (layout.draft_vocab, layout.hidden)
    if layout.hidden != layout.target_hidden:
        made[EMBEDDING] = (layout.vocab, layout.hidden)
    if parallel:
        made[MASK] = (1, 1, layout.fc_input)
    return made


def optional_tensors(layout: Layout) -> dict[str, Shape]:
    """What a head may have besides: its own embedding and output matrix, and the map back."""
    made: dict[str, Shape] = {
        EMBEDDING: (layout.vocab, layout.hidden),
        OUTPUT: (layout.draft_vocab, layout.hidden),
        MASK: (1, 1, layout.fc_input),
    }
    if layout.draft_vocab != layout.vocab:
        made[TO_DRAFT] = (layout.vocab,)
    return made


def weight_faults(layout: Layout, tensors: Mapping[str, Tensor], *, parallel: bool) -> list[HeadFault]:
    """What is missing, misshapen, unexpected, or of a type that the engine would not take."""
    found, twice = _under_one_name(tensors)
    faults = [HeadFault("weights-unexpected", "error", f"{name} is there under two names") for name in twice]
    expected = expected_tensors(layout, parallel=parallel)
    known = {**optional_tensors(layout), **expected}
    faults += [HeadFault("weights-missing", "error", f"{n} is missing") for n in expected if n not in found]
    for name, tensor in found.items():
        faults += _one(name, tensor, known, layout)
    return [*faults, *_unlike(layout, found)]


def _layer(layout: Layout, index: int) -> dict[str, Shape]:
    hidden, inner = layout.hidden, layout.inner
    taken = 2 * hidden if index == 0 else hidden
    queries, keys = layout.heads * layout.head_dim, layout.kv_heads * layout.head_dim
    name = f"layers.{index}."
    made: dict[str, Shape] = {
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
        made[f"{name}hidden_norm.weight"] = (hidden,)
    if layout.family == "qwen3":
        made |= {f"{name}self_attn.{n}_norm.weight": (layout.head_dim,) for n in "qk"}
    if layout.qkv_bias:
        sizes = {"q": queries, "k": keys, "v": keys}
        made |= {f"{name}self_attn.{n}_proj.bias": (size,) for n, size in sizes.items()}
    if layout.o_bias:
        made[f"{name}self_attn.o_proj.bias"] = (hidden,)
    if layout.mlp_bias:
        made |= {f"{name}mlp.{n}_proj.bias": (inner,) for n in ("gate", "up")}
        made[f"{name}mlp.down_proj.bias"] = (hidden,)
    return made


def _under_one_name(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    found: dict[str, Tensor] = {}
    twice = []
    for name, tensor in tensors.items():
        plain = name.replace("midlayer.", "layers.0.", 1)
        if plain in found:
            twice.append(plain)
        found[plain] = tensor
    return found, twice


def _one(name: str, tensor: Tensor, known: Mapping[str, Shape], layout: Layout) -> Iterator[HeadFault]:
    if _UNUSED.search(name) or (layout.quantized and _SCALES.search(name)):
        return
    if name not in known:
        if name in (TO_TARGET, TO_DRAFT):
            if name == TO_TARGET:
                yield HeadFault(
                    "vocabulary-map",
                    "error",
                    f"{name} is there although the vocabularies are equal: vLLM has no place for it and "
                    "refuses it",
                    "Leave d2t and t2d out.",
                )
            return
        yield HeadFault("weights-unexpected", "error", f"{name} is not a tensor of this layout{_why(name)}")
        return
    wanted = known[name]
    same = tensor.count == wanted[-1] if name == MASK else tensor.shape == wanted
    if not same and not layout.quantized:
        yield HeadFault("weights-shape", "error", f"{name} is {_text(tensor.shape)}, not {_text(wanted)}")
    allowed = _INTEGERS if name == TO_TARGET else _FLAGS if name == TO_DRAFT else FLOATS
    if tensor.dtype not in allowed and not layout.quantized:
        yield HeadFault(
            "dtype", "error", f"{name} is of {tensor.dtype}; allowed: {', '.join(sorted(allowed))}"
        )


def _why(name: str) -> str:
    if name.startswith("verifier_"):
        return ": it belongs to the target, in a checkpoint of training; export the head"
    if name.startswith("model."):
        return ": vLLM adds `model.` itself"
    return ""


def _unlike(layout: Layout, found: Mapping[str, Tensor]) -> Iterator[HeadFault]:
    if layout.quantized:
        yield HeadFault(
            "dtype", "warning", "the head is quantised: shapes and scales of its weights were not checked"
        )
        return
    names = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
    dtypes = sorted({each.dtype for each in found.values() if each.dtype in FLOATS})
    if len(dtypes) > 1:
        yield HeadFault("dtype", "warning", f"its weights are of several types: {', '.join(dtypes)}")
    elif dtypes and layout.dtype in names and names[layout.dtype] != dtypes[0]:
        yield HeadFault("dtype", "warning", f"config.json says {layout.dtype}, its weights are {dtypes[0]}")
    if layout.tied and EMBEDDING in found and OUTPUT not in found:
        yield HeadFault(
            "tied-embeddings",
            "error",
            "tie_word_embeddings is true, and vLLM does not tie a head's: it would draft with the target's "
            "lm_head instead of the head's own embedding",
            "Write lm_head.weight into the head, and tie_word_embeddings: false.",
        )


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "a scalar"
