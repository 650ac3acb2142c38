"""The instances of a job as processes, and S3 as the job's role sees it.

Each instance is a process in a group of its own, with a folder of its own for ``/opt/ml``. The role of the
job must allow what is read and written.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import monotonic

import psutil

from sagemaker_local.control.jobs.checks import ML_ROOT
from sagemaker_local.control.jobs.training import TrainingRecord
from sagemaker_local.engine import warden
from sagemaker_local.engine.output import OutputLines
from sagemaker_local.errors import EngineError
from sagemaker_local.other_services.moto import Moto
from sagemaker_local.other_services.stores import Artifacts, Roles, split_s3_uri
from sagemaker_local.runtime.job_life import JobFailed

# Between two looks at what the processes write.
LOOK_S = 0.5
# For a process to be started that is to be ended.
_START_S = 10.0
# For the other instances once one has failed, and for all of them when the server ends.
_GRACE_S = 3.0

# (stream, line, role)
WriteLog = Callable[[str, str, str], None]


@dataclass(frozen=True)
class JobMachine:
    """What all attempts of a kind of jobs share.

    Attributes:
        moto: holds S3 and IAM.
        directory: the parent of the jobs' folders.
        now: the local clock.
        write_log: gets each line of output, with its log stream and the role that writes it.
        started: gets the id of each process that leads a group, and a name.
        prepare: gets each S3 URI that a job reads, and a reader of progress: some files are downloaded only
            then. Raises EngineError.
    """

    moto: Moto
    directory: Path
    now: Callable[[], datetime]
    write_log: WriteLog
    started: Callable[[int, str], None]
    prepare: Callable[[str, Callable[[str], None]], Awaitable[None]]


class RoleStorage:
    """S3 as a role sees it; what it may not do, or is not there, fails the job in AWS's words."""

    def __init__(self, moto: Moto, role: str) -> None:
        self._call = moto.call
        self._artifacts = Artifacts(moto)
        self._roles = Roles(moto)
        self._role = role

    async def fetch(self, uri: str, directory: Path) -> None:
        """Copy the objects whose keys begin with an S3 URI's."""
        await self._call(self._fetch, uri, directory)

    async def store(self, files: list[tuple[str, Path]], uri: str, what: str) -> None:
        """Store files (name, path) below an S3 URI; ``what`` begins the failure."""
        await self._call(self._store, files, uri, what)

    def _fetch(self, uri: str, directory: Path) -> None:
        bucket, prefix = split_s3_uri(uri)
        directory.mkdir(parents=True, exist_ok=True)
        for key in (key for key in self._artifacts.beginning_with(uri) if not key.endswith("/")):
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


# When a file was changed, and its size.
Stamp = tuple[int, int]


class ChangingFiles:
    """The files of a running job that are stored as soon as they no longer change."""

    def __init__(self) -> None:
        self._seen: dict[Path, Stamp] = {}
        self._kept: dict[Path, Stamp] = {}

    def keep(self, tops: list[Path]) -> None:
        """Note what is in S3 already."""
        self._kept = {path: stamp for _, path, stamp in files_below(tops)}

    def settled(self, tops: list[Path], *, all_of_them: bool) -> list[tuple[str, Path]]:
        """Return (name below its folder, path) of new and changed files that were the same at two looks."""
        now = list(files_below(tops))
        settled = [
            (path.relative_to(top).as_posix(), path)
            for top, path, stamp in now
            if self._kept.get(path) != stamp and (all_of_them or self._seen.get(path) == stamp)
        ]
        self._seen = {path: stamp for _, path, stamp in now}
        return settled

    def stored(self, files: list[tuple[str, Path]]) -> None:
        """Note files that were stored."""
        self._kept |= {path: self._seen[path] for _, path in files}


def files_below(tops: list[Path]) -> Iterator[tuple[Path, Path, Stamp]]:
    """Yield each file below some folders: the folder, its path and its stamp; links are left out."""
    for top in tops:
        for path in sorted(top.rglob("*")):
            with suppress(OSError):  # the job removed it meanwhile
                if path.is_file() and not path.is_symlink():
                    about = path.stat()
                    yield top, path, (about.st_mtime_ns, about.st_size)


