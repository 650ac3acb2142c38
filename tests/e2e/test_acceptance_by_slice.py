"""Acceptance by slice on the real engine behind the real gate: counted, in CloudWatch, and a fall is found.

Two teams send requests. Then one of them samples at a high temperature, which no slice here shows: the gate
itself finds that team. Another endpoint comes up again with a damaged head: the gate is new, with nothing to
compare with, and `peagle-sm acceptance` finds it in the log of both. Nothing else fell in that log: whether a
second fall is found, and since when, would depend on the number of intervals, that is, on the machine.
"""

from __future__ import annotations

import json
import random
import struct
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest

from peagle_bench.workloads.public_datasets import human_eval_file, read_human_eval
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from sagemaker_local.paths import weights_dir
from scripts.bench.local_stack import LocalStack
from tests.cli.running import run
from tests.e2e.tiny_code import spec_of

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]

NAME, RESTARTED = "sliced", "restarted"
SPACE = f"peagle-sm/{NAME}"
INTERVAL_S = 1
MODEL = "models/tiny-code/"
KNOWN = [str(prompt.prompt) for prompt in read_human_eval(human_eval_file())]


def spec(head: str, name: str = NAME) -> EndpointSpec:
    given = spec_of("p-eagle", 7).model_dump(exclude_unset=True)
    # The canary would find the damaged head before any traffic; here the traffic has to show it.
    given["serving"] = {"env": {"PEAGLE_GATE_CANARY_PROMPTS": "0", "PEAGLE_GATE_SAMPLE_S": str(INTERVAL_S)}}
    given["metrics"] = {"slices": ["label:team=search,support", "format"]}
    addresses = {"model_uri": f"s3://mine/{MODEL}target/", "head_uri": f"s3://mine/{MODEL}{head}/"}
    return EndpointSpec(**{**given, **addresses, "name": name})


def damaged(file: bytes) -> bytes:
    """A head whose input layer has its weights in another order: valid numbers, and useless."""
    (size,) = struct.unpack("<Q", file[:8])
    begin, end = json.loads(file[8 : 8 + size])["fc.weight"]["data_offsets"]
    place = 8 + size + begin
    weights = [file[at : at + 2] for at in range(place, 8 + size + end, 2)]
    random.Random(1).shuffle(weights)
    return file[:place] + b"".join(weights) + file[8 + size + end :]


@pytest.fixture(scope="module")
def stack() -> Iterator[LocalStack]:
    with LocalStack(lambda line: print(line, file=sys.stderr)) as stack:
        s3 = stack.session.client("s3")
        s3.create_bucket(Bucket="mine")
        for part, folder in (("target", "target"), ("p-eagle", "p-eagle"), ("p-eagle", "damaged")):
            for path in (weights_dir() / part).iterdir():
                content = path.read_bytes()
                if folder == "damaged" and path.name == "model.safetensors":
                    content = damaged(content)
                s3.put_object(Bucket="mine", Key=f"{MODEL}{folder}/{path.name}", Body=content)
        yield stack
        assert stack.delete_all() == []
    assert stack.left == []


class Traffic:
    """Sends requests as boto3 does, some streamed, with a label in SageMaker's own header."""

    def __init__(self, stack: LocalStack, name: str = NAME) -> None:
        self._runtime = stack.session.client("sagemaker-runtime")
        self._name = name

    def healthy(self, *teams: str) -> None:
        """Send 160 requests of each team.

        A slice is judged from 3,000 drafts on: about 25 for each request here. How much whole intervals
        differ has to be known as well: at least one interval a wave, however fast the machine is.
        """
        for begin in range(0, 160, 4):
            started = time.monotonic()
            for team in teams:
                self.send(team, KNOWN[begin : begin + 4], tokens=128)
            time.sleep(max(0.0, INTERVAL_S - (time.monotonic() - started)))

    def send(self, team: str, prompts: list[str], tokens: int = 96, temperature: float = 0) -> None:
        with ThreadPoolExecutor(8) as threads:
            sent = [
                threads.submit(self._one, team, prompt, tokens, temperature, number % 2 == 0)
                for number, prompt in enumerate(prompts)
            ]
        for each in sent:
            each.result()

    def _one(self, team: str, prompt: str, tokens: int, temperature: float, streamed: bool) -> None:
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": temperature, "ignore_eos": True}
        request = {"EndpointName": self._name, "CustomAttributes": f"trace=1;team={team}"}
        request["ContentType"] = "application/json"
        if not streamed:
            answer = self._runtime.invoke_endpoint(**request, Body=json.dumps(body))
            assert json.loads(answer["Body"].read())["choices"][0]["text"]
            return
        stream = self._runtime.invoke_endpoint_with_response_stream(
            **request, Body=json.dumps({**body, "stream": True})
        )
        seen = b"".join(event["PayloadPart"]["Bytes"] for event in stream["Body"])
        assert seen.rstrip().endswith(b"data: [DONE]")
        assert b'"usage":{' not in seen, "the caller did not ask for it"


