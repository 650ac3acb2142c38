"""Complete check of a head: files, layout, weights, vocabulary, target. Pure.

The target is checked only as far as the head must fit it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from peagle_sm.core.heads.drafters import DrafterFacts, drafter_faults, not_a_drafter, read_drafter
from peagle_sm.core.heads.formats import load_head_formats
from peagle_sm.core.heads.layout import (
    HeadReport,
    Layout,
    depth_faults,
    drafting_faults,
    read_layout,
    split_faults,
)
from peagle_sm.core.heads.reading import Contents, Folder, read_contents
from peagle_sm.core.heads.values import value_faults
from peagle_sm.core.heads.weights import FLOATS, MASK, Tensor, vocabulary_faults, weight_faults
from peagle_sm.core.spec.modes import Mode
from peagle_sm.core.words import Finding, error_finding, worst_first

FAMILIES = ("llama", "qwen2", "qwen3", "qwen3_moe", "gpt_oss", "gemma4", "gemma4_text")
"""Target families that vLLM 0.32.0 supports for EAGLE-3 heads and that were checked here."""


@dataclass(frozen=True)
class TargetFacts:
    """Sizes of the target; a field is None if its config lacks it."""

    model_type: str
    hidden: int | None
    layers: int | None
    vocab: int | None
    context: int | None


def target_facts(config: Mapping[str, Any]) -> TargetFacts:
    """Read a target's ``config.json``; of a multimodal model, the text part."""
    inner = config.get("text_config")
    text = inner if isinstance(inner, Mapping) else config

    def number(key: str) -> int | None:
        value = text.get(key, config.get(key))
        return value if type(value) is int and value > 0 else None

    return TargetFacts(
        model_type=str(config.get("model_type", "")),
        hidden=number("hidden_size"),
        layers=number("num_hidden_layers"),
        vocab=number("vocab_size"),
        context=number("max_position_embeddings"),
    )


def target_faults(layout: Layout, target: TargetFacts) -> Iterator[Finding]:
    """Yield the mismatches between a head and its target."""
    if target.model_type and target.model_type not in FAMILIES:
        yield Finding(
            "warning",
            f"the target's family {target.model_type} has not been checked; checked: {', '.join(FAMILIES)}",
            check="target-family",
        )
    if target.hidden is not None and layout.target_hidden != target.hidden:
        yield error_finding(
            "target-size",
            f"the head expects hidden states of size {layout.target_hidden}; the target has {target.hidden}",
            "Use a head that was trained for this target.",
        )
    if target.vocab is not None and layout.vocab != target.vocab:
        yield error_finding(
            "target-vocabulary",
            f"the head's vocab_size is {layout.vocab}; the target's is {target.vocab}",
            "Use a head that was trained for this target.",
        )
    yield from short_context(layout.context, target.context, "the target has")
    outside = [
        layer for layer in layout.aux_layer_ids if target.layers is not None and not _within(layer, target)
    ]
    if outside:
        yield error_finding(
            "aux-layers",
            f"eagle_aux_hidden_state_layer_ids: found {list(layout.aux_layer_ids)}; the target has "
            f"{target.layers} layers, so {', '.join(map(str, outside))} does not exist",
        )


def short_context(context: int | None, longest: int | None, whose: str) -> Iterator[Finding]:
    """Yield a warning if a head can draft for fewer positions than ``longest``."""
    if context is not None and longest is not None and context < longest:
        yield Finding(
            "warning",
            f"drafting ends at token {context}, the head's max_position_embeddings; {whose} {longest}. "
            "Longer sequences are answered without its drafts, and vLLM below "
            f"{load_head_formats().positions_extended} can crash on GPUs",
            f"Set serving.max_model_len to {context} or less, or use a head for longer contexts.",
            check="context",
        )


def _within(index: Any, target: TargetFacts) -> bool:
    # 0 is the embedding's output, and the last layer's is the number of layers.
    return type(index) is int and target.layers is not None and 0 <= index <= target.layers


