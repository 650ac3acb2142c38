"""Drafters of the other modes: what the config says of a DFlash, DSpark or MTP head, or a draft model. Pure.

Their weights' layout is not checked: such a head gets a note, and the engine reports its faults. Source: vLLM
0.32.0, ``transformers_utils/configs/speculators/algos.py``, ``model_executor/models/registry.py``,
``config/speculative.py``; the names and first versions are in ``core/data/head_formats.yaml``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from peagle_sm.core.heads.formats import load_head_formats
from peagle_sm.core.heads.layout import HeadFormat, depth_faults, first_method, is_speculators, verifier_of
from peagle_sm.core.spec.modes import Mode, facts_of, title_of
from peagle_sm.core.words import Finding, error_finding


@dataclass(frozen=True)
class DrafterFacts:
    """What a config says; an unknown field is None."""

    mode: Mode
    format: HeadFormat
    architecture: str
    layers: int | None
    hidden: int | None
    target_hidden: int | None
    vocab: int | None
    draft_vocab: int | None
    trained_k: int | None
    verifier: str | None
    since: str | None


def read_drafter(config: Mapping[str, Any], mode: str | None) -> DrafterFacts | None:
    """Return the facts of another mode's drafter; None if it is to be checked as an EAGLE head."""
    own, name, since = _recognised(config)
    if own is None and mode == "draft-model":
        own = "draft-model"  # any model may draft
    if own is None:
        return None
    inner = config.get("transformer_layer_config") if is_speculators(config) else config.get("text_config")
    layer = inner if isinstance(inner, Mapping) else config

    def number(*keys: str) -> int | None:
        values = [place[key] for key in keys for place in (layer, config) if key in place]
        return next((value for value in values if type(value) is int and value > 0), None)

    hidden = number("hidden_size")
    return DrafterFacts(
        mode=own,
        format="speculators" if is_speculators(config) else "native",
        architecture=name,
        layers=number("num_hidden_layers"),
        hidden=hidden,
        # a draft model reads no states of the target
        target_hidden=None
        if own == "draft-model"
        else number("target_hidden_size", "backbone_hidden_size") or (None if own == "mtp" else hidden),
        vocab=number("vocab_size"),
        draft_vocab=number("draft_vocab_size") or number("vocab_size"),
        trained_k=_trained_k(config, own),
        verifier=verifier_of(config),
        since=since,
    )


def _recognised(config: Mapping[str, Any]) -> tuple[Mode | None, str, str | None]:
    """Return mode, name and first vLLM of a config that names another mode's drafter."""
    listed = config.get("architectures")
    names = [str(name) for name in listed] if isinstance(listed, list) else []
    kind = config.get("speculators_model_type", config.get("model_type"))
    for mode, known in load_head_formats().drafters.items():
        if is_speculators(config):
            if kind in known.speculators:
                return mode, f"speculators {kind}", known.speculators[kind]
            continue
        name = next((name for name in names if name in known.architectures), None)
        if name is not None:
            return mode, name, known.architectures[name]
        if kind in known.model_types:
            return mode, names[0] if names else str(kind), known.model_types[kind]
    return None, names[0] if names else str(kind), None


def _trained_k(config: Mapping[str, Any], mode: Mode) -> int | None:
    """Return the trained K: the speculators format's, else a block's, of which one token may be known."""
    given = (first_method(config) or {}).get("speculative_tokens")
    if type(given) is int and given > 0:
        return given
    block = config.get("block_size", config.get("dspark_block_size"))
    if not facts_of(mode).one_pass or type(block) is not int or block < 2:
        return None
    inner = config.get("dflash_config")
    places = [config, inner if isinstance(inner, Mapping) else {}]
    from_anchor = next((each["sample_from_anchor"] for each in places if "sample_from_anchor" in each), None)
    return block if (mode == "dspark" if from_anchor is None else from_anchor) else block - 1


def drafter_faults(
    facts: DrafterFacts, *, mode: str | None, requested: int | None, target: Mapping[str, int | None] | None
) -> Iterator[Finding]:
    """Yield the faults that the config shows; ``target`` has the target's ``hidden`` and ``vocab``."""
    title = title_of(facts.mode)
    if mode not in (None, facts.mode):
        yield error_finding(
            "method",
            f"it is a {title} drafter ({facts.architecture}); found mode {mode}",
            f"Set speculation.mode: {facts.mode}, or use another head.",
        )
    yield Finding(
        "info",
        f"the layout of {title} weights is not checked; vLLM reports its faults at the start",
        check="layout",
    )
    yield from depth_faults(requested, facts.trained_k, parallel=facts_of(facts.mode).one_pass)
    for name, own, check in (
        ("hidden states of size", facts.target_hidden, "hidden"),
        ("a vocabulary of", facts.vocab, "vocab"),
    ):
        other = (target or {}).get(check)
        if own is not None and other is not None and own != other:
            yield error_finding(
                "target-size" if check == "hidden" else "target-vocabulary",
                f"the drafter expects {name} {own}; the target has {other}",
                "Use a drafter for this target"
                + ("." if facts.mode != "draft-model" else ", or set use_heterogeneous_vocab: true."),
            )


def not_a_drafter(config: Mapping[str, Any], mode: Mode) -> Finding:
    """Return the error of a config that names no drafter of a mode."""
    known = load_head_formats().drafters[mode]
    allowed = [*known.architectures, *(f"speculators_model_type {name}" for name in known.speculators)]
    allowed += [f"model_type {name}" for name in known.model_types]
    _, name, _ = _recognised(config)
    return error_finding(
        "format",
        f"architectures: found {name}; allowed for a {title_of(mode)} head: {', '.join(allowed)}",
        "Use a head of this mode, or set the mode of the head.",
    )
