"""What the `local` commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import click

from peagle_sm.cli.fault_text import render_faults
from peagle_sm.cli.state import State
from peagle_sm.cli.status_text import engine_words
from peagle_sm.cli.table import render_fields
from peagle_sm.core.errors import EngineError
from peagle_sm.core.extras import install_command

if TYPE_CHECKING:
    from peagle_sm.aws.session.local_server import LocalStatus

F = TypeVar("F", bound=Callable[..., Any])


def port_option(function: F) -> F:
    """`--port`, by which two servers are told apart."""
    return click.option(
        "--port",
        type=click.IntRange(1, 65535),
        help="Which server, when several run.",
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
            next_step=install_command("local"),
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
        ("weights", status.weights),
        ("process", f"{data.get('pid', 'unknown')}, log {data.get('log_path', 'unknown')}"),
        ("engines", "\n".join(_engine(each) for each in data.get("engines") or ()) or "none"),
    ]
    if status.faults:
        fields.append(("faults", render_faults(status.faults)))
    return render_fields(fields)


def _engine(engine: Mapping[str, Any]) -> str:
    component = f", component {engine['component']}" if engine.get("component") else ""
    first = f"{engine['endpoint']}{component}: {engine.get('status') or 'unknown'}, {engine_words(engine)}"
    return "\n".join([first, *(f"  {line}" for line in engine.get("overrides") or ())])
