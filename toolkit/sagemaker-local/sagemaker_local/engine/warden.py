"""Runs one engine and ends all of its processes together, also from outside.

An engine is several processes, and killing the first leaves gigabytes behind in the others. So the warden
leads a session of its own, starts the engine in it, and ends all of it as soon as the engine's first process
exits, or as soon as its own standard input closes. The server holds the other end of that pipe, so even a
server killed by SIGKILL takes its engines along: the kernel closes the pipe.

Standard library only: it is run by path, as ``python -I -S warden.py SCRATCH COMMAND…``, and imports
nothing of the package. Linux only (``/proc`` and ``prctl``), as the CPU build of vLLM is.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
TERM_GRACE_S = 8.0
# Time for Python's own tracker to remove the semaphores of the killed from /dev/shm; it needs milliseconds.
TRACKER_GRACE_S = 2.0
_POLL_S = 0.05


def members(group: int) -> list[int]:
    """Return the living processes of the session that ``group`` leads or led, and all that descend from it.

    A process that made a session of its own, and lost its parent, is a child of the warden.
    """
    living, parents = [], {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue  # it ended meanwhile
        # The name in brackets may hold anything, brackets too.
        state, parent, pgrp, session = stat.rpartition(")")[2].split()[:4]
        parents[int(entry.name)] = int(parent)
        if state not in "ZX":
            living.append((int(entry.name), group in (int(pgrp), int(session))))
    return [pid for pid, inside in living if inside or _descends(pid, group, parents)]


def _descends(pid: int, group: int, parents: dict[int, int]) -> bool:
    seen = set()
    while pid in parents and pid not in seen:
        seen.add(pid)
        pid = parents[pid]
        if pid == group:
            return True
    return False


def end_group(group: int, grace_s: float = TERM_GRACE_S, spare: int | None = None) -> list[int]:
    """End every process of the group: SIGTERM, after ``grace_s`` seconds SIGKILL.

    Args:
        group: id of the process that leads it.
        grace_s: 0 kills at once.
        spare: a process to leave alone, the caller itself.

    Returns:
        The processes that are left after all, which should be none.
    """
    if grace_s:
        _signal(_others(group, spare), signal.SIGTERM)
        if not _wait_gone(group, grace_s, spare):
            return []
    alive = _others(group, spare)
    _signal([pid for pid in alive if not _is_tracker(pid)], signal.SIGKILL)
    if not _wait_gone(group, TRACKER_GRACE_S, spare):
        return []
    _signal(_others(group, spare), signal.SIGKILL)
    return _wait_gone(group, TRACKER_GRACE_S, spare)


def _others(group: int, spare: int | None) -> list[int]:
    return [pid for pid in members(group) if pid != spare]


def _wait_gone(group: int, seconds: float, spare: int | None) -> list[int]:
    deadline = time.monotonic() + seconds
    while (left := _others(group, spare)) and time.monotonic() < deadline:
        _reap()
        time.sleep(_POLL_S)
    return left


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _is_tracker(pid: int) -> bool:
    try:
        return b"multiprocessing.resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _reap() -> None:
    """Reap dead children if this process is the warden (orphans are re-parented to it)."""
    if not _is_warden:
        return
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


_is_warden = False


def _prctl(option: int, argument: int) -> None:
    ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)


def _as_child() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # should the warden itself be killed


def _end_when_abandoned(group: int, scratch: str) -> None:
    while os.read(0, 4096):
        pass
    end_group(group, spare=group)
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(128 + signal.SIGTERM)


def _wait_for(child: int) -> int:
    """Reap processes until the child has ended; return its status as a shell would."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def main(scratch: str, command: list[str]) -> int:
    """Run the command in this session and end all of it afterwards; return the command's exit status.

    ``scratch``, the engine's directory for temporary files, is removed with it.
    """
    global _is_warden
    _is_warden = True
    group = os.getpid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are meant for the engine; the warden sees it out
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_as_child)
    threading.Thread(target=_end_when_abandoned, args=(group, scratch), daemon=True).start()
    status = _wait_for(child.pid)
    child.returncode = status  # collected above, so Popen must not look for it
    end_group(group, spare=group)
    shutil.rmtree(scratch, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
