"""One endpoint's life under the sweep, from the first mark to the after-notice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from peagle_guard.aws import Unanswered
from peagle_guard.looking import Report, ReportEntry
from peagle_guard.sweeper import sweep
from tests.guard.fake_aws import MINUTE, SETTINGS, START, FakeAws

HOUR = timedelta(hours=1)


def at(minutes: float) -> datetime:
    return START + minutes * MINUTE


def run(aws: FakeAws, minutes: float, *, dry_run: bool = False) -> Report:
    aws.now = at(minutes)
    report = sweep(aws, SETTINGS, aws.now, dry_run)
    assert report.failures == ()
    return report


def entry(report: Report, name: str = "chat") -> ReportEntry:
    return next(each for each in report.endpoints if each.name == name)


def idle(**tags: str) -> FakeAws:
    aws = FakeAws()
    aws.add("chat", age=2 * HOUR, idle_minutes="30", grace_minutes="10", max_lifetime_hours="8", **tags)
    aws.idle_points("chat", START - 2 * HOUR, START + 2 * HOUR)
    return aws


def test_an_idle_endpoint_is_marked_told_looked_at_again_and_turned_off_through_its_stack() -> None:
    aws = idle(stack="Peagle-chat")
    assert entry(run(aws, 0)).action == "mark"
    assert [subject for _, subject, _ in aws.notices] == ["peagle-sm: chat is idle and will be turned off"]
    assert "peagle-sm keep chat 2h" in aws.notices[0][2]
    assert "2026-11-16 08:10 UTC" in aws.notices[0][2]
    assert entry(run(aws, 5)).action == "none"
    assert entry(run(aws, 10)).action == "turn-off"
    assert aws.deeds == [(at(10), "stack-off", "Peagle-chat")]
    assert entry(run(aws, 15)).status == "Gone"
    assert [subject for _, subject, _ in aws.notices][1:] == ["peagle-sm: chat is off (idle)"]
    assert "peagle-sm resume chat" in aws.notices[1][2]
    run(aws, 20)
    assert len(aws.notices) == 2


def test_an_endpoint_without_a_stack_is_deleted_itself_and_its_schedule_only_once_it_is_gone() -> None:
    aws = idle()
    aws.schedules = {"peagle-chat-lifetime": START + 6 * HOUR - MINUTE}
    for minutes in (0, 5, 10):
        run(aws, minutes)
    assert aws.deeds == [(at(10), "delete", "chat")]
    assert aws.schedules
    run(aws, 15)
    assert aws.schedules == {}


def test_a_longer_idle_time_needs_a_mark_of_its_own() -> None:
    aws = idle()
    run(aws, 0)
    aws.endpoints["chat"].tags["peagle-sm:idle-minutes"] = "45"
    assert [entry(run(aws, minutes)).action for minutes in (5, 10, 15)] == ["mark", "none", "turn-off"]


def test_a_schedule_that_was_armed_for_the_next_life_is_left_alone() -> None:
    aws = idle()
    for minutes in (0, 5, 10):
        run(aws, minutes)
    aws.schedules = {"peagle-chat-lifetime": at(14) + 8 * HOUR}
    run(aws, 15)
    assert aws.schedules


@pytest.mark.parametrize("arrives", range(1, 10))
def test_traffic_within_the_grace_keeps_it(arrives: int) -> None:
    aws = idle()
    run(aws, 0)
    aws.traffic_points("chat", at(arrives), at(arrives + 1))
    run(aws, 5)
    run(aws, 10)
    assert aws.deeds == []
    assert aws.register.records["chat"].marked_at is None


def test_it_is_not_turned_off_before_the_metrics_reach_the_end_of_the_grace() -> None:
    aws = idle()
    run(aws, 0)
    for minute in range(8, 20):
        for series in aws.points.values():
            series.pop(at(minute), None)
    assert entry(run(aws, 10)).reason == "the metrics do not yet cover the grace period"
    aws.traffic_points("chat", at(9), at(10))
    aws.idle_points("chat", at(10), at(20))
    assert entry(run(aws, 15)).action == "unmark"
    assert aws.deeds == []


def test_a_lease_holds_off_idleness_and_clears_the_mark() -> None:
    aws = idle()
    run(aws, 0)
    aws.register.write("chat", keep_until=at(60))
    assert entry(run(aws, 10)).action == "unmark"
    assert entry(run(aws, 55)).action == "none"
    assert entry(run(aws, 60)).action == "mark"


def test_a_dry_run_writes_nothing_and_does_nothing() -> None:
    aws = idle()
    assert entry(run(aws, 0, dry_run=True)).action == "mark"
    assert (aws.register.records, aws.notices, aws.deeds, aws.calls["Lock"]) == ({}, [], [], 0)


def test_a_second_sweep_at_the_same_time_is_left_out() -> None:
    aws = idle()
    aws.register.lock_until(at(1))
    assert run(aws, 0).skipped == "another sweep is running"
    aws.register.lock_until(at(0))
    assert run(aws, 0).skipped is None


# --- the timetable ------------------------------------------------------------------------------------


def test_a_days_timetable_through_the_stack() -> None:
    """Off at 19:00 with a notice before, on at 08:00 once, and not again after it idled off."""
    aws = FakeAws()
    aws.add(
        "chat",
        hours="Mon-Fri 08:00-19:00 UTC",
        idle_minutes="30",
        max_lifetime_hours="100",
        stack="Peagle-chat",
    )
    done: list[tuple[str, str]] = []
    for minutes in range(0, 48 * 60, 5):
        now = at(minutes)
        if minutes == 24 * 60 + 10:
            aws.change("chat", status="InService", modified_at=now)
        if now.day == START.day:
            aws.traffic_points("chat", now - 5 * MINUTE, now)
        else:
            aws.idle_points("chat", now - 5 * MINUTE, now)
        run(aws, minutes)
        done += [(f"{when:%a %H:%M}", what) for when, what, _ in aws.deeds]
        aws.deeds.clear()
    assert done == [("Mon 19:10", "stack-off"), ("Tue 08:00", "stack-on"), ("Tue 08:50", "stack-off")]
    subjects = [
        f"{when:%a %H:%M} {subject.removeprefix('peagle-sm: chat ')}" for when, subject, _ in aws.notices
    ]
    assert subjects == [
        "Mon 18:30 will be turned off (hours)",
        "Mon 19:15 is off (hours)",
        "Tue 08:40 is idle and will be turned off",
        "Tue 08:55 is off (idle)",
    ]


def test_an_endpoint_without_a_stack_is_woken_by_the_lifetime_function() -> None:
    aws = FakeAws()
    aws.add("chat", hours="Mon-Fri 08:00-19:00 UTC", max_lifetime_hours="100")
    for minutes in (0, 11 * 60, 11 * 60 + 5, 24 * 60, 24 * 60 + 5):
        run(aws, minutes)
    assert [what for _, what, _ in aws.deeds] == ["delete", "create"]
    assert aws.invoked[-1][2] == {
        "action": "wake",
        "endpoint": "chat",
        "config": "chat-1",
        "time": at(24 * 60).isoformat(),
    }
    # A name that somebody pauses by hand stays off.
    aws.change("chat", status="InService")
    for minutes in (35 * 60, 35 * 60 + 5):
        run(aws, minutes)
    aws.register.write("chat", paused=True)
    run(aws, 48 * 60)
    assert [what for _, what, _ in aws.deeds] == ["delete", "create", "delete"]


def test_waking_that_fails_is_told_after_the_third_try() -> None:
    aws = FakeAws()
    aws.add("chat", hours="Mon-Fri 08:00-19:00 UTC", stack="Peagle-chat", max_lifetime_hours="100")
    for minutes in (0, 11 * 60, 11 * 60 + 5):
        run(aws, minutes)
    aws.stacks["Peagle-chat"] = replace(aws.stacks["Peagle-chat"], status="UPDATE_ROLLBACK_FAILED")
    failures: list[str] = []
    for minutes in range(24 * 60, 25 * 60, 5):
        aws.now = at(minutes)
        failures += sweep(aws, SETTINGS, aws.now).failures
    assert len(failures) == 3
    assert "Peagle-chat is UPDATE_ROLLBACK_FAILED" in failures[0]
    assert aws.notices[-1][1] == "peagle-sm: chat could not be turned on"


@pytest.mark.parametrize("paused", [False, True])
def test_what_is_known_of_a_destroyed_stack_is_forgotten_within_an_hour(paused: bool) -> None:
    aws = FakeAws()
    aws.add("chat", stack="Peagle-chat", hours="Mon-Fri 08:00-19:00 UTC")
    run(aws, 0)
    aws.register.write("chat", paused=paused)
    del aws.endpoints["chat"], aws.stacks["Peagle-chat"]
    for minutes in range(5, 65, 5):
        run(aws, minutes)
        assert "chat" in aws.register.records
    assert aws.calls["DescribeStacks"] == 0
    assert entry(run(aws, 65, dry_run=True)).action == "forget"
    assert "chat" in aws.register.records
    forgotten = entry(run(aws, 65))
    assert forgotten.reason == "off, and Peagle-chat does not exist any more"
    assert aws.register.records == {}
    assert run(aws, 70).endpoints == ()


def test_a_stack_that_stands_is_asked_for_once_an_hour_and_its_record_stays() -> None:
    aws = FakeAws()
    aws.add("chat", stack="Peagle-chat")
    run(aws, 0)
    aws.register.write("chat", paused=True)
    del aws.endpoints["chat"]
    for minutes in range(5, 5 * 60, 5):
        run(aws, minutes)
    assert aws.calls["DescribeStacks"] == 4
    assert aws.register.records["chat"].paused


def test_a_destroyed_stack_is_not_woken_by_its_timetable() -> None:
    aws = FakeAws()
    aws.add("chat", hours="Mon-Fri 08:00-19:00 UTC", stack="Peagle-chat", max_lifetime_hours="100")
    for minutes in (0, 11 * 60, 11 * 60 + 5):
        run(aws, minutes)
    aws.stacks.clear()
    request = len(aws.invoked)
    assert entry(run(aws, 24 * 60)).action == "forget"
    assert (len(aws.invoked), aws.register.records) == (request, {})


def test_whoever_writes_meanwhile_keeps_the_record() -> None:
    aws = FakeAws()
    aws.add("chat", stack="Peagle-chat")
    run(aws, 0)
    del aws.endpoints["chat"], aws.stacks["Peagle-chat"]
    run(aws, 5)
    aws.hook = lambda name: aws.register.write("chat", paused=True) if name == "DescribeStacks" else None
    assert entry(run(aws, 65)).action == "none"
    assert aws.register.records["chat"].paused


def test_a_limit_that_somebody_moved_leaves_no_trace() -> None:
    aws = FakeAws()
    aws.add("chat", age=2 * HOUR, max_lifetime_hours="2", stack="Peagle-chat")
    aws.stacks["Peagle-chat"] = replace(aws.stacks["Peagle-chat"], status="UPDATE_IN_PROGRESS")
    assert entry(run(aws, 0)).action == "turn-off"
    aws.register.write("chat", keep_until=at(60), expires_at=at(60))
    assert entry(run(aws, 5)).action == "none"
    assert aws.register.records["chat"].off_by is None


def test_an_idle_endpoint_whose_tag_names_another_stack_ends_itself_and_not_that_stack() -> None:
    """The busy endpoint `work` and its stack go on; `chat`, which is idle, goes."""
    aws = idle()
    aws.add("work", age=2 * HOUR, stack="Peagle-work")
    aws.traffic_points("work", START - 2 * HOUR, START + 2 * HOUR)
    aws.endpoints["chat"].tags["peagle-sm:stack"] = "Peagle-work"
    failures: list[str] = []
    for minutes in (0, 5, 10, 15):
        aws.now = at(minutes)
        failures += sweep(aws, SETTINGS, aws.now).failures
    assert aws.deeds == [(at(10), "delete", "chat")]
    assert aws.stacks["Peagle-work"].parameters["EndpointState"] == "on"
    assert list(aws.endpoints) == ["work"]
    assert "tag peagle-sm:stack: found 'Peagle-work'; allowed: 'Peagle-chat'" in failures[0]


def test_traffic_that_is_shown_while_the_stack_takes_the_endpoint_does_not_hide_the_reason() -> None:
    """CloudFormation accepted the update; it deletes the endpoint some minutes later all the same."""
    aws = idle(stack="Peagle-chat")
    for minutes in (0, 5, 10):
        run(aws, minutes)
    aws.change("chat", status="InService")
    aws.endpoints["chat"].gone_at = at(18)
    aws.traffic_points("chat", at(11), at(14))
    assert entry(run(aws, 15)).action == "unmark"
    run(aws, 20)
    record = aws.register.records["chat"]
    assert (record.off_by, record.off_at) == ("idle", at(10))
    assert [subject for _, subject, _ in aws.notices][-1] == "peagle-sm: chat is off (idle)"


def test_a_turn_off_that_came_to_nothing_is_forgotten_after_half_an_hour() -> None:
    aws = idle(stack="Peagle-chat")
    for minutes in (0, 5, 10):
        run(aws, minutes)
    aws.change("chat", status="InService")
    aws.endpoints["chat"].gone_at = None
    aws.traffic_points("chat", at(11), at(60))
    for minutes in range(15, 45, 5):
        run(aws, minutes)
    record = aws.register.records["chat"]
    assert (record.off_by, record.off_at) == (None, None)


def test_the_register_knows_since_when_the_metrics_prove_nothing() -> None:
    aws = idle()
    for metric in ("Invocations", "ConcurrentRequestsPerModel"):
        aws.points[("chat", metric)].pop(at(-10))
    run(aws, 0)
    run(aws, 5)
    assert aws.register.records["chat"].unknown_since == START
    aws.traffic_points("chat", at(6), at(8))
    run(aws, 10)
    assert aws.register.records["chat"].unknown_since is None


def test_a_switch_that_hangs_for_some_endpoints_does_not_starve_the_others() -> None:
    """Each unanswered call takes a minute of the sweep's four: two at most, and the untried come first."""
    aws = FakeAws()
    for name in ("a", "b", "c", "d"):
        aws.add(name, age=3 * HOUR, max_lifetime_hours="2")
    hangs = {"a", "b", "c"}
    tried: list[list[str]] = []

    def invoke(function: str, event: Mapping[str, Any]) -> Mapping[str, Any]:
        tried[-1].append(event["endpoint"])
        if event["endpoint"] in hangs:
            raise Unanswered("peagle-guard-switch: Read timeout")
        return FakeAws.invoke(aws, function, event)

    aws.invoke = invoke  # type: ignore[method-assign]
    for minutes in range(0, 25, 5):
        tried.append([])
        aws.now = at(minutes)
        failures = sweep(aws, SETTINGS, aws.now).failures
        assert sum("Unanswered" in each for each in failures) == 2
    assert tried[0] == ["a", "b"]
    assert tried[1][:3] == ["c", "d", "a"]
    assert "d" not in aws.endpoints
    turns = Counter(name for each in tried for name in each)
    assert min(turns[name] for name in hangs) >= 2, "what hangs is tried in turn"


def test_an_endpoint_about_which_nothing_can_be_decided_does_not_end_the_sweep() -> None:
    aws = idle()
    aws.add("far", age=HOUR)
    aws.endpoints["far"].view = replace(
        aws.endpoints["far"].view, created_at=datetime.max.replace(tzinfo=UTC)
    )
    report = sweep(aws, SETTINGS, START)
    assert entry(report, "chat").action == "mark"
    assert "OverflowError" in entry(report, "far").faults[0]