class JobProcesses:
    """The processes of one attempt of a job, one for each instance."""

    def __init__(self, machine: JobMachine, row: TrainingRecord, on_line: Callable[[str], None]) -> None:
        self._shared = machine
        self._row = row
        self._on_line = on_line
        self._storage = RoleStorage(machine.moto, row.body["RoleArn"])
        self._root = machine.directory / row.name
        self._began = int(machine.now().timestamp() * 1000)
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._reading: list[asyncio.Task[None]] = []
        self._changing = ChangingFiles()

    async def _fetch(self, uri: str, directory: Path) -> None:
        """Copy the objects whose keys begin with an S3 URI's, as the job's role sees them."""
        try:
            await self._shared.prepare(uri, lambda line: self._line(self._row.hosts[0], line))
        except EngineError as error:
            raise JobFailed(f"ClientError: Data download failed:{error.message} {error.next_step}") from error
        await self._storage.fetch(uri, directory)

    async def _run(
        self,
        command: Callable[[str], list[str]],
        environment: Callable[[str, Path], dict[str, str]],
        look: Callable[[], Awaitable[None]],
    ) -> list[tuple[str, int]]:
        """Run every instance's command to its end; return the instances that failed, with their exit codes.

        ``look`` is called about every `LOOK_S`. Once an instance fails, the others are ended.
        """
        for host in self._row.hosts:
            scratch = Path(tempfile.mkdtemp(prefix="peagle-job-"))
            self._processes[host] = await self._spawn(
                host, command(host), environment(host, scratch), scratch
            )
        ends = {host: asyncio.create_task(each.wait()) for host, each in self._processes.items()}
        try:
            while running := [end for end in ends.values() if not end.done()]:
                await asyncio.wait(running, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                await look()
                if any(end.done() and end.result() != 0 for end in ends.values()):
                    await asyncio.to_thread(self._end, _GRACE_S)
        finally:
            await asyncio.shield(asyncio.to_thread(self._end, 0))
            for end in ends.values():
                await asyncio.shield(end)
            await asyncio.wait(self._reading, timeout=_GRACE_S)
        return [(host, end.result()) for host, end in ends.items() if end.result() != 0]

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

    async def close(self) -> None:
        """End what still runs, and remove the files."""
        await asyncio.to_thread(self._end, 0)
        for reading in self._reading:
            reading.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        await asyncio.to_thread(shutil.rmtree, self._root, ignore_errors=True)

    async def _spawn(
        self, host: str, command: list[str], environment: dict[str, str], scratch: Path
    ) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            warden.__file__,
            str(scratch),
            *command,
            env=environment,
            cwd=self._ml(host),
            stdin=asyncio.subprocess.PIPE,  # its closing tells the warden that this server has gone
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self._shared.started(process.pid, f"job {self._row.name} {host}")
        self._reading.append(asyncio.create_task(self._read(host, process)))
        return process

    async def _read(self, host: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        output = OutputLines(lambda line: self._line(host, line))
        while chunk := await process.stdout.read(64 * 1024):
            output.feed(chunk)
        output.close()

    def _line(self, host: str, line: str) -> None:
        stream = f"{self._row.name}/{host}-{self._began}"
        if line.strip():
            self._shared.write_log(stream, line, self._row.body["RoleArn"])
            self._on_line(line)

    def _end(self, grace_s: float) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                warden.end_group(process.pid, grace_s)

    async def _store_changes(self, tops: list[Path], uri: str, what: str, *, all_of_them: bool) -> None:
        """Store the files below some folders that are new or changed, once they no longer change."""
        files = self._changing.settled(tops, all_of_them=all_of_them)
        if files:
            await self._storage.store(files, f"{uri.rstrip('/')}/", what)
            self._changing.stored(files)

    def _ml(self, host: str) -> Path:
        return self._root / host / ML_ROOT.strip("/")

    def _variables(self, host: str, command: str, scratch: Path) -> dict[str, str]:
        """Return what every program finds in its environment; nothing of this server's user."""
        home = self._root / host / "home"
        home.mkdir(exist_ok=True)
        return {
            "PATH": f"{Path(command).parent}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TMPDIR": str(scratch),
            "PYTHONUNBUFFERED": "1",
            "AWS_REGION": self._shared.moto.region,
        }
