"""Which endpoints take part: a spec for each mode of the small model, and an arm for each."""

from __future__ import annotations

from typing import Any

from peagle_sm.core.errors import EngineError
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, LifecycleSpec, Mode, ServingSpec, SpeculationSpec
from scripts.bench.comparison.summary import Arm

MODEL = "tiny-code"
_HEADS: dict[Mode, str | None] = {
    "none": None,
    "eagle3": "tiny-code-eagle3",
    "p-eagle": "tiny-code-p-eagle",
}
#: Asks the local engine to compile its steps; left out, it runs eager.
COMPILED = {"PEAGLE_SM_LOCAL_COMPILE": "1"}


def spec_of(mode: Mode, k: int | None = None, *, compiled: bool = False) -> EndpointSpec:
    """The spec of the small model in one mode; ``k`` left out takes the catalogue's best K.

    Raises:
        SpecError: ``k`` is not one that the mode can have.
    """
    name = "-".join(["tiny", mode, *([f"k{k}"] if k else []), *(["compiled"] if compiled else [])])
    return EndpointSpec(
        name=name,
        model=MODEL,
        source="container",
        speculation=SpeculationSpec(mode=mode, num_speculative_tokens=k, draft_head=_HEADS[mode]),
        serving=ServingSpec(env=dict(COMPILED) if compiled else {}),
        lifecycle=LifecycleSpec(max_lifetime_hours=4),
    )


def arm_of(endpoint: Any, mode: Mode) -> Arm:
    """The arm behind a deployed endpoint, with the K that it really runs.

    Raises:
        EngineError: a mode with speculation came up without, which would be measured as if it had.
    """
    k = endpoint.status().summary.num_speculative_tokens
    if (mode == "none") != (not k):
        raise EngineError(
            f"endpoint {endpoint.name} was asked for mode {mode} and runs num_speculative_tokens={k}",
            next_step=f"look at what it was started with: peagle-sm status {endpoint.name} --local",
        )
    return Arm(endpoint.name, mode, k or None)
