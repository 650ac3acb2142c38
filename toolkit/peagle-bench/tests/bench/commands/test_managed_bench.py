"""`peagle-sm bench --managed`: what it refuses, and the confirmation prompt with the price."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from peagle_bench.benchmark.endpoint_arm import Described
from peagle_bench.benchmark.plan import BenchPlan
from peagle_bench.commands.bench import run_managed
from peagle_bench.load import WorkItem
from peagle_bench.results.records import ArmRecord, Load
from peagle_bench.results.result_file import Outcome
from peagle_bench.workloads import Workload
from peagle_sm.cli.base import State
from peagle_sm.core.errors import Declined, SpecError
from tests.bench.managed.making import Cloud
from tests.bench.scheduled_server import scheduled_server
from tests.cli.running import run


def test_a_bare_server_is_not_for_a_managed_job() -> None:
    with scheduled_server() as server:
        done = run("bench", server.url, "--managed", "--prompts", "2", "--concurrency", "1")
    assert done.exit_code == 2
    assert "--managed measures only SageMaker endpoints, but a URL was given" in done.stderr


def test_options_that_a_job_cannot_honour_are_refused() -> None:
    cloud = Cloud()
    with pytest.raises(SpecError, match="--managed cannot be used with --ramp, --keep-text"):
        run_managed(
            State(),
            cloud.session(),
            Described(ArmRecord("e", "none", None, "e"), stand_in_weights=False),
            Workload("own", (), None, None, "own", 0),
            BenchPlan((Load("closed", concurrency=1),)),
            Path("unused.jsonl"),
            {"ramp": 5.0, "keep_text": True},
        )
    assert cloud.calls == []


def start(cloud: Cloud, folder: Path, state: State, *, yes: bool) -> Outcome:
    item = WorkItem("p", {"messages": [{"role": "user", "content": "prompt"}], "max_tokens": 8})
    return run_managed(
        state,
        cloud.session(),
        Described(ArmRecord("e", "none", None, "e", usd_per_hour=36.0), stand_in_weights=False),
        Workload("own", (item,), None, None, "own", 1),
        BenchPlan((Load("closed", concurrency=1),), requests=2),
        folder / "results.jsonl",
        {
            **{"ramp": 0.0, "keep_text": False, "resume": None, "yes": yes},
            **{"role_arn": "role", "s3_output": None, "tokenizer": "org/model"},
        },
    )


def test_without_a_terminal_and_without_yes_no_job_starts(tmp_path: Path) -> None:
    cloud = Cloud()
    with pytest.raises(SpecError, match=r"Cannot ask 'Start 1 AI benchmark job on e\?'") as refusal:
        start(cloud, tmp_path, State(stdin_is_tty=lambda: False), yes=False)
    assert "--yes" in (refusal.value.next_step or "")
    assert (cloud.calls, cloud.buckets, cloud.jobs) == ([], set(), {})


@pytest.mark.parametrize("answer", ["n", "", "sure"])
def test_the_price_is_shown_and_no_starts_no_job(answer: str, tmp_path: Path) -> None:
    cloud = Cloud()
    with CliRunner().isolation(input=f"{answer}\nn\n") as (_, errors, _), pytest.raises(Declined) as refusal:
        start(cloud, tmp_path, State(stdin_is_tty=lambda: True), yes=False)
    shown = errors.getvalue().decode()
    assert "1 AI benchmark job, about" in shown
    assert "(36.00 USD/h)" in shown
    assert "Start 1 AI benchmark job on e? [y/N]" in shown
    assert str(refusal.value) == "Not confirmed: no job was started."
    assert (cloud.calls, cloud.buckets, cloud.jobs) == ([], set(), {})
