"""From real traffic to a workload: the real `serve --record`, the real engine with P-EAGLE, S3 and a file."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from peagle_bench.benchmark.acceptance import from_requests
from peagle_bench.workloads import load_workload
from peagle_sm.service import Endpoint
from peagle_sm.traffic.reading import read
from scripts.bench.comparison import spec_of
from scripts.bench.local_stack import LocalStack
from tests.cli.running import run
from tests.traffic.planted import pieces, planted

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]
NAME = "tiny-p-eagle"


@pytest.fixture(scope="module")
def stack() -> Iterator[LocalStack]:
    with LocalStack(lambda line: print(line, file=sys.stderr)) as stack:
        stack.deploy({NAME: spec_of("p-eagle")})
        yield stack
        assert stack.delete_all() == []


def test_traffic_is_recorded_with_its_acceptance_and_is_a_workload(stack: LocalStack, tmp_path: Path) -> None:
    port = (stack.session.local_url or "").rpartition(":")[2]
    stack.session.client("s3").create_bucket(Bucket="traffic")
    command = [sys.executable, "-m", "peagle_sm", "serve", NAME, "--port", "0", "--local-port", port]
    command += ["--record", "s3://traffic/team", "--yes", "--format", "json"]
    secrets = [secret for secret in planted() if len(secret.text) < 100][:20]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        client = openai.OpenAI(base_url=json.loads(process.stdout.readline())["url"], api_key="any")
        for number, secret in enumerate(secrets):
            prompt = f"# {secret.text}\ndef add(a, b):\n"
            if number % 2:
                list(client.completions.create(model=NAME, prompt=prompt, max_tokens=24, stream=True))
            else:
                client.completions.create(model=NAME, prompt=prompt, max_tokens=24, temperature=0)
        # An answer that ends before its caller leaves would be a whole one.
        left = client.completions.create(
            model=NAME,
            prompt="def f():\n",
            max_tokens=2000,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        next(left)
        left.close()
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
        process.communicate()
    assert json.loads(said.splitlines()[-1])["recording"]["recorded"] == len(secrets) + 1
    traffic = read("s3://traffic/team", stack.session)
    text = json.dumps([[one.request, [answer.text for answer in one.answers]] for one in traffic.records])
    assert [secret.name for secret in secrets if any(piece in text for piece in pieces(secret.core))] == []
    outcomes = [one.outcome for one in traffic.records]
    assert (outcomes.count("whole"), outcomes.count("cancelled")) == (len(secrets), 1)
    assert {one.mode for one in traffic.records} == {"p-eagle"}
    found = from_requests(traffic.records)
    assert found is not None
    assert found.per_step is not None
    assert found.per_step > 1
    assert all(one.histogram for one in traffic.records if one.drafts)
    workload = load_workload("s3://traffic/team", session=lambda: stack.session)
    assert len(workload.items) == len(secrets) + 1
    size = ("--prompts", "4", "--max-tokens", "8", "--concurrency", "1", "--requests", "4")
    out = ("--out", tmp_path / "bench.jsonl", "--format", "json", "--local-port", port)
    benched = run("bench", NAME, "--workload", "s3://traffic/team", *size, *out)
    assert benched.exit_code in (0, 1), benched.output  # 1: a busy machine, figures withheld


def test_python_records_the_same_to_a_file(stack: LocalStack, tmp_path: Path) -> None:
    endpoint = Endpoint(NAME, stack.session)
    path = tmp_path / "t.jsonl"
    with endpoint.record(path) as recording:
        answer = endpoint.stream(prompt="def add(a, b):\n", max_tokens=24, temperature=0)
        said = "".join(chunk.text for chunk in answer)
    assert recording.summary.line() == "recorded 1 of 1 requests"
    (found,) = read(path).records
    assert found.answers[0].text == said
    assert answer.summary.acceptance is not None
    assert found.histogram == answer.summary.acceptance.histogram
    assert found.usage is not None
    assert found.usage.completion_tokens == answer.summary.output_tokens
