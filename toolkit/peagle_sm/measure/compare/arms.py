"""The ARMs of the command line: which endpoints, under which names, and how often each is deployed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.endpoint_spec import MODES
from peagle_sm.measure.endpoint_arm import Described, demand_mode, describe_endpoint, describe_url, is_url
from peagle_sm.measure.records import Mode


@dataclass(frozen=True)
class Named:
    """One ARM: the endpoints that are deployments of it, and its label where it has one."""

    label: str | None
    endpoints: tuple[str, ...]

    @property
    def mode(self) -> Mode | None:
        """The mode that its label says."""
        return cast(Mode, self.label) if self.label in MODES else None


def parse_arms(texts: Sequence[str]) -> list[Named]:
    """``[LABEL=]ENDPOINT[,ENDPOINT…]``: several endpoints are deployments of the same arm.

    Raises:
        SpecError: fewer than two arms, an endpoint or label twice, or arms of unequal numbers of deployments.
    """
    arms = [_named(text) for text in texts]
    every = [endpoint for arm in arms for endpoint in arm.endpoints]
    labels = [arm.label for arm in arms if arm.label is not None]
    counts = {len(arm.endpoints) for arm in arms}
    problem = None
    if len(arms) < 2:
        problem = f"found {len(arms)} arm(s); a comparison needs at least 2"
    elif len(set(every)) < len(every) or len(set(labels)) < len(labels):
        problem = "an endpoint or a label is given twice"
    elif len(counts) > 1:
        problem = "the arms have different numbers of deployments, and deployments are compared in pairs"
    if problem:
        raise SpecError(
            f"{' '.join(texts) or 'no arm'}: {problem}.",
            next_step="For example `peagle-sm compare plain fast`, or with two deployments of each "
            "`peagle-sm compare plain-1,plain-2 fast-1,fast-2`. The first is set beside itself anyway.",
        )
    return arms


def _named(text: str) -> Named:
    label, sign, rest = text.partition("=")
    if not sign or is_url(label):
        label, rest = "", text
    endpoints = tuple(word for word in rest.split(",") if word)
    if not endpoints or (sign and not label and not is_url(text)):
        raise SpecError(
            f"{text!r} is no arm; allowed: [LABEL=]ENDPOINT[,ENDPOINT…].",
            next_step="An ENDPOINT is a name, NAME/COMPONENT, or the http(s) address of a bare vLLM.",
        )
    return Named(label or None, endpoints)


def describe(arm: Named, session_of: Callable[[], Session]) -> list[Described]:
    """Its deployments, as they serve now; ``session_of`` is only asked where SageMaker is.

    Raises:
        NotFound, ServiceFault: an endpoint is not there, or not in service.
        SpecError: it runs another mode than its label says.
    """
    found = []
    for number, endpoint in enumerate(arm.endpoints, start=1):
        if is_url(endpoint):
            one = describe_url(endpoint, mode=arm.mode or "unknown")
        else:
            name, _, component = endpoint.partition("/")
            one = describe_endpoint(session_of(), name, component=component or None)
        if arm.mode is not None:
            one = demand_mode(one, arm.mode)
        found.append(one if arm.label is None else called(one, arm.label, number))
    return found


def called(described: Described, label: str, deployment: int) -> Described:
    """The same under an arm's name: ``p-eagle``, and ``p-eagle@2`` in the second deployment."""
    name = label if deployment == 1 else f"{label}@{deployment}"
    return replace(described, arm=replace(described.arm, name=name))
