"""The sweeper's present is AWS's own: neither the schedule's time nor this machine's clock."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from peagle_guard.boto_aws import BotoAws
from peagle_guard.sweeper import SweepFailed, run
from tests.guard.by_hand import HOUR, MINUTE, START, AwsByHand, arn_of
from tests.guard.simulator.people import SETTINGS
from tests.guard.test_boto_aws import Session


def dated(date: str | None) -> dict[str, object]:
    headers = {} if date is None else {"date": date}
    return {"Endpoints": [], "ResponseMetadata": {"HTTPHeaders": headers}}


def test_the_present_is_the_date_of_an_answer() -> None:
    session = Session()
    aws = BotoAws(SETTINGS, session)
    answer = dated("Mon, 16 Nov 2026 08:00:00 GMT")
    session.stubs["sagemaker"].add_response("list_endpoints", answer, {"MaxResults": 1})
    assert aws.time() == START


@pytest.mark.parametrize("date", [None, "soon"])
def test_without_a_date_it_is_this_machine_s_clock(date: str | None) -> None:
    session = Session()
    aws = BotoAws(SETTINGS, session)
    session.stubs["sagemaker"].add_response("list_endpoints", dated(date), {"MaxResults": 1})
    before = datetime.now(UTC)
    assert before <= aws.time() <= datetime.now(UTC)


@pytest.mark.parametrize("late", [3, 5, 8])
def test_a_late_sweep_sees_the_traffic_that_came_since_its_scheduled_time(late: int) -> None:
    """Its event still says the end of the grace; the traffic since then is in CloudWatch already."""
    aws = AwsByHand()
    aws.add(age=3 * HOUR, idle_minutes="15", max_lifetime_hours="100")
    created_at = aws.view("chat").created_at
    aws.register.write(
        "chat",
        arn=arn_of("chat"),
        created_at=created_at,
        spent_at=created_at,
        first_in_service_at=created_at,
        quiet_since=START - 25 * MINUTE,
        marked_at=START - 10 * MINUTE,
    )
    aws.now = START + late * MINUTE
    aws.serve("chat", START, START + MINUTE)
    report = run(aws, SETTINGS, {"time": START.isoformat()})
    assert report["time"] == aws.now.isoformat()
    assert [row["action"] for row in report["endpoints"]] == ["unmark"]
    assert aws.deeds == []


def test_a_fault_fails_the_sweep_at_its_end_but_not_a_dry_run() -> None:
    aws = AwsByHand()
    for dry_run in (False, True):
        aws.faults["GetResources"] = [RuntimeError("no")]
        if dry_run:
            assert run(aws, SETTINGS, {"dry_run": True})["faults"] == ["GetResources: RuntimeError: no"]
        else:
            with pytest.raises(SweepFailed, match="GetResources"):
                run(aws, SETTINGS, {})