def inspect_head(
    folder: Folder,
    *,
    target: Mapping[str, Any] | None = None,
    mode: str | None = None,
    num_speculative_tokens: int | None = None,
    trained_k: int | None = None,
    target_name: str | None = None,
    tensor_parallel_size: int | None = None,
) -> HeadReport:
    """Check a head and report all its faults, errors first.

    Args:
        folder: the folder with its files.
        target: the target's ``config.json``; None skips the checks against the target.
        mode: the mode that it must have; None takes the mode of its files.
        num_speculative_tokens: number of draft tokens per step; None skips that check.
        trained_k: its trained depth, if its config lacks it.
        target_name: the target's name, for the report.
        tensor_parallel_size: number of GPUs that share target and head; None skips that check.

    Raises:
        OSError: the folder's ``read`` raised it.
    """
    contents = read_contents(folder)
    drafter = None if contents.config is None else read_drafter(contents.config, mode)
    if contents.config is not None and (drafter is not None or mode in load_head_formats().drafters):
        if drafter is not None and drafter.trained_k is None:
            drafter = replace(drafter, trained_k=trained_k)
        return _other_drafter(folder, contents, drafter, mode, num_speculative_tokens, target, target_name)
    layout, read = (None, []) if contents.config is None else read_layout(contents.config)
    faults = [*contents.faults, *read]
    parallel = _is_parallel(layout, contents.tensors) if mode is None else mode == "p-eagle"
    trained = trained_k if layout is None or layout.trained_k is None else layout.trained_k
    if layout is not None:
        faults += drafting_faults(layout, parallel=parallel, has_mask=MASK in contents.tensors)
        faults += depth_faults(num_speculative_tokens, trained, parallel=parallel)
        faults += split_faults(layout, tensor_parallel_size)
        if contents.tensors:
            faults += weight_faults(layout, contents.tensors, parallel=parallel)
        faults += vocabulary_faults(layout, contents.values)
        if target is not None:
            faults += target_faults(layout, target_facts(target))
    if folder.near:
        faults += value_faults(folder.read, contents.tensors)
    report = HeadReport(
        place=folder.place,
        trained_k=trained,
        licence=contents.licence,
        revision=folder.revision,
        target=target_name or (layout.verifier if layout else None),
        target_known=target is not None,
        files=folder.records(),
        parameters=sum(tensor.count for tensor in contents.tensors.values() if tensor.dtype in FLOATS),
        dtype=_dtype(contents),
        faults=tuple(worst_first(faults)),
    )
    return report if layout is None else _with_layout(report, layout, parallel)


def _other_drafter(
    folder: Folder,
    contents: Contents,
    drafter: DrafterFacts | None,
    mode: str | None,
    requested: int | None,
    target: Mapping[str, Any] | None,
    target_name: str | None,
) -> HeadReport:
    """Check a drafter of another mode than EAGLE-3 and P-EAGLE: its files, values and config."""
    faults = [*contents.faults]
    if drafter is None:
        faults.append(not_a_drafter(contents.config or {}, cast(Mode, mode)))
    else:
        sizes = None if target is None else target_facts(target)
        known = None if sizes is None else {"hidden": sizes.hidden, "vocab": sizes.vocab}
        faults += drafter_faults(drafter, mode=mode, requested=requested, target=known)
    if folder.near:
        faults += value_faults(folder.read, contents.tensors)
    report = replace(
        inspect_files(folder),
        target=target_name or (drafter.verifier if drafter else None),
        target_known=target is not None,
        faults=tuple(worst_first(faults)),
    )
    return (
        report
        if drafter is None
        else replace(
            report,
            format=drafter.format,
            method=drafter.mode,
            architecture=drafter.architecture,
            layers=drafter.layers,
            hidden_size=drafter.hidden,
            target_hidden_size=drafter.target_hidden,
            vocab_size=drafter.vocab,
            draft_vocab_size=drafter.draft_vocab,
            trained_k=drafter.trained_k,
            vllm=drafter.since,
            vllm_reason=drafter.since and f"{drafter.architecture} heads",
        )
    )


def inspect_files(folder: Folder) -> HeadReport:
    """Check only the files of a folder of weights, such as a target's.

    Raises:
        OSError: the folder's ``read`` raised it.
    """
    contents = read_contents(folder)
    return HeadReport(
        place=folder.place,
        licence=contents.licence,
        revision=folder.revision,
        files=folder.records(),
        parameters=sum(tensor.count for tensor in contents.tensors.values()),
        dtype=_dtype(contents),
        faults=tuple(worst_first(contents.faults)),
    )


def _is_parallel(layout: Layout | None, tensors: Mapping[str, Tensor]) -> bool:
    if layout is None:
        return False
    if layout.declared_parallel is not None:
        return layout.declared_parallel
    return bool(layout.mask_tokens) or MASK in tensors


def _with_layout(report: HeadReport, layout: Layout, parallel: bool) -> HeadReport:
    token = layout.mask_token
    return replace(
        report,
        format=layout.format,
        method="p-eagle" if parallel else "eagle3",
        architecture=layout.architecture,
        layers=layout.layers,
        hidden_size=layout.hidden,
        target_hidden_size=layout.target_hidden,
        vocab_size=layout.vocab,
        draft_vocab_size=layout.draft_vocab,
        mask_token_id=token if parallel and type(token) is int else None,
        aux_layer_ids=layout.aux_layer_ids,
        context=layout.context,
        vllm=layout.engine[0] if layout.engine else None,
        vllm_reason=layout.engine[1] if layout.engine else None,
    )


def _dtype(contents: Contents) -> str | None:
    dtypes = sorted({tensor.dtype for tensor in contents.tensors.values() if tensor.dtype in FLOATS})
    return ", ".join(dtypes) or None
