"""What the cycle of the stacks looks at and runs: the programs, and the account of a local SageMaker."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

from sagemaker_local.process.spawn import free_port

ROOT = Path(__file__).resolve().parents[2]
CDK = ROOT / "node_modules" / ".bin" / "cdk"
PROGRAM = Path(sys.executable).parent / "peagle-sm"
REGION, ACCOUNT = "us-east-1", "123456789012"
# jsii unpacks the CDK's 400 MB below HOME: once a user, not once for each HOME that a test makes.
JSII_CACHE = {
    "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(Path.home() / ".cache" / "aws" / "jsii" / "package-cache")
}
NAME, STACK, TOOLKIT_STACK = "cycle", "Peagle-cycle", "PeagleToolkit"
IDLE_MINUTES, GRACE_MINUTES = 10, 10
# The local CloudWatch writes no zeros, so the guard waits this long (peagle_guard.evidence.REQUEST_LAG).
REQUEST_LAG_MINUTES = 27
SWEEP_MINUTES = 5
PROMPT = "def add(a, b):\n"

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

    # --- programs --------------------------------------------------------------------------------------

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
        told = done.stdout + done.stderr
        if done.returncode:
            raise AssertionError(f"cdk {' '.join(words)} ended with {done.returncode}:\n{told[-6000:]}")
        return told

    def peagle(self, *words: str) -> str:
        """Run `peagle-sm` against the local server; returns its stdout."""
        command = [str(PROGRAM), *words, "--local", "--local-port", str(self.port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1200, cwd=self.work)
        if done.returncode:
            raise AssertionError(
                f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    # --- what is looked at -----------------------------------------------------------------------------

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
        found = self.endpoint()
        assert found is not None, f"there is no endpoint {NAME}"
        assert found["EndpointStatus"] == "InService", found
        return found

    def state(self) -> str:
        """The stack's parameter EndpointState."""
        stack = self.client("cloudformation").describe_stacks(StackName=STACK)["Stacks"][0]
        return str({p["ParameterKey"]: p["ParameterValue"] for p in stack["Parameters"]}["EndpointState"])

    def schedules(self) -> list[str]:
        """Names of the schedules that stand, the sweep apart."""
        rows = self.client("scheduler").list_schedules()["Schedules"]
        return sorted(row["Name"] for row in rows if row["Name"] != "peagle-guard-sweep")

    def complete(self) -> dict[str, Any]:
        """One completion, by plain boto3; the acceptance figures of the request come with it."""
        body = {"prompt": PROMPT, "max_tokens": 48, "temperature": 0}
        answer = self.client("sagemaker-runtime").invoke_endpoint(
            EndpointName=NAME, Body=json.dumps(body), ContentType="application/json"
        )
        return dict(json.loads(answer["Body"].read()))

    def advance(self, minutes: float) -> None:
        """Let the local clock pass; what falls due on the way runs, and has ended when this returns."""
        self.peagle("local", "clock", "advance", f"{minutes:g}m")

    def leftovers(self) -> list[str]:
        """What the two stacks created and what still exists; the bootstrap stack and its roles stay."""
        sagemaker = self.client("sagemaker")
        found = [f"endpoint {row['EndpointName']}" for row in sagemaker.list_endpoints()["Endpoints"]]
        configs = sagemaker.list_endpoint_configs()["EndpointConfigs"]
        found += [f"config {row['EndpointConfigName']}" for row in configs]
        found += [f"model {row['ModelName']}" for row in sagemaker.list_models()["Models"]]
        found += [f"schedule {row['Name']}" for row in self.client("scheduler").list_schedules()["Schedules"]]
        functions = self.client("lambda").list_functions()["Functions"]
        found += [f"function {row['FunctionName']}" for row in functions]
        found += [f"table {name}" for name in self.client("dynamodb").list_tables()["TableNames"]]
        roles = self.client("iam").list_roles()["Roles"]
        found += [
            f"role {r['RoleName']}"
            for r in roles
            if r["RoleName"].endswith(f"-{REGION}")
            and "peagle-" in r["RoleName"]
            and not r["RoleName"].startswith("cdk-peagle-")
        ]
        stacks = self.client("cloudformation").describe_stacks()["Stacks"]
        own = [s["StackName"] for s in stacks if s["StackName"].startswith("Peagle")]
        found += [f"stack {name}" for name in own if name != TOOLKIT_STACK]
        return found


@contextlib.contextmanager
def local_server(work: Path, *options: str) -> Iterator[int]:
    """A local SageMaker of its own; ended when the block ends."""
    # Without a port a server that runs already, such as that of other tests, would be used.
    at = ["--port", str(free_port())]
    done = subprocess.run(
        [str(PROGRAM), "local", "up", "--detach", "--format", "json", *at, *options],
        capture_output=True,
        text=True,
        timeout=1800,
    )
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    status = json.loads(done.stdout)
    (work / "server.json").write_text(done.stdout, encoding="utf-8")
    try:
        yield int(status["port"])
    finally:
        subprocess.run([str(PROGRAM), "local", "down", "--local-port", str(status["port"])], check=False)
