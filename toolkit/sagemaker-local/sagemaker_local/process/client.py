"""Client of a server's ``/_peagle/`` routes; only the standard library, so commands start fast."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from sagemaker_local.errors import EngineError, InvalidRequest, NotFound
from sagemaker_local.process.status import LocalStatus

_PATIENCE_S = 60.0
# Moving the clock fires schedules on the way and waits for the functions that they call: a sweep every five
# minutes of a day is three hundred interpreters.
_CLOCK_PATIENCE_S = 900.0

# Proxies of the environment must not see what is said on loopback.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def status(port: int) -> LocalStatus:
    """Fetch a server's status; EngineError if it does not answer."""
    return LocalStatus.from_dict(_json(port, "status"))


def advance_clock(port: int, seconds: float) -> str:
    """Move the clock; return the new time in ISO 8601."""
    body = {"advance_seconds": seconds}
    return str(json.loads(_ask(port, "clock", body, _CLOCK_PATIENCE_S))["clock"])


def endpoint_logs(port: int, endpoint: str, lines: int = 200) -> list[str]:
    """Return the last lines of an endpoint's engines, oldest first; EngineError as `status`."""
    query = urlencode({"lines": lines})
    return [str(line) for line in _json(port, f"endpoints/{quote(endpoint)}/logs?{query}")["lines"]]


def endpoint_metrics(
    port: int, endpoint: str, variant: str | None = None, *, component: str | None = None
) -> str:
    """Return the engine's own ``/metrics`` page of an endpoint, or of one of its inference components.

    Raises:
        NotFound: the endpoint does not exist or does not serve.
        EngineError: the server does not answer.
    """
    chosen = {"variant": variant, "component": component}
    query = urlencode({name: value for name, value in chosen.items() if value})
    return _ask(port, f"endpoints/{quote(endpoint)}/metrics{'?' + query if query else ''}").decode()


def add_fault(port: int, fault: Mapping[str, Any]) -> dict[str, Any]:
    """Set a fault on a server and return it with its id; docs/how-to/faults.md lists kinds and options.

    Raises:
        InvalidRequest: the fault is invalid.
        EngineError: the server does not answer.
    """
    return dict(_json(port, "faults", dict(fault)))


def faults(port: int) -> list[dict[str, Any]]:
    """Return the faults that are set on a server, oldest first; EngineError as `status`."""
    return list(_json(port, "faults")["faults"])


def clear_faults(port: int, ids: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Remove the faults of these ids, or all of them, and return them.

    Raises:
        NotFound: a fault does not exist; those before it in ``ids`` are removed.
        EngineError: the server does not answer.
    """
    paths = [f"faults/{quote(fault)}" for fault in ids] or ["faults"]
    return [fault for path in paths for fault in json.loads(_ask(port, path, method="DELETE"))["faults"]]


def interrupt_training(port: int, job: str) -> None:
    """Take the Spot instances of a training job away, with SageMaker's notice of 120 seconds.

    Raises:
        InvalidRequest: there is no such job, it is not on Spot instances, or it has none now.
        EngineError: the server does not answer.
    """
    _ask(port, f"training-jobs/{quote(job, safe='')}/interrupt", {})


def shut_down(port: int) -> None:
    """Shut a server down; EngineError if it does not answer."""
    _ask(port, "shutdown", {})


def _json(port: int, path: str, body: dict[str, Any] | None = None) -> Any:
    return json.loads(_ask(port, path, body))


def _ask(
    port: int,
    path: str,
    body: dict[str, Any] | None = None,
    patience_s: float = _PATIENCE_S,
    method: str | None = None,
) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/_peagle/{path}", data=data, method=method)
    try:
        with _opener.open(request, timeout=patience_s) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        raise _refused(error) from error
    except OSError as error:
        raise EngineError(
            f"the local SageMaker at port {port} does not answer: {error}",
            next_step=f"stop it, then start a new one: peagle-sm local down --local-port {port}",
        ) from error


def _refused(error: urllib.error.HTTPError) -> InvalidRequest | NotFound | EngineError:
    try:
        body = json.loads(error.read())
        message, step = str(body["message"]), body.get("next_step")
    except (ValueError, KeyError, TypeError):
        message, step = f"HTTP status {error.code}", None
    kinds: dict[int, type[InvalidRequest | NotFound]] = {400: InvalidRequest, 404: NotFound}
    kind = kinds.get(error.code)
    return kind(message, next_step=step) if kind else EngineError(message, next_step=step)
