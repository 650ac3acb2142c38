"""Which schedules and alarms a sweep removes once an endpoint is gone: its own, never the next one's."""

from __future__ import annotations

import pytest

from peagle_guard.sweeper import sweep
from peagle_guard.switch import turn
from tests.guard.by_hand import HOUR, MINUTE, START, arn_of, set_up
from tests.guard.simulator.fake_services.account import REGION
from tests.guard.simulator.people import SETTINGS
from tests.guard.test_sweep import at, entry, idle, run


def test_the_schedules_that_a_stacks_cleanup_left_behind_go_once_its_endpoint_is_gone() -> None:
    """Armed at creation for 8 hours, the hard ones half an hour later; a newer arming is left alone."""
    aws = idle(stack="Peagle-chat")
    ends = START + 6 * HOUR
    newer = {"peagle-chat-lifetime-hard-2": ends + HOUR}
    hard = dict.fromkeys(["peagle-chat-lifetime-hard", "peagle-chat-lifetime-hard-1"], ends + HOUR / 2)
    aws.arm({"peagle-chat-lifetime": ends, **hard, **newer})
    for minutes in (0, 5, 10, 15):
        run(aws, minutes)
    assert aws.schedules == set(newer)


HARD = {"peagle-chat-lifetime": START + 6 * HOUR, "peagle-chat-lifetime-hard": START + 6.5 * HOUR}


@pytest.mark.parametrize("missed_at", [5, 7 * 60], ids=["within the lifetime", "after it"])
def test_the_schedules_of_an_endpoint_that_was_deleted_by_hand_go_with_it(missed_at: int) -> None:
    """The stack keeps its lifetime resource; the schedules would end a later endpoint of the name."""
    aws = idle(stack="Peagle-chat")
    aws.arm(HARD, START - 2 * HOUR)
    run(aws, 0)
    aws.remove("chat")
    run(aws, missed_at)
    assert aws.schedules == set()
    request = len(aws.invoked)
    run(aws, missed_at + 5)
    assert len(aws.invoked) == request, "it is settled once"


@pytest.mark.parametrize("missed_at", [5, 7 * 60], ids=["within the lifetime", "after it"])
def test_what_a_redeploy_armed_before_the_sweep_that_missed_the_endpoint_stays(missed_at: int) -> None:
    """Deleted by hand after a minute; the next deploy has a lifetime of an hour."""
    aws = idle()
    run(aws, 0)
    aws.remove("chat")
    armed = at(missed_at - 1)
    aws.arm({"peagle-chat-lifetime": min(armed + HOUR, START + 6 * HOUR)}, armed)
    run(aws, missed_at)
    assert aws.schedules


def test_what_a_redeploy_armed_while_the_failed_endpoint_was_there_stays() -> None:
    """A deploy arms, then deletes the failed endpoint; the guard deletes it as well."""
    aws = set_up(age=HOUR, status="Failed", max_lifetime_hours="8")
    aws.arm({"peagle-chat-lifetime": START + 2 * HOUR}, START - MINUTE)
    assert entry(run(aws, 0)).action == "turn-off"
    run(aws, 5)
    assert aws.endpoints == {}
    assert aws.schedules


ALARMS = {"peagle-chat-update", "peagle-chat-acceptance", "Peagle-chat-from-zero"}
OTHERS = {"peagle-chat2-update", "Peagle-chat2-from-zero", "peagle-guard-errors", "Peagle-chat-slow"}


def test_the_alarms_of_a_killed_update_go_once_the_guard_has_deleted_its_endpoint() -> None:
    aws = idle()
    aws.account.alarms |= ALARMS | OTHERS
    for minutes in (0, 5, 10, 15):
        run(aws, minutes)
        assert aws.account.alarms == (ALARMS | OTHERS if aws.endpoints else OTHERS)
    assert aws.endpoints == {}


def test_the_autoscaling_of_an_endpoint_that_its_schedules_deleted_goes_too() -> None:
    aws = idle()
    aws.targets["inference-component/chat"] = "sagemaker:inference-component:DesiredCopyCount"
    for name in ("chat", "chat2"):
        aws.targets[f"endpoint/{name}/variant/AllTraffic"] = "sagemaker:variant:DesiredInstanceCount"
    run(aws, 0)
    aws.remove("chat")
    run(aws, 5)
    assert set(aws.targets) == {"endpoint/chat2/variant/AllTraffic"}


def test_alarms_that_cannot_be_deleted_keep_no_endpoint_alive_and_are_reported_with_the_command() -> None:
    aws = idle()
    run(aws, 0)
    aws.remove("chat")
    aws.faults["DeleteAlarms"] = [RuntimeError("not authorized")]
    aws.now = at(5)
    answer = entry(sweep(aws, SETTINGS, at(5)))
    (fault,) = answer.faults
    command = f"aws cloudwatch delete-alarms --region {REGION} --alarm-names"
    assert f"`{command} peagle-chat-update peagle-chat-acceptance Peagle-chat-from-zero`" in fault
    assert "RuntimeError: not authorized" in fault
    assert aws.register.records["chat"].gone_at == at(5)


def test_the_alarms_of_the_next_endpoint_of_the_name_stay() -> None:
    aws = idle()
    run(aws, 0)
    event = {"endpoint": "chat", "arn": arn_of("chat"), "expires_at": at(600).isoformat()}
    aws.account.alarms |= ALARMS
    earlier = (START - 9 * HOUR).isoformat()
    assert turn(aws, {"action": "off", "created_at": earlier, **event})["state"] == "done"
    assert aws.account.alarms == ALARMS
