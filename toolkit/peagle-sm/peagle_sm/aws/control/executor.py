"""Send the requests of resources: create, describe, replace, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound
from peagle_sm.core.resources.resource import Request, Resource


def send(session: Session, request: Request, *, once: bool = False) -> dict[str, Any]:
    """Send one request; ``once``: without automatic retries."""
    api = session.api(request.service, once=once)
    answer: dict[str, Any] = getattr(api, request.operation)(**request.parameters)
    return answer


def create(session: Session, resource: Resource) -> dict[str, Any]:
    """Create a resource, and return AWS's last answer.

    What SageMaker creates is sent once: after a lost answer the caller checks whether it exists, and uses it.

    Raises:
        ServiceFault: AWS refused; see `aws.session.errors.is_taken` for a name that is in use.
    """
    answer: dict[str, Any] = {}
    for request in resource.create():
        answer = send(session, request, once=resource.arn_field is not None)
    return answer


def describe(session: Session, resource: Resource) -> Mapping[str, Any] | None:
    """Return the description of a resource; None if it does not exist."""
    try:
        return resource.facts(send(session, resource.describe()))
    except NotFound:
        return None


def delete(session: Session, resource: Resource) -> bool:
    """Send a resource's deletion, which proves nothing; return False if it does not exist.

    Raises:
        ServiceFault: refused, for example while Creating (see `aws.session.errors.is_refused_now`).
    """
    try:
        send(session, resource.delete())
    except NotFound:
        return False
    return True
