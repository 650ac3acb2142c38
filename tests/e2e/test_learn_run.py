"""`learn run` with all real: answers of the engine, a training job of the real trainer, a proof."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from peagle_sm.aws.session.local_server import stand_in_weights
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, dump_spec
from scripts.bench.local_stack import LocalStack
from tests.cli.running import run

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]


def test_a_run_makes_data_and_a_head_and_continues_where_it_was(tmp_path: Path) -> None:
    lines = (stand_in_weights() / "held-out.jsonl").read_text().splitlines()[:30]
    texts = [json.loads(line)["text"][:200] for line in lines]
    for name, part in (("p", texts[:20]), ("g", texts[20:])):
        rows = [json.dumps({"prompt": text, "max_tokens": 32, "temperature": 0}) for text in part]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    served = EndpointSpec(
        name="run-target", model="tiny-code", speculation={"mode": "p-eagle", "num_speculative_tokens": 7}
    )
    (tmp_path / "peagle.yaml").write_text(dump_spec(served))
    spec = {
        "name": "team",
        "target": {"model": "tiny-code"},
        "endpoint": "run-target",
        "bucket": "s3://learn-run/x",
        "data": {
            "prompts": [str(tmp_path / "p.jsonl")],
            "general": str(tmp_path / "g.jsonl"),
            "max_tokens": 32,
        },
        "train": {"max_steps": 3, "sequence_length": 128, "max_hours": 1, "checkpoint_every_steps": 2},
    }
    (tmp_path / "learn.yaml").write_text(json.dumps(spec))
    with LocalStack(lambda line: print(line, file=sys.stderr)) as stack:
        stack.session.client("s3").create_bucket(Bucket="learn-run")
        stack.deploy({"run-target": served})
        port = str(stack.port)
        command = ("learn", "run", tmp_path / "learn.yaml", "--spec", tmp_path / "peagle.yaml")
        options = ("--yes", "--format", "json", "--local-port", port)
        first = run(*command, "--until", "data", *options)
        assert first.exit_code == 0, first.output
        second = run(*command, "--until", "train", *options)
        assert second.exit_code == 0, second.output
        steps = json.loads(second.stdout)["steps"]
        assert list(steps) == ["data", "train"]
        assert steps["data"] == json.loads(first.stdout)["steps"]["data"]
        assert steps["train"]["result"]["head"].endswith("/output/model.tar.gz")
        again = run(*command, "--until", "train", *options)
        assert json.loads(again.stdout)["steps"] == steps
        jobs = stack.session.client("sagemaker").list_training_jobs()["TrainingJobSummaries"]
        assert [each["TrainingJobStatus"] for each in jobs] == ["Completed"]
        ended = run(*command, *options)
        assert ended.exit_code == 20, ended.output  # 4 held-out prompts prove nothing
        print(ended.output, file=sys.stderr)
        # The run installed the guard, which stays.
        assert [each for each in stack.delete_all() if "guard" not in each] == []
