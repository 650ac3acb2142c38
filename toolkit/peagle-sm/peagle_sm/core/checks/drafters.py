"""Checks of the speculation modes: what vLLM refuses with each, from the table in `core.spec.modes`."""

from __future__ import annotations

from peagle_sm.core.checks.base import Findings, check
from peagle_sm.core.plan.environment import as_text, given_arguments
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.words import Finding

_SOURCE = "https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/config"


@check(
    "mode-conflicts",
    why="vLLM ends at the start with an argument that the mode does not support.",
    source="vLLM 0.32.0: config/vllm.py; this project's table of modes: core/spec/modes.py",
    remedy="Remove the argument, or choose another mode.",
    url=f"{_SOURCE}/vllm.py",
)
def mode_conflicts(draft: Draft) -> Findings:
    """Engine arguments that vLLM refuses with the mode."""
    for field, name, value in given_arguments(draft):
        for refusal in draft.mode_facts.refuses:
            switch = refusal.with_field
            is_on = not switch or getattr(draft.spec.speculation, switch)
            refused = refusal.refused(value) if is_on and refusal.argument == name else None
            if refused is not None:
                place = f"{field}.{refusal.part}" if refusal.part else field
                allowed = ", ".join(as_text(each) for each in refusal.allowed) or "no such argument"
                mode = f"mode {draft.mode}" + (f" and {switch}" if switch else "")
                yield f"{place}: found {as_text(refused)} with {mode}; allowed: {allowed}"


@check(
    "drafter-settings",
    why="vLLM refuses to start, or proposes tokens that no answer has room for.",
    source="vLLM 0.32.0: config/speculative.py (_verify_and_get_draft_tp, dspark_draft_topk)",
    remedy="Correct the field.",
    url=f"{_SOURCE}/speculative.py",
)
def drafter_settings(draft: Draft) -> Findings:
    """K, and settings of the drafter, that do not fit the engine's."""
    settings, gpus = draft.spec.speculation, draft.spec.serving.tensor_parallel_size
    tokens, longest = draft.num_speculative_tokens, draft.max_model_len
    if tokens is not None and longest is not None and tokens >= longest:
        yield (
            f"speculation.num_speculative_tokens: found {tokens}; allowed: 1 to {longest - 1}, less than "
            "serving.max_model_len"
        )
    if draft.mode != "dspark":
        return
    own = settings.draft_tensor_parallel_size or gpus
    if own not in (1, gpus):
        yield (
            f"speculation.draft_tensor_parallel_size: found {own}; allowed: 1 or {gpus}, the "
            "serving.tensor_parallel_size"
        )
    elif settings.dspark_draft_topk is not None and own != 1:
        yield Finding(
            "error",
            f"speculation.dspark_draft_topk: found {settings.dspark_draft_topk} with a head on {own} GPUs; "
            "allowed: only with draft_tensor_parallel_size 1",
            "Set speculation.draft_tensor_parallel_size: 1, or remove dspark_draft_topk.",
        )


@check(
    "drafter-inside",
    why="Without a head vLLM takes the drafter's weights from the target's files, and ends without them.",
    source="vLLM 0.32.0: config/speculative.py, __post_init__ (methods mtp and dspark without model)",
    remedy="Check that the target's files have these weights, or set speculation.draft_head and head_uri.",
    severity="warning",
    url="https://docs.vllm.ai/en/stable/features/speculative_decoding/mtp/",
)
def drafter_inside(draft: Draft) -> Findings:
    """Mode mtp or dspark without a head: the target's own files must have the drafter's weights."""
    if draft.drafts_inside_target and draft.model.own:
        yield f"speculation.draft_head: found nothing; the target must have the weights of mode {draft.mode}"


SUFFIX_PACKAGE = "arctic-inference==0.1.1"


@check(
    "suffix-package",
    why="Without the package the engine ends at the start: Arctic Inference is required for suffix decoding.",
    source="vLLM 0.32.0: config/speculative.py, _validate_suffix_decoding",
    remedy=f"Build an image with {SUFFIX_PACKAGE} (container/), and set image; or use mode ngram.",
    url="https://docs.vllm.ai/en/latest/features/speculative_decoding/suffix/",
)
def suffix_package(draft: Draft) -> Findings:
    """Mode suffix on an image that has no package for it, as far as is known."""
    if draft.mode != "suffix" or draft.image is None:
        return
    if draft.context.local:
        yield f"speculation.mode: found suffix; the local engine does not have {SUFFIX_PACKAGE}"
    else:
        yield Finding(
            "warning",
            f"speculation.mode: found suffix; it is not known whether the image has {SUFFIX_PACKAGE}",
        )
