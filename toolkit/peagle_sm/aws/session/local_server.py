"""Whether calls go to AWS or the local SageMaker, and the local SageMaker's use.

One order for every caller: argument or flag first, then the environment, then the spec. No other module
imports the package `sagemaker_local`. Its errors become peagle-sm's here, with the same words. It is imported
in functions, so that finding the stand-in weights needs no package of the extra ``local``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peagle_sm.core.errors import EngineError, NotFound, PeagleError, SpecError
from peagle_sm.core.files import CannotWrite

if TYPE_CHECKING:
    from sagemaker_local.process.ending import Ended
    from sagemaker_local.process.state import ServerState
    from sagemaker_local.process.status import LocalStatus as LocalStatus


LOCAL = "PEAGLE_SM_LOCAL"
LOCAL_PORT = "PEAGLE_SM_LOCAL_PORT"
_YES = ("1", "true", "yes", "on")
_NO = ("0", "false", "no", "off")


def wants_local(given: bool | None, port: int | None, environ: Mapping[str, str]) -> bool:
    """Whether calls go to the local SageMaker; ``given`` and ``port`` are None where they were not given.

    Naming a local server's port without saying more means that server: AWS would bill.

    Raises:
        SpecError: a variable of the environment has a value that is not allowed.
    """
    if given is not None:
        return given
    if port is not None:
        return True
    text = environ.get(LOCAL, "").strip()
    if not text:
        return local_port(None, environ) is not None
    if text.lower() not in (*_YES, *_NO):
        raise SpecError(
            f"{LOCAL}: found {text!r}; allowed: {', '.join(_YES)} (the local SageMaker) "
            f"or {', '.join(_NO)} (AWS).",
            next_step=f"Correct it, or unset {LOCAL}. Nothing was called.",
            details={"found": text, "allowed": [*_YES, *_NO]},
        )
    return text.lower() in _YES


def local_port(given: int | None, environ: Mapping[str, str]) -> int | None:
    """Return the port of the local server to use; None for the only one that runs.

    Raises:
        SpecError: PEAGLE_SM_LOCAL_PORT is not a port.
    """
    if given is not None:
        return given
    text = environ.get(LOCAL_PORT, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= 65535:
        raise SpecError(
            f"{LOCAL_PORT}: found {text!r}; allowed: a port from 1 to 65535",
            next_step="Unset it, or set it to the port that `peagle-sm local up` printed.",
        )
    return int(text)


def region_of(given: str | None, environ: Mapping[str, str], from_spec: str | None = None) -> str | None:
    """Return the region to use; None leaves it to the profile."""
    return given or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or from_spec


LOGGER = "sagemaker_local"
"""The name of the logger that the server's own log goes through."""


@contextmanager
def _as_ours() -> Iterator[None]:
    from sagemaker_local import errors

    kinds: tuple[tuple[type[errors.LocalError], type[PeagleError]], ...] = (
        (errors.CannotWrite, CannotWrite),
        (errors.InvalidRequest, SpecError),
        (errors.NotFound, NotFound),
        (errors.EngineError, EngineError),
    )
    try:
        yield
    except errors.LocalError as error:
        kind = next((ours for theirs, ours in kinds if isinstance(error, theirs)), EngineError)
        raise kind(error.message, next_step=error.next_step, details=error.details) from error


def up(
    port: int | None,
    *,
    detach: bool,
    progress: Callable[[str], None],
    engine_python: Path | None = None,
    on_ready: Callable[[LocalStatus], None] = lambda _: None,
) -> LocalStatus:
    """Start a server: see `sagemaker_local.lifecycle.up`.

    Raises:
        EngineError: the port is taken, or the server ended before it answered.
        SpecError: the port is not one, or the engine's Python does not exist.
    """
    from sagemaker_local import lifecycle

    with _as_ours():
        return lifecycle.up(
            port, detach=detach, progress=progress, engine_python=engine_python, on_ready=on_ready
        )


