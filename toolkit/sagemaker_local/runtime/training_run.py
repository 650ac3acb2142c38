"""One attempt of a training job: its files, its processes, its checkpoints, and what it leaves in S3.

Each instance is a process with a folder of its own for ``/opt/ml``, laid out as SageMaker's developer guide
says ("How Amazon SageMaker AI Provides Training Information", "... Processes Training Output"). The role of
the job must allow what is read and written.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tarfile
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from time import monotonic
from typing import Any

import psutil

from sagemaker_local.control.training_jobs import ML_ROOT, TrainingRecord
from sagemaker_local.engine import warden
from sagemaker_local.engine.launch import free_port
from sagemaker_local.engine.output import OutputLines
from sagemaker_local.engine.trainer_env import train_environ
from sagemaker_local.other_services.moto import Moto
from sagemaker_local.other_services.stores import Artifacts, Roles, split_s3_uri
from sagemaker_local.runtime.training_life import JobFailed

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
# Between two looks at the checkpoint folder; a file is stored once it was the same at two looks.
_LOOK_S = 0.5
_LONGEST_FAILURE = 1024
# For a process to be started that is to be ended.
_START_S = 10.0
# For the other instances once one has failed, and for all of them when the server ends.
_GRACE_S = 3.0
# The trainer's own: where several instances are one machine, a name like algo-1 has no address.
_MASTER_ADDRESS, _MASTER_PORT = "PEAGLE_TRAIN_MASTER_ADDR", "PEAGLE_TRAIN_MASTER_PORT"

# Gets the lines of a build; returns the command that trains.
Trainer = Callable[[Callable[[str], None]], Awaitable[list[str]]]
# (stream, line, role)
WriteLog = Callable[[str, str, str], None]
Stamp = tuple[int, int]


@dataclass(frozen=True)
class Machine:
    """What all attempts share.

    Attributes:
        trainer: gives the command that trains, building its environment where needed.
        moto: holds S3 and IAM.
        directory: the parent of the jobs' folders.
        now: the local clock.
        write_log: gets each line of output, with its log stream and the role that writes it.
        started: gets the id of each process that leads a group, and a name.
    """

    trainer: Trainer
    moto: Moto
    directory: Path
    now: Callable[[], datetime]
    write_log: WriteLog
    started: Callable[[int, str], None]

    def attempt(self, row: TrainingRecord, on_line: Callable[[str], None]) -> TrainingAttempt:
        """Make an attempt of a job; ``on_line`` gets each line of its output, too."""
        return TrainingAttempt(self, row, on_line)


class RoleStorage:
    """S3 as a role sees it; what it may not do, or is not there, fails the job in AWS's words."""

    def __init__(self, moto: Moto, role: str) -> None:
        """Set up for one role's requests."""
        self._call = moto.call
        self._artifacts = Artifacts(moto)
        self._roles = Roles(moto)
        self._role = role

    async def fetch(self, uri: str, directory: Path, share: tuple[int, int] = (0, 1)) -> None:
        """Copy the objects whose keys begin with an S3 URI's; ``share`` (n, m): each m-th from the n-th."""
        await self._call(self._fetch, uri, directory, share)

    async def store(self, files: list[tuple[str, Path]], uri: str, what: str) -> None:
        """Store files (name, path) below an S3 URI; ``what`` begins the failure."""
        await self._call(self._store, files, uri, what)

    def _fetch(self, uri: str, directory: Path, share: tuple[int, int]) -> None:
        bucket, prefix = split_s3_uri(uri)
        directory.mkdir(parents=True, exist_ok=True)
        keys = [key for key in self._artifacts.beginning_with(uri) if not key.endswith("/")]
        for key in keys[share[0] :: share[1]]:
            place = f"s3://{bucket}/{key}"
            if "//" in key:
                raise JobFailed(
                    "ClientError: Data download failed:Failed to download data. S3 key: "
                    f"{place} has an illegal char sub-sequence '//' in it"
                )
            if not self._may("s3:GetObject", bucket, key):
                raise JobFailed(
                    f"ClientError: Data download failed:Unable to download object {place} "
                    "(AccessDenied: Access Denied)"
                )
            self._artifacts.save(bucket, key, directory, name_below(key, prefix))

    def _store(self, files: list[tuple[str, Path]], uri: str, what: str) -> None:
        bucket, prefix = split_s3_uri(uri)
        for name, path in files:
            key = f"{prefix}{name}"
            if not self._may("s3:PutObject", bucket, key):
                cause = "AccessDenied: Access Denied"
            else:
                try:
                    self._artifacts.upload([("", path)], bucket, key)
                    continue
                except OSError:
                    continue  # the job removed it meanwhile
                except Exception as error:
                    cause = str(error) or type(error).__name__
            raise JobFailed(f"ClientError: {what} failed:Unable to upload s3://{bucket}/{key} ({cause})")

    def _may(self, action: str, bucket: str, key: str) -> bool:
        return self._roles.allows(self._role, action, f"arn:aws:s3:::{bucket}/{key}", {})


