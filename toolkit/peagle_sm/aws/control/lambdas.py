"""Lambda: call a function and read its answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import ServiceFault

BUSY = "TooManyRequestsException"
"""`ServiceFault.code` while a function that runs alone is already running."""


class FunctionFault(ServiceFault):
    """The function ran and failed: ``details`` has its own ``error_type`` and ``trace``."""


def invoke(session: Session, function: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Call a function once, wait for it, and return its answer.

    Raises:
        FunctionFault: the function itself failed, or did not answer with a JSON object.
        NotFound: there is no such function.
        ServiceFault: it was not run; code `BUSY` while it may not run twice at once.
    """
    # Once: what a function did before its answer was lost must not be done again unseen.
    with aws_errors("Invoke", session.local_url):
        answer = session.creating_client("lambda").invoke(
            FunctionName=function,
            InvocationType="RequestResponse",
            Payload=json.dumps(dict(payload)).encode(),
        )
        text = answer["Payload"].read().decode(errors="replace")
    if answer.get("FunctionError"):
        raise _fault(function, text)
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise FunctionFault(
            f"{function} answered {text[:200]!r}, which is no JSON object.",
            operation="Invoke",
            code="BadAnswer",
            next_step=f"Update the guard with `peagle-sm guard install{session.command_flags()}`, or look at "
            "the function's log.",
            details={"function": function},
        )
    return told


def _fault(function: str, text: str) -> FunctionFault:
    try:
        told = json.loads(text)
    except ValueError:
        told = {}
    if not isinstance(told, dict):
        told = {}
    kind, said = told.get("errorType") or "an error", told.get("errorMessage") or text[:500]
    return FunctionFault(
        f"{function} failed with {kind}: {said}",
        operation="Invoke",
        code="FunctionError",
        next_step=f"Its log group tells more: /aws/lambda/{function}.",
        details={"function": function, "error_type": kind, "trace": told.get("stackTrace") or []},
    )
