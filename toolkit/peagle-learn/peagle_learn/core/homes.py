"""Where an arm of a proof runs: as an inference component of the serving endpoint, or as an endpoint. Pure.

A component runs on an instance that is billed anyway. It must fit what that instance has free: otherwise
SageMaker fails it, or starts another instance where instances are scaled. So an arm becomes a component only
if the one instance that runs has room for certain; in every other case it is an endpoint of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from peagle_sm.core.plan.memory import compute_requirements
from peagle_sm.core.planning import Plan

HOST_SHARE = 0.9
"""Share of a host's memory that components may ask for; assumed: AWS keeps a part and publishes no figure."""


@dataclass(frozen=True)
class Needs:
    """What one copy asks for: accelerators, and MB of host memory."""

    accelerators: int
    memory_mb: int

    def __add__(self, other: Needs) -> Needs:
        """Add what another component asks for."""
        return Needs(self.accelerators + other.accelerators, self.memory_mb + other.memory_mb)


@dataclass(frozen=True)
class ServingHost:
    """The serving endpoint, as far as an arm's place depends on it.

    ``instances`` run now. ``has`` is one instance's, and ``taken`` what all copies of its components ask for;
    ``has`` is None if the instance type is not in the catalogue. ``minutes_left`` of its lifetime.
    """

    name: str
    instance_type: str
    has_components: bool
    instances: int = 0
    has: Needs | None = None
    taken: Needs = Needs(0, 0)
    minutes_left: float | None = None

    @property
    def free(self) -> Needs | None:
        """What one instance has left; memory is 0 where the catalogue does not have it."""
        if self.has is None:
            return None
        return Needs(
            self.has.accelerators - self.taken.accelerators, self.has.memory_mb - self.taken.memory_mb
        )


@dataclass(frozen=True)
class Home:
    """Where an arm runs: as a component of endpoint ``host`` with these needs; if None, as an endpoint."""

    host: str | None
    why: str
    needs: Needs = Needs(0, 0)


def needs_of(plan: Plan) -> Needs | None:
    """Return what one copy of an arm asks for; None if its memory is not known.

    With accelerators the arm gets those of one replica to itself, and its plan has checked that model, head
    and cache fit them. Without, it asks for the memory that its plan computed.
    """
    wanted = compute_requirements(plan.draft)
    accelerators = math.ceil(wanted.get("NumberOfAcceleratorDevicesRequired", 0))
    if accelerators:
        return Needs(accelerators, int(wanted["MinMemoryRequiredInMb"]))
    fit = plan.memory
    if fit is None:
        return None
    return Needs(0, math.ceil((fit.weights_gb + fit.head_gb + fit.kv_cache_gb + fit.overhead_gb) * 1000))


def homes(host: ServingHost, arms: Mapping[str, Needs | None], minutes: float) -> dict[str, Home]:
    """Choose each arm's home, the first one first; ``minutes`` is the longest that the proof may last."""
    found: dict[str, Home] = {}
    reason = _unfit(host, minutes)
    for name, needs in arms.items():
        why = reason or _no_room(host, needs)
        if why is not None or needs is None:
            found[name] = Home(None, why or "")
            continue
        found[name] = Home(host.name, _room(host, needs), needs)
        host = replace(host, taken=host.taken + needs)
    return found


def _unfit(host: ServingHost, minutes: float) -> str | None:
    """Return why no arm can be a component of this endpoint."""
    if not host.has_components:
        return f"{host.name} runs a model, not inference components"
    if host.instances != 1:
        return f"{host.name} runs {host.instances} instances: where a component would run is not known"
    if host.minutes_left is not None and host.minutes_left < minutes:
        return (
            f"{host.name} is deleted in {host.minutes_left:.0f} min, and the proof may last {minutes:.0f} min"
        )
    if host.has is None:
        return f"the size of {host.instance_type} is not in the catalogue"
    return None


def _no_room(host: ServingHost, needs: Needs | None) -> str | None:
    free, has = host.free, host.has
    if needs is None:
        return "the memory that it needs is not known"
    if free is None or has is None:
        return None
    if needs.accelerators > free.accelerators:
        return (
            f"{host.name} has {max(0, free.accelerators)} of {has.accelerators} accelerators free; needed:"
            f" {needs.accelerators}"
        )
    if has.memory_mb and needs.memory_mb > free.memory_mb:
        return f"{host.name} has {max(0, free.memory_mb):,} MB of memory free; needed: {needs.memory_mb:,} MB"
    return None


def _room(host: ServingHost, needs: Needs) -> str:
    free = host.free or Needs(0, 0)
    if needs.accelerators:
        return f"takes {needs.accelerators} of {free.accelerators} free accelerators of {host.name}"
    return f"takes {needs.memory_mb:,} MB of {free.memory_mb:,} MB that are free on {host.name}"
