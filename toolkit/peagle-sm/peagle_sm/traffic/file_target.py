"""A file as a target: whole lines from several writers, rotated, with a retention.

Writers in several processes take turns by a lock on the file. A write that does not fit is taken back, so a
full disk leaves no half line. The file is readable by its owner only.
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
from peagle_sm.traffic.recorder import Lost
from peagle_sm.traffic.records import SCHEMA

ROTATE_BYTES = 64 * 1024 * 1024
_ROTATE_S = 24 * 3600.0
_LOOK_S = 600.0  #: between two looks for what is too old
_DAY_S = 24 * 3600.0
_MARK = f'{{"schema":"{SCHEMA.rpartition("/")[0]}/'.encode()


class FileTarget:
    """Lines appended to one file; a full one is renamed to ``NAME-<time>-<random>.jsonl`` beside it."""

    _descriptor: int
    _end: int  #: where this writer's last line ended

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
            SpecError: the path is a folder or no file, its content is no recorded traffic, other users can
                read it, or it cannot be written.
        """
        self.path = path
        self._keep_days = keep_days
        self._rotate_bytes = rotate_bytes
        self._clock = clock
        self._looked = float("-inf")
        self._adopt(self._open())
        try:
            self._refuse_others()
        except BaseException:
            os.close(self._descriptor)
            raise

    def write(self, lines: Sequence[bytes]) -> Lost | None:
        """Append whole lines, or none of them.

        Raises:
            OSError: the disk is full, or does not accept them.
        """
        data = memoryview(b"".join(lines))
        with _Turn(self) as size:
            # Only another writer can have been killed in the middle of its line.
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
        return None

    def tick(self) -> Lost | None:
        """Rotate the file if it is large or a day old; delete rotated files that are too old."""
        now = self._clock()
        due = now - self._looked >= _LOOK_S
        if not due and self._end < self._rotate_bytes:
            return None  # it is called each second, and the lock costs more than this
        with _Turn(self) as size:
            if size >= self._rotate_bytes or (size and now - self._first_time() >= _ROTATE_S):
                self._rotate(now)
        if due:
            self._looked = now
            self._delete_old(now)
        return None

    def close(self) -> Lost | None:
        """Close the file."""
        os.close(self._descriptor)
        return None

    def describe(self) -> str:
        """Return the file's path."""
        return str(self.path)

    def size_here(self) -> int | None:
        """Return the bytes of the file, or None after opening the path again: another writer rotated it.

        It is called before each write, so it asks the system once.
        """
        with suppress(FileNotFoundError):
            here = os.stat(self.path)
            if (here.st_dev, here.st_ino) == self._identity:
                return here.st_size
        opened = self._open()  # before the old one is closed: this may fail, and then the old one stays
        os.close(self._descriptor)
        self._adopt(opened)
        return None

    @property
    def descriptor(self) -> int:
        """Descriptor of the file that is written now."""
        return self._descriptor

    def _open(self) -> int:
        if self.path.is_dir():
            raise SpecError(
                f"{self.path} is a folder; allowed: a file, which is created if it does not exist",
                next_step=f"give a file in it, for example {self.path / 'traffic.jsonl'}",
            )
        try:
            regular = stat.S_ISREG(os.lstat(self.path).st_mode)
        except FileNotFoundError:  # not there yet, or renamed by another writer just now
            regular = True
        if not regular:
            raise SpecError(
                f"{self.path} is not a regular file; allowed: a file, which is created if it does not exist",
                next_step="give another path",
            )
        try:
            return os.open(
                self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        except OSError as error:
            raise cannot_write(error, self.path) from error

    def _adopt(self, descriptor: int) -> None:
        """Write to this descriptor from now on."""
        found = os.fstat(descriptor)
        self._descriptor = descriptor
        self._identity = (found.st_dev, found.st_ino)
        self._end = 0

    def _refuse_others(self) -> None:
        found = os.fstat(self._descriptor)
        # The content first: nobody is told to change the mode of a file that is not a recording.
        if found.st_size and os.pread(self._descriptor, len(_MARK), 0) != _MARK:
            raise SpecError(
                f"{self.path} exists and is not recorded traffic; it was not changed",
                next_step="give another file",
            )
        mode = stat.S_IMODE(found.st_mode)
        if mode & 0o077:
            raise SpecError(
                f"{self.path} can be read by other users (mode {mode:03o}); allowed: 600",
                next_step=f"run chmod 600 {self.path}, or give another file",
            )

    def _first_time(self) -> float:
        """Return the time of the file's first record; infinity if that is unreadable."""
        found = re.search(rb'"time":(\d+(?:\.\d+)?)', os.pread(self._descriptor, 400, 0))
        return float(found[1]) if found else float("inf")

    def _rotate(self, now: float) -> None:
        when = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
        name = f"{self.path.stem}-{when}-{secrets.token_hex(3)}{self.path.suffix}"
        os.rename(self.path, self.path.with_name(name))

    def _delete_old(self, now: float) -> None:
        if self._keep_days is None:
            return
        form = re.compile(
            re.escape(self.path.stem) + r"-\d{8}T\d{6}Z-[0-9a-f]{6}" + re.escape(self.path.suffix)
        )
        for path in self.path.parent.iterdir():
            if form.fullmatch(path.name) and now - path.lstat().st_mtime > self._keep_days * _DAY_S:
                with suppress(OSError):
                    if path.is_file() and not path.is_symlink() and _is_ours(path):
                        path.unlink()


def _is_ours(path: Path) -> bool:
    """Return whether a file begins as recorded traffic does."""
    with path.open("rb") as file:
        return file.read(len(_MARK)) == _MARK


class _Turn:
    """Context manager: the lock of the file that has the path now; yields its size in bytes."""

    def __init__(self, target: FileTarget) -> None:
        self._target = target
        self._locked = -1

    def __enter__(self) -> int:
        while True:
            descriptor = self._target.descriptor
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            try:
                size = self._target.size_here()
            except BaseException:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                raise
            if size is not None:
                self._locked = descriptor
                return size

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._locked, fcntl.LOCK_UN)
