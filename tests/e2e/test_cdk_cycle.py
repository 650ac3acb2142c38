"""The real `cdk` on a local SageMaker with scripted engines: from no account to an endpoint and back."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.e2e.page_shell import JSII_CACHE, scripted_server
from tests.rules.files import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.campaign]

CDK = ROOT / "node_modules" / ".bin" / "cdk"
PROGRAM = Path(sys.executable).parent / "peagle-sm"
REGION, ACCOUNT = "us-east-1", "123456789012"
NAME, STACK, TOOLKIT_STACK = "cycle", "Peagle-cycle", "PeagleToolkit"
IDLE_MINUTES, GRACE_MINUTES = 10, 10
# The local CloudWatch writes no zeros, so the guard waits this long (peagle_guard.evidence.REQUEST_LAG).
REQUEST_LAG_MINUTES = 27
SWEEP_MINUTES = 5
FIRST_K, SECOND_K = 5, 3

SPEC = """\
name: {name}
model: tiny-code
speculation:
  mode: p-eagle
  num_speculative_tokens: {k}
lifecycle:
  idle_minutes: {idle}
  grace_minutes: {grace}
  max_lifetime_hours: 8
startup_timeout_s: 600
"""


@dataclass
class World:
    """One local SageMaker at ``port``, and a folder for what the programs write."""

    work: Path
    port: int

    @property
    def url(self) -> str:
        """The local server."""
        return f"http://localhost:{self.port}"

    @property
    def spec(self) -> Path:
        """The spec file that the endpoint's stack is made from."""
        return self.work / "peagle.yaml"

    def client(self, service: str) -> Any:
        """A boto3 client of the local server."""
        connect: Any = boto3.client
        return connect(
            service,
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id="cycle",
            aws_secret_access_key="cycle",
        )

    def environment(self) -> dict[str, str]:
        """What `cdk` runs with: a home of its own, since it caches which key belongs to which account."""
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "CDK_"))},
            "HOME": str(self.work),
            **JSII_CACHE,
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
            "AWS_ACCESS_KEY_ID": "cycle",
            "AWS_SECRET_ACCESS_KEY": "cycle",
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ENDPOINT_URL_S3": self.url,
            "CDK_VALIDATION": "false",
            "CDK_DISABLE_VERSION_CHECK": "1",
        }

    def cdk(self, *words: str, app: bool = True, again: bool = False) -> str:
        """Run `cdk`, with the project's app or in a folder that has none; returns what it printed.

        ``again`` takes the assembly of the last run, where nothing that it is made from has changed.
        """
        assembly = str(self.work / "cdk.out")
        ours = (
            ["--app", assembly] if again else ["-c", f"spec={self.spec}", "--output", assembly] if app else []
        )
        done = subprocess.run(
            [str(CDK), *words, *ours, "--no-notices", "--ci"],
            cwd=ROOT if app else self.work,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=1200,
        )
        printed = done.stdout + done.stderr
        if done.returncode:
            raise AssertionError(f"cdk {' '.join(words)} ended with {done.returncode}:\n{printed[-6000:]}")
        return printed

    def peagle(self, *words: str) -> str:
        """Run `peagle-sm` against the local server; returns its stdout."""
        command = [str(PROGRAM), *words, "--local", "--local-port", str(self.port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1200, cwd=self.work)
        if done.returncode:
            raise AssertionError(
                f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    def write_spec(self, k: int) -> None:
        """Write the spec with ``k`` draft tokens."""
        self.spec.write_text(SPEC.format(name=NAME, k=k, idle=IDLE_MINUTES, grace=GRACE_MINUTES))

    def endpoint(self) -> dict[str, Any] | None:
        """DescribeEndpoint, or None when it is gone."""
        sagemaker = self.client("sagemaker")
        try:
            return dict(sagemaker.describe_endpoint(EndpointName=NAME))
        except sagemaker.exceptions.ClientError as error:
            if "Could not find" in str(error):
                return None
            raise

    def serving(self) -> dict[str, Any]:
        """DescribeEndpoint of an endpoint that must be in service."""
        described = self.endpoint()
        assert described is not None, f"there is no endpoint {NAME}"
        assert described["EndpointStatus"] == "InService", described
        return described

    def state(self) -> str:
        """The stack's parameter EndpointState."""
        stack = self.client("cloudformation").describe_stacks(StackName=STACK)["Stacks"][0]
        return str({p["ParameterKey"]: p["ParameterValue"] for p in stack["Parameters"]}["EndpointState"])

    def schedules(self) -> list[str]:
        """Names of the schedules, except the guard's sweep."""
        rows = self.client("scheduler").list_schedules()["Schedules"]
        return sorted(row["Name"] for row in rows if row["Name"] != "peagle-guard-sweep")

    def completion(self) -> dict[str, Any]:
        """One completion, by plain boto3; the acceptance figures of the request come with it."""
        body = {"prompt": "def add(a, b):\n", "max_tokens": 48, "temperature": 0}
        answer = self.client("sagemaker-runtime").invoke_endpoint(
            EndpointName=NAME, Body=json.dumps(body), ContentType="application/json"
        )
        return dict(json.loads(answer["Body"].read()))

    def leftovers(self) -> list[str]:
        """What the two stacks created and what still exists; the bootstrap stack and its roles stay."""
        sagemaker = self.client("sagemaker")
        left = [f"endpoint {row['EndpointName']}" for row in sagemaker.list_endpoints()["Endpoints"]]
        configs = sagemaker.list_endpoint_configs()["EndpointConfigs"]
        left += [f"config {row['EndpointConfigName']}" for row in configs]
        left += [f"model {row['ModelName']}" for row in sagemaker.list_models()["Models"]]
        left += [f"schedule {row['Name']}" for row in self.client("scheduler").list_schedules()["Schedules"]]
        functions = self.client("lambda").list_functions()["Functions"]
        left += [f"function {row['FunctionName']}" for row in functions]
        left += [f"table {name}" for name in self.client("dynamodb").list_tables()["TableNames"]]
        roles = self.client("iam").list_roles()["Roles"]
        left += [
            f"role {r['RoleName']}"
            for r in roles
            if r["RoleName"].endswith(f"-{REGION}")
            and "peagle-" in r["RoleName"]
            and not r["RoleName"].startswith("cdk-peagle-")
        ]
        stacks = self.client("cloudformation").describe_stacks()["Stacks"]
        own = [s["StackName"] for s in stacks if s["StackName"].startswith("Peagle")]
        left += [f"stack {name}" for name in own if name != TOOLKIT_STACK]
        return left


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    (tmp_path / "weights").mkdir()
    with scripted_server(tmp_path / "weights") as server:
        yield World(tmp_path, int(server["port"]))


def no_differences(world: World) -> None:
    """With the assembly of the last deploy: that each run makes the same one is tested in tests/stacks."""
    printed = world.cdk("diff", "--fail", "--all", again=True)
    counted = re.search(r"Number of stacks with differences: (\d+)", printed)
    assert counted is not None, printed[-3000:]
    assert counted[1] == "0", printed[-3000:]


def bootstrap(world: World) -> None:
    """`cdk bootstrap`, with the shipped execution policies in place of AdministratorAccess."""
    arns = []
    for policy in sorted((ROOT / "stacks" / "guard" / "execution-policies").glob("*.json")):
        name, document = f"peagle-cdk-{policy.stem}", policy.read_text(encoding="utf-8")
        created = world.client("iam").create_policy(PolicyName=name, PolicyDocument=document)
        arns.append(created["Policy"]["Arn"])
    policies = ["--cloudformation-execution-policies", ",".join(arns)]
    own = ["--qualifier", "peagle", "--toolkit-stack-name", TOOLKIT_STACK]  # as in cdk.json
    world.cdk("bootstrap", f"aws://{ACCOUNT}/{REGION}", *own, *policies, app=False)


def change_k(world: World) -> None:
    """The same endpoint is updated in place to a new config."""
    before = world.serving()
    world.write_spec(SECOND_K)
    world.cdk("deploy", STACK, "--exclusively", "--require-approval", "never")
    after = world.serving()
    assert after["CreationTime"] == before["CreationTime"], "the endpoint was replaced"
    assert after["EndpointConfigName"] != before["EndpointConfigName"], "still the old config"
    sagemaker = world.client("sagemaker")
    config = sagemaker.describe_endpoint_config(EndpointConfigName=after["EndpointConfigName"])
    model = config["ProductionVariants"][0]["ModelName"]
    container = sagemaker.describe_model(ModelName=model)["PrimaryContainer"]
    speculation = json.loads(container["Environment"]["SM_VLLM_SPECULATIVE_CONFIG"])
    assert (speculation["num_speculative_tokens"], speculation["parallel_drafting"]) == (SECOND_K, True)


def go_idle(world: World) -> None:
    """Time passes without a request: the deployed Lambda turns the endpoint off through its stack."""
    limit = IDLE_MINUTES + GRACE_MINUTES + REQUEST_LAG_MINUTES + 6 * SWEEP_MINUTES + 5
    passed = 0
    while world.endpoint() is not None and passed < limit:
        world.peagle("local", "clock", "advance", f"{SWEEP_MINUTES}m")
        passed += SWEEP_MINUTES
        settle(world)
    assert world.endpoint() is None, f"still {world.endpoint()} after {passed} idle minutes"
    assert world.state() == "off"
    assert world.schedules() == []


def settle(world: World) -> None:
    """Wait while the stack changes: that takes real time, not the local clock's."""
    cloudformation = world.client("cloudformation")
    for _ in range(240):
        status = cloudformation.describe_stacks(StackName=STACK)["Stacks"][0]["StackStatus"]
        if not status.endswith("IN_PROGRESS"):
            return
        time.sleep(0.5)
    raise AssertionError(f"{STACK} is still {status}")


def test_from_an_empty_account_to_an_endpoint_and_back(world: World) -> None:
    bootstrap(world)
    world.write_spec(FIRST_K)
    world.cdk("deploy", "--all", "--require-approval", "never")
    world.serving()
    assert world.schedules(), "the endpoint has no lifetime schedule"
    assert world.completion()["choices"][0]["text"]

    change_k(world)
    assert world.completion()["usage"]["completion_tokens"]
    no_differences(world)

    go_idle(world)
    no_differences(world)  # turned off by the stack's own parameter

    world.peagle("resume", NAME, "--yes")
    world.serving()
    assert world.schedules(), "the endpoint has no lifetime schedule"
    assert world.completion()["choices"][0]["text"]

    world.cdk("deploy", "--all", "--require-approval", "never")
    assert world.state() == "on"
    world.serving()

    world.cdk("destroy", "--all", "--force", again=True)
    assert world.leftovers() == []
