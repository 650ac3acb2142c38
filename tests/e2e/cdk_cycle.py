"""The real `cdk` against the local SageMaker, from an empty account to an endpoint and back.

`scripts/e2e-cdk` runs it and prints each step with its time; test_cdk_cycle.py runs the same and asserts.
Every step checks what it has brought about and raises AssertionError when it is not so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import boto3

ROOT = Path(__file__).resolve().parents[2]
CDK = ROOT / "node_modules" / ".bin" / "cdk"
PROGRAM = Path(sys.executable).parent / "peagle-sm"
REGION, ACCOUNT = "us-east-1", "123456789012"
NAME, STACK, GUARD = "cycle", "Peagle-cycle", "PeagleGuard"
FIRST_K, SECOND_K = 5, 3
IDLE_MINUTES, GRACE_MINUTES = 10, 10
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


@dataclass(frozen=True)
class Step:
    """One step that held, and how long it took; ``engine_s`` of it passed while an engine was starting."""

    name: str
    seconds: float
    engine_s: float
    told: str


@dataclass
class Cycle:
    """One run. ``say`` gets a line as each step ends."""

    work: Path
    port: int
    say: Callable[[str], None]
    steps: list[Step] = field(default_factory=list)
    _engine_s: float = 0.0

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
        return boto3.client(
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
            # jsii unpacks the CDK's 400 MB below HOME: once a user, not once a run.
            "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(Path.home() / ".cache" / "aws" / "jsii" / "package-cache"),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
            "AWS_ACCESS_KEY_ID": "cycle",
            "AWS_SECRET_ACCESS_KEY": "cycle",
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ENDPOINT_URL_S3": self.url,
            "CDK_VALIDATION": "false",
            "CDK_DISABLE_VERSION_CHECK": "1",
            "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
        }

    def cdk(self, *words: str, app: bool = True) -> str:
        """Run `cdk`, with the project's app or in a folder that has none; returns what it printed."""
        ours = ["-c", f"spec={self.spec}", "--output", str(self.work / "cdk.out")] if app else []
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
        return {p["ParameterKey"]: p["ParameterValue"] for p in stack["Parameters"]}["EndpointState"]

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

    # --- steps -----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[list[str]]:
        """Time a step and tell of it; what is appended to the list is told with it."""
        began, told = time.monotonic(), list[str]()
        self._engine_s = 0.0
        yield told
        took = time.monotonic() - began
        self.steps.append(Step(name, took, self._engine_s, "; ".join(told)))
        engine = f" ({self._engine_s:.1f} s of it the engine's start)" if self._engine_s else ""
        self.say(f"{took:7.1f} s  {name}{engine}" + (f": {'; '.join(told)}" if told else ""))

    def write_spec(self, k: int) -> None:
        """Write the spec with ``k`` draft tokens."""
        text = SPEC.format(name=NAME, k=k, idle=IDLE_MINUTES, grace=GRACE_MINUTES)
        self.spec.write_text(text, encoding="utf-8")

    def count_engine_start(self) -> None:
        """Count the time from Creating or Updating to InService of this step, as the server logged it."""
        status = json.loads((self.work / "server.json").read_text(encoding="utf-8"))
        log = Path(status["log_path"]).read_text(encoding="utf-8")
        began = None
        for at, word in re.findall(rf"^(\S+ \S+) INFO \S+: {NAME}: status \((\w+)\)", log, re.MULTILINE):
            when = datetime.strptime(at, "%Y-%m-%d %H:%M:%S,%f")
            if word in ("Creating", "Updating"):
                began = when
            elif word == "InService" and began is not None:
                self._engine_s = (when - began).total_seconds()

    def run(self) -> None:
        """Walk the whole cycle."""
        self.bootstrap()
        self.deploy()
        self.change_k()
        self.nothing_to_change()
        self.goes_idle()
        self.no_drift()
        self.resume()
        self.deploy_again()
        self.destroy()

    def bootstrap(self) -> None:
        """`cdk bootstrap`, with the shipped execution policy in place of AdministratorAccess."""
        with self.step("cdk bootstrap") as told:
            arns = []
            for policy in sorted((ROOT / "stacks" / "guard" / "execution-policies").glob("*.json")):
                name, document = f"peagle-cdk-{policy.stem}", policy.read_text(encoding="utf-8")
                made = self.client("iam").create_policy(PolicyName=name, PolicyDocument=document)
                arns.append(made["Policy"]["Arn"])
            policies = ["--cloudformation-execution-policies", ",".join(arns)]
            self.cdk("bootstrap", f"aws://{ACCOUNT}/{REGION}", *policies, app=False)
            told.append("with the shipped execution policies")

    def deploy(self) -> None:
        """Both stacks; the endpoint answers."""
        self.write_spec(FIRST_K)
        with self.step("cdk deploy, both stacks") as told:
            self.cdk("deploy", "--all", "--require-approval", "never")
            self.count_engine_start()
            self.serving()
            assert self.schedules(), "no lifetime schedule is armed"
            told.append(f"armed: {', '.join(self.schedules())}")
        with self.step("invoke") as told:
            told.append(repr(self.complete()["choices"][0]["text"].splitlines()[0]))

    def change_k(self) -> None:
        """Another K: the same endpoint, updated in place to a new configuration."""
        before = self.serving()
        self.write_spec(SECOND_K)
        with self.step(f"cdk deploy, K {FIRST_K} -> {SECOND_K}") as told:
            self.cdk("deploy", STACK, "--exclusively", "--require-approval", "never")
            self.count_engine_start()
            after = self.serving()
            assert after["CreationTime"] == before["CreationTime"], "the endpoint was replaced"
            assert after["EndpointConfigName"] != before["EndpointConfigName"], "still the old configuration"
            config = self.client("sagemaker").describe_endpoint_config(
                EndpointConfigName=after["EndpointConfigName"]
            )
            model = config["ProductionVariants"][0]["ModelName"]
            container = self.client("sagemaker").describe_model(ModelName=model)["PrimaryContainer"]
            spoken = json.loads(container["Environment"]["SM_VLLM_SPECULATIVE_CONFIG"])
            assert spoken["num_speculative_tokens"] == SECOND_K, spoken
            assert spoken["parallel_drafting"] is True, spoken
            told.append(f"in place, {before['EndpointConfigName']} -> {after['EndpointConfigName']}")
        with self.step("invoke again") as told:
            told.append(f"{self.complete()['usage']['completion_tokens']} tokens")

    def nothing_to_change(self) -> None:
        """`cdk diff` finds nothing."""
        with self.step("cdk diff") as told:
            told.append(_no_differences(self.cdk("diff", "--fail", "--all")))

    def goes_idle(self) -> None:
        """Time passes without a request: the deployed guard turns the endpoint off through its stack."""
        with self.step("idle: the deployed Lambda turns it off through its stack") as told:
            limit = IDLE_MINUTES + GRACE_MINUTES + 2 * SWEEP_MINUTES + 5
            passed = 0
            while self.endpoint() is not None and passed < limit + 4 * SWEEP_MINUTES:
                self.advance(SWEEP_MINUTES)
                passed += SWEEP_MINUTES
                self._settle()
            assert self.endpoint() is None, f"still {self.endpoint()} after {passed} idle minutes"
            assert self.state() == "off", self.state()
            assert self.schedules() == [], self.schedules()
            told.append(f"gone after {passed} minutes of the local clock")
            told.append("no endpoint, no schedule")

    def _settle(self) -> None:
        """Wait while the stack moves; stack operations take real time, not the local clock's."""
        cloudformation = self.client("cloudformation")
        for _ in range(240):
            status = cloudformation.describe_stacks(StackName=STACK)["Stacks"][0]["StackStatus"]
            if not status.endswith("IN_PROGRESS"):
                return
            time.sleep(0.5)
        raise AssertionError(f"{STACK} is still {status}")

    def no_drift(self) -> None:
        """Turned off by its own parameter, so the template and the account still agree."""
        with self.step("cdk diff while it is off") as told:
            told.append(_no_differences(self.cdk("diff", "--fail", "--all")))

    def resume(self) -> None:
        """`peagle-sm resume` brings it back."""
        with self.step("peagle-sm resume"):
            self.peagle("resume", NAME, "--yes")
            self.count_engine_start()
            self.serving()
            assert self.schedules(), "it runs without a lifetime limit"
        with self.step("invoke once more") as told:
            told.append(f"{self.complete()['usage']['completion_tokens']} tokens")

    def deploy_again(self) -> None:
        """A deploy after all that changes nothing, and leaves the endpoint on."""
        with self.step("cdk deploy again"):
            self.cdk("deploy", "--all", "--require-approval", "never")
            assert self.state() == "on", self.state()
            assert self.endpoint() is not None

    def destroy(self) -> None:
        """Nothing is left."""
        with self.step("cdk destroy, both stacks") as told:
            self.cdk("destroy", "--all", "--force")
            left = self.leftovers()
            assert left == [], left
            told.append("nothing left")

    def leftovers(self) -> list[str]:
        """What the two stacks made and what still stands."""
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
            if r["RoleName"].endswith(f"-{REGION}") and "peagle-" in r["RoleName"]
        ]
        stacks = self.client("cloudformation").describe_stacks()["Stacks"]
        found += [f"stack {s['StackName']}" for s in stacks if s["StackName"].startswith("Peagle")]
        return found


