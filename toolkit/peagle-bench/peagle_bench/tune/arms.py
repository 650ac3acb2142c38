"""Arms of a tuning: their modes, specs and names. Pure."""

from __future__ import annotations

from typing import Any

from peagle_bench.compare.arms import name_of, spec_of
from peagle_sm.core.errors import SpecError
from peagle_sm.core.plan.environment import RUNTIME_K
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.spec.modes import SPECULATING, Mode

PREFIX = "tune"  #: of the name of every endpoint that a tuning deploys
SYNTHETIC_PREFIX = "synthetic"  #: of an endpoint whose answers are wrong


def parse_modes(text: str) -> tuple[Mode, ...]:
    """Parse ``p-eagle,eagle3`` into the modes to tune, in that order.

    Raises:
        SpecError: no mode, mode none, an unknown or a repeated mode.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    known: dict[str, Mode] = {mode: mode for mode in SPECULATING}
    if not words or len(set(words)) < len(words) or any(word not in known for word in words):
        raise SpecError(
            f"--modes: found {text!r}; allowed: one or more of {', '.join(known)}, each once.",
            next_step="For example --modes p-eagle,eagle3. Mode none is always measured as the baseline.",
        )
    return tuple(known[word] for word in words)


def arm_spec(base: EndpointSpec, mode: Mode, k: int | None, *, runtime: bool = False) -> EndpointSpec:
    """Derive the spec of one arm; with ``runtime`` it starts with the largest K and requests set K.

    Raises:
        SpecError: no head for the mode, or the name is too long for SageMaker.
    """
    fields: dict[str, Any] = spec_of(base, mode, k=k).model_dump(exclude_unset=True)
    fields["name"] = name_of(base.name, mode, f"k{k}" if k and not runtime else "", prefix=PREFIX)
    if runtime:
        serving = fields.get("serving", {})
        fields["serving"] = {**serving, "env": {**serving.get("env", {}), RUNTIME_K: "1"}}
    return EndpointSpec(**fields).locked_as(base)


def synthetic_spec(
    base: EndpointSpec, mode: Mode, k: int, length: float, *, runtime: bool = False
) -> EndpointSpec:
    """Derive the spec of an endpoint that serves an acceptance length whatever its head drafts.

    Raises:
        SpecError: as `arm_spec`.
    """
    arm = arm_spec(base, mode, k, runtime=runtime)
    name = name_of(base.name, mode, f"k{k}-a{length:g}", prefix=SYNTHETIC_PREFIX)
    fields: dict[str, Any] = {**arm.model_dump(exclude_unset=True), "name": name}
    return EndpointSpec(**fields).locked_as(arm).with_synthetic_acceptance(length)


def label(mode: str, k: int) -> str:
    """Return an arm's name in a results file: ``p-eagle K=7``, ``none``."""
    return "none" if mode == "none" else f"{mode} K={k}"
