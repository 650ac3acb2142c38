"""Every measuring command on the real local server with the real engine and the shipped weights.

Three endpoints come up once: plain decoding, P-EAGLE, and P-EAGLE on vLLM's own CPU sampler, which is known
to be unfair (docs/explanation/engine.md). `tune` deploys two of its own when they are gone, so that
never more than three engines run. How fast anything was is not asserted: the machine may be busy, and
figures be withheld for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from peagle_bench.results.result_file import Results, read
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, ServingSpec
from scripts.bench.local_stack import LocalStack
from tests.cli.running import run
from tests.e2e.tiny_code import spec_of

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]

Run = Callable[..., Result]
PLAIN, FAST, UNFAIR = "tiny-none", "tiny-p-eagle", "tiny-unfair"
CHECKS = {"greedy", "sampled", "logprobs", "stop-strings", "streaming", "long-context"}


@pytest.fixture(scope="module")
def peagle(stack: LocalStack) -> Run:
    """Runs `peagle-sm` on that server; 0 is the exit code wanted, or one of those named."""
    port = str(stack.port)

    def call(*arguments: str | Path, exits: tuple[int, ...] = (0,), stdin: str = "") -> Result:
        result = run(*arguments, "--local-port", port, "--format", "json", stdin=stdin)
        assert result.exit_code in exits, result.output
        return result

    return call


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


def unfair() -> EndpointSpec:
    fields = spec_of("p-eagle").model_dump(exclude_unset=True)
    return EndpointSpec(**{**fields, "name": UNFAIR, "serving": ServingSpec(env={"VLLM_PLUGINS": "none"})})


def staged(stack: LocalStack, peagle: Run) -> EndpointSpec:
    """P-EAGLE from a prefix of one's own: target and head under it, put there by `heads stage`."""
    stack.session.client("s3").create_bucket(Bucket="mine")
    to = ("--to", "s3://mine/models/tiny-code/", "--yes")
    fields = json.loads(peagle("heads", "stage", "tiny-code", *to).stdout)["spec"]
    addresses = {name: fields[name] for name in ("model_uri", "head_uri")}
    return EndpointSpec(**{**spec_of("p-eagle").model_dump(exclude_unset=True), **addresses})


@pytest.fixture(scope="class")
def engines(stack: LocalStack, peagle: Run) -> Iterator[None]:
    fast = staged(stack, peagle)
    endpoints = stack.deploy({PLAIN: spec_of("none"), FAST: fast, UNFAIR: unfair()})
    yield
    stack.delete(list(endpoints))


@pytest.fixture(scope="class")
def benched(peagle: Run, folder: Path, engines: None) -> Results:
    """At two concurrencies. Exit code 1: every figure is withheld, and the records are there all the same."""
    out = folder / "bench.jsonl"
    size = ["--prompts", "16", "--max-tokens", "32", "--concurrency", "1,4"]
    result = peagle("bench", FAST, *size, "--requests", "6", "--out", out, exits=(0, 1))
    assert json.loads(result.stdout)["file"] == str(out)
    return read(out)


@pytest.fixture(scope="class")
def compared(peagle: Run, folder: Path, engines: None) -> Results:
    out = folder / "compare.jsonl"
    size = ["--prompts", "8", "--max-tokens", "32", "--concurrency", "1,2"]
    result = peagle("compare", PLAIN, FAST, *size, "--out", out)
    assert json.loads(result.stdout)["stand_in_weights"] is True
    return read(out)


