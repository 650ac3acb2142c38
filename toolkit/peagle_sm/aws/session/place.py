"""Where calls go: argument or flag first, then the environment, then the spec. One order for every caller."""

from __future__ import annotations

from collections.abc import Mapping

from peagle_sm.core.errors import SpecError

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
