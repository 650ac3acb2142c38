"""What `keep` promised outlasts a pause and an update: schedule, register, guard and status agree."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from peagle_guard import records, register
from peagle_guard.decide import decide, expires_at, track
from peagle_guard.records import Endpoint as Seen
from peagle_guard.records import Evidence, Kind
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import PeagleError
from peagle_sm.core.planning import Plan, at_most
from peagle_sm.service import Event, Pacing, deploy, keep, list_endpoints, pause, resume, update
from tests.service.account import Account
from tests.service.aws_errors import denied
from tests.service.setting import ROLE, make_spec

SCHEDULE = "peagle-demo-lifetime"
HOUR = timedelta(hours=1)


def _until(aws: Account) -> datetime:
    """The end of the lease of `_kept`."""
    return aws.start + 20 * HOUR


def _swept(aws: Account) -> None:
    """What a sweep of the guard writes about the endpoint, by the guard's own code."""
    item = aws.item()
    record, now = register.read(item), aws.now()
    if aws.status() is None:
        lifecycle = records.lifecycle_from_tags(record.tags)
        record = decide(None, lifecycle, record, Evidence(Kind.UNKNOWN), now).record
    else:
        lifecycle = records.lifecycle_from_tags(aws.tags("endpoint", "demo"))
        record = track(_seen(aws.created()), lifecycle, record, now)
    written = register.written(record, now)
    kept = {key: value for key, value in item.items() if key != "pk" and key not in written}
    values = {key: value for key, value in written.items() if value is not None}
    aws.note(**{**kept, **values, "version": {"N": str(record.version + 1)}})


def _seen(created: datetime) -> Seen:
    return Seen("demo", "arn", created, created, "InService", config_name="c", variants=("AllTraffic",))


def _ends(aws: Account, session: Session) -> datetime:
    """The one end of the endpoint's life, by everybody who knows one."""
    record = register.read(aws.item())
    lifecycle = records.lifecycle_from_tags(aws.tags("endpoint", "demo"))
    seen = _seen(aws.created())
    guards = expires_at(seen.created_at, lifecycle, track(seen, lifecycle, record, aws.now()))
    armed: datetime = aws.schedule()["StartDate"]
    (shown,) = list_endpoints(session)
    assert shown.expires_at == armed
    # The guard counts from the creation, which comes some minutes after the arming.
    assert timedelta(0) <= guards - armed < timedelta(minutes=10)
    return armed


def _kept(aws: Account, length: timedelta = 20 * HOUR) -> Session:
    session = aws.session()
    deploy(make_spec(), session=session, pacing=aws.pacing())
    _swept(aws)
    keep("demo", length - timedelta(seconds=aws.seconds), session=session, pacing=aws.pacing())
    _at(aws, 1)
    return session


def _at(aws: Account, hours: int) -> None:
    """Let time pass until so many hours after the start."""
    aws.sleep(hours * 3600 - aws.seconds)


@pytest.mark.parametrize("sweeps", [0, 1, 2, 3])
def test_a_kept_endpoint_that_is_paused_and_resumed_lives_to_the_end_of_its_lease(
    aws: Account, pacing: Pacing, sweeps: int
) -> None:
    session = _kept(aws)
    pause("demo", session=session, pacing=pacing)
    if sweeps & 1:
        _swept(aws)
    _at(aws, 3)

    def seen(event: Event) -> None:
        if sweeps & 2 and event.phase == "waiting":
            _swept(aws)

    offer = resume("demo", session=session, pacing=pacing, progress=seen)
    assert offer.expires_at == _until(aws)
    assert offer.max_usd == pytest.approx(4.2 * 17, rel=0.01)
    assert _ends(aws, session) == _until(aws)
    _swept(aws)
    assert _ends(aws, session) == _until(aws)
    assert list_endpoints(session)[0].keep_until == _until(aws)


