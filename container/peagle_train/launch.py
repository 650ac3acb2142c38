"""The processes that train together: one for each GPU of each instance, started by torchrun."""

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from peagle_train import Mistake

MASTER_ADDRESS = "PEAGLE_TRAIN_MASTER_ADDR"
MASTER_PORT = "PEAGLE_TRAIN_MASTER_PORT"
PROCESSES = "PEAGLE_TRAIN_PROCESSES"
"""These replace the first host's name, `PORT` and the number of GPUs, where several hosts are one machine."""
STOP_FILE = "PEAGLE_TRAIN_STOP_FILE"
PORT = 7777
_PR_SET_PDEATHSIG = 1
_GPU = re.compile(r"nvidia\d+")


@dataclass(frozen=True)
class Fleet:
    """The job's instances: this one is number ``rank`` of ``hosts``, with ``processes`` each."""

    hosts: int
    rank: int
    processes: int
    address: str
    port: int
    interface: str | None

    @property
    def world(self) -> int:
        """Processes of all instances."""
        return self.hosts * self.processes


def read_fleet(resources: Mapping[str, Any], environ: Mapping[str, str], gpus: int) -> Fleet:
    """Read ``resourceconfig.json``; without it the job has one instance.

    Raises:
        Mistake: the file has no hosts, or lacks this one.
    """
    hosts, own = resources.get("hosts", ["localhost"]), resources.get("current_host", "localhost")
    if not isinstance(hosts, list) or own not in hosts:
        raise Mistake(f"resourceconfig.json: current_host is {own!r}, hosts are {hosts!r}")
    ordered = sorted(hosts)
    given = environ.get(MASTER_ADDRESS)
    return Fleet(
        hosts=len(ordered),
        rank=ordered.index(own),
        processes=int(environ.get(PROCESSES) or max(1, gpus)),
        address=given or ordered[0],
        port=int(environ.get(MASTER_PORT) or PORT),
        interface=None if given else resources.get("network_interface_name"),
    )


def gpus_of(devices: Path, environ: Mapping[str, str]) -> int:
    """Return the number of GPUs, without loading torch: by CUDA_VISIBLE_DEVICES, else the device files."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([each for each in visible.split(",") if each.strip() not in ("", "-1")])
    return sum(bool(_GPU.fullmatch(path.name)) for path in devices.iterdir()) if devices.is_dir() else 0


class Stop:
    """Whether the job must stop: after a signal to this process, or when the parent's file exists."""

    def __init__(self, file: Path | None = None) -> None:
        self.file, self._signalled = file, False

    def __call__(self) -> bool:
        """Return whether it must stop."""
        return self._signalled or (self.file is not None and self.file.exists())

    def listen(self) -> None:
        """Take SIGTERM, which SageMaker sends 120 seconds before it kills."""
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signalled = True
        if self.file is not None:
            self.file.touch()


def torchrun_command(fleet: Fleet, plan: Path) -> list[str]:
    """Return the command that starts this instance's processes."""
    command = [sys.executable, "-P", "-m", "torch.distributed.run", "--max-restarts", "0"]
    command += ["--signals-to-handle", "SIGINT,SIGQUIT"]
    command += ["--nnodes", str(fleet.hosts), "--node-rank", str(fleet.rank)]
    command += ["--nproc-per-node", str(fleet.processes)]
    command += ["--master-addr", fleet.address, "--master-port", str(fleet.port)]
    return [*command, "--module", "peagle_train", "worker", str(plan)]


def torchrun_environ(fleet: Fleet, environ: Mapping[str, str], stop: Path) -> dict[str, str]:
    """Return the variables of this instance's processes."""
    variables = {**environ, STOP_FILE: str(stop), "PYTHONSAFEPATH": "1"}
    variables.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // fleet.processes)))
    if fleet.interface:
        variables |= {name: fleet.interface for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")}
    return variables


def run_torchrun(fleet: Fleet, plan: Path, environ: Mapping[str, str], stop: Path) -> int:
    """Run this instance's processes to their end; return torchrun's exit status.

    SIGTERM reaches this process alone or the whole group; torchrun would pass it on and kill after 30
    seconds. Here torchrun ignores it: every process checks the file ``stop`` and ends after its step.
    """
    with subprocess.Popen(
        torchrun_command(fleet, plan),
        env=torchrun_environ(fleet, environ, stop),
        preexec_fn=_before_torchrun,
    ) as process:
        return process.wait()


def _before_torchrun() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    die_with_parent()


def die_with_parent() -> None:
    """Let the kernel end this process when its parent ends, even by SIGKILL; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def outcome(file: Path, read: Callable[[Path], str] = Path.read_text) -> int | None:
    """Return the exit status that a process left for its parent; None without one."""
    try:
        return int(json.loads(read(file)))
    except (OSError, ValueError, TypeError):
        return None
