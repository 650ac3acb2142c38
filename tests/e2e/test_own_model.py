"""A model that no catalogue has, on the real engine: planned, deployed with K by load, and compared.

The small target takes the part of a user's own: only its folder and S3 prefixes are given.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from peagle_sm.service import connect
from sagemaker_local.engine.env import engine_locks
from sagemaker_local.paths import weights_dir
from scripts.bench.local_stack import LocalStack
from tests.cli.running import run
from tests.e2e.draft_counts import draft_counts

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]

BUCKET = "s3://peagle-sm-local-us-east-1/tiny-code"


def test_ones_own_model_and_head_from_plan_to_compare(stack: LocalStack, tmp_path: Path) -> None:
    port = str(stack.port)
    spec = tmp_path / "own.yaml"

    def peagle(*arguments: str | Path) -> Any:
        result = run(*arguments, "--local-port", port, "--format", "json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    fields: dict[str, Any] = {
        "name": "own",
        "model": {"name": "my-tiny", "config": str(weights_dir() / "target"), "license": "apache-2.0"},
        "model_uri": f"{BUCKET}/target/",
        "placement": {"instance_types": ["ml.c7i.2xlarge"]},
        "speculation": {"mode": "p-eagle", "draft_head": f"{BUCKET}/p-eagle", "num_speculative_tokens": 5},
    }
    by_load = {"num_speculative_tokens_per_batch_size": [[1, 2, 3], [3, 1024, 5]]}
    image = f"vllm-cpu:{next(iter(engine_locks()))}"  # only this project's own images have K by load
    spec.write_text(
        json.dumps({**fields, "image": image, "speculation": {**fields["speculation"], **by_load}})
    )
    planned = peagle("plan", spec)
    assert planned["memory"]["fits"]

    peagle("deploy", spec, "--unguarded", "--yes")
    endpoint = connect("own", session=stack.session)
    before = draft_counts(endpoint)
    for _ in endpoint.stream({"prompt": "def total(values):\n    ", "max_tokens": 24, "ignore_eos": True}):
        pass
    counts = {name: value - before.get(name, 0.0) for name, value in draft_counts(endpoint).items()}
    assert counts["drafts"] > 0
    assert counts["draft_tokens"] == 3 * counts["drafts"], "one request drafts with the first row"
    stack.delete(["own"])
    spec.write_text(json.dumps(fields))

    out = tmp_path / "compare.jsonl"
    modes = ("compare", "--spec", spec, "--modes", "none,p-eagle", "--unguarded", "--yes", "--out", out)
    compared = peagle(*modes, "--prompts", "4", "--max-tokens", "16", "--concurrency", "1")
    assert {"none", "p-eagle"} <= {word for word in json.dumps(compared).replace('"', " ").split()}