def test_a_lease_that_ends_before_the_new_lifetime_changes_nothing(aws: Account, pacing: Pacing) -> None:
    session = _kept(aws, 9 * HOUR)
    pause("demo", session=session, pacing=pacing)
    _swept(aws)
    _at(aws, 3)
    resume("demo", session=session, pacing=pacing)
    assert aws.start + 11 * HOUR <= _ends(aws, session) < aws.start + 11.1 * HOUR


def _in_place(session: Session, pacing: Pacing) -> None:
    update(make_spec(lifecycle={"idle_minutes": 45}), session=session, pacing=pacing)


def _off_and_on(session: Session, pacing: Pacing) -> None:
    spec = make_spec(speculation={"num_speculative_tokens": 2})
    update(spec, session=session, pacing=pacing, strategy="off-update-on")


def _deployed_again(session: Session, pacing: Pacing) -> None:
    pause("demo", session=session, pacing=pacing)
    deploy(make_spec(), session=session, pacing=pacing)


@pytest.mark.parametrize("act", [_in_place, _off_and_on, _deployed_again])
@pytest.mark.parametrize("length", [20 * HOUR, 2 * HOUR])
def test_an_update_or_a_deploy_ends_at_the_later_of_both(
    aws: Account, pacing: Pacing, act: Callable[[Session, Pacing], None], length: timedelta
) -> None:
    session = _kept(aws, length)
    act(session, pacing)
    ends = _ends(aws, session)
    if length == 20 * HOUR:
        assert ends == _until(aws)
    else:
        assert aws.start + 9 * HOUR <= ends < aws.start + 9.1 * HOUR
    _swept(aws)
    assert _ends(aws, session) == ends


@pytest.mark.parametrize(("length", "hours"), [(20 * HOUR, 19), (2 * HOUR, 8)])
def test_a_deploy_over_a_pause_shows_the_price_until_the_later_end(
    aws: Account, pacing: Pacing, length: timedelta, hours: int
) -> None:
    session = _kept(aws, length)
    pause("demo", session=session, pacing=pacing)
    shown: list[Plan] = []

    def see(plan: Plan) -> bool:
        shown.append(plan)
        return True

    deploy(make_spec(), session=session, pacing=pacing, confirm=see)
    assert shown[0].max_usd == pytest.approx(4.2 * hours, rel=0.01)
    promised = f"until {_until(aws):%Y-%m-%d %H:%M} UTC, the end of its lease"
    assert (promised if hours == 19 else "in its lifetime of 8 h") in at_most(shown[0])


def test_a_shorter_lifetime_without_a_lease_holds_after_an_update(aws: Account, pacing: Pacing) -> None:
    session = aws.session()
    deploy(make_spec(lifecycle={"max_lifetime_hours": 48}), session=session, pacing=pacing)
    _swept(aws)
    update(make_spec(lifecycle={"max_lifetime_hours": 3}), session=session, pacing=pacing)
    _swept(aws)
    assert _ends(aws, session) < aws.start + 3.1 * HOUR


def _denied(aws: Account) -> None:
    items = ("GetItem", "UpdateItem", "PutItem", "DeleteItem", "Scan")
    aws.before = lambda operation: denied(operation) if operation in items else None


def test_who_may_not_use_the_register_pauses_and_resumes_all_the_same(aws: Account, pacing: Pacing) -> None:
    """Nothing is left half paused, and nothing that serves ends in an error."""
    session = aws.session()
    deploy(make_spec(), session=session, pacing=pacing)
    _denied(aws)
    events: list[Event] = []
    pause("demo", session=session, pacing=pacing, progress=events.append)
    assert aws.status() is None
    resume("demo", session=session, pacing=pacing, progress=events.append)
    assert aws.status() == "InService"
    assert aws.schedule()["Target"]["RoleArn"] == ROLE
    lines = [event.message for event in events if "could not write the guard's register" in event.message]
    assert len(lines) == 2
    assert "UpdateItem" in lines[0] or "GetItem" in lines[0]


