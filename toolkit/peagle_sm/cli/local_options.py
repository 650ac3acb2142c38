"""What the `local` commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import click

from peagle_sm.cli.state import State
from peagle_sm.cli.table import render_fields
from peagle_sm.core.errors import EngineError

if TYPE_CHECKING:
    from peagle_sm.local.lifecycle import LocalStatus

F = TypeVar("F", bound=Callable[..., Any])


def port_option(function: F) -> F:
    """`--port`, by which two servers are told apart."""
    return click.option(
        "--port",
        type=click.IntRange(1, 65535),
        help="Which server, when several run.  [default: the only one]",
    )(function)


def need_local_extra() -> None:
    """Say what to install when the extra `local` is not there.

    Raises:
        EngineError: a package of the extra is missing.
    """
    missing = [name for name in ("aiohttp", "moto", "psutil") if find_spec(name) is None]
    if missing:
        raise EngineError(
            f"the local SageMaker needs {' and '.join(missing)}, which this Python does not have",
            next_step="pip install 'peagle-sm[local]'",
            details={"found": sys.executable},
        )


def chosen_port(state: State, port: int | None) -> int | None:
    """`--port`, else the global `--local-port` or its environment variable."""
    return port if port is not None else state.local_port


def render_local(status: LocalStatus) -> str:
    """One local server: address, what a script needs, engines."""
    data = status.to_dict()
    fields = [
        ("endpoint URL", str(data["endpoint_url"])),
        ("region", f"{data['region']}, account {data.get('account', 'unknown')}"),
        ("role", str(data["role_arn"])),
        ("images", "\n".join(f"{name}: {uri}" for name, uri in data["image_uris"].items())),
        ("artifacts", "\n".join(f"{name}: {uri}" for name, uri in data["artifacts"].items())),
        ("weights", "small stand-in weights, in place of every model"),
        ("process", f"{data.get('pid', 'unknown')}, log {data.get('log_path', 'unknown')}"),
        ("engines", "\n".join(_engine(each) for each in data.get("engines") or ()) or "none"),
    ]
    return render_fields(fields)


def _engine(engine: Any) -> str:
    if not isinstance(engine, dict):
        return str(engine)
    parts = [str(engine.get("endpoint", "?"))]
    parts += [f"{key} {engine[key]}" for key in ("status", "pid", "url") if engine.get(key) is not None]
    if engine.get("version_running"):
        parts.append(f"vLLM {engine['version_running']} (asked: {engine.get('version_asked', 'unknown')})")
    lines = [", ".join(parts)]
    lines += [f"  {line}" for line in engine.get("overrides") or ()]
    return "\n".join(lines)
