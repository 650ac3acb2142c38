"""The folder beside learn.yaml that keeps answers and state: one process at a time works in it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from peagle_sm.aws.files import cannot_write, writing
from peagle_sm.core.errors import PlanRefused


@contextmanager
def only_one(folder: Path, what: str, lock: Callable[[int, int], None] = fcntl.flock) -> Iterator[None]:
    """Lock a work folder beside learn.yaml; ``what`` names the command in the other process's error.

    The operating system ends this with the process, so a kill leaves no lock.

    Raises:
        PlanRefused: another process is in the folder; the message names it.
        CannotWrite: the operating system refuses, or the disk has no locks.
    """
    path = folder / "lock"
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8", errors="replace")
    with file:
        try:
            lock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            other = file.readline(200).strip() or "another process"
            raise PlanRefused(
                f"{other} works in {folder}; two at once would delete each other's work. Nothing"
                " was sent, created or deleted.",
                next_step="Wait until it has ended, or stop it, and run this again.",
                details={"findings": [], "other": other},
            ) from error
        except OSError as error:
            refused = cannot_write(error, path, "locked")
            refused.next_step = (
                "The disk, perhaps a network disk, has no file locks. Copy learn.yaml, the files that it"
                f" names and the folder {folder.parent.name} to a disk of this machine, and run the command"
                " there."
            )
            raise refused from error
        with writing(path):
            file.truncate(0)
            file.write(f"process {os.getpid()} on {os.uname().nodename} ({what})\n")
            file.flush()
        yield
