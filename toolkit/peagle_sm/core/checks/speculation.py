"""Checks on the draft head and the number of tokens that it proposes."""

from __future__ import annotations

from collections.abc import Iterator

from peagle_sm.core.checks.base import Check, Edits, Fix, Note, check
from peagle_sm.core.plan.resolve import Draft

_METHODS = {"eagle3": "an EAGLE-3 head", "p-eagle": "a P-EAGLE head"}


def _fits(draft: Draft) -> bool:
    """Whether the head is one of this model and mode, as far as is known."""
    head = draft.head
    return head is None or (head.target == draft.spec.model and head.method == draft.mode)


@check(
    "head-fits",
    why="vLLM loads a head of another model or method without a word; only acceptance collapses.",
    source="vLLM: a P-EAGLE head without parallel_drafting is accepted as autoregressive",
    remedy="Choose a head of this model and mode.",
    url="https://docs.vllm.ai/en/latest/features/speculative_decoding/",
)
def head_fits(draft: Draft) -> Iterator[Note]:
    """A draft head of another target, or trained for another method."""
    if draft.head is None or _fits(draft):
        return
    fitting = sorted(
        n for n, h in draft.catalog.heads_for(draft.spec.model).items() if h.method == draft.mode
    )
    allowed = ", ".join(fitting) or "none is catalogued; set head_uri and a name of your own"
    if draft.head.target != draft.spec.model:
        yield Note(
            "error",
            f"speculation.draft_head: found {draft.head_id!r}, a head of {draft.head.target}; "
            f"allowed: {allowed}",
        )
    else:
        yield Note(
            "error",
            f"speculation.draft_head: found {draft.head_id!r}, {_METHODS[draft.head.method]}, with mode "
            f"{draft.mode}; allowed: {allowed}",
        )


def _trained(draft: Draft) -> Edits:
    depth = draft.head.trained_depth if draft.head else None
    return {"speculation.num_speculative_tokens": depth} if depth and draft.mode == "p-eagle" else {}


@check(
    "trained-depth",
    why="Positions beyond those trained are guesses: they cost verification and are hardly ever accepted.",
    source="model cards of the heads: number of parallel tokens trained",
    remedy="Lower speculation.num_speculative_tokens.",
    url="https://huggingface.co/amazon",
    fix=Fix("lower num_speculative_tokens to the trained depth", edits=_trained),
)
def trained_depth(draft: Draft) -> Iterator[Note]:
    """More speculative tokens than the head was trained for."""
    tokens = draft.num_speculative_tokens
    if tokens is None or draft.head_id is None or not _fits(draft):
        return  # of a head that does not fit, the depth is beside the point
    depth = draft.head.trained_depth if draft.head else None
    if depth is None:
        yield Note(
            "info",
            f"the depth that {draft.head_id} was trained for is not known; {tokens} tokens are asked for",
            "Keep speculation.num_speculative_tokens at or below the depth of its training.",
        )
    elif tokens > depth and draft.mode == "p-eagle":
        yield Note(
            "error",
            f"speculation.num_speculative_tokens: found {tokens}; allowed: 1 to {depth}, the depth that "
            f"{draft.head_id} was trained for",
        )
    elif tokens > depth:
        # An EAGLE-3 head feeds on its own states and drafts on; the small one was fastest beyond its depth.
        yield Note(
            "info",
            f"{draft.head_id} was unrolled {depth} deep in training; found {tokens}, which may not pay",
            "Measure it: peagle-sm tune.",
        )


@check(
    "ignored-speculation",
    why="A field that does nothing misleads whoever reads the spec.",
    source="this project",
    remedy="Remove the field, or choose mode eagle3 or p-eagle.",
    severity="info",
)
def ignored_speculation(draft: Draft) -> Iterator[Note]:
    """Draft settings beside mode none."""
    given = draft.spec.speculation
    if draft.speculating:
        return
    fields = {"num_speculative_tokens": given.num_speculative_tokens, "draft_head": given.draft_head}
    for field, value in fields.items():
        if value is not None:
            yield Note("info", f"speculation.{field}: {value!r} has no effect with mode none")


CHECKS: tuple[Check, ...] = (head_fits, trained_depth, ignored_speculation)
