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
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from tests.e2e.cdk_world import (
    ACCOUNT,
    GRACE_MINUTES,
    IDLE_MINUTES,
    NAME,
    REGION,
    REQUEST_LAG_MINUTES,
    ROOT,
    SPEC,
    STACK,
    SWEEP_MINUTES,
    TOOLKIT_STACK,
    World,
    local_server,
)

FIRST_K, SECOND_K = 5, 3


@dataclass(frozen=True)
class Step:
    """One step that held, and how long it took; ``engine_s`` of it passed while an engine was starting."""

    name: str
    seconds: float
    engine_s: float
    told: str


@dataclass
class Cycle(World):
    """One run. ``say`` gets a line as each step ends."""

    say: Callable[[str], None]
    steps: list[Step] = field(default_factory=list)
    _engine_s: float = 0.0

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
            own = ["--qualifier", "peagle", "--toolkit-stack-name", TOOLKIT_STACK]  # as in cdk.json
            self.cdk("bootstrap", f"aws://{ACCOUNT}/{REGION}", *own, *policies, app=False)
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
            limit = IDLE_MINUTES + GRACE_MINUTES + REQUEST_LAG_MINUTES + 2 * SWEEP_MINUTES + 5
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
            told.append(_no_differences(self.cdk("diff", "--fail", "--all", again=True)))

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
            self.cdk("destroy", "--all", "--force", again=True)
            left = self.leftovers()
            assert left == [], left
            told.append("nothing left")


def _no_differences(told: str) -> str:
    counted = re.search(r"Number of stacks with differences: (\d+)", told)
    assert counted is not None, told[-3000:]
    assert counted[1] == "0", told[-3000:]
    return "no differences"


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
