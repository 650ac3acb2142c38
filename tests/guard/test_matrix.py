"""Every status, every state of the metrics, every owner: the expected action, and no foreign deletion."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from peagle_guard.looking import ReportEntry
from peagle_guard.sweeper import sweep
from tests.guard.by_hand import HOUR, MINUTE, START, AwsByHand, arn_of, interval
from tests.guard.simulator.making import plan
from tests.guard.simulator.people import SETTINGS
from tests.guard.simulator.worlds.traffic import Traffic
from tests.guard.simulator.worlds.world import CloudWatch, Plan

AGE = 3 * HOUR
SERVING = ("InService", "OutOfService", "UpdateRollbackFailed")
BUSY = ("Creating", "Updating", "SystemUpdating", "RollingBack")
STATUSES = (*SERVING, *BUSY, "Failed", "Deleting")
METRICS = {
    "fine-zeros": CloudWatch(lag_s=0),
    "fine-absent": CloudWatch(lag_s=0, zeros=False),
    "missing": CloudWatch(lag_s=0, gaps=interval(START - AGE)),
    "stale": CloudWatch(lag_s=0, stale=interval(START - 20 * MINUTE)),
    "error": CloudWatch(lag_s=0, partial=interval(START)),
}
OWNERS = ("ours", "foreign-tag", "foreign-untagged", "foreign-arn", "recreated")


def world(
    status: str, metrics: str, owner: str, *, lifetime_hours: int = 100, like: Plan | None = None
) -> AwsByHand:
    """An endpoint after its grace, and after the longest delay of request metrics: marked 40 minutes ago."""
    aws = AwsByHand(cloudwatch=METRICS[metrics])
    lifetime = str(lifetime_hours)
    aws.add(like=like, status=status, age=AGE, idle_minutes="30", max_lifetime_hours=lifetime)
    held = aws.endpoints["chat"]
    aws.register.write(
        "chat",
        arn=arn_of("chat"),
        created_at=START - AGE,
        spent_at=START - AGE,
        first_in_service_at=START - 2 * HOUR,
        quiet_since=START - 70 * MINUTE,
        marked_at=START - 40 * MINUTE,
        tags=dict(held.tags),
    )
    if owner == "foreign-tag":
        held.tags["peagle-sm:endpoint"] = "another"
    if owner == "foreign-untagged":
        held.tags.clear()
    if owner == "foreign-arn":
        aws.register.write("chat", arn="arn:aws:sagemaker:us-east-1:999999999999:endpoint/chat")
    if owner == "recreated":
        aws.register.write("chat", created_at=START - 30 * HOUR)
    return aws


def swept(aws: AwsByHand) -> ReportEntry:
    (entry,) = sweep(aws, SETTINGS, aws.now).endpoints
    return entry


def expected(status: str, metrics: str, owner: str, lifetime_hours: int) -> str:
    if owner.startswith("foreign"):
        return "foreign"
    if lifetime_hours < AGE / HOUR:
        return "wait" if status in BUSY else "none" if status == "Deleting" else "turn-off"
    if status == "Failed":
        return "turn-off"
    if status in SERVING and metrics.startswith("fine"):
        # A new creation begins a new life: it is only now seen to be idle. The clock starts in service.
        return {"ours": "turn-off", "recreated": "mark" if status == "InService" else "none"}[owner]
    return "none"


@pytest.mark.parametrize("lifetime_hours", [100, 2])
@pytest.mark.parametrize("status", STATUSES)
def test_the_action_at_the_end_of_the_grace_and_past_the_lifetime(status: str, lifetime_hours: int) -> None:
    for metrics, owner in product(METRICS, OWNERS):
        aws = world(status, metrics, owner, lifetime_hours=lifetime_hours)
        wanted = expected(status, metrics, owner, lifetime_hours)
        assert swept(aws).action == wanted, (metrics, owner)
        assert aws.did == (["delete"] if wanted == "turn-off" else [])


@pytest.mark.parametrize("status", BUSY)
def test_a_limit_that_passed_while_busy_acts_as_soon_as_it_can(status: str) -> None:
    aws = world(status, "missing", "ours", lifetime_hours=2)
    swept(aws)
    aws.now += 5 * MINUTE
    aws.change("chat", status="InService")
    assert swept(aws).action == "turn-off"


def test_the_tagging_api_lags_behind_a_reused_name() -> None:
    """It still shows our tags for the ARN, which now is somebody else's endpoint; ListTags knows better."""
    aws = world("Failed", "missing", "ours")
    stale = dict(aws.endpoints["chat"].tags)

    def hook(operation: str) -> None:
        aws.endpoints["chat"].tags = {} if operation == "ListTags" else stale

    aws.account.hook = hook
    assert swept(aws).action == "foreign"
    assert aws.deeds == []


def test_a_name_reused_between_looking_and_acting_is_left_alone() -> None:
    aws = world("InService", "fine-zeros", "ours")

    def hook(operation: str) -> None:
        if operation == "GetMetricData":
            aws.account.hook = None
            aws.change("chat", created_at=START)

    aws.account.hook = hook
    entry = swept(aws)
    assert (entry.action, entry.reason) == ("none", "it changed during the sweep")
    assert aws.deeds == []


def test_an_endpoint_that_the_tagging_api_does_not_show_yet_keeps_its_limit() -> None:
    aws = world("InService", "missing", "ours", lifetime_hours=2)
    aws.account.world = replace(aws.account.world, tag_lag_s=36_000)
    assert swept(aws).action == "turn-off"


