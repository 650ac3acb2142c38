"""The whole check of a head: files, layout, weights, vocabulary, target. Pure.

The target is checked only as far as the head must fit it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from peagle_sm.core.heads.layout import (
    HeadFault,
    HeadReport,
    Layout,
    depth_faults,
    drafting_faults,
    read_layout,
)
from peagle_sm.core.heads.reading import Contents, Folder, read_contents
from peagle_sm.core.heads.weights import FLOATS, MASK, Tensor, vocabulary_faults, weight_faults

FAMILIES = ("llama", "qwen2", "qwen3", "qwen3_moe", "gpt_oss", "gemma4", "gemma4_text")
"""Families whose targets vLLM 0.32.0 lets an EAGLE-3 head read from, and that were looked at here."""


@dataclass(frozen=True)
class TargetFacts:
    """Sizes of the target: numbers of values, layers and tokens; None where its config does not say."""

    model_type: str
    hidden: int | None
    layers: int | None
    vocab: int | None
    context: int | None


def target_facts(config: Mapping[str, Any]) -> TargetFacts:
    """Read a target's ``config.json``; of a model with several parts, the text's."""
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


def target_faults(layout: Layout, target: TargetFacts) -> Iterator[HeadFault]:
    """What of a head does not fit its target."""
    if target.model_type and target.model_type not in FAMILIES:
        yield HeadFault(
            "target-family",
            "warning",
            f"the target's family, {target.model_type}, was not looked at; looked at: {', '.join(FAMILIES)}",
        )
    if target.hidden is not None and layout.target_hidden != target.hidden:
        yield HeadFault(
            "target-size",
            "error",
            f"the head reads states of {layout.target_hidden} values, and the target's have {target.hidden}",
            "Take the head that was trained for this target.",
        )
    if target.vocab is not None and layout.vocab != target.vocab:
        yield HeadFault(
            "target-vocabulary",
            "error",
            f"the head's vocab_size is {layout.vocab}, and the target's {target.vocab}",
            "Take the head that was trained for this target.",
        )
    outside = [
        each for each in layout.aux_layer_ids if target.layers is not None and not _within(each, target)
    ]
    if outside:
        yield HeadFault(
            "aux-layers",
            "error",
            f"eagle_aux_hidden_state_layer_ids: found {list(layout.aux_layer_ids)}; the target has "
            f"{target.layers} layers, so {', '.join(map(str, outside))} never comes",
        )


def _within(index: Any, target: TargetFacts) -> bool:
    # 0 is the embedding's output, and the last layer's is the number of layers.
    return type(index) is int and target.layers is not None and 0 <= index <= target.layers


_ORDER = {"error": 0, "warning": 1, "info": 2}


def inspect_head(
    folder: Folder,
    *,
    target: Mapping[str, Any] | None = None,
    mode: str | None = None,
    num_speculative_tokens: int | None = None,
    trained_k: int | None = None,
    target_name: str | None = None,
) -> HeadReport:
    """Look at a head and say all that is wrong with it; errors come first.

    Args:
        folder: where its files are.
        target: the ``config.json`` of the target that it is to draft for; None leaves those checks out.
        mode: "eagle3" or "p-eagle", as it is to draft; None takes what its files make it.
        num_speculative_tokens: how many tokens it is to propose; None leaves that check out.
        trained_k: how many it was trained for, where its config does not say.
        target_name: what the target is called, for the report.

    Raises:
        OSError: whatever the folder's ``read`` raises.
    """
    contents = read_contents(folder)
    layout, read = (None, []) if contents.config is None else read_layout(contents.config)
    faults = [*contents.faults, *read]
    parallel = _is_parallel(layout, contents.tensors) if mode is None else mode == "p-eagle"
    trained = trained_k if layout is None or layout.trained_k is None else layout.trained_k
    if layout is not None:
        faults += drafting_faults(layout, parallel=parallel, has_mask=MASK in contents.tensors)
        faults += depth_faults(num_speculative_tokens, trained, parallel=parallel)
        if contents.tensors:
            faults += weight_faults(layout, contents.tensors, parallel=parallel)
        faults += vocabulary_faults(layout, contents.values)
        if target is not None:
            faults += target_faults(layout, target_facts(target))
    report = HeadReport(
        place=folder.place,
        trained_k=trained,
        licence=contents.licence,
        revision=folder.revision,
        target=target_name or (layout.verifier if layout else None),
        target_known=target is not None,
        files=folder.records(),
        parameters=sum(each.count for each in contents.tensors.values() if each.dtype in FLOATS),
        dtype=_dtype(contents),
        faults=tuple(_sorted(faults)),
    )
    return report if layout is None else _with_layout(report, layout, parallel)


def inspect_files(folder: Folder) -> HeadReport:
    """Look at a folder of weights of any kind, a target's say: its files alone, not their layout.

    Raises:
        OSError: whatever the folder's ``read`` raises.
    """
    contents = read_contents(folder)
    return HeadReport(
        place=folder.place,
        licence=contents.licence,
        revision=folder.revision,
        files=folder.records(),
        parameters=sum(each.count for each in contents.tensors.values()),
        dtype=_dtype(contents),
        faults=tuple(_sorted(contents.faults)),
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
    )


def _dtype(contents: Contents) -> str | None:
    found = sorted({each.dtype for each in contents.tensors.values() if each.dtype in FLOATS})
    return ", ".join(found) or None


def _sorted(faults: Iterable[HeadFault]) -> list[HeadFault]:
    return sorted(faults, key=lambda fault: _ORDER[fault.severity])