def shown(stack: LocalStack, *more: str, exits: int) -> dict[str, Any]:
    port = str(stack.port)
    result = run("acceptance", NAME, *more, "--local-port", port, "--format", "json")
    assert result.exit_code == exits, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def metric(stack: LocalStack, name: str, statistic: str, **dimensions: str) -> float:
    now = stack.session.now()
    wanted = [{"Name": key, "Value": value} for key, value in dimensions.items()]
    points = stack.session.client("cloudwatch").get_metric_statistics(
        Namespace=SPACE,
        MetricName=name,
        Dimensions=wanted,
        StartTime=now - timedelta(hours=1),
        EndTime=now + timedelta(minutes=2),
        Period=60,
        Statistics=[statistic],
    )["Datapoints"]
    values = [float(point[statistic]) for point in points]
    return max(values, default=0.0) if statistic == "Maximum" else sum(values)


def settled(stack: LocalStack, requests: int, name: str = NAME) -> dict[str, Any]:
    """The report once so many requests of all are in the log."""
    for _ in range(60):
        time.sleep(1)
        port = str(stack.port)
        result = run("acceptance", name, "--local-port", port, "--format", "json")
        if result.exit_code in (0, 9):
            report: dict[str, Any] = json.loads(result.stdout)
            if report["slices"] and report["slices"][0]["requests"] >= requests:
                return report
    raise AssertionError(f"the log has no {requests} requests: {result.output}")


def test_two_teams_and_a_team_that_falls(stack: LocalStack) -> None:
    stack.deploy({NAME: spec("p-eagle")})
    traffic = Traffic(stack)
    traffic.healthy("search", "support")
    traffic.send("nobody-knows", KNOWN[:10])
    healthy = settled(stack, 330)
    assert healthy["changes"] == []
    assert healthy["uncounted_requests"] == 0
    by_name = {row["slice"]: row for row in healthy["slices"]}
    assert {name: row["requests"] for name, row in by_name.items()} == {
        "all requests": 330,
        "label:team: support": 160,
        "label:team: search": 160,
        "label:team: other": 10,
        "format: text": 330,
    }
    for row in by_name.values():
        assert row["low"] < row["acceptance_length"] < row["high"]
        assert list(row["by_k"]) == ["7"]
    for team in ("search", "support"):
        name = f"label:team: {team}"
        for counted, of_report in (("SliceDrafts", "drafts"), ("SliceAcceptedTokens", "accepted")):
            assert metric(stack, counted, "Sum", Slice=name) == by_name[name][of_report]
    assert metric(stack, "DriftingSlices", "Maximum") == 0

    with ThreadPoolExecutor(2) as both:  # with one team alone, its fall would be that of all requests
        healthy_team = both.submit(traffic.send, "search", KNOWN[:120], 128)
        falling_team = both.submit(traffic.send, "support", KNOWN[:60], temperature=1.0)
    healthy_team.result()
    falling_team.result()
    fallen = settled(stack, 510)
    assert [change["slice"] for change in fallen["changes"]] == ["label:team: support"]
    (change,) = fallen["changes"]
    assert change["low"] < change["fall"] == pytest.approx(1 - change["after"] / change["before"], abs=0.02)
    assert metric(stack, "DriftingSlices", "Maximum") == 1
    assert metric(stack, "LargestFallPercent", "Maximum") > 20
    shown(stack, exits=9)

    stack.delete([NAME])


def test_a_damaged_head_is_found_in_the_log_across_a_restart(stack: LocalStack) -> None:
    stack.deploy({RESTARTED: spec("p-eagle", RESTARTED)})
    traffic, began = Traffic(stack, RESTARTED), time.time()
    traffic.healthy("search")
    healthy_until = time.time()
    assert settled(stack, 160, RESTARTED)["changes"] == []
    stack.delete([RESTARTED])
    stack.deploy({RESTARTED: spec("damaged", RESTARTED)})
    traffic.send("search", KNOWN[:40], tokens=48)
    (change,) = settled(stack, 200, RESTARTED)["changes"]
    assert change["slice"] in ("all requests", "label:team: search", "format: text"), "all the same requests"
    assert change["before"] > 4
    assert change["after"] < 1.6
    # A block of intervals may begin before the restart; it is a small part of the healthy traffic.
    since = datetime.fromisoformat(change["since"]).timestamp()
    assert healthy_until - (healthy_until - began) / 4 < since < time.time()
    stack.delete([RESTARTED])