def test_traffic_that_comes_between_looking_and_acting_keeps_it() -> None:
    aws = world("InService", "fine-zeros", "ours")

    def hook(operation: str) -> None:
        if operation == "ListTags":
            aws.serve("chat", START - MINUTE, START)
            aws.account.hook = None

    aws.account.hook = hook
    assert swept(aws).action == "unmark"
    assert aws.deeds == []


@pytest.mark.parametrize("operation", ["DescribeEndpoint", "ListTags", "GetItem", "UpdateItem", "Invoke"])
def test_a_failure_with_one_endpoint_does_not_stop_the_others(operation: str) -> None:
    aws = world("InService", "missing", "ours", lifetime_hours=2)
    aws.add("other", age=AGE, max_lifetime_hours="2")
    described_at = aws.view("chat").modified_at
    aws.register.write("chat", described_at=described_at, variants=("AllTraffic",))
    aws.register.write("other", **_known(aws, "other"))
    aws.faults[operation] = [RuntimeError("no")]
    report = sweep(aws, SETTINGS, aws.now)
    assert report.failures == ("chat: RuntimeError: no",)
    assert [name for _, what, name in aws.deeds if what == "delete"] == ["other"]
    aws.now += 5 * MINUTE
    assert sweep(aws, SETTINGS, aws.now).failures == ()
    assert sorted(name for _, what, name in aws.deeds if what == "delete") == ["chat", "other"]


def _known(aws: AwsByHand, name: str) -> dict[str, object]:
    view = aws.view(name)
    return {
        "arn": view.arn,
        "created_at": view.created_at,
        "described_at": view.modified_at,
        "variants": view.variants,
        "config_name": view.config_name,
    }


@pytest.mark.parametrize("operation", ["GetResources", "ListInferenceComponents", "GetMetricData"])
def test_without_a_list_nothing_idles_but_the_limits_hold(operation: str) -> None:
    for lifetime_hours, wanted in ((100, "none"), (2, "turn-off")):
        aws = world("InService", "fine-zeros", "ours", lifetime_hours=lifetime_hours)
        aws.faults[operation] = [RuntimeError("no"), RuntimeError("no")]
        report = sweep(aws, SETTINGS, aws.now)
        assert any(operation in fault for fault in report.failures)
        if operation == "GetResources" and lifetime_hours == 100:
            wanted = "turn-off"  # the register knows its tags, and ListTags confirms them
        assert report.endpoints[0].action == wanted


@pytest.mark.parametrize("operation", ["ListEndpoints", "Scan"])
def test_without_the_endpoints_or_the_register_the_sweep_fails_and_gives_the_lock_back(
    operation: str,
) -> None:
    aws = world("InService", "fine-zeros", "ours")
    aws.faults[operation] = [RuntimeError("no")]
    with pytest.raises(RuntimeError, match="no"):
        sweep(aws, SETTINGS, aws.now)
    assert swept(aws).action == "turn-off"


def test_a_notice_that_cannot_be_sent_is_a_fault_and_no_reason_to_go_on_paying() -> None:
    aws = world("Failed", "missing", "ours")
    aws.faults["Publish"] = [RuntimeError("no topic")]
    report = sweep(aws, SETTINGS, aws.now)
    assert report.failures == ("chat: the notice could not be sent: RuntimeError: no topic",)
    assert aws.did == ["delete"]


@pytest.mark.parametrize("subject", ["variant", "component"])
def test_traffic_on_any_variant_or_component_is_traffic(subject: str) -> None:
    components = subject == "component"
    lanes = ("chat-copy-0", "chat-copy-1") if components else ("AllTraffic", "canary")
    like = plan(components=components, traffic=tuple((name, Traffic()) for name in lanes))
    aws = world("InService", "fine-zeros", "ours", like=like)
    aws.serve("chat", START - 5 * MINUTE, START, lanes[1])
    assert swept(aws).action == "unmark"
    aws.now += 40 * MINUTE
    assert swept(aws).action == "mark"


def test_a_component_is_deleted_before_its_endpoint() -> None:
    copy = plan(components=True, scales=True, traffic=(("chat-copy-0", Traffic()),))
    aws = world("InService", "missing", "ours", lifetime_hours=2, like=copy)
    for _ in range(3):
        swept(aws)
        aws.now += 5 * MINUTE
    assert [(what, name) for _, what, name in aws.deeds] == [
        ("deregister", "inference-component/chat-copy-0"),
        ("delete-component", "chat-copy-0"),
        ("delete", "chat"),
    ]


def test_a_turning_off_that_has_taken_components_away_is_carried_through() -> None:
    copy = plan(components=True, traffic=(("chat-copy-0", Traffic()),))
    aws = world("InService", "fine-zeros", "ours", like=copy)
    assert swept(aws).action == "turn-off"
    # A lease comes too late: without the component nothing answers.
    aws.now += 5 * MINUTE
    aws.register.write("chat", keep_until=aws.now + HOUR)
    aws.change("chat", status="Updating")
    assert swept(aws).action == "wait"
    aws.now += 5 * MINUTE
    aws.change("chat", status="InService")
    assert swept(aws).action == "turn-off"
    assert aws.did == ["delete-component", "delete"]


def test_a_new_configuration_starts_the_idle_clock_again() -> None:
    aws = world("InService", "fine-zeros", "ours")
    aws.register.write("chat", config_name="chat-0", described_at=START - 2 * HOUR, variants=("AllTraffic",))
    aws.change("chat")
    assert swept(aws).action == "none"
    assert aws.register.records["chat"].marked_at is None
