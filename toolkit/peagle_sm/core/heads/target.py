"""The target that a head was made for, as far as a head must fit it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from peagle_sm.core.heads.fault import HeadFault
from peagle_sm.core.heads.layout import Layout

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
