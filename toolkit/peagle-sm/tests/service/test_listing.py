"""What list, status and logs say."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import ServiceFault
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import (
    Pacing,
    ResumeOffer,
    deletable,
    deploy,
    list_endpoints,
    logs,
    pause,
    plan_for,
    resume,
    status,
)
from tests.service.account import Account
from tests.service.aws_errors import denied, throttled


def test_a_row_tells_what_runs_what_it_costs_and_when_it_ends(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    deploy(spec, session=session, pacing=pacing)
    aws.sleep(3600 - 60)
    (row,) = list_endpoints(session)
    assert (row.name, row.status, row.managed, row.mode) == ("demo", "InService", True, "p-eagle")
    assert (row.num_speculative_tokens, row.instance_type, row.instance_count) == (3, "ml.g7e.2xlarge", 1)
    assert (row.age_s, row.usd_per_hour) == (pytest.approx(3600, rel=0.02), 4.2)
    assert row.spent_usd == pytest.approx(4.2, rel=0.02)
    expires_at = aws.start + timedelta(hours=8)
    assert row.expires_at == expires_at
    assert (row.idle_minutes, row.grace_minutes) == (60, 10)
    assert json.loads(json.dumps(row.to_dict()))["expires_at"] == expires_at.isoformat()


def test_a_price_that_is_an_upper_bound_says_so_in_the_tag_and_in_every_row(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    """EC2's price of a B200 is known, SageMaker's is not."""
    dear = spec.model_copy(
        update={
            "placement": spec.placement.model_copy(update={"instance_types": ["ml.p6-b200.48xlarge"]}),
            "serving": spec.serving.model_copy(update={"data_parallel_size": 8}),
        }
    )
    plan = plan_for(dear, session)
    assert plan.price_at_most
    assert plan.tags()["peagle-sm:price-bound"] == "at-most"
    assert "peagle-sm:price-bound" not in plan_for(spec, session).tags()
    deploy(dear, session=session, pacing=pacing)
    (row,) = list_endpoints(session)
    assert (row.price_at_most, row.usd_per_hour) == (True, pytest.approx(142.416))
    assert status("demo", session=session).summary.price_at_most
    (going,) = deletable(["demo"], session=session)
    assert going.price_at_most
    pause("demo", session=session, pacing=pacing)
    offers: list[ResumeOffer] = []

    def confirm(offer: ResumeOffer) -> bool:
        offers.append(offer)
        return True

    resume("demo", session=session, pacing=pacing, confirm=confirm)
    assert offers[0].price_at_most


def test_foreign_endpoints_are_listed_only_when_asked_for(aws: Account, session: Session) -> None:
    aws.foreign("theirs")
    assert list_endpoints(session) == []
    (row,) = list_endpoints(session, everything=True)
    assert (row.name, row.managed, row.usd_per_hour) == ("theirs", False, None)


def test_status_compares_the_config_asked_for_with_the_one_that_runs(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    endpoint = deploy(spec, session=session, pacing=pacing)
    result = endpoint.status()
    assert result.config_name == result.config_asked
    assert result.speculative_config is not None
    assert result.speculative_config["parallel_drafting"] is True
    assert result.warnings == ()
    described = aws.endpoint()
    assert described is not None
    aws.before = lambda operation: (
        {**described, "EndpointConfigName": "demo-before"} if operation == "DescribeEndpoint" else None
    )
    aws.remove_schedules()
    result = endpoint.status()
    assert [warning.split(":")[0] for warning in result.warnings] == [
        f"runs config demo-before, expected {result.config_asked}",
        "it has no lifetime schedule",
    ]
    json.dumps(result.to_dict())


def test_status_of_a_limit_that_is_over_warns(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    endpoint = deploy(spec, session=session, pacing=pacing)
    aws.seconds += 9 * 3600  # the schedule has fired, and nothing came of it
    assert "lifetime schedule has ended" in endpoint.status().warnings[0]


@pytest.mark.parametrize("seconds", [0, 3600])
def test_status_warns_where_cloudwatch_does_not_show_requests_in_flight(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing, seconds: int
) -> None:
    """What the guard noted of an older endpoint of the name does not count."""
    endpoint = deploy(spec, session=session, pacing=pacing)
    created = endpoint.status().summary.created_at
    assert created is not None
    created -= timedelta(seconds=seconds)
    aws.note(created_at={"S": created.isoformat()}, streams_hidden={"BOOL": True})
    warning = (
        "CloudWatch has no metric of its requests in flight. The guard detects a stream longer than the "
        "grace period (10 minutes) only by GPU use: set lifecycle.grace_minutes above your longest stream"
    )
    assert endpoint.status().warnings == (() if seconds else (warning,))


def test_status_counts_the_instances_that_run_now_and_list_says_what_the_tags_say(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    endpoint = deploy(spec, session=session, pacing=pacing)
    described = aws.endpoint()
    assert described is not None
    variants = [{**described["ProductionVariants"][0], "CurrentInstanceCount": 3}]
    aws.before = lambda operation: (
        {**described, "ProductionVariants": variants} if operation == "DescribeEndpoint" else None
    )
    seen = endpoint.status().summary
    assert (seen.instance_count, seen.usd_per_hour) == (3, pytest.approx(12.6))
    (row,) = list_endpoints(session)
    assert (row.instance_count, row.instance_bounds) == (1, None)


def test_following_shows_the_tail_and_then_only_what_is_new(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    deploy(spec, session=session, pacing=pacing)
    aws.write_log(*(f"old {number}" for number in range(12)))  # all within the overlap, and of one moment
    assert [line.message for line in logs("demo", session=session, limit=2)] == ["old 10", "old 11"]
    answer = logs("demo", session=session, follow=True, limit=3, pacing=pacing)
    assert [next(answer).message for _ in range(3)] == ["old 9", "old 10", "old 11"]
    aws.write_log("new 0", "new 1", "new 2")
    assert {next(answer).message for _ in range(3)} == {"new 0", "new 1", "new 2"}
    aws.write_log("new 3")
    aws.remove_endpoint()
    assert [line.message for line in answer] == ["new 3"]


@pytest.mark.parametrize(
    ("operation", "fault", "note"),
    [
        ("Scan", throttled, "Scan: Rate exceeded; without the guard's register"),
        ("GetSchedule", denied, "GetSchedule: not authorized"),
    ],
)
def test_a_part_that_cannot_be_read_hides_no_list(
    aws: Account,
    session: Session,
    spec: EndpointSpec,
    pacing: Pacing,
    operation: str,
    fault: Callable[[str], BaseException],
    note: str,
) -> None:
    deploy(spec, session=session, pacing=pacing)
    aws.before = lambda called: fault(called) if called == operation else None
    notes: list[str] = []
    (row,) = list_endpoints(session, note=notes.append)
    assert (row.name, row.status, row.expires_at is None) == ("demo", "InService", operation != "Scan")
    assert [each.startswith(note) for each in notes] == [True]


def test_a_register_that_is_throttled_hides_no_status(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    endpoint = deploy(spec, session=session, pacing=pacing)
    aws.before = lambda operation: throttled(operation) if operation == "GetItem" else None
    result = endpoint.status()
    assert result.summary.status == "InService"
    assert result.warnings == (
        "the guard's register could not be read (GetItem: Rate exceeded): no lease of `keep` is shown",
    )
    # Without an endpoint only the register knows whether the guard turned it off.
    aws.remove_endpoint()
    with pytest.raises(ServiceFault, match="GetItem: Rate exceeded"):
        endpoint.status()


def test_who_may_not_list_models_reads_the_status(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    endpoint = deploy(spec, session=session, pacing=pacing)
    refused = {"ListModels", "ListEndpointConfigs"}
    aws.before = lambda operation: denied(operation) if operation in refused else None
    assert endpoint.status().summary.num_speculative_tokens == 3