def name_below(key: str, prefix: str) -> str:
    """Return an object's path in a channel's folder: its key without the folders that the prefix names.

    >>> [name_below("a/b/c", prefix) for prefix in ("a/", "a", "a/b/c", "a/b/", "")]
    ['b/c', 'b/c', 'c', 'c', 'a/b/c']
    """
    if key.startswith(f"{prefix}/"):
        return key[len(prefix) + 1 :]
    return key[prefix.rfind("/") + 1 :]


class TrainingAttempt:
    """One attempt; `sagemaker_local.runtime.training_life.Attempt` says what its methods are for."""

    def __init__(self, machine: Machine, row: TrainingRecord, on_line: Callable[[str], None]) -> None:
        """Set up; nothing happens yet."""
        self._machine = machine
        self._row = row
        self._on_line = on_line
        self._storage = RoleStorage(machine.moto, row.body["RoleArn"])
        self._root = machine.directory / row.name
        self._began = int(machine.now().timestamp() * 1000)
        self._command: list[str] = []
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._reading: list[asyncio.Task[None]] = []
        self._seen: dict[Path, Stamp] = {}
        self._kept: dict[Path, Stamp] = {}

    async def download(self) -> None:
        """Lay out every instance's folder, with the channels' data and the checkpoints."""
        shutil.rmtree(self._root, ignore_errors=True)
        self._command = await self._machine.trainer(lambda line: self._line(self._row.hosts[0], line))
        for number, host in enumerate(self._row.hosts):
            root = self._ml(host)
            for folder in ("input/config", "model", "output/data", "checkpoints"):
                (root / folder).mkdir(parents=True)
            for name, document in documents(self._row, host):
                (root / "input" / "config" / name).write_text(json.dumps(document))
            for channel in self._row.body.get("InputDataConfig", []):
                source = channel["DataSource"]["S3DataSource"]
                sharded = source.get("S3DataDistributionType") == "ShardedByS3Key"
                share = (number, len(self._row.hosts)) if sharded else (0, 1)
                folder = root / "input" / "data" / channel["ChannelName"]
                await self._storage.fetch(source["S3Uri"], folder, share)
            checkpoints = self._row.body.get("CheckpointConfig")
            if checkpoints is not None:
                uri = f"{checkpoints['S3Uri'].rstrip('/')}/"
                await self._storage.fetch(uri, self._checkpoints(host))
        self._kept = dict(self._checkpoint_files())

    async def train(self) -> str | None:
        """Run the processes to their end, and store checkpoints meanwhile; return why they failed."""
        port = free_port()
        for host in self._row.hosts:
            self._processes[host] = await self._spawn(host, port)
        ends = {host: asyncio.create_task(each.wait()) for host, each in self._processes.items()}
        try:
            while running := [end for end in ends.values() if not end.done()]:
                await asyncio.wait(running, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                await self._keep_checkpoints()
                if any(end.done() and end.result() != 0 for end in ends.values()):
                    await asyncio.to_thread(self._end, _GRACE_S)
        finally:
            await asyncio.shield(asyncio.to_thread(self._end, 0))
            for end in ends.values():
                await asyncio.shield(end)
            await asyncio.wait(self._reading, timeout=_GRACE_S)
        await self._keep_checkpoints(all_of_them=True)
        failed = [(host, end.result()) for host, end in ends.items() if end.result() != 0]
        return self._failure(failed) if failed else None

    async def terminate(self) -> None:
        """Send SIGTERM to each instance's first process, as ``docker stop`` does.

        A job that is stopped at once has none yet: a signal before the program runs would be lost.
        """
        waiting = set(self._row.hosts)
        last = monotonic() + _START_S
        while waiting and monotonic() < last:
            waiting -= {host for host in waiting if self._told_to_end(self._processes.get(host))}
            if waiting:
                await asyncio.sleep(0.02)

    def _told_to_end(self, process: asyncio.subprocess.Process | None) -> bool:
        if process is None:
            return False
        try:
            children = psutil.Process(process.pid).children()
            # Until its exec, the child still is the warden, which ignores the signal.
            running = [child for child in children if warden.__file__ not in child.cmdline()]
            for child in running:
                child.send_signal(signal.SIGTERM)
        except psutil.Error:
            return process.returncode is not None
        return bool(running) or process.returncode is not None

    def kill(self) -> None:
        """Send SIGKILL to every process of every instance."""
        self._end(0)

    async def upload(self) -> None:
        """Store the model and the output of all instances; an empty folder leaves nothing."""
        model = self._row.model_uri
        packed = not model.endswith("/")
        folder = model.rpartition("/model")[0]
        await self._leave("model", model, packed)
        await self._leave("output/data", f"{folder}/output.tar.gz" if packed else f"{folder}/data/", packed)

    async def close(self) -> None:
        """End what still runs, and remove the files."""
        await asyncio.to_thread(self._end, 0)
        for reading in self._reading:
            reading.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        await asyncio.to_thread(shutil.rmtree, self._root, ignore_errors=True)

    async def _leave(self, folder: str, uri: str, packed: bool) -> None:
        files: dict[str, Path] = {}
        for host in self._row.hosts:
            top = self._ml(host) / folder
            for path in sorted(top.rglob("*")) if top.is_dir() else []:
                if path.is_file() and not path.is_symlink():
                    files.setdefault(path.relative_to(top).as_posix(), path)
        if not files:
            return
        if not packed:
            return await self._storage.store(list(files.items()), uri, "Artifact upload")
        archive = self._root / PurePosixPath(uri).name
        await asyncio.to_thread(_pack, files, archive)
        await self._storage.store([("", archive)], uri, "Artifact upload")

    async def _spawn(self, host: str, port: int) -> asyncio.subprocess.Process:
        scratch = Path(tempfile.mkdtemp(prefix="peagle-train-"))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            warden.__file__,
            str(scratch),
            *self._command,
            env=self._environment(host, port, scratch),
            cwd=self._ml(host),
            stdin=asyncio.subprocess.PIPE,  # its closing tells the warden that this server has gone
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self._machine.started(process.pid, f"training job {self._row.name} {host}")
        self._reading.append(asyncio.create_task(self._read(host, process)))
        return process

    def _environment(self, host: str, port: int, scratch: Path) -> dict[str, str]:
        """Return the variables that SageMaker sets and the job's own, without those of this server's user."""
        home = self._root / host / "home"
        home.mkdir(exist_ok=True)
        several = {_MASTER_ADDRESS: "127.0.0.1", _MASTER_PORT: str(port)} if len(self._row.hosts) > 1 else {}
        variables = {
            "PATH": f"{Path(self._command[0]).parent}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TMPDIR": str(scratch),
            "PYTHONUNBUFFERED": "1",
            "AWS_REGION": self._machine.moto.region,
            "TRAINING_JOB_NAME": self._row.name,
            "TRAINING_JOB_ARN": self._row.arn,
            **several,
            **self._row.body.get("Environment", {}),
        }
        return train_environ(variables, self._ml(host))

    async def _read(self, host: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        output = OutputLines(lambda line: self._line(host, line))
        while chunk := await process.stdout.read(64 * 1024):
            output.feed(chunk)
        output.close()

    def _line(self, host: str, line: str) -> None:
        stream = f"{self._row.name}/{host}-{self._began}"
        if line.strip():
            self._machine.write_log(stream, line, self._row.body["RoleArn"])
            self._on_line(line)

    async def _keep_checkpoints(self, *, all_of_them: bool = False) -> None:
        """Store the checkpoint files that are new or changed, once they no longer change."""
        config = self._row.body.get("CheckpointConfig")
        if config is None:
            return
        found = dict(self._checkpoint_files())
        settled = {
            path: stamp
            for path, stamp in found.items()
            if self._kept.get(path) != stamp and (all_of_them or self._seen.get(path) == stamp)
        }
        self._seen = found
        if settled:
            tops = [self._checkpoints(host) for host in self._row.hosts]
            files = [
                (path.relative_to(top).as_posix(), path)
                for path in settled
                for top in tops
                if path.is_relative_to(top)
            ]
            await self._storage.store(files, f"{config['S3Uri'].rstrip('/')}/", "Checkpoint upload")
            self._kept |= settled

    def _checkpoint_files(self) -> Iterator[tuple[Path, Stamp]]:
        for host in self._row.hosts:
            for path in sorted(self._checkpoints(host).rglob("*")):
                with suppress(OSError):  # the job removed it meanwhile
                    if path.is_file() and not path.is_symlink():
                        about = path.stat()
                        yield path, (about.st_mtime_ns, about.st_size)

    def _failure(self, failed: list[tuple[str, int]]) -> str:
        """Return what AWS shows: what the first instance with a reason wrote, and its exit code."""
        told = {host: self._failure_file(host) for host, _ in failed}
        host, code = next(((host, code) for host, code in failed if told[host]), failed[0])
        end = f", exit code: {code}"
        start = f"AlgorithmError: {told[host]}"
        return start[: _LONGEST_FAILURE - len(end)] + end

    def _failure_file(self, host: str) -> str:
        try:
            with (self._ml(host) / "output" / "failure").open(errors="replace") as opened:
                return opened.read(_LONGEST_FAILURE).strip()
        except OSError:
            return ""

    def _end(self, grace_s: float) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                warden.end_group(process.pid, grace_s)

    def _ml(self, host: str) -> Path:
        return self._root / host / ML_ROOT.strip("/")

    def _checkpoints(self, host: str) -> Path:
        config = self._row.body.get("CheckpointConfig", {})
        return self._root / host / str(config.get("LocalPath", f"{ML_ROOT}/checkpoints")).strip("/")


def documents(row: TrainingRecord, host: str) -> Iterator[tuple[str, Any]]:
    """(name, content) of the files in an instance's ``/opt/ml/input/config``."""
    body, group = row.body, "homogeneousCluster"
    yield "hyperparameters.json", body.get("HyperParameters", {})
    yield (
        "resourceconfig.json",
        {
            "current_host": host,
            "current_instance_type": row.instance_type,
            "current_group_name": group,
            "hosts": list(row.hosts),
            "instance_groups": [
                {
                    "instance_group_name": group,
                    "instance_type": row.instance_type,
                    "hosts": list(row.hosts),
                }
            ],
            "network_interface_name": "lo",
        },
    )
    yield (
        "inputdataconfig.json",
        {
            channel["ChannelName"]: {
                **({"ContentType": channel["ContentType"]} if "ContentType" in channel else {}),
                "TrainingInputMode": channel.get(
                    "InputMode", body["AlgorithmSpecification"]["TrainingInputMode"]
                ),
                "S3DistributionType": channel["DataSource"]["S3DataSource"].get(
                    "S3DataDistributionType", "FullyReplicated"
                ),
                "RecordWrapperType": "None",
            }
            for channel in body.get("InputDataConfig", [])
        },
    )


def _pack(files: dict[str, Path], archive: Path) -> None:
    with tarfile.open(archive, "w:gz") as tar:
        for name, path in files.items():
            tar.add(path, name)
