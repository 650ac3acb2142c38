"""The real trainer on the local SageMaker: a Spot interruption between two steps, and two instances."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sagemaker_local import lifecycle
from tests.local.serving import Server, eventually
from tests.local.test_training_jobs import IMAGE, Account, channel, transitions
from tests.training.support import document, lines

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]

RECIPE = {
    "sequence_length": "64",
    "num_depths": "4",
    "max_steps": "6",
    "grad_accumulation_steps": "2",
    "checkpoint_every_steps": "2",
    "log_every_steps": "1",
}
METRICS = [{"Name": "loss", "Regex": r"peagle-train step=.* loss=([0-9.e-]+)"}]
PATIENCE_S = 500


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    """A server process of its own, as `peagle-sm local up` starts it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    account = Account(Server(lifecycle.up()))
    account.put(**{"data/training/part.tokens.jsonl": lines([document(number) for number in range(24)])})
    account.put(
        **{"data/validation/part.tokens.jsonl": lines([document(number) for number in range(90, 94)])}
    )
    yield account
    lifecycle.down()


def request(aws: Account) -> dict[str, Any]:
    artifacts = aws.server.status.artifacts
    algorithm = {"TrainingImage": IMAGE, "TrainingInputMode": "File", "MetricDefinitions": METRICS}
    channels = [channel(name, f"data/{name}/") for name in ("training", "validation")]
    channels += [
        channel(name, "", S3Uri=artifacts[part]) for name, part in (("target", "target"), ("head", "p-eagle"))
    ]
    return {"AlgorithmSpecification": algorithm, "InputDataConfig": channels}


def ended(aws: Account, name: str) -> dict[str, Any]:
    def over() -> Any:
        describe = aws.describe(name)
        return describe if describe["TrainingJobStatus"] not in ("InProgress", "Stopping") else None

    job = dict(eventually(over, PATIENCE_S))
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), aws.lines(name)[-20:])
    return job


def test_an_interrupted_training_goes_on_where_its_last_checkpoint_is(aws: Account) -> None:
    name = aws.spot(RECIPE, **request(aws))
    eventually(lambda: any("peagle-train step=2/6" in line for line in aws.lines(name)), PATIENCE_S)
    aws.interrupt(name)
    job = ended(aws, name)
    once = ["Starting", "Downloading", "Training"]
    assert transitions(job) == [*once, "Interrupted", *once, "Uploading", "Completed"]
    assert {"config.json", "model.safetensors", "training.json"} <= aws.packed(name).keys()
    steps = [int(step) for step in re.findall(r"peagle-train step=(\d+)/6", "\n".join(aws.lines(name)))]
    assert sorted(set(steps)) == [1, 2, 3, 4, 5, 6]
    assert len(steps) - len(set(steps)) <= 2  # at most one checkpoint interval was lost
    assert [each["MetricName"] for each in job["FinalMetricDataList"]] == ["loss"]


def test_two_instances_train_one_head(aws: Account) -> None:
    recipe = {**RECIPE, "max_steps": "2", "grad_accumulation_steps": "1"}
    name = aws.create(recipe, **request(aws), resources={"InstanceCount": 2})
    ended(aws, name)
    assert len(aws.streams(name)) == 2
    head = aws.packed(name)
    assert {"config.json", "model.safetensors", "training.json"} <= head.keys()
    assert json.loads(head["training.json"])["job"] == {
        "name": name,
        "arn": aws.describe(name)["TrainingJobArn"],
        "region": "us-east-1",
        "processes": 2,
    }
