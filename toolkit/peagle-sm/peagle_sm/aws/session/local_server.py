"""Choice between AWS and the local SageMaker, and use of the local SageMaker.

The order is the same for every caller: argument or flag, then the environment, then the spec. No other
module imports the package `sagemaker_local`. Its errors become peagle-sm's here, with the same messages.
It is imported in functions: peagle-sm works without it, and says how to install it where it is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module, resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peagle_sm.aws.files import CannotWrite
from peagle_sm.aws.session.session import LocalTarget, Session, make_session
from peagle_sm.core.errors import EngineError, NotFound, PeagleError, SpecError
from peagle_sm.core.words import clone_command

if TYPE_CHECKING:
    from sagemaker_local.engine.env import ensure_engine as ensure_engine
    from sagemaker_local.lifecycle import add_fault as add_fault
    from sagemaker_local.lifecycle import advance_clock as advance_clock
    from sagemaker_local.lifecycle import clear_faults as clear_faults
    from sagemaker_local.lifecycle import down as down
    from sagemaker_local.lifecycle import endpoint_logs as endpoint_logs
    from sagemaker_local.lifecycle import faults as faults
    from sagemaker_local.lifecycle import find_server as find_server
    from sagemaker_local.lifecycle import interrupt_training as interrupt_training
    from sagemaker_local.lifecycle import refuse_taken as refuse_taken
    from sagemaker_local.lifecycle import status as status
    from sagemaker_local.lifecycle import up as up
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
    with _mapped_errors():
        from sagemaker_local import lifecycle

        status = lifecycle.find_server(local_port(port, environ))
    return make_session(region=region, local=LocalTarget.from_status(status.to_dict()))


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


#: Functions of sagemaker-local by their module. Each raises peagle-sm's errors when it is called from here.
_FUNCTIONS = {
    "add_fault": "lifecycle",
    "advance_clock": "lifecycle",
    "clear_faults": "lifecycle",
    "down": "lifecycle",
    "endpoint_logs": "lifecycle",
    "ensure_engine": "engine.env",
    "faults": "lifecycle",
    "find_server": "lifecycle",
    "interrupt_training": "lifecycle",
    "refuse_taken": "lifecycle",
    "status": "lifecycle",
    "up": "lifecycle",
}


def __getattr__(name: str) -> Any:
    if name not in _FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def call(*args: Any, **options: Any) -> Any:
        with _mapped_errors():
            module = import_module(f"sagemaker_local.{_FUNCTIONS[name]}")
            return getattr(module, name)(*args, **options)

    return call


def known_servers() -> list[ServerState]:
    """Return the recorded state of all servers, running or killed, without a call."""
    with _mapped_errors():
        from sagemaker_local.process import state

        return list(state.read_all())


def fault_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Validate a fault, and return it with its defaults.

    Raises:
        SpecError: the fault is invalid.
    """
    with _mapped_errors():
        from sagemaker_local.faults import parse

        return parse(given).to_dict()


def engine_state() -> str:
    """Return the engine environment's state: ready, incomplete or not built."""
    if not is_installed():
        return "not built"
    from sagemaker_local.engine.env import engine_state as state

    return state()


def stand_in_weights() -> Path:
    """Return the folder of the shipped weights: the small stand-ins target, eagle3 and p-eagle, and heads.

    Raises:
        EngineError: sagemaker-local, which carries them, is not installed.
    """
    with _mapped_errors():
        return Path(str(resources.files("sagemaker_local"))) / "weights"


def artifact_folder(artifact: str, progress: Callable[[str], None]) -> Path:
    """Return the folder of an artifact of the catalogue; the target SmolLM2 is downloaded if needed.

    Raises:
        EngineError: sagemaker-local is not installed, or the download failed.
    """
    folder = stand_in_weights() / artifact
    if folder.is_dir():
        return folder
    with _mapped_errors():
        from sagemaker_local.contents.smollm2 import ARTIFACT, ensure_smollm2

        return ensure_smollm2(progress) if artifact == ARTIFACT else folder