def test_an_update_that_is_done_ends_the_pause_that_the_register_still_has(
    aws: Account, pacing: Pacing
) -> None:
    """The caller lost the permission between the pause and the end of the first update."""
    session = aws.session()
    deploy(make_spec(), session=session, pacing=pacing)
    items = ("GetItem", "UpdateItem")
    aws.before = lambda operation: (
        denied(operation) if operation in items and "DeleteEndpoint" in aws.calls else None
    )
    _off_and_on(session, pacing)
    assert aws.item()["paused"] == {"BOOL": True}
    aws.before = lambda operation: None
    _off_and_on(session, pacing)
    assert aws.item()["paused"] == {"BOOL": False}


def test_who_may_not_use_the_register_ends_an_interrupted_pause(aws: Account, pacing: Pacing) -> None:
    """The second `pause` removes the schedule that the first one has left."""
    session = aws.session()
    deploy(make_spec(), session=session, pacing=pacing)
    _denied(aws)
    pause("demo", session=session, pacing=pacing)
    target = "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint"
    aws.put_schedule(SCHEDULE, target, {"EndpointName": "demo"})
    events: list[Event] = []
    report = pause("demo", session=session, pacing=pacing, progress=events.append)
    assert report.was_off
    assert not aws.schedules()
    assert [event for event in events if "could not write the guard's register" in event.message]


@pytest.mark.parametrize(
    "item",
    [
        {"version": {"N": "0.5"}},
        {"version": {"S": "seven"}},
        {"version": {"N": "-3"}},
        {"version": {"N": "2"}, "keep_until": {"S": "2026-01-01T00:00:00"}, "expires_at": {"S": "2026"}},
        {"version": {"N": "2"}, "off_at": {"S": "2026-01-01"}, "paused": {"S": "no"}},
    ],
)
def test_what_cannot_be_read_in_the_register_breaks_no_command(
    aws: Account, pacing: Pacing, item: dict[str, Any]
) -> None:
    session = aws.session()
    deploy(make_spec(), session=session, pacing=pacing)
    aws.note(**item)
    assert list_endpoints(session)[0].status == "InService"
    lease = keep("demo", 20 * HOUR, session=session, pacing=pacing)
    assert list_endpoints(session)[0].keep_until == lease.keep_until
    pause("demo", session=session, pacing=pacing)
    assert resume("demo", session=session, pacing=pacing).expires_at == lease.keep_until


def test_who_may_not_use_the_register_keeps_nothing(aws: Account, pacing: Pacing) -> None:
    """The guard would not know of the lease: better an error, and nothing changed."""
    session = aws.session()
    deploy(make_spec(), session=session, pacing=pacing)
    before = aws.schedule()["StartDate"]
    _denied(aws)
    with pytest.raises(PeagleError):
        keep("demo", 20 * HOUR, session=session, pacing=pacing)
    assert aws.schedule()["StartDate"] == before


def test_who_may_not_remove_tags_resumes_all_the_same(aws: Account, pacing: Pacing) -> None:
    """The endpoint serves, so the resume raises nothing; a second one finds it on."""
    session = aws.session()
    deploy(make_spec(), session=session, pacing=pacing)
    pause("demo", session=session, pacing=pacing)
    aws.before = lambda operation: denied(operation) if operation == "DeleteTags" else None
    events: list[Event] = []
    assert not resume("demo", session=session, pacing=pacing, progress=events.append).is_on
    assert aws.status() == "InService"
    assert [event for event in events if "still has the tags of the pause" in event.message]
    assert aws.item()["paused"] == {"BOOL": False}
    assert resume("demo", session=session, pacing=pacing).is_on


@pytest.mark.parametrize("operation", ["DescribeModel", "ListModels", "ListEndpointConfigs"])
def test_what_only_describes_an_endpoint_blocks_no_pause(
    aws: Account, pacing: Pacing, operation: str
) -> None:
    session = aws.session()
    deploy(make_spec(), session=session, pacing=pacing)
    aws.before = lambda called: denied(called) if called == operation else None
    pause("demo", session=session, pacing=pacing)
    assert aws.status() is None
