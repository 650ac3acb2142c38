"""`learn run` with all real, small: the tutorial's files, the real engine and the real trainer, killed twice.

It continues where it was, pays nothing twice, leaves nothing billable, and ends with what its proof decided.
The recorded campaign, with 180 kills, is docs/reference/learn-safety.md.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

from peagle_learn.core.proof import parse_proof
from peagle_sm.service.spec_to_plan import load_spec
from scripts.bench import house_style
from scripts.bench.local_stack import LocalStack

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign, pytest.mark.timeout(3000)]
STEP = re.compile(r"step \d of \d: (\w+)")
LONGEST_S = 1200.0  #: of one process: a proof has three engines, and machines are shared
PROMPTS, CONCURRENCY = 24, 4
BUCKET = "peagle-sm-local-us-east-1"


class Run:
    """`learn run` as processes; they share only what an earlier one left."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        program = [sys.executable, "-m", "peagle_sm", "learn", "run", "learn.yaml", "--spec", "peagle.yaml"]
        self._command = [*program, "--yes", "--local-port", str(port)]

    def killed_in(self, step: str, after_s: float) -> str:
        """Kill a run ``after_s`` seconds into a step; return the step that it was in."""
        process, log = self._start("--until", "train")
        since: float | None = None
        limit = time.monotonic() + LONGEST_S
        while process.poll() is None and time.monotonic() < limit:
            if since is None and STEP.findall(log.read_text())[-1:] == [step]:
                since = time.monotonic()
            if since is not None and time.monotonic() - since >= after_s:
                break
            time.sleep(0.02)
        assert process.poll() is None, log.read_text()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        return str(STEP.findall(log.read_text())[-1])

    def to_its_end(self, *options: str, exits: tuple[int, ...] = (0,)) -> int:
        process, log = self._start(*options)
        code = process.wait(LONGEST_S)
        assert code in exits, log.read_text()
        return code

    def steps(self) -> dict[str, Any]:
        (state,) = (self._folder / ".peagle-learn").rglob("state.json")
        steps: dict[str, Any] = json.loads(state.read_text())["steps"]
        return steps

    def _start(self, *options: str) -> tuple[subprocess.Popen[bytes], Path]:
        log = self._folder / f"run-{time.monotonic_ns()}.log"
        with log.open("wb") as output:
            return subprocess.Popen(
                [*self._command, *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
            ), log


class Account:
    """What is billed and what ran, by boto3 alone: nothing here is this project's code."""

    def __init__(self, port: int, endpoint: str) -> None:
        self._endpoint = endpoint
        session: Any = boto3.Session("local", "local", region_name="us-east-1")
        self._client: Callable[[str], Any] = lambda name: session.client(
            name, endpoint_url=f"http://127.0.0.1:{port}"
        )
        self._began = datetime.now(UTC)

    def endpoints(self) -> list[str]:
        rows = self._client("sagemaker").list_endpoints()["Endpoints"]
        return [row["EndpointName"] for row in rows if row["EndpointStatus"] != "Deleting"]

    def jobs(self) -> list[dict[str, Any]]:
        sagemaker = self._client("sagemaker")
        rows = sagemaker.list_training_jobs()["TrainingJobSummaries"]
        return [sagemaker.describe_training_job(TrainingJobName=row["TrainingJobName"]) for row in rows]

    def without_end(self) -> list[str]:
        """Name what would be billed for more than a day if nobody came back."""
        scheduler = self._client("scheduler")
        ends: dict[str, datetime] = {}
        for row in scheduler.list_schedules()["Schedules"]:
            schedule = scheduler.get_schedule(Name=row["Name"], GroupName=row["GroupName"])
            target = schedule["Target"]
            if target["Arn"].endswith(":sagemaker:deleteEndpoint") and schedule["State"] == "ENABLED":
                ends[json.loads(target["Input"])["EndpointName"]] = schedule["StartDate"]
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        endless = [name for name in self.endpoints() if name not in ends or ends[name] > tomorrow]
        return endless + [
            job["TrainingJobName"]
            for job in self.jobs()
            if job["TrainingJobStatus"] == "InProgress"
            and not job.get("StoppingCondition", {}).get("MaxRuntimeInSeconds")
        ]

    def incomplete_uploads(self) -> list[str]:
        uploads = self._client("s3").list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
        return [each["Key"] for each in uploads]

    def invocations(self) -> int:
        sagemaker = self._client("sagemaker")
        (variant,) = sagemaker.describe_endpoint(EndpointName=self._endpoint)["ProductionVariants"]
        dimensions = {"EndpointName": self._endpoint, "VariantName": variant["VariantName"]}
        points = self._client("cloudwatch").get_metric_statistics(
            Namespace="AWS/SageMaker",
            MetricName="Invocations",
            Dimensions=[{"Name": name, "Value": value} for name, value in dimensions.items()],
            StartTime=self._began - timedelta(minutes=1),
            EndTime=datetime.now(UTC) + timedelta(minutes=1),
            Period=60,
            Statistics=["Sum"],
        )["Datapoints"]
        return round(sum(float(point["Sum"]) for point in points))


def test_a_run_that_is_killed_twice_continues_to_its_proof_and_leaves_nothing(tmp_path: Path) -> None:
    house_style.write_missing(tmp_path, house_style.files(most_prompts=PROMPTS, steps=3))
    path = tmp_path / "learn.yaml"
    text = path.read_text()
    assert "concurrency: 8" in text
    path.write_text(text.replace("concurrency: 8", f"concurrency: {CONCURRENCY}"))
    served = load_spec(tmp_path / "peagle.yaml")
    with LocalStack(lambda line: print(line, file=sys.stderr)) as stack:
        stack.deploy({served.name: served})
        account, run = Account(stack.port, served.name), Run(tmp_path, stack.port)
        assert run.killed_in("data", 1.0) == "data"
        assert account.without_end() == []
        assert run.killed_in("train", 8.0) == "train"
        assert account.without_end() == []
        data = run.steps()["data"]
        answers = sum(data["result"]["rows"].values())
        assert answers >= PROMPTS + 2, "a share of the general prompts is trained on, too"
        # Each prompt once, and again what was in flight at the kill.
        assert answers <= account.invocations() <= answers + CONCURRENCY
        run.to_its_end("--until", "train")
        steps = run.steps()
        assert list(steps) == ["data", "train"]
        assert steps["data"] == data, "a finished step was done again"
        assert steps["train"]["result"]["head"].endswith("/output/model.tar.gz")
        code = run.to_its_end("--until", "prove", exits=(0, 9))  # so few prompts may decide either way
        assert {name: run.steps()[name] for name in steps} == steps, "a finished step was done again"
        (training,) = tmp_path.rglob("training.json")
        assert json.loads(training.read_text())["steps"] == 3
        (file,) = tmp_path.rglob("proofs/*.json")
        proof = parse_proof(file.read_text(), file.name)
        assert proof.decision.offered is (code == 0)
        assert proof.bound.data == data["result"]["data"]
        assert account.without_end() == []
        assert account.endpoints() == [served.name]
        assert account.incomplete_uploads() == []
        statuses = [job["TrainingJobStatus"] for job in account.jobs()]
        assert statuses.count("Completed") == 1
        assert "InProgress" not in statuses
        # The run installed the guard, which stays.
        assert [name for name in stack.delete_all() if "guard" not in name] == []
