"""A real local server on a real port, with scripted engines behind it, for boto3 over HTTP."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

from peagle_sm.aws.session.session import LocalTarget, Session, make_session
from sagemaker_local.assembly import Options
from sagemaker_local.contents.seed import PREFIXES
from sagemaker_local.control import Timing
from sagemaker_local.process import spawn
from sagemaker_local.process.status import LocalStatus
from sagemaker_local.runtime.dataplane import Limits
from sagemaker_local.server import serve
from tests.local.scripted_engine import ScriptedLauncher
from tests.local.scripted_trainer import scripted_trainer

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm:0.32.0-cpu"
FAST = Timing(poll_s=0.02, watch_s=0.05, rolling_back_s=0.05, deleting_s=0.05)
# Short enough to be waited for.
LIMITS = Limits(invoke_s=4.0, stream_s=3.0)

_numbers = itertools.count(1)


@cache
def _client(url: str, service: str) -> Any:
    """One for all tests: to make one takes as long as several calls."""
    return client_at(url, service)


def client_at(url: str, service: str, **more: Any) -> Any:
    """A boto3 client for a local server, without retries, so that errors are seen as they are."""
    options = {
        "region_name": "us-east-1",
        "aws_access_key_id": "local",
        "aws_secret_access_key": "local",
        **more,
    }
    config = Config(retries={"max_attempts": 1, "mode": "standard"}, read_timeout=30)
    return boto3.client(service, endpoint_url=url, config=config, **options)  # type: ignore[call-overload]


@cache
def _local_keys(region: str) -> Any:
    """One for all tests: each would read AWS's API models again, half a second for a preflight's."""
    return boto3.Session("local", "local", region_name=region)


class AsOnAws:
    """A session of boto3 like a user's, whose calls go to the local server; nothing else is different."""

    profile_name = "default"
    region_name = "us-east-1"

    def __init__(self, url: str) -> None:
        self._url = url
        self._session = _local_keys(self.region_name)

    def client(self, service: str, **options: Any) -> Any:
        return self._session.client(service, **{"endpoint_url": self._url, **options})

    def get_credentials(self) -> Any:
        return self._session.get_credentials()


@dataclass
class Server:
    """A running server and shorthand for what tests ask of it."""

    status: LocalStatus

    @property
    def url(self) -> str:
        return self.status.endpoint_url

    def client(self, service: str, **more: Any) -> Any:
        return client_at(self.url, service, **more) if more else _client(self.url, service)

    def create(self, name: str | None = None, **environment: str) -> str:
        """Create model, config and endpoint; return their common name at once."""
        name = name or f"e{next(_numbers)}"
        sagemaker = self.client("sagemaker")
        sagemaker.create_model(
            ModelName=name,
            ExecutionRoleArn=self.status.role_arn,
            PrimaryContainer={"Image": IMAGE, "Environment": environment},
        )
        variant = {"VariantName": "AllTraffic", "ModelName": name, "InstanceType": "ml.g7e.2xlarge"}
        sagemaker.create_endpoint_config(
            EndpointConfigName=name, ProductionVariants=[{**variant, "InitialInstanceCount": 1}]
        )
        sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        return name

    def deploy(self, **environment: str) -> str:
        """Create an endpoint and wait until it is InService; return its name."""
        name = self.create(**environment)
        self.until(name, "InService")
        return name

    def role(self, service: str, *actions: str) -> str:
        """Make a role that a service may assume and that allows some actions; return its ARN."""
        iam, name = self.client("iam"), f"r{next(_numbers)}"
        principal = {"Principal": {"Service": f"{service}.amazonaws.com"}}
        assume = {"Statement": [{"Effect": "Allow", **principal, "Action": "sts:AssumeRole"}]}
        arn = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(assume))["Role"]["Arn"]
        statement = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam.put_role_policy(RoleName=name, PolicyName="p", PolicyDocument=policy)
        return str(arn)

    def until(self, name: str, status: str) -> dict[str, Any]:
        sagemaker = self.client("sagemaker")

        def reached() -> Any:
            endpoint = sagemaker.describe_endpoint(EndpointName=name)
            return endpoint if endpoint["EndpointStatus"] == status else None

        return dict(eventually(reached))


def local_session(server: Server) -> Session:
    """Return a session of peagle-sm with the server."""
    return make_session(local=LocalTarget.from_status(server.status.to_dict()))


def eventually(condition: Callable[[], Any], seconds: float = 30) -> Any:
    """Wait until the condition gives something true, and return that."""
    limit = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < limit, f"not reached within {seconds} s; last seen: {result!r}"
        time.sleep(0.02)


def body(**script: object) -> bytes:
    """A request that tells a scripted engine what to do."""
    return json.dumps({"script": {key: str(value) for key, value in script.items()}}).encode()


def signed_headers(url: str, data: bytes, region: str = "us-east-1") -> dict[str, str]:
    """The headers with which botocore would send ``data`` to a URL of SageMaker Runtime."""
    request = AWSRequest("POST", url, {"Content-Type": "application/json"}, data)
    SigV4Auth(Credentials("local", "local"), "sagemaker", region).add_auth(request)
    return dict(request.headers.items())


def _weights(directory: Path) -> Path:
    """Files that stand in for the shipped weights, so that the seed has something to upload."""
    for part in PREFIXES:
        (directory / part).mkdir(parents=True)
        (directory / part / "config.json").write_text(json.dumps({"part": part}))
        (directory / part / "model.safetensors").write_bytes(b"no weights: scripted engines read none")
    return directory


async def _small_model(folder: Path, on_line: Callable[[str], None], started: object) -> Path:
    """Stand for the download of a model."""
    on_line("downloading")
    folder.mkdir(exist_ok=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_text("{}")
    return folder


def running_server(folder: Path, port: int | None = None) -> Iterator[Server]:
    """Start a server in a thread of this process, and end it; moto has one state a process: one at a time."""
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    ready: list[LocalStatus] = []
    options = Options(
        port=port or spawn.free_port(),
        engine_python=Path("unused"),
        embedded=True,
        weights=_weights(folder),
        limits=LIMITS,
        timing=FAST,
        make_launcher=lambda python, fetch: ScriptedLauncher(),
        fetch_smollm2=partial(_small_model, folder / "smollm2"),
        trainer=scripted_trainer,
    )
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve(options, ready.append, stop)))
    thread.start()
    eventually(lambda: ready or not thread.is_alive(), seconds=120)
    assert ready, "the server ended before it answered"
    try:
        yield Server(ready[0])
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=60)
        loop.close()
        assert not thread.is_alive()
