"""Faults that replace an answer: throttling and errors of the service or the container. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sagemaker_local.faults.book import Strike
from sagemaker_local.faults.kinds import SERVICE_ERRORS


@dataclass(frozen=True)
class Refusal:
    """An error of the service; ``message`` None is sent as null, as throttling is on AWS."""

    code: str
    message: str | None
    status: int


@dataclass(frozen=True)
class ModelFailure:
    """An error of the container: its HTTP status and its body."""

    status: int
    message: str


def refusal_of(strike: Strike | None) -> Refusal | ModelFailure | None:
    """Return the error sent instead of an answer; None for faults inside an answer, or without a fault."""
    if strike is None:
        return None
    match strike.kind:
        case "throttle":
            status = strike.option("status")
            return Refusal("ThrottlingException", None if status == 400 else "Rate exceeded", status)
        case "service-error":
            status, message = SERVICE_ERRORS[strike.option("code")]
            return Refusal(strike.option("code"), message, status)
        case "model-error":
            return ModelFailure(strike.option("status"), strike.option("message"))
    return None
