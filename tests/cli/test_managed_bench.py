"""`peagle-sm bench --managed`: what it refuses before it asks anybody."""

from __future__ import annotations

from pathlib import Path

import pytest

from peagle_sm.cli.base import State
from peagle_sm.cli.commands.measuring.bench import run_managed
from peagle_sm.core.errors import SpecError
from peagle_sm.measure.benchmark.endpoint_arm import Described
from peagle_sm.measure.benchmark.plan import BenchPlan
from peagle_sm.measure.results.records import ArmRecord, Load
from peagle_sm.measure.workloads import Workload
from tests.cli.running import run
from tests.measure.managed.making import Cloud
from tests.measure.scheduled_server import scheduled_server


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
