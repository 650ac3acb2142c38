"""Choice between AWS and the local SageMaker, and use of the local SageMaker.

The order is the same for every caller: argument or flag, then the environment, then the spec. No other
module imports the package `sagemaker_local`. Its errors become peagle-sm's here, with the same messages.
It is imported in functions: peagle-sm works without it, and says how to install it where it is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peagle_sm.aws.files import CannotWrite
from peagle_sm.aws.session.session import LocalTarget, Session, make_session
from peagle_sm.core.errors import EngineError, NotFound, PeagleError, SpecError
from peagle_sm.core.words import clone_command

if TYPE_CHECKING:
    from sagemaker_local.process.ending import Ended
    from sagemaker_local.process.state import ServerState
    from sagemaker_local.process.status import LocalStatus as LocalStatus


LOCAL = "PEAGLE_SM_LOCAL"
LOCAL_PORT = "PEAGLE_SM_LOCAL_PORT"
_YES = ("1", "true", "yes", "on")
_NO = ("0", "false", "no", "off")


def wants_local(given: bool | None, port: int | None, environ: Mapping[str, str]) -> bool:
    """Return whether calls go to the local SageMaker; arguments may be None.

    A port alone selects the local server, since AWS would bill.

    Raises:
        SpecError: an environment variable has an invalid value.
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
    """Return the local server's port; None for the only running server.

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


def session_for(
    environ: Mapping[str, str],
    *,
    profile: str | None = None,
    region: str | None = None,
    local: bool | None = None,
    port: int | None = None,
    spec_region: str | None = None,
    default_region: str | None = None,
) -> Session:
    """Return the session for AWS or the local SageMaker that a command or a call in Python names.

    What was given decides, then the environment, the spec (its region), the profile (its region), and
    last ``default_region``.

    Raises:
        CredentialsError: no such profile, no region, or a region that AWS or the local server does not have.
        SpecError: a variable of the environment has a value that is not allowed.
        NotFound: no local SageMaker runs, or several.
    """
    if not wants_local(local, port, environ):
        return make_session(profile, region_of(region, environ, spec_region), default_region=default_region)
    target = LocalTarget.from_status(find_server(local_port(port, environ)).to_dict())
    return make_session(region=region, local=target)


LOGGER = "sagemaker_local"
"""Name of the logger for the server's log."""


def is_installed() -> bool:
    """Return whether the package sagemaker-local is installed."""
    return find_spec("sagemaker_local") is not None


@contextmanager
def _mapped_errors() -> Iterator[None]:
    """Raise the package's errors, and its absence, as peagle-sm's; import the package inside."""
    if not is_installed():
        raise EngineError(
            "the local SageMaker needs the package sagemaker-local, which is not installed",
            next_step=clone_command("sagemaker-local"),
            details={"found": sys.executable},
        )
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
        EngineError: the port is in use, or the server ended before it answered.
        SpecError: the port is invalid, or the engine's Python does not exist.
    """
    with _mapped_errors():
        from sagemaker_local import lifecycle

        return lifecycle.up(
            port, detach=detach, progress=progress, engine_python=engine_python, on_ready=on_ready
        )


def down(port: int | None) -> list[Ended]:
    """Stop the server at a port, or all servers, with all their processes.

    Raises:
        EngineError: a process did not end, even after SIGKILL.
    """
    with _mapped_errors():
        from sagemaker_local import lifecycle

        return lifecycle.down(port)


def find_server(port: int | None = None) -> LocalStatus:
    """Return the server at a port, or the only running server.

    Raises:
        NotFound: no server runs, or none at that port.
        SpecError: several run and no port was given.
        EngineError: the server runs but does not answer.
    """
    with _mapped_errors():
        from sagemaker_local import lifecycle

        return lifecycle.find_server(port)


def servers(port: int | None = None) -> list[LocalStatus]:
    """Return the status of all running servers, or of the one at a port."""
    with _mapped_errors():
        from sagemaker_local import lifecycle

        return lifecycle.status(port)


def known_servers() -> list[ServerState]:
    """Return the recorded state of all servers, running or killed, without a call."""
    with _mapped_errors():
        from sagemaker_local.process import state

        return list(state.read_all())


def refuse_taken(port: int) -> None:
    """Refuse a port on which a program listens.

    Raises:
        EngineError: the port is in use; the message names the program.
    """
    with _mapped_errors():
        from sagemaker_local import lifecycle

        lifecycle.refuse_taken(port)


def advance_clock(port: int, seconds: float, progress: Callable[[float], None]) -> str:
    """Move a server's clock forward; see `sagemaker_local.lifecycle.advance_clock`.

    Raises:
        SpecError: the clock only goes forward, by at most a year at a time.
        EngineError: the server does not answer.
    """
    with _mapped_errors():
        from sagemaker_local import lifecycle

        return lifecycle.advance_clock(port, seconds, progress)


def endpoint_logs(port: int, endpoint: str, lines: int) -> list[str]:
    """Return the last log lines of an endpoint's engines, oldest first.

    Raises:
        EngineError: the server does not answer.
    """
    with _mapped_errors():
        from sagemaker_local import lifecycle

        return lifecycle.endpoint_logs(port, endpoint, lines)


def fault_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Validate a fault, and return it with its defaults.

    Raises:
        SpecError: the fault is invalid.
    """
    with _mapped_errors():
        from sagemaker_local.faults import parse

        return parse(given).to_dict()


def add_fault(port: int, fault: Mapping[str, Any]) -> dict[str, Any]:
    """Set a fault on a server and return it with its id.

    Raises:
        SpecError: the fault is invalid.
        EngineError: the server does not answer.
    """
    with _mapped_errors():
        from sagemaker_local import lifecycle

        return lifecycle.add_fault(port, fault)


def faults(port: int) -> list[dict[str, Any]]:
    """Return the faults that are set on a server, oldest first.

    Raises:
        EngineError: the server does not answer.
    """
    with _mapped_errors():
        from sagemaker_local import lifecycle

        return lifecycle.faults(port)


def clear_faults(port: int, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Remove the faults with these ids, or all faults, and return them.

    Raises:
        NotFound: an id is unknown; the faults before it are removed.
        EngineError: the server does not answer.
    """
    with _mapped_errors():
        from sagemaker_local import lifecycle

        return lifecycle.clear_faults(port, ids)


def interrupt_training(port: int, job: str) -> None:
    """Take the Spot instances of a training job on a local server away.

    Raises:
        SpecError: there is no such job, it is not on Spot instances, or it has none now.
        EngineError: the server does not answer.
    """
    with _mapped_errors():
        from sagemaker_local import lifecycle

        lifecycle.interrupt_training(port, job)


def ensure_engine(progress: Callable[[str], None]) -> Path:
    """Return the Python of the engine's environment; build it first if needed.

    Raises:
        EngineError: the build failed; the message ends with the installer's last lines.
    """
    with _mapped_errors():
        from sagemaker_local.engine.env import ensure_engine as ensure

        return ensure(progress)


def engine_state() -> str:
    """Return the engine environment's state: ready, incomplete or not built."""
    if not is_installed():
        return "not built"
    from sagemaker_local.engine.env import engine_state as state

    return state()


def stand_in_weights() -> Path:
    """Return the folder of the small stand-in weights: target, eagle3 and p-eagle.

    Raises:
        EngineError: sagemaker-local, which carries them, is not installed.
    """
    with _mapped_errors():
        return Path(str(resources.files("sagemaker_local"))) / "weights"
