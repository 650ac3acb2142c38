"""What the measuring calls share: endpoints in any form, where they are, and the workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import SpecError
from peagle_sm.measure.endpoint_arm import is_url
from peagle_sm.measure.workloads import Workload, load_workload
from peagle_sm.service.endpoint import Endpoint
from peagle_sm.service.notebook.notebook import Local, session_at

EndpointLike = Endpoint | str


@dataclass(frozen=True)
class Place:
    """Where the endpoints are: a session, or what one is made from once it is needed."""

    session: Session | None
    local: Local | None
    profile: str | None
    region: str | None
    spec_region: str | None = None

    def open(self, *endpoints: EndpointLike) -> Session | None:
        """The session for these endpoints; None where all of them are addresses of a bare vLLM.

        Raises:
            SpecError: they are in different places.
        """
        brought = [each.session for each in endpoints if isinstance(each, Endpoint)]
        if self.session is None and brought:
            first = brought[0]
            if any((each.region, each.local_url) != (first.region, first.local_url) for each in brought):
                raise SpecError(
                    "the endpoints are in different regions; allowed: one region",
                    next_step="deploy them into one, so that the client is as far from each",
                )
            return first
        if endpoints and all(isinstance(each, str) and is_url(each) for each in endpoints):
            return None
        return self.session or session_at(self.profile, self.region, self.local, self.spec_region)


def demanded(session: Session | None) -> Session:
    """The session, where there must be one: some endpoint is no address of a bare vLLM."""
    assert session is not None, "only addresses of bare servers are asked without a session"
    return session


def name_of(endpoint: EndpointLike) -> str:
    """Its name or address."""
    return endpoint.name if isinstance(endpoint, Endpoint) else endpoint


def chosen(
    workload: Workload | str, prompts: int | None, seed: int, max_tokens: int | None, **more: Any
) -> Workload:
    """The workload: one that was loaded, or by its name or file; errors as `load_workload`."""
    if isinstance(workload, Workload):
        return workload
    return load_workload(workload, seed=seed, count=prompts, max_tokens=max_tokens, **more)
