"""Faults before an answer: throttling and errors in its place, and a request that loses its format. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

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


_FORMATS = ("response_format", "structured_outputs")


def request_of(strike: Strike | None, body: bytes) -> bytes:
    """Return the body that the engine gets: with the fault `no-format` without what demands a format.

    Tools stay, but nothing holds the model to their arguments.
    """
    if strike is None or strike.kind != "no-format":
        return body
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return body
    if not isinstance(request, dict):
        return body
    kept: dict[str, Any] = {name: value for name, value in request.items() if name not in _FORMATS}
    if isinstance(kept.get("tools"), list):
        kept["tools"] = [_loosened(tool) for tool in kept["tools"]]
        if kept.get("tool_choice") not in (None, "none"):
            kept["tool_choice"] = "auto"
    return json.dumps(kept, ensure_ascii=False).encode(errors="surrogatepass")


def _loosened(tool: Any) -> Any:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict):
        return tool
    return {**tool, "function": {name: value for name, value in function.items() if name != "strict"}}
