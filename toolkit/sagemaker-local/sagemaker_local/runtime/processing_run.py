"""Processing jobs on this machine: inputs by key, a container's command as processes, outputs to S3.

Sources, all of SageMaker's developer guide: "How Amazon SageMaker Processing Runs Your Processing Container
Image" (entry point, arguments, exit codes), "... Configures Your Processing Container" (the two files below
``/opt/ml/config``), "... Configures Input and Output" (``/opt/ml/processing``; links are not uploaded),
"Save and Access Metadata Information About Your Processing Job" (``/opt/ml/output/message``). No page says,
so it is assumed: a job is stopped as a training job is; only one that completes leaves its EndOfJob outputs;
one past its maximum run time is ``Stopped``; which key goes to which instance.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from sagemaker_local.control.jobs.processing import ProcessingRecord
from sagemaker_local.control.jobs.training import TrainingRecord
from sagemaker_local.engine.installer import FOREIGN
from sagemaker_local.engine.trainer_env import ROOT_VARIABLE
from sagemaker_local.paths import PACKAGE
from sagemaker_local.runtime.job_processes import JobMachine, JobProcesses
from sagemaker_local.runtime.training_life import Trainings

PROCESSING_LOG_GROUP = "/aws/sagemaker/ProcessingJobs"
_LONGEST_MESSAGE = 1024
_OPT_ML = "/opt/ml/"
Stamp = tuple[int, int]


class ProcessingMachine(JobMachine):
    """What all processing jobs share."""

    def attempt(self, row: TrainingRecord, on_line: Callable[[str], None]) -> ProcessingAttempt:
        """Make the one attempt of a job; ``on_line`` gets each line of its output, too."""
        assert isinstance(row, ProcessingRecord)
        return ProcessingAttempt(self, row, on_line)


class Processings(Trainings):
    """Runs processing jobs: as training jobs on demand, without metrics of their lines."""

    def _line(self, row: TrainingRecord, line: str) -> None:
        """Processing jobs have no metric definitions."""


class ProcessingAttempt(JobProcesses):
    """One run; `sagemaker_local.runtime.training_life.Attempt` says what its methods are for."""

    kind = "processing job"

    def __init__(self, machine: JobMachine, row: ProcessingRecord, on_line: Callable[[str], None]) -> None:
        """Set up; nothing happens yet."""
        super().__init__(machine, row, on_line)
        self._job = row
        self._completed = False
        self._seen: dict[Path, Stamp] = {}
        self._kept: dict[Path, Stamp] = {}

    async def download(self) -> None:
        """Lay out every instance's folder, with its share of the inputs."""
        shutil.rmtree(self._root, ignore_errors=True)
        hosts = self._job.hosts
        for number, host in enumerate(hosts):
            root = self._ml(host)
            for folder in ("config", "output", "processing"):
                (root / folder).mkdir(parents=True)
            for name, document in documents(self._job, host):
                (root / "config" / name).write_text(json.dumps(document))
            for each in self._job.body.get("ProcessingInputs", []):
                source = each["S3Input"]
                sharded = source.get("S3DataDistributionType") == "ShardedByS3Key"
                share = (number, len(hosts)) if sharded else (0, 1)
                await self._storage.fetch(source["S3Uri"], self._here(host, source["LocalPath"]), share)
            for output in self._outputs():
                self._here(host, output["LocalPath"]).mkdir(parents=True, exist_ok=True)

    async def train(self) -> str | None:
        """Run the containers' command to its end; return why the job failed."""
        failed = await self._run(self._command, self._environment, self._upload_changes)
        self._job.exit_message = self._message()
        self._completed = not failed
        return "AlgorithmError: See job logs for more information" if failed else None

    async def upload(self) -> None:
        """Store the outputs: those of EndOfJob only if every container exited with 0."""
        await self._upload_changes(all_of_them=True)
        if self._completed:
            for output in self._outputs():
                if output["S3UploadMode"] == "EndOfJob":
                    await self._store(output, {path: top for top, path, _ in self._files(output)})

    async def _upload_changes(self, *, all_of_them: bool = False) -> None:
        """Store the new files of Continuous outputs, once they no longer change."""
        found: dict[Path, Stamp] = {}
        for output in self._outputs():
            if output["S3UploadMode"] != "Continuous":
                continue
            settled = {}
            for top, path, stamp in self._files(output):
                found[path] = stamp
                if self._kept.get(path) != stamp and (all_of_them or self._seen.get(path) == stamp):
                    settled[path] = top
                    self._kept[path] = stamp
            await self._store(output, settled)
        self._seen = found

    async def _store(self, output: dict[str, Any], files: dict[Path, Path]) -> None:
        named = [(path.relative_to(top).as_posix(), path) for path, top in files.items()]
        if named:
            await self._storage.store(named, f"{output['S3Uri'].rstrip('/')}/", "Data upload")

    def _outputs(self) -> list[dict[str, Any]]:
        outputs = self._job.body.get("ProcessingOutputConfig", {}).get("Outputs", [])
        return [each["S3Output"] for each in outputs]

    def _files(self, output: dict[str, Any]) -> Iterator[tuple[Path, Path, Stamp]]:
        """Each file of an output on every instance: its output's folder, its path, and its stamp."""
        for host in self._job.hosts:
            top = self._here(host, output["LocalPath"])
            for path in sorted(top.rglob("*")):
                with suppress(OSError):  # the job removed it meanwhile
                    if path.is_file() and not path.is_symlink():
                        about = path.stat()
                        yield top, path, (about.st_mtime_ns, about.st_size)

    def _command(self, host: str) -> list[str]:
        """Return entry point and arguments, with this machine's Python and this instance's folders."""
        app = self._job.body["AppSpecification"]
        words = [*app["ContainerEntrypoint"], *app.get("ContainerArguments", [])]
        if words[0] in ("python", "python3"):
            words[0] = sys.executable
        return [self._mapped(host, word) for word in words]

    def _environment(self, host: str, scratch: Path) -> dict[str, str]:
        own = {name: self._mapped(host, text) for name, text in self._job.body.get("Environment", {}).items()}
        variables = {
            **self._variables(host, sys.executable, scratch),
            "PROCESSING_JOB_ARN": self._job.arn,
            **own,
        }
        kept = {name: text for name, text in variables.items() if name not in FOREIGN}
        # In the image the packages are installed; here they lie beside this server's.
        return kept | {"PYTHONPATH": str(PACKAGE.parent), ROOT_VARIABLE: str(self._ml(host))}

    def _mapped(self, host: str, text: str) -> str:
        return text.replace(_OPT_ML, f"{self._ml(host)}/")

    def _here(self, host: str, path: str) -> Path:
        return self._root / host / path.strip("/")

    def _message(self) -> str | None:
        """Return what the containers left, one after the other, cut to 1 KB."""
        found = []
        for host in self._job.hosts:
            with suppress(OSError):
                found.append((self._ml(host) / "output" / "message").read_bytes().decode(errors="replace"))
        text = "".join(found).encode()[:_LONGEST_MESSAGE].decode(errors="ignore")
        return text or None


def documents(row: ProcessingRecord, host: str) -> Iterator[tuple[str, Any]]:
    """(name, content) of the files in an instance's ``/opt/ml/config``."""
    yield "processingjobconfig.json", {"ProcessingJobArn": row.arn, **row.body}
    yield "resourceconfig.json", {"current_host": host, "hosts": list(row.hosts)}
