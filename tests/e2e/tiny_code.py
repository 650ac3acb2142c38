"""The tests' small family of models, which starts in seconds: one spec for each mode."""

from __future__ import annotations

from peagle_sm.core.spec.endpoint_spec import EndpointSpec, LifecycleSpec, Mode, SpeculationSpec

_HEADS: dict[Mode, str | None] = {
    "none": None,
    "eagle3": "tiny-code-eagle3",
    "p-eagle": "tiny-code-p-eagle",
}


def spec_of(mode: Mode, k: int | None = None) -> EndpointSpec:
    """The spec of the small model in one mode; ``k`` left out takes the catalogue's."""
    return EndpointSpec(
        name="-".join(["tiny", mode, *([f"k{k}"] if k else [])]),
        model="tiny-code",
        source="container",
        speculation=SpeculationSpec(mode=mode, num_speculative_tokens=k, draft_head=_HEADS[mode]),
        lifecycle=LifecycleSpec(max_lifetime_hours=4),
    )
