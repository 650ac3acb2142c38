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
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sagemaker_local.control.jobs.jobs import JobRecord
from sagemaker_local.control.jobs.processing import ProcessingRecord
from sagemaker_local.engine.installer import FOREIGN
from sagemaker_local.engine.trainer_env import ROOT_VARIABLE
from sagemaker_local.paths import PACKAGE, container_dir
from sagemaker_local.runtime.job_processes import JobMachine, JobProcesses, files_below

PROCESSING_LOG_GROUP = "/aws/sagemaker/ProcessingJobs"
_LONGEST_MESSAGE = 1024
_OPT_ML = "/opt/ml/"
_ENTRYPOINT = re.compile(r"^ENTRYPOINT (\[.*\])$", re.MULTILINE)


class ProcessingAttempt(JobProcesses):
    """One run; `sagemaker_local.runtime.job_life.Attempt` says what its methods are for."""

    def __init__(self, machine: JobMachine, row: JobRecord, on_line: Callable[[str], None]) -> None:
        assert isinstance(row, ProcessingRecord)
        super().__init__(machine, row, on_line)
        self._job = row
        self._completed = False

    async def download(self) -> None:
        """Lay out every instance's folder, with its share of the inputs."""
        shutil.rmtree(self._root, ignore_errors=True)
        for number, host in enumerate(self._job.hosts):
            root = self._ml(host)
            for folder in ("config", "output", "processing"):
                (root / folder).mkdir(parents=True)
            for name, document in documents(self._job, host):
                (root / "config" / name).write_text(json.dumps(document))
            for source in self._job.sources:
                await self._fetch_input(source, self._here(host, source["LocalPath"]), number)
            for output in self._job.outputs:
                self._here(host, output["LocalPath"]).mkdir(parents=True, exist_ok=True)

    async def run(self) -> str | None:
        """Run the containers' command to its end; return why the job failed."""
        failed = await self._run(self._command, self._environment, self._upload_changes)
        self._job.exit_message = self._message()
        self._completed = not failed
        return "AlgorithmError: See job logs for more information" if failed else None

    async def upload(self) -> None:
        """Store the outputs: those of EndOfJob only if every container exited with 0."""
        await self._upload_changes(all_of_them=True)
        for output in self._job.outputs if self._completed else []:
            if output["S3UploadMode"] == "EndOfJob":
                files = [
                    (path.relative_to(top).as_posix(), path)
                    for top, path, _ in files_below(self._folders(output))
                ]
                if files:
                    await self._storage.store(files, f"{output['S3Uri'].rstrip('/')}/", "Data upload")

    async def _upload_changes(self, *, all_of_them: bool = False) -> None:
        """Store the new files of Continuous outputs, once they no longer change."""
        for output in self._job.outputs:
            if output["S3UploadMode"] == "Continuous":
                folders = self._folders(output)
                await self._store_changes(folders, output["S3Uri"], "Data upload", all_of_them=all_of_them)

    def _folders(self, output: Mapping[str, Any]) -> list[Path]:
        return [self._here(host, output["LocalPath"]) for host in self._job.hosts]

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
        messages = []
        for host in self._job.hosts:
            with suppress(OSError):
                messages.append((self._ml(host) / "output" / "message").read_bytes().decode(errors="replace"))
        text = "".join(messages).encode()[:_LONGEST_MESSAGE].decode(errors="ignore")
        return text or None


def documents(row: ProcessingRecord, host: str) -> Iterator[tuple[str, Any]]:
    """(name, content) of the files in an instance's ``/opt/ml/config``."""
    yield "processingjobconfig.json", {"ProcessingJobArn": row.arn, **row.body}
    yield "resourceconfig.json", {"current_host": host, "hosts": list(row.hosts)}


def image_entrypoint() -> list[str]:
    """Return the entry point of the image of preparation jobs, as its Dockerfile has it."""
    entry = _ENTRYPOINT.search((container_dir() / "Dockerfile.prepare").read_text(encoding="utf-8"))
    assert entry is not None
    return [str(word) for word in json.loads(entry[1])]
