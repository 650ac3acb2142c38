"""One endpoint's life under the sweep, from the first mark to the after-notice."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from peagle_guard.looking import Report, ReportEntry
from peagle_guard.sweeper import SweepFailed, sweep
from peagle_guard.sweeper import run as handle
from tests.guard.by_hand import HOUR, MINUTE, START, AwsByHand, arn_of, interval, set_up
from tests.guard.simulator.fake_services.cloudwatch import FOREVER
from tests.guard.simulator.fake_services.fake_aws import moment, seconds
from tests.guard.simulator.people import SETTINGS
from tests.guard.simulator.worlds.world import Hang


def at(minutes: float) -> datetime:
    return START + minutes * MINUTE


def run(aws: AwsByHand, minutes: float, *, dry_run: bool = False) -> Report:
    aws.now = at(minutes)
    report = sweep(aws, SETTINGS, aws.now, dry_run)
    assert report.failures == ()
    return report


def entry(report: Report, name: str = "chat") -> ReportEntry:
    return next(each for each in report.endpoints if each.name == name)


def idle(**tags: Any) -> AwsByHand:
    return set_up(age=2 * HOUR, idle_minutes="30", grace_minutes="10", max_lifetime_hours="8", **tags)


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
    aws.arm({"peagle-chat-lifetime": START + 6 * HOUR - MINUTE})
    for minutes in (0, 5, 10):
        run(aws, minutes)
    assert aws.deeds == [(at(10), "delete", "chat")]
    assert aws.schedules
    run(aws, 15)
    assert aws.schedules == set()


def test_a_longer_idle_time_needs_a_mark_of_its_own() -> None:
    aws = idle()
    run(aws, 0)
    aws.endpoints["chat"].tags["peagle-sm:idle-minutes"] = "45"
    assert [entry(run(aws, minutes)).action for minutes in (5, 10, 15)] == ["mark", "none", "turn-off"]


@pytest.mark.parametrize("arrives", range(1, 10))
def test_traffic_within_the_grace_keeps_it(arrives: int) -> None:
    aws = idle()
    run(aws, 0)
    aws.serve("chat", at(arrives), at(arrives + 1))
    run(aws, 5)
    run(aws, 10)
    assert aws.deeds == []
    assert aws.register.records["chat"].marked_at is None


def test_it_is_not_turned_off_before_the_metrics_reach_the_end_of_the_grace() -> None:
    aws = idle()
    run(aws, 0)
    aws.rules(stale=interval(at(8), at(15)))
    aws.serve("chat", at(9), at(10))
    assert entry(run(aws, 10)).reason == "the metrics do not yet cover the grace period"
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
    aws.register.lock(at(-3), at(1))
    assert run(aws, 0).skipped == "another sweep is running"
    assert run(aws, 1).skipped is None


# --- the timetable ------------------------------------------------------------------------------------


def test_a_days_timetable_through_the_stack() -> None:
    """Off at 19:00 with a notice before, on at 08:00 once, and not again after it idled off."""
    aws = set_up(
        hours="Mon-Fri 08:00-19:00 UTC",
        idle_minutes="30",
        max_lifetime_hours="100",
        stack="Peagle-chat",
    )
    aws.serve("chat", START, START + 12 * HOUR)
    for minutes in range(0, 48 * 60, 5):
        run(aws, minutes)
    done = [(f"{when:%a %H:%M}", what) for when, what, _ in aws.deeds]
    assert done == [("Mon 19:10", "stack-off"), ("Tue 08:00", "stack-on"), ("Tue 08:50", "stack-off")]
    subjects = [
        f"{moment(when):%a %H:%M} {subject.removeprefix('peagle-sm: chat ')}"
        for when, subject, _ in aws.notices
    ]
    assert subjects == [
        "Mon 18:30 will be turned off (hours)",
        "Mon 19:15 is off (hours)",
        "Tue 08:40 is idle and will be turned off",
        "Tue 08:55 is off (idle)",
    ]


def test_an_endpoint_without_a_stack_is_woken_by_the_lifetime_function() -> None:
    aws = set_up(hours="Mon-Fri 08:00-19:00 UTC", max_lifetime_hours="100")
    for minutes in (0, 11 * 60, 11 * 60 + 5, 24 * 60, 24 * 60 + 5):
        run(aws, minutes)
    assert aws.did == ["delete", "create"]
    assert aws.invoked[-1][2] == {
        "action": "wake",
        "endpoint": "chat",
        "config": "chat-1",
        "time": at(24 * 60).isoformat(),
    }
    # A name that somebody pauses by hand stays off.
    for minutes in (35 * 60, 35 * 60 + 5):
        run(aws, minutes)
    aws.register.write("chat", paused=True)
    run(aws, 48 * 60)
    assert aws.did == ["delete", "create", "delete"]


def test_waking_that_fails_is_told_after_the_third_try() -> None:
    aws = set_up(hours="Mon-Fri 08:00-19:00 UTC", stack="Peagle-chat", max_lifetime_hours="100")
    for minutes in (0, 11 * 60, 11 * 60 + 5):
        run(aws, minutes)
    aws.stacks["Peagle-chat"].status = "UPDATE_ROLLBACK_FAILED"
    failures: list[str] = []
    for minutes in range(24 * 60, 25 * 60, 5):
        aws.now = at(minutes)
        failures += sweep(aws, SETTINGS, aws.now).failures
    assert len(failures) == 3
    assert "Peagle-chat is UPDATE_ROLLBACK_FAILED" in failures[0]
    assert aws.notices[-1][1] == "peagle-sm: chat could not be turned on"


@pytest.mark.parametrize("paused", [False, True])
def test_what_is_known_of_a_destroyed_stack_is_forgotten_within_an_hour(paused: bool) -> None:
    aws = set_up(stack="Peagle-chat", hours="Mon-Fri 08:00-19:00 UTC")
    run(aws, 0)
    aws.register.write("chat", paused=paused)
    aws.remove("chat")
    aws.stacks.clear()
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
    aws = set_up(stack="Peagle-chat")
    run(aws, 0)
    aws.register.write("chat", paused=True)
    aws.remove("chat")
    for minutes in range(5, 5 * 60, 5):
        run(aws, minutes)
    assert aws.calls["DescribeStacks"] == 4
    assert aws.register.records["chat"].paused


def test_a_destroyed_stack_is_not_woken_by_its_timetable() -> None:
    aws = set_up(hours="Mon-Fri 08:00-19:00 UTC", stack="Peagle-chat", max_lifetime_hours="100")
    for minutes in (0, 11 * 60, 11 * 60 + 5):
        run(aws, minutes)
    aws.stacks.clear()
    request = len(aws.invoked)
    assert entry(run(aws, 24 * 60)).action == "forget"
    assert (len(aws.invoked), aws.register.records) == (request, {})


def test_whoever_writes_meanwhile_keeps_the_record() -> None:
    aws = set_up(stack="Peagle-chat")
    run(aws, 0)
    aws.remove("chat")
    aws.stacks.clear()
    run(aws, 5)
    aws.account.hook = lambda name: (
        aws.register.write("chat", paused=True) if name == "DescribeStacks" else None
    )
    assert entry(run(aws, 65)).action == "none"
    assert aws.register.records["chat"].paused


def test_a_limit_that_somebody_moved_leaves_no_trace() -> None:
    aws = set_up(age=2 * HOUR, max_lifetime_hours="2", stack="Peagle-chat")
    aws.stacks["Peagle-chat"].status = "UPDATE_IN_PROGRESS"
    assert entry(run(aws, 0)).action == "turn-off"
    aws.register.write("chat", keep_until=at(60), expires_at=at(60))
    assert entry(run(aws, 5)).action == "none"
    assert aws.register.records["chat"].off_by is None


def test_traffic_that_is_shown_while_the_stack_takes_the_endpoint_does_not_hide_the_reason() -> None:
    """CloudFormation accepted the update; it deletes the endpoint some minutes later all the same."""
    aws = idle(stack="Peagle-chat")
    aws.account.cloudformation.update_s = 8 * 60
    for minutes in (0, 5, 10):
        run(aws, minutes)
    aws.serve("chat", at(11), at(14))
    assert entry(run(aws, 15)).action == "unmark"
    run(aws, 20)
    run(aws, 25)
    record = aws.register.records["chat"]
    assert (record.off_by, record.off_at) == ("idle", at(10))
    assert [subject for _, subject, _ in aws.notices][-1] == "peagle-sm: chat is off (idle)"


def test_a_turn_off_that_came_to_nothing_is_forgotten_after_half_an_hour() -> None:
    aws = idle(stack="Peagle-chat")
    for minutes in (0, 5, 10):
        run(aws, minutes)
    aws.endpoints["chat"].lies_left = 1
    aws.serve("chat", at(11), at(60))
    for minutes in range(15, 45, 5):
        run(aws, minutes)
    record = aws.register.records["chat"]
    assert (record.off_by, record.off_at) == (None, None)


def test_a_switch_that_hangs_for_some_endpoints_does_not_starve_the_others() -> None:
    """Each unanswered call takes a minute of the sweep's four: two at most, and the untried come first."""
    hanging = ("a", "b", "c")
    aws = AwsByHand(hangs=tuple(Hang(name, seconds(START), FOREVER) for name in hanging))
    for name in (*hanging, "d"):
        aws.add(name, age=3 * HOUR, max_lifetime_hours="2")
    for minutes in range(0, 25, 5):
        aws.now = at(minutes)
        failures = sweep(aws, SETTINGS, aws.now).failures
        assert sum("Unanswered" in each for each in failures) == 2
    tried = [event["endpoint"] for _, _, event in aws.invoked]
    assert tried[:5] == ["a", "b", "c", "d", "a"]
    assert "d" not in aws.endpoints
    assert min(tried.count(name) for name in hanging) >= 2, "what hangs is tried in turn"


