"""How a head drafts: in one pass or one token after the other, from which layers, how far. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from peagle_sm.core.heads.fault import HeadFault
from peagle_sm.core.heads.layout import MASK_KEYS, Layout


def drafting_faults(layout: Layout, *, parallel: bool, has_mask: bool) -> Iterator[HeadFault]:
    """Mask token, parallel drafting and the layers that the head reads.

    Args:
        layout: the head's.
        parallel: whether it is to draft in one pass.
        has_mask: whether its files hold ``mask_hidden``.
    """
    if parallel:
        yield from _mask_token(layout)
        if layout.declared_parallel is False:
            yield HeadFault(
                "method",
                "error",
                "it is an EAGLE-3 head (speculators_model_type eagle3), asked to draft in one pass",
            )
    elif has_mask or layout.declared_parallel:
        yield HeadFault(
            "method",
            "error",
            "it is a P-EAGLE head, and without parallel_drafting vLLM takes it for an autoregressive one "
            "in silence: "
            "acceptance collapses",
            "Set speculation.mode: p-eagle.",
        )
    yield from _aux_layers(layout)
    yield from _attention(layout)


def depth_faults(asked: int | None, trained: int | None, *, parallel: bool) -> Iterator[HeadFault]:
    """The number of tokens asked for against the number trained."""
    if asked is None or trained is None or asked <= trained:
        return
    if parallel:
        yield HeadFault(
            "trained-k",
            "error",
            f"num_speculative_tokens: found {asked}; allowed: 1 to {trained}, the depth it was trained for",
            f"Set speculation.num_speculative_tokens to {trained} or less.",
        )
    else:
        yield HeadFault(
            "trained-k",
            "info",
            f"it was unrolled {trained} deep in training; found {asked}, which may not pay: peagle-sm tune",
        )


def _mask_token(layout: Layout) -> Iterator[HeadFault]:
    if not layout.mask_tokens:
        yield HeadFault("mask-token", "error", f"config.json names no mask token ({', '.join(MASK_KEYS)})")
        return
    if len({repr(value) for value in layout.mask_tokens.values()}) > 1:
        told = ", ".join(f"{key} {value!r}" for key, value in layout.mask_tokens.items())
        yield HeadFault(
            "mask-token",
            "error",
            f"config.json names several mask tokens: {told}; vLLM's versions differ in which",
        )
    token = layout.mask_token
    if type(token) is not int or not 0 <= token < layout.vocab:
        yield HeadFault(
            "mask-token",
            "error",
            f"the mask token is {token!r}; allowed: 0 to {layout.vocab - 1}, within the vocabulary",
        )


def _aux_layers(layout: Layout) -> Iterator[HeadFault]:
    ids = layout.aux_layer_ids
    if not layout.uses_aux:
        return
    if not ids:
        yield HeadFault(
            "aux-layers",
            "warning",
            "config.json does not say which layers it reads (eagle_aux_hidden_state_layer_ids): vLLM "
            "takes the "
            "3rd, the middle and the last but two, right only if it was trained so",
        )
        return
    if not all(type(each) is int and each >= 0 for each in ids):
        yield HeadFault(
            "aux-layers",
            "error",
            f"eagle_aux_hidden_state_layer_ids: found {list(ids)!r}; allowed: whole numbers",
        )
        return
    if len(set(ids)) < len(ids):
        yield HeadFault(
            "aux-layers", "error", f"eagle_aux_hidden_state_layer_ids: found {list(ids)}, one of them twice"
        )
    elif list(ids) != sorted(ids):
        yield HeadFault(
            "aux-layers",
            "error",
            f"eagle_aux_hidden_state_layer_ids: found {list(ids)}; vLLM sorts them, so a head trained in "
            "this "
            "order would read the wrong states in silence",
        )
    if len(ids) != layout.aux_states:
        yield HeadFault(
            "aux-layers",
            "error",
            f"it names {len(ids)} layers, and vLLM builds fc for {layout.aux_states}: say "
            "num_aux_hidden_states",
        )


def _attention(layout: Layout) -> Iterator[HeadFault]:
    if layout.heads % layout.kv_heads:
        yield HeadFault(
            "attention",
            "error",
            f"{layout.heads} attention heads cannot share {layout.kv_heads} key and value heads",
        )
    if layout.head_dim % 2:
        yield HeadFault(
            "attention", "error", f"head_dim is {layout.head_dim}; rotary positions need an even one"
        )
