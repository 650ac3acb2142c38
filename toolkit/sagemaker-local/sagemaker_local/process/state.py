"""State files of running servers, so that any process can find and end them.

One JSON file a server: ``<state>/local/<port>.json``. A process is named by its id and its start
time, since ids are reused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

from sagemaker_local.errors import CannotWrite
from sagemaker_local.paths import state_dir

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

# Two readings of one process's start time differ by rounding only.
_SAME_START_S = 0.05


@dataclass(frozen=True)
class Process:
    """A process, identified by its id and start time (seconds since 1970)."""

    pid: int
    started: float
    name: str = ""

    @classmethod
    def of(cls, pid: int, name: str = "") -> Process | None:
        """Describe a live process; None when there is none."""
        with suppress(psutil.Error):
            return cls(pid, psutil.Process(pid).create_time(), name)
        return None

    @property
    def alive(self) -> bool:
        """Whether this same process still runs (a zombie does not)."""
        with suppress(psutil.Error):
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < _SAME_START_S
            return same and process.status() != psutil.STATUS_ZOMBIE
        return False


@dataclass(frozen=True)
class ServerState:
    """One server: where it listens, its process, and its engines (the leaders of their groups).

    An embedded server runs in a process that does other things too and may outlive it.
    """

    port: int
    server: Process
    log_path: str
    engines: tuple[Process, ...] = ()
    embedded: bool = False

    def with_engine(self, engine: Process) -> ServerState:
        """Return the state with an added engine and without ended ones."""
        alive = tuple(known for known in self.engines if group_members(known))
        return replace(self, engines=(*alive, engine))


def group_members(leader: Process) -> list[psutil.Process]:
    """List the live processes of the group that ``leader`` leads or led.

    Linux does not give a process id to anyone else while a group of that id exists, so a group whose
    leader died is still the same group; but a living process of another start time is a stranger's.
    """
    with suppress(psutil.Error):
        if abs(psutil.Process(leader.pid).create_time() - leader.started) >= _SAME_START_S:
            return []
    members = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == leader.pid and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process)
    return members


def servers_dir() -> Path:
    """Return the directory with the state files and logs; create it if needed."""
    directory = state_dir() / "local"
    with _writing(directory):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return directory


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotWrite(
            f"{path}: cannot be written: {error.strerror or error}",
            next_step="Free space on that disk, or set XDG_STATE_HOME to a folder that you can write to.",
        ) from error


def state_path(port: int) -> Path:
    """Return the state file of the server at a port."""
    return servers_dir() / f"{port}.json"


def log_path(port: int) -> Path:
    """Return the log file of the server at a port."""
    return servers_dir() / f"{port}.log"


def work_dir(port: int) -> Path:
    """Return the directory of the server at a port for its endpoints' files."""
    return servers_dir() / f"{port}.d"


def write(state: ServerState) -> None:
    """Write a server's state atomically."""
    path = state_path(state.port)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with _writing(path):
        try:
            part.write_text(json.dumps(asdict(state)))
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def read(port: int) -> ServerState | None:
    """Read a server's state; None when there is none or it cannot be read."""
    try:
        raw = json.loads(state_path(port).read_text())
        engines = tuple(Process(**engine) for engine in raw["engines"])
        server = Process(**raw["server"])
        return ServerState(int(raw["port"]), server, str(raw["log_path"]), engines, bool(raw["embedded"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_all() -> Iterator[ServerState]:
    """Return the recorded state of every server, by port."""
    ports = sorted(int(path.stem) for path in servers_dir().glob("*.json") if path.stem.isdigit())
    for port in ports:
        state = read(port)
        if state is not None:
            yield state


def forget(port: int) -> None:
    """Remove a server's state file (its log stays)."""
    state_path(port).unlink(missing_ok=True)
