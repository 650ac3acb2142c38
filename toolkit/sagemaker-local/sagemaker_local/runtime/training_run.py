"""One attempt of a training job: its files, its processes, its checkpoints, and what it leaves in S3.

Each instance is a process with a folder of its own for ``/opt/ml``, laid out as SageMaker's developer guide
says ("How Amazon SageMaker AI Provides Training Information", "... Processes Training Output"). The role of
the job must allow what is read and written.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tarfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from sagemaker_local.control.jobs.checks import ML_ROOT
from sagemaker_local.control.jobs.training import TrainingRecord
from sagemaker_local.engine.launch import free_port
from sagemaker_local.engine.trainer_env import PASSIVE, train_environ
from sagemaker_local.runtime.job_processes import JobMachine, JobProcesses, files_below

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_LONGEST_FAILURE = 1024
# The trainer's own: where several instances are one machine, a name like algo-1 has no address.
_MASTER_ADDRESS, _MASTER_PORT = "PEAGLE_TRAIN_MASTER_ADDR", "PEAGLE_TRAIN_MASTER_PORT"

# Gets the lines of a build; returns the command that trains, whose environment is built where needed.
Trainer = Callable[[Callable[[str], None]], Awaitable[list[str]]]


class TrainingAttempt(JobProcesses):
    """One attempt; `sagemaker_local.runtime.job_life.Attempt` says what its methods are for."""

    def __init__(
        self, machine: JobMachine, trainer: Trainer, row: TrainingRecord, on_line: Callable[[str], None]
    ) -> None:
        super().__init__(machine, row, on_line)
        self._job = row
        self._trainer = trainer
        self._command: list[str] = []

    async def download(self) -> None:
        """Lay out every instance's folder, with the channels' data and the checkpoints."""
        shutil.rmtree(self._root, ignore_errors=True)
        self._command = await self._trainer(lambda line: self._line(self._row.hosts[0], line))
        for host in self._row.hosts:
            root = self._ml(host)
            for folder in ("input/config", "model", "output/data", "checkpoints"):
                (root / folder).mkdir(parents=True)
            for name, document in documents(self._job, host):
                (root / "input" / "config" / name).write_text(json.dumps(document))
            for channel in self._row.body.get("InputDataConfig", []):
                folder = root / "input" / "data" / channel["ChannelName"]
                await self._fetch(channel["DataSource"]["S3DataSource"]["S3Uri"], folder)
            checkpoints = self._row.body.get("CheckpointConfig")
            if checkpoints is not None:
                uri = f"{checkpoints['S3Uri'].rstrip('/')}/"
                await self._fetch(uri, self._checkpoints(host))
        self._changing.keep(self._checkpoint_folders())

    async def run(self) -> str | None:
        """Run the processes to their end, and store checkpoints meanwhile; return why they failed."""
        port = free_port()
        failed = await self._run(
            lambda _: self._command,
            lambda host, scratch: self._environment(host, port, scratch),
            self._keep_checkpoints,
        )
        await self._keep_checkpoints(all_of_them=True)
        return self._failure(failed) if failed else None

    async def upload(self) -> None:
        """Store the model and the output of all instances; an empty folder leaves nothing."""
        model = self._job.model_uri
        packed = not model.endswith("/")
        folder = model.rpartition("/model")[0]
        await self._leave("model", model, packed)
        await self._leave("output/data", f"{folder}/output.tar.gz" if packed else f"{folder}/data/", packed)

    async def _leave(self, folder: str, uri: str, packed: bool) -> None:
        files: dict[str, Path] = {}
        for host in self._row.hosts:
            for top, path, _ in files_below([self._ml(host) / folder]):
                files.setdefault(path.relative_to(top).as_posix(), path)
        if not files:
            return
        if not packed:
            return await self._storage.store(list(files.items()), uri, "Artifact upload")
        archive = self._root / PurePosixPath(uri).name
        await asyncio.to_thread(_pack, files, archive)
        await self._storage.store([("", archive)], uri, "Artifact upload")

    def _environment(self, host: str, port: int, scratch: Path) -> dict[str, str]:
        """Return the variables that SageMaker sets and the job's own, without those of this server's user."""
        several = {_MASTER_ADDRESS: "127.0.0.1", _MASTER_PORT: str(port)} if len(self._row.hosts) > 1 else {}
        variables = {
            **self._variables(host, self._command[0], scratch),
            "TRAINING_JOB_NAME": self._row.name,
            "TRAINING_JOB_ARN": self._row.arn,
            **several,
            **PASSIVE,
            **self._row.body.get("Environment", {}),
        }
        return train_environ(variables, self._ml(host))

    async def _keep_checkpoints(self, *, all_of_them: bool = False) -> None:
        config = self._row.body.get("CheckpointConfig")
        if config is not None:
            folders = self._checkpoint_folders()
            await self._store_changes(folders, config["S3Uri"], "Checkpoint upload", all_of_them=all_of_them)

    def _checkpoint_folders(self) -> list[Path]:
        return [self._checkpoints(host) for host in self._row.hosts]

    def _failure(self, failed: list[tuple[str, int]]) -> str:
        """Return what AWS shows: what the first instance with a reason wrote, and its exit code."""
        reasons = {host: self._failure_file(host) for host, _ in failed}
        host, code = next(((host, code) for host, code in failed if reasons[host]), failed[0])
        end = f", exit code: {code}"
        start = f"AlgorithmError: {reasons[host]}"
        return start[: _LONGEST_FAILURE - len(end)] + end

    def _failure_file(self, host: str) -> str:
        try:
            with (self._ml(host) / "output" / "failure").open(errors="replace") as opened:
                return opened.read(_LONGEST_FAILURE).strip()
        except OSError:
            return ""

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
