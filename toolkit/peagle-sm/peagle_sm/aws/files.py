"""Files on this machine: written whole or not at all, and the cache folder.

Errors name the file and what the disk does not allow.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from peagle_sm.core.errors import SpecError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_MISPLACED = frozenset(
    {errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}
)


class CannotWrite(SpecError):
    """A file or folder cannot be written: the disk is full, or it is not writable."""


def write_file(path: Path, content: str | bytes, *, overwrite: bool = True, parents: bool = False) -> None:
    """Write a file atomically: to a temporary file, which is then renamed.

    An existing file keeps its permissions, and a link stays a link. ``parents`` creates the folders above it.

    Raises:
        FileExistsError: the file exists, and ``overwrite`` is False.
        CannotWrite: the operating system refuses; an existing file is unchanged.
    """
    if not overwrite and os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    data = content.encode() if isinstance(content, str) else content
    with writing(path):
        place = Path(os.path.realpath(path))
        if parents:
            place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists() and not place.is_file():  # a device or a pipe is written directly
            place.write_bytes(data)
            return
        part = place.with_name(f".{place.name[:200]}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if place.exists():
                part.chmod(place.stat().st_mode & 0o7777)
            part.replace(place)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Map errors of writing ``path`` to CannotWrite with a next step.

    Raises:
        CannotWrite: the operating system refuses.
    """
    try:
        yield
    except OSError as error:
        raise cannot_write(error, path) from error


def is_about_the_disk(error: OSError) -> bool:
    """Return whether a user can fix the error: disk space or permission."""
    return error.errno in _FULL | _FORBIDDEN


def cannot_write(error: OSError, path: Path | str | None, done: str = "written") -> CannotWrite:
    """Return the error for a failed write; ``path`` is None if unknown."""
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        step = "Free space on that disk, and run the command again."
    elif error.errno in _FORBIDDEN:
        step = "Give yourself write permission there, or choose another path, and run the command again."
    elif error.errno in _MISPLACED:
        step = "Give a file in an existing folder."
    else:
        step = "Choose another path, and run the command again."
    what = "the output" if path is None else str(path)
    return CannotWrite(
        f"{what}: cannot be {done}: {reason}",
        next_step=step,
        details={"path": None if path is None else str(path), "reason": reason},
    )


def cache_dir(environ: Mapping[str, str]) -> Path:
    """Return the folder for files that can be downloaded or built again.

    It follows the XDG rules: a relative value is ignored.
    """
    named = environ.get("XDG_CACHE_HOME", "")
    home = Path(named) if os.path.isabs(named) else Path(environ.get("HOME") or Path.home()) / ".cache"
    return home / "peagle-sm"


def price_file(environ: Mapping[str, str]) -> Path:
    """Return the file that keeps AWS's prices: PEAGLE_SM_PRICES, else one in the cache folder."""
    path = environ.get("PEAGLE_SM_PRICES", "")
    return Path(path) if path else cache_dir(environ) / "prices.json"
