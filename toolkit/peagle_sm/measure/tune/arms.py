"""The endpoints that a tuning deploys: one spec for each, with names that tell what they are. Pure."""

from __future__ import annotations

from typing import Any

from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.endpoint_spec import MODES, EndpointSpec, Mode
from peagle_sm.measure.compare.modes import spec_of

#: Tells the plugin in container/plugins/peagle_runtime_k to take K from each request.
RUNTIME_SWITCH = "PEAGLE_SM_RUNTIME_K"
PREFIX = "tune"
MOST_CHARACTERS = 63  #: of a name in SageMaker


def parse_modes(text: str) -> tuple[Mode, ...]:
    """``p-eagle,eagle3`` as modes to be tuned, each once, in that order.

    Raises:
        SpecError: none, a mode that has no K, an unknown one, or one given twice.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    known: dict[str, Mode] = {"p-eagle": "p-eagle", "eagle3": "eagle3"}
    if not words or len(set(words)) < len(words) or any(word not in known for word in words):
        raise SpecError(
            f"--modes: found {text!r}; allowed: p-eagle, eagle3 or both, each once.",
            next_step="For example --modes p-eagle,eagle3; none is measured as the baseline in any case.",
        )
    return tuple(known[word] for word in words)


def arm_spec(
    base: EndpointSpec, mode: Mode, k: int | None, *, runtime: bool = False, head: str | None = None
) -> EndpointSpec:
    """The endpoint of one arm; ``runtime`` starts it with the largest K and lets requests ask for less.

    Raises:
        SpecError: no head for the mode, or the name grows too long for SageMaker.
    """
    made = spec_of(base, mode, k=k, head=head)
    fields: dict[str, Any] = made.model_dump(exclude_unset=True)
    fields["name"] = arm_name(base.name, mode, None if runtime else k)
    if runtime:
        serving = fields.get("serving", {})
        fields["serving"] = {**serving, "env": {**serving.get("env", {}), RUNTIME_SWITCH: "1"}}
    return EndpointSpec(**fields).locked_as(base)


def arm_name(base: str, mode: str, k: int | None) -> str:
    """``tune-tiny-code-p-eagle-k7``, or without the K.

    Raises:
        SpecError: SageMaker does not take so long a name.
    """
    stem = base
    for ending in MODES:
        stem = stem.removesuffix(f"-{ending}")
    name = "-".join([PREFIX, stem, mode, *([f"k{k}"] if k else [])])
    if len(name) > MOST_CHARACTERS:
        raise SpecError(
            f"name: the tuning would deploy {name!r}, which has {len(name)} characters; "
            f"allowed: {MOST_CHARACTERS}.",
            next_step="Give the spec a shorter name.",
        )
    return name


def label(mode: str, k: int) -> str:
    """How an arm is called in a results file: ``p-eagle K=7``, ``none``."""
    return f"{mode} K={k}" if k else "none"


def parse_label(text: str) -> tuple[str, int]:
    """Mode and K of what `label` wrote."""
    mode, _, k = text.partition(" K=")
    return mode, int(k or 0)
