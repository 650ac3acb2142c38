"""A file as a target: whole lines, rotated, with a retention.

One process writes a file at a time; a lock on the file refuses a second. A write that does not fit is undone,
so a full disk leaves no half line. Only the owner can read the file.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from peagle_sm.aws.files import cannot_write
from peagle_sm.core.errors import SpecError
from peagle_sm.traffic.records import SCHEMA

ROTATE_BYTES = 64 * 1024 * 1024
_ROTATE_S = 24 * 3600.0
_CLEAN_UP_S = 600.0  #: between two searches for files that are too old
_DAY_S = 24 * 3600.0
_FIRST_BYTES = f'{{"schema":"{SCHEMA.rpartition("/")[0]}/'.encode()
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class FileTarget:
    """Lines appended to one file; a full one is renamed to ``NAME-<time>-<random>.jsonl`` beside it."""

    def __init__(
        self,
        path: Path,
        *,
        keep_days: float | None,
        rotate_bytes: int = ROTATE_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open the file; ``keep_days`` None keeps rotated files for ever.

        Raises:
            SpecError: the path is a folder or not a regular file, another process records to it, its content
                is not recorded traffic, other users can read it, or it cannot be written.
        """
        self.path = path
        self._keep_days = keep_days
        self._rotate_bytes = rotate_bytes
        self._clock = clock
        self._cleaned_up = float("-inf")
        self._descriptor = self._open()
        self._end = 0  #: where this writer's last line ended

    def write(self, lines: Sequence[bytes]) -> None:
        """Append whole lines, or none of them.

        Raises:
            OSError, SpecError: the disk is full, or does not accept them.
        """
        self._reopen_if_moved()
        size = os.fstat(self._descriptor).st_size
        data = memoryview(b"".join(lines))
        # A killed writer can have left half a line.
        if size not in (0, self._end) and os.pread(self._descriptor, 1, size - 1) != b"\n":
            data = memoryview(b"\n" + data)
        end = size + len(data)
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            os.ftruncate(self._descriptor, size)
            raise
        self._end = end

    def tick(self) -> None:
        """Rotate the file if it is large or a day old; delete rotated files that are too old."""
        now = self._clock()
        due = now - self._cleaned_up >= _CLEAN_UP_S
        if not due and self._end < self._rotate_bytes:
            return
        self._reopen_if_moved()
        size = os.fstat(self._descriptor).st_size
        if size >= self._rotate_bytes or (size and now - self._first_time() >= _ROTATE_S):
            self._rotate(now)
        if due:
            self._cleaned_up = now
            self._delete_old(now)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def describe(self) -> str:
        """Return the file's path."""
        return str(self.path)

    def _reopen_if_moved(self) -> None:
        """Open the path again if it was renamed, by a rotation for example, or removed."""
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(self.path), os.fstat(self._descriptor)):
                return
        opened = self._open()  # first, since it may fail; then the old descriptor must stay open
        os.close(self._descriptor)
        self._descriptor, self._end = opened, 0

    def _open(self) -> int:
        if self.path.is_dir():
            raise SpecError(
                f"{self.path} is a folder; allowed: a file, which is created if it does not exist",
                next_step=f"give a file in it, for example {self.path / 'traffic.jsonl'}",
            )
        if self.path.is_symlink() or (self.path.exists() and not self.path.is_file()):
            raise SpecError(
                f"{self.path} is not a regular file; allowed: a file, which is created if it does not exist",
                next_step="give another path",
            )
        try:
            descriptor = os.open(self.path, _FLAGS, 0o600)
        except OSError as error:
            raise cannot_write(error, self.path) from error
        try:
            self._check(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _check(self, descriptor: int) -> None:
        """Lock the file; refuse one that is not a recording, or that others can read."""
        facts = os.fstat(descriptor)
        # The content first: the next step must not change the mode of a file that is not a recording.
        if facts.st_size and os.pread(descriptor, len(_FIRST_BYTES), 0) != _FIRST_BYTES:
            raise SpecError(
                f"{self.path} exists and is not recorded traffic; it was not changed",
                next_step="give another file",
            )
        mode = stat.S_IMODE(facts.st_mode)
        if mode & 0o077:
            raise SpecError(
                f"{self.path} can be read by other users (mode {mode:03o}); allowed: 600",
                next_step=f"run chmod 600 {self.path}, or give another file",
            )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SpecError(
                f"another process records to {self.path}; allowed: one process for each file",
                next_step="give another file; a folder of them is read as one recording",
            ) from None
        except OSError as error:
            raise cannot_write(error, self.path, "locked") from error

    def _first_time(self) -> float:
        """Return the time of the file's first record; infinity if that is unreadable."""
        match = re.search(rb'"time":(\d+(?:\.\d+)?)', os.pread(self._descriptor, 400, 0))
        return float(match[1]) if match else float("inf")

    def _rotate(self, now: float) -> None:
        when = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
        name = f"{self.path.stem}-{when}-{secrets.token_hex(3)}{self.path.suffix}"
        os.rename(self.path, self.path.with_name(name))

    def _delete_old(self, now: float) -> None:
        if self._keep_days is None:
            return
        stem, suffix = re.escape(self.path.stem), re.escape(self.path.suffix)
        rotated = re.compile(rf"{stem}-\d{{8}}T\d{{6}}Z-[0-9a-f]{{6}}{suffix}")
        for path in self.path.parent.iterdir():
            if rotated.fullmatch(path.name) and now - path.lstat().st_mtime > self._keep_days * _DAY_S:
                with suppress(OSError):
                    if path.is_file() and not path.is_symlink() and _is_recording(path):
                        path.unlink()


def _is_recording(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_FIRST_BYTES)) == _FIRST_BYTES
