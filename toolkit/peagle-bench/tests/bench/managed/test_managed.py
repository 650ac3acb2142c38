"""`bench --managed` against jobs that last, fail, hang and are interrupted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.benchmark.endpoint_arm import Described
from peagle_bench.benchmark.managed import ManagedDependencies, job_name, price_note, run_managed
from peagle_bench.benchmark.managed_files import JobResources
from peagle_bench.benchmark.plan import BenchPlan
from peagle_bench.load import WorkItem
from peagle_bench.load.points import Objective
from peagle_bench.results.records import ArmRecord, Load
from peagle_bench.results.result_file import Outcome, read
from peagle_bench.workloads import Workload
from peagle_sm.core.errors import BillableLeft, Interrupted, ServiceFault, SpecError
from peagle_sm.service.progress import Pacing
from tests.bench.managed.making import START, Cloud, archive, error, row

ARM = ArmRecord("e", "p-eagle", 7, "e", component="ic", usd_per_hour=36.0)
PLACE = JobResources("arn:aws:iam::123456789012:role/r", "s3://bucket/bench", "org/model")
LOADS = (Load("closed", concurrency=1), Load("open", rate_per_s=2.5))
ITEMS = tuple(
    WorkItem(f"p{n}", {"messages": [{"role": "user", "content": f"prompt {n}"}], "max_tokens": 8})
    for n in range(3)
)
WORKLOAD = Workload("own", ITEMS, None, None, "own", 3, temperature=0.0)
PLAN = BenchPlan(LOADS, requests=2, objective=Objective(ttft_ms=100, tpot_ms=10))


class Runs:
    """Runs of one cloud into one file, and what they told."""

    def __init__(self, cloud: Cloud, path: Path) -> None:
        self.cloud, self.path = cloud, path
        self.told: list[str] = []

    def __call__(self, *, resume: bool = False, **other: Any) -> Outcome:
        around = ManagedDependencies(
            progress=lambda event: self.told.append(event.message),
            pacing=Pacing(self.cloud.now, self.cloud.monotonic, self.cloud.sleep),
            provenance=lambda: {"date": "today"},
            now=lambda: START,
            token=lambda: "0123456789abcdef",
        )
        given = {"workload": WORKLOAD, "plan": PLAN, "place": PLACE, **other}
        return run_managed(
            self.cloud.session(),
            Described(ARM, stand_in_weights=False),
            given["workload"],
            given["plan"],
            given["place"],
            self.path,
            around,
            resume=resume,
        )

    def nothing_left(self) -> None:
        assert self.cloud.configs == {}
        assert [uri for uri in self.cloud.objects if "/input/" in uri] == []


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., Runs]:
    return lambda **cloud: Runs(Cloud(**cloud), tmp_path / "r.jsonl")


def test_every_load_is_a_job_of_its_own_and_a_point(start: Callable[..., Runs]) -> None:
    runs = start()
    outcome = runs()
    assert [point.load for point in outcome.results.points] == list(LOADS)
    assert outcome.results.header.config["client"] == "managed"
    assert {record.prompt_id for record in outcome.results.requests} == {"p0", "p1"}
    assert outcome.results.points[0].usd == pytest.approx(36 * 2 / 3600)
    first, second = runs.cloud.jobs.values()
    assert first["BenchmarkTarget"]["Endpoint"] == {
        "Identifier": "e",
        "InferenceComponents": [{"Identifier": "ic"}],
    }
    assert first["OutputConfig"]["S3OutputLocation"].startswith("s3://bucket/bench/bench-e-c1-")
    assert second["AIBenchmarkJobName"].startswith("bench-e-r2p5-")
    assert runs.told[-1] == "2.5 req/s: Completed after 0.5 min, 0.30 USD: 8.0 tokens/s (AIPerf 0.13.0)"
    runs.nothing_left()


def test_what_a_job_is_given(start: Callable[..., Runs]) -> None:
    runs = start()
    given: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []

    def look(_: float) -> None:
        for config in runs.cloud.configs.values():
            (channel,) = config["DatasetConfig"]["InputDataConfig"]
            lines = runs.cloud.objects[channel["DataSource"]["S3DataSource"]["S3Uri"]]
            spec = json.loads(config["AIWorkloadConfigs"]["WorkloadSpec"]["Inline"])
            given.append((spec, [json.loads(line) for line in lines.splitlines()]))

    runs.cloud.on_sleep = look
    runs()
    spec, lines = given[0]
    assert spec["benchmark"] == {"type": "aiperf"}
    assert spec["parameters"] == {
        "tokenizer": "org/model",
        "streaming": True,
        "random_seed": 0,
        "custom_dataset_type": "single_turn",
        "input_file": "/opt/ml/input/data/dataset/prompts.jsonl",
        "dataset_sampling_strategy": "sequential",
        "concurrency": 1,
        "request_count": 2,
        "warmup_request_count": 1,
        "extra_inputs": "temperature:0",
        "goodput": "time_to_first_token:100 inter_token_latency:10",
    }
    assert [line["text"] for line in lines] == ["prompt 2", "prompt 0", "prompt 1"]
    assert lines[0]["session_id"] == "0:p2#warm-up"
    assert all(line["output_length"] == 8 for line in lines)
    # Other loads, and the warm-up, must not find these prompts in the prefix cache.
    assert len({line["extra"]["cache_salt"] for line in lines}) == 2
    assert given[-1][0]["parameters"]["request_rate_mode"] == "poisson"
    assert given[-1][0]["parameters"]["request_rate"] == 2.5


def test_a_failed_job_with_figures_counts_and_says_so(start: Callable[..., Runs]) -> None:
    rows = [row(0), row(1, error="StreamError")]
    runs = start(ends="Failed", reason="AlgorithmError: error rate", output=lambda: archive(rows))
    outcome = runs()
    assert outcome.results.points[0].errors == {"StreamError": 1}
    assert "c=1: the job's status is Failed: AlgorithmError: error rate" in outcome.notes
    assert "c=1: 1 of 2 requests failed (1 x StreamError); the first: it went wrong" in outcome.notes
    runs.nothing_left()


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (None, "no output.tar.gz|ended with status Failed: it broke"),
        (lambda: archive([row(0, error="E")], profile=False), "it broke First failed request: it went"),
    ],
)
def test_a_failed_job_without_figures_is_a_fault(start: Callable[..., Runs], output: Any, told: str) -> None:
    runs = start(ends="Failed", reason="it broke", output=output)
    with pytest.raises(ServiceFault, match=told):
        runs()
    assert read(runs.path).points == ()
    runs.nothing_left()


def test_ctrl_c_stops_the_job_and_a_resumed_run_measures_what_is_missing(start: Callable[..., Runs]) -> None:
    runs = start()

    def interrupt(seconds: float) -> None:
        if seconds > 40 and len(runs.cloud.jobs) == 2:
            runs.cloud.on_sleep = lambda _: None
            raise KeyboardInterrupt

    runs.cloud.on_sleep = interrupt
    with pytest.raises(Interrupted, match="was stopped; earlier loads are in") as interrupted:
        runs()
    assert "--resume" in (interrupted.value.next_step or "")
    assert runs.cloud.calls.count("stop_job") == 1
    assert len(read(runs.path).points) == 1
    runs.nothing_left()
    assert [point.load for point in runs(resume=True).results.points] == list(LOADS)


def test_a_job_that_cannot_be_stopped_is_named_with_the_command(start: Callable[..., Runs]) -> None:
    runs = start(stops=False)

    def interrupt(_: float) -> None:
        runs.cloud.on_sleep = lambda _: None
        raise KeyboardInterrupt

    runs.cloud.on_sleep = interrupt
    with pytest.raises(BillableLeft, match="still Stopping after 10 minutes") as left:
        runs()
    assert "aws sagemaker stop-ai-benchmark-job" in (left.value.next_step or "")
    assert left.value.details["resources"][0].startswith("ai-benchmark-job/bench-e-c1-")


def test_a_lost_answer_to_the_start_leaves_no_job_running(start: Callable[..., Runs]) -> None:
    runs = start(faults={"create_job": [error("InternalFailure", status=500)]})
    with pytest.raises(ServiceFault):
        runs()
    assert [job["stop"] is not None for job in runs.cloud.jobs.values()] == [True]
    runs.nothing_left()


def test_looks_that_fail_are_borne_for_a_while(start: Callable[..., Runs]) -> None:
    runs = start(faults={"describe_job": [error("ThrottlingException") for _ in range(9)]})
    assert len(runs().results.points) == 2


def test_what_cannot_be_cleaned_up_is_told_and_changes_nothing(start: Callable[..., Runs]) -> None:
    runs = start(faults={"delete_config": [error("AccessDeniedException")]})
    assert len(runs().results.points) == 2
    assert any(line.startswith("c=1: not deleted: workload config") for line in runs.told)


def test_a_conversation_with_a_history_is_refused_before_anything_starts(start: Callable[..., Runs]) -> None:
    said = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    runs = start()
    with pytest.raises(SpecError, match="not a single user message"):
        runs(workload=replace(WORKLOAD, items=(WorkItem("p", {"messages": said}), *ITEMS)))
    assert runs.cloud.calls == []
    assert not runs.path.exists()


def test_prompts_asked_again_are_told(start: Callable[..., Runs]) -> None:
    rows = [row(0), row(0, sent_s=1.0)]
    runs = start(output=lambda: archive(rows))
    plan = BenchPlan(LOADS[:1], seconds=60.0)
    notes = runs(plan=plan).notes
    assert "c=1: 1 requests repeated a prompt: the prefix cache may have sped them up" in notes


def test_the_price_is_told_before(start: Callable[..., Runs]) -> None:
    told = price_note(ARM, BenchPlan(LOADS, seconds=300.0))
    assert told.startswith(
        "2 AI benchmark jobs, about 30 minutes or more; the endpoint costs 18.00 USD in that time"
    )
    assert "AWS publishes no price" in told
    assert "unknown" in price_note(replace(ARM, usd_per_hour=None), PLAN)
    assert price_note(replace(ARM, usd_per_hour=0.0), PLAN).endswith("nothing is billed.")


def test_names_of_jobs_are_ones_that_aws_takes() -> None:
    long = replace(ARM, endpoint="e" * 40 + "-" * 3 + "e" * 20)
    name = job_name(long, LOADS[1], START, "0123456789")
    assert len(name) <= 63
    assert name.endswith("-r2p5-1120080000-012345")
    assert "--" not in name
