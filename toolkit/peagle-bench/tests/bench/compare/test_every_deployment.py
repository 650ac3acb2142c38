"""What happens in a later deployment counts as much as in the first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from peagle_bench.compare.arms import demand_alike
from peagle_bench.compare.measurement import setup_of
from peagle_bench.load.points import separate_withheld, with_doubts
from peagle_bench.report.merging import missing
from peagle_bench.results.records import ClientHealth, Load
from peagle_bench.workloads import load_workload
from peagle_sm.core.errors import SpecError
from tests.bench.benchmark.making import described
from tests.bench.report import making

CREATED = making.compared()
(ROW, *_) = [row for row in CREATED.comparisons if not row.control and row.load.concurrency == 1]
SECOND = f"{ROW.faster}@2"
BOTH = replace(
    ROW,
    over="deployments",
    units=2,
    deployments=2,
    arms=(ROW.faster, SECOND, ROW.slower, f"{ROW.slower}@2"),
)
POINT = next(point for point in CREATED.points if (point.arm, point.load) == (ROW.faster, ROW.load))


def test_requests_that_failed_in_the_second_deployment_leave_no_verdict() -> None:
    failed = replace(POINT, arm=SECOND, requests=40, errors={"StreamError": 8})
    assert with_doubts([POINT, replace(POINT, arm=SECOND)], [BOTH])[0].doubt is None
    (row,) = with_doubts([POINT, failed], [BOTH])
    assert row.doubt == f"8 of 40 requests of {SECOND} failed"


def test_a_bottleneck_in_the_second_deployment_withholds_the_comparison() -> None:
    slow = ClientHealth(False, "requests waited for a free connection", 1.0, 0.2, None, True)
    separated = separate_withheld([POINT, replace(POINT, arm=SECOND, client=slow)], [BOTH])
    assert separated.comparisons == ()
    assert separated.withheld_comparisons == (BOTH,)


def test_a_second_deployment_that_stopped_early_is_reported() -> None:
    prompts = [f"p{number}" for number in range(40)]
    first = next(each for each in CREATED.requests if each.phase == "measured")
    requests = [
        replace(first, arm=arm, load=ROW.load, prompt_id=prompt, turn=0)
        for arm in BOTH.arms
        for prompt in (prompts[:3] if arm.endswith("@2") else prompts)
    ]
    config = {"deployments": 2, "workload": {"prompts": 40}}
    results = replace(
        CREATED,
        header=replace(CREATED.header, config=config),
        requests=tuple(requests),
        comparisons=(BOTH,),
    )
    assert missing(results) == "3 of 40 prompts"


@pytest.mark.parametrize("changed", [{"mode": "none"}, {"num_speculative_tokens": 5}])
def test_a_comma_between_two_arms_is_refused(changed: dict[str, Any]) -> None:
    demand_alike([described(), described()])
    other = described(**changed)
    with pytest.raises(SpecError, match="a comma joins deployments of the same arm"):
        demand_alike([described(), other])


def test_a_load_that_cannot_be_made_is_refused_before_anything_is_deployed() -> None:
    workload = load_workload("humaneval", max_tokens=16)
    with pytest.raises(SpecError, match="concurrency: found 2000; allowed: 1 to 1,024"):
        setup_of(workload, (1, 2000))
    assert setup_of(workload, (1, 8)).loads[1] == Load("closed", concurrency=8)