def _no_differences(told: str) -> str:
    counted = re.search(r"Number of stacks with differences: (\d+)", told)
    assert counted is not None, told[-3000:]
    assert counted[1] == "0", told[-3000:]
    return "no differences"


@contextlib.contextmanager
def local_server(work: Path, *options: str) -> Iterator[int]:
    """A local SageMaker of its own; ended when the block ends."""
    done = subprocess.run(
        [str(PROGRAM), "local", "up", "--detach", "--format", "json", *options],
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


def main() -> int:
    """Run the cycle; write the steps as JSON where asked."""
    parser = argparse.ArgumentParser(prog="scripts/e2e-cdk", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "e2e-cdk.json")
    options = parser.parse_args()
    began = time.monotonic()

    def say(line: str) -> None:
        print(line, flush=True)

    with tempfile.TemporaryDirectory(prefix="peagle-cdk-") as folder:
        work = Path(folder)
        with local_server(work) as port:
            say(f"{time.monotonic() - began:7.1f} s  the local SageMaker is up, on port {port}")
            cycle = Cycle(work, port, say)
            cycle.run()
    took = time.monotonic() - began
    engine_s = sum(step.engine_s for step in cycle.steps)
    say(f"{took:7.1f} s  in all; {took - engine_s:.1f} s besides the engine's starts ({engine_s:.1f} s)")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"name": s.name, "seconds": s.seconds, "engine_s": s.engine_s, "told": s.told} for s in cycle.steps
    ]
    facts = {"steps": rows, "seconds": took, "engine_s": engine_s, "load": os.getloadavg()[0]}
    options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
