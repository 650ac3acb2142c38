"""Write files whole or not at all, and read and encode UTF-8 text.

Errors name the file and what the disk does not allow; for text that is not UTF-8, the line and the byte.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from peagle_sm.core.errors import SpecError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_MISPLACED = frozenset(
    {errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}
)


class CannotWrite(SpecError):
    """A file or folder cannot be written: the disk is full, or the place is not writable."""


def write_file(path: Path, content: str | bytes, *, overwrite: bool = True, parents: bool = False) -> None:
    """Write a file beside its place and move it there, so that no reader and no failure sees half of it.

    An existing file keeps its permissions, and a link stays a link. ``parents`` creates the folders above it.

    Raises:
        FileExistsError: the file exists, and ``overwrite`` is False.
        CannotWrite: the disk refuses; what was there before is unchanged.
    """
    if not overwrite and os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    data = content.encode() if isinstance(content, str) else content
    with writing(path):
        place = Path(os.path.realpath(path))
        if parents:
            place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists() and not place.is_file():  # a device or a pipe is written as it is
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
    """Name what cannot be written, and what to do about it.

    Raises:
        CannotWrite: the operating system refused.
    """
    try:
        yield
    except OSError as error:
        raise cannot_write(error, path) from error


def is_about_the_disk(error: OSError) -> bool:
    """Whether the error is about space or permission: what a user, not this program, can put right."""
    return error.errno in _FULL | _FORBIDDEN


def cannot_write(error: OSError, path: Path | str | None, done: str = "written") -> CannotWrite:
    """Describe what the operating system refused; ``path`` is None where it is not known."""
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        step = "Free space on that disk, and run the command again."
    elif error.errno in _FORBIDDEN:
        step = "Make that place writable for you, or name another one, and run the command again."
    elif error.errno in _MISPLACED:
        step = "Name a file in a folder that exists."
    else:
        step = "Name another place, and run the command again."
    what = "the output" if path is None else str(path)
    return CannotWrite(
        f"{what}: cannot be {done}: {reason}",
        next_step=step,
        details={"path": None if path is None else str(path), "reason": reason},
    )


_STEP = "Convert it to UTF-8, for example with `iconv -f latin1 -t utf-8 FILE`."


def utf8_text(data: bytes, where: str, first_line: int = 1) -> str:
    """Decode text; ``first_line`` is the number of its first line.

    Raises:
        SpecError: it is not UTF-8; the message has ``where``, the line and the byte.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise SpecError(
            f"{where}, line {line}: found byte 0x{data[error.start]:02x}, which is not UTF-8; "
            "allowed: UTF-8 text.",
            next_step=_STEP,
        ) from None


def encoded_utf8(text: str, where: str) -> bytes:
    """Encode text.

    Raises:
        SpecError: it holds half a character, as Python writes a command line that is not UTF-8.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        found = (
            f"byte 0x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"half a character, U+{code:04X}"
        )
        raise SpecError(
            f"{where}: found {found} (position {error.start}), which is not UTF-8; allowed: UTF-8 text.",
            next_step=_STEP,
        ) from None