def down(port: int | None) -> list[Ended]:
    """End the server at a port, or every server, with every process that it started.

    Raises:
        EngineError: a process would not end, even when killed.
    """
    from sagemaker_local import lifecycle

    with _as_ours():
        return lifecycle.down(port)


def find_server(port: int | None = None) -> LocalStatus:
    """Find the server at a port, or the only one that runs.

    Raises:
        NotFound: no server runs (at that port).
        SpecError: several run and no port was given.
        EngineError: it runs but does not answer.
    """
    from sagemaker_local import lifecycle

    with _as_ours():
        return lifecycle.find_server(port)


def servers(port: int | None = None) -> list[LocalStatus]:
    """Ask the running servers (or the one at a port) how they are; empty when there is none."""
    from sagemaker_local import lifecycle

    with _as_ours():
        return lifecycle.status(port)


def known_servers() -> list[ServerState]:
    """What is written down about servers, running or killed; none of them is asked."""
    from sagemaker_local.process import state

    with _as_ours():
        return list(state.read_all())


def refuse_taken(port: int) -> None:
    """Refuse a port that a server, or any other program, listens on.

    Raises:
        EngineError: with what has the port.
    """
    from sagemaker_local import lifecycle

    with _as_ours():
        lifecycle.refuse_taken(port)


def advance_clock(port: int, seconds: float, progress: Callable[[float], None]) -> str:
    """Move a server's clock forward; see `sagemaker_local.lifecycle.advance_clock`.

    Raises:
        SpecError: the clock only goes forward, by at most a year at a time.
        EngineError: the server does not answer.
    """
    from sagemaker_local import lifecycle

    with _as_ours():
        return lifecycle.advance_clock(port, seconds, progress)


def endpoint_logs(port: int, endpoint: str, lines: int) -> list[str]:
    """Give the last lines of an endpoint's engines, oldest first.

    Raises:
        EngineError: the server does not answer.
    """
    from sagemaker_local import lifecycle

    with _as_ours():
        return lifecycle.endpoint_logs(port, endpoint, lines)


def fault_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Check a fault as it was given; return it with its defaults.

    Raises:
        SpecError: the fault is not acceptable.
    """
    from sagemaker_local.faults import parse

    with _as_ours():
        return parse(given).to_dict()


def add_fault(port: int, fault: Mapping[str, Any]) -> dict[str, Any]:
    """Set a fault on a server and return it with its id.

    Raises:
        SpecError: the fault is not acceptable.
        EngineError: the server does not answer.
    """
    from sagemaker_local import lifecycle

    with _as_ours():
        return lifecycle.add_fault(port, fault)


def faults(port: int) -> list[dict[str, Any]]:
    """Give the faults that are set on a server, oldest first.

    Raises:
        EngineError: the server does not answer.
    """
    from sagemaker_local import lifecycle

    with _as_ours():
        return lifecycle.faults(port)


def clear_faults(port: int, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Take back the faults of these ids, or all of them, and return them.

    Raises:
        NotFound: none is called so; those named before it are taken back.
        EngineError: the server does not answer.
    """
    from sagemaker_local import lifecycle

    with _as_ours():
        return lifecycle.clear_faults(port, ids)


def ensure_engine(progress: Callable[[str], None]) -> Path:
    """Return the Python of the engine's environment, building it first where that is needed.

    Raises:
        EngineError: it cannot be built; the message ends with the installer's last lines.
    """
    from sagemaker_local.engine.env import ensure_engine as ensure

    with _as_ours():
        return ensure(progress)


def engine_state() -> str:
    """Whether the engine's environment is ``ready``, ``incomplete`` or ``not built``."""
    from sagemaker_local.engine.env import engine_state as state

    return state()


def stand_in_weights() -> Path:
    """The folder of the small stand-in weights that ship: ``target``, ``eagle3`` and ``p-eagle``."""
    return Path(str(resources.files("sagemaker_local"))) / "weights"