@pytest.mark.usefixtures("engines")
class TestThreeEngines:
    """What measures endpoints that are there."""

    def test_bench(self, benched: Results) -> None:
        assert benched.header.stand_in_weights
        assert [point.load.label for point in benched.points] == ["c=1", "c=4"]
        assert benched.arms[0].mode == "p-eagle"
        assert benched.arms[0].num_speculative_tokens
        for point in benched.points:
            assert point.errors == {}
            assert point.requests >= 6
            assert point.otps > 0
            assert point.acceptance is not None
            assert point.acceptance.source == "per-request"
            assert point.acceptance.per_step is not None
            assert point.acceptance.per_step > 1
            assert len(point.acceptance.survival) == benched.arms[0].num_speculative_tokens

    def test_chat(self, peagle: Run) -> None:
        """Each request has the history; a conversation that outgrows the context is an error."""
        long = "add one and two, " * 1100  # two of these are over the 8,192 tokens of the context
        talk = peagle(
            "chat",
            FAST,
            "--max-tokens",
            "16",
            "--temperature",
            "0",
            stdin=f"hello\n{long}\n{long}\n",
            exits=(2,),
        )
        first, second, third = (json.loads(line) for line in talk.stdout.splitlines())
        assert first["assistant"]
        assert first["summary"]["acceptance_length"] > 1
        assert first["summary"]["output_tokens"] <= 16
        assert first["stand_in_weights"] is True
        assert (
            second["summary"]["prompt_tokens"]
            > first["summary"]["prompt_tokens"] + len(first["assistant"]) // 8
        )
        assert not third["complete"]

    @pytest.mark.campaign
    def test_bench_of_a_bare_vllm(self, stack: LocalStack, peagle: Run, folder: Path) -> None:
        urls = {engine["endpoint"]: engine["url"] for engine in stack.engines()}
        out = folder / "bare.jsonl"
        size = ["--prompts", "4", "--max-tokens", "16", "--concurrency", "2"]
        peagle("bench", urls[FAST], *size, "--out", out, exits=(0, 1))
        (point,) = read(out).points
        assert (point.errors, point.requests) == ({}, 4)

    def test_compare(self, compared: Results) -> None:
        assert {arm.mode for arm in compared.arms} == {"none", "p-eagle"}
        assert any(arm.control for arm in compared.arms)
        for comparison in compared.comparisons:
            assert comparison.ratio.low <= comparison.ratio.value <= comparison.ratio.high
            # Where two tokens are all but equal, bfloat16 and the shape of a batch may decide between them.
            assert 0 < (comparison.identical_outputs or 0) <= (comparison.compared_outputs or 0)
        modes = {arm.name: arm.mode for arm in compared.arms}
        lengths = {modes[point.arm]: point.acceptance for point in compared.points}
        assert lengths["p-eagle"] is not None
        assert lengths["p-eagle"].per_step is not None
        assert lengths["p-eagle"].per_step > 1

    def test_verify_finds_the_answers_to_be_the_targets_own(self, peagle: Run, folder: Path) -> None:
        out = folder / "verify.jsonl"
        options = ["--checks", ",".join(sorted(CHECKS)), "--quick", "--prompts", "8", "--max-tokens", "48"]
        result = peagle("verify", FAST, "--baseline", PLAIN, *options, "--out", out)
        passed = {check["name"]: check["passed"] for check in json.loads(result.stdout)["checks"]}
        assert set(passed) == CHECKS
        assert passed["greedy"] is passed["sampled"] is passed["streaming"] is True
        assert [check.name for check in read(out).checks] == list(passed)

    @pytest.mark.campaign
    def test_verify_finds_an_unfair_sampler(self, peagle: Run) -> None:
        options = ["--checks", "sampled", "--quick", "--prompts", "8", "--max-tokens", "16"]
        result = peagle("verify", UNFAIR, "--baseline", PLAIN, *options, exits=(9,))
        assert json.loads(result.stdout)["passed"] is False

    def test_cost(self, peagle: Run, folder: Path, benched: Results) -> None:
        result = peagle("cost", folder / "bench.jsonl", "--usd-per-hour", "3.6", "--otps", "1000")
        rows = json.loads(result.stdout)["rows"]
        kept = [point for point in benched.points if not point.client.bottleneck]
        assert len(rows) == len(kept)
        for row, point in zip(rows, kept, strict=True):
            assert row["usd_per_million"] == pytest.approx(1000 / point.otps)

    def test_report(self, peagle: Run, folder: Path, benched: Results, compared: Results) -> None:
        files = [folder / "bench.jsonl", folder / "compare.jsonl"]
        page = folder / "report.html"
        result = peagle("report", *files, "--html", page)
        assert json.loads(result.stdout)["stand_in_weights"] is True
        assert page.read_text().count("<article") == 2


@pytest.mark.campaign
def test_tune(stack: LocalStack, peagle: Run, folder: Path) -> None:
    spec, out = folder / "peagle.yaml", folder / "tune.jsonl"
    peagle("init", "tiny-code", "--output", spec)
    size = ["--concurrency", "1", "--max-k", "4", "--requests", "4"]
    result = peagle("tune", spec, *size, "--out", out, "--unguarded", "--yes")
    report: dict[str, Any] = json.loads(result.stdout)
    (mode,) = report["modes"]
    assert mode["mode"] == "p-eagle"
    assert mode["deployments"] == 1
    assert 1 <= mode["k"] <= 4
    assert report["written"] == str(spec)
    assert f"num_speculative_tokens: {mode['k']}" in spec.read_text()
    (fit,) = read(out).fits
    assert {point.k for point in fit.points} == set(range(5))
    assert stack.delete_all() == []