def test_an_endpoint_about_which_nothing_can_be_decided_does_not_end_the_sweep() -> None:
    aws = idle()
    aws.add("far", age=HOUR)
    never = datetime.max.replace(tzinfo=UTC, microsecond=0)
    # The tagging API shows it all the same.
    aws.account.hook = lambda name: aws.change("far", created_at=START if name == "GetResources" else never)
    report = sweep(aws, SETTINGS, START)
    assert entry(report, "chat").action == "mark"
    assert "OverflowError" in entry(report, "far").faults[0]


@pytest.mark.parametrize("late", [3, 5, 8])
def test_a_late_sweep_sees_the_traffic_that_came_since_its_scheduled_time(late: int) -> None:
    """Its event still says the end of the grace; the traffic since then is in CloudWatch already."""
    aws = set_up(age=3 * HOUR, idle_minutes="15", max_lifetime_hours="100")
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
    report = handle(aws, SETTINGS, {"time": START.isoformat()})
    assert report["time"] == aws.now.isoformat()
    assert [row["action"] for row in report["endpoints"]] == ["unmark"]
    assert aws.deeds == []


def test_a_fault_fails_the_sweep_at_its_end_but_not_a_dry_run() -> None:
    aws = AwsByHand()
    for dry_run in (False, True):
        aws.faults["GetResources"] = [RuntimeError("no")]
        if dry_run:
            assert handle(aws, SETTINGS, {"dry_run": True})["faults"] == ["GetResources: RuntimeError: no"]
        else:
            with pytest.raises(SweepFailed, match="GetResources"):
                handle(aws, SETTINGS, {})
