"""The map between a head's smaller vocabulary and its target's: ``d2t`` offsets and ``t2d`` flags. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from peagle_sm.core.heads.fault import HeadFault
from peagle_sm.core.heads.layout import Layout
from peagle_sm.core.heads.weights import TO_DRAFT, TO_TARGET

_CODE = "vocabulary-map"


def vocabulary_faults(layout: Layout, values: Mapping[str, Sequence[int]]) -> list[HeadFault]:
    """Hold the maps against the vocabularies and each other; ``values`` has those that the files hold."""
    if layout.draft_vocab > layout.vocab:
        message = (
            f"draft_vocab_size {layout.draft_vocab} is larger than the target's vocabulary, {layout.vocab}"
        )
        return [HeadFault(_CODE, "error", message)]
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
            f"d2t is all zeros and there is no t2d: the head would draft the first {layout.draft_vocab} "
            "tokens "
            "alone, which is what a lost map looks like"
        )
        faults.append(HeadFault(_CODE, "warning", message))
    return faults


def _range_faults(targets: Sequence[int], vocab: int) -> list[HeadFault]:
    for index, target in enumerate(targets):
        if not 0 <= target < vocab:
            message = (
                f"d2t maps draft token {index} to {target}, outside of the vocabulary (0 to {vocab - 1})"
            )
            return [HeadFault(_CODE, "error", message)]
    if len(set(targets)) < len(targets):
        message = (
            f"d2t maps {len(targets)} draft tokens to {len(set(targets))} tokens: two share one. Are these "
            "token ids instead of offsets (id = index + d2t[index])?"
        )
        return [HeadFault(_CODE, "error", message)]
    return []


def _flag_faults(targets: set[int], flags: Sequence[int]) -> list[HeadFault]:
    marked = {index for index, flag in enumerate(flags) if flag}
    if marked == targets:
        return []
    message = (
        f"t2d marks {len(marked)} tokens and d2t maps to {len(targets)}; they differ in "
        f"{len(marked ^ targets)}"
    )
    return [HeadFault(_CODE, "error", message)]
