"""Three endpoints for one comparison: whatever happens on the way, none is left without being named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from peagle_bench.compare.deployments import Fleet
from peagle_sm.core.errors import BillableLeft, EndpointFailed, Interrupted, PeagleError, PlanRefused
from peagle_sm.service import deploy
from tests.service.account import CREATE_S, DELETE_S, Account
from tests.service.aws_errors import denied, lost
from tests.service.setting import make_spec

KEYS = ("none", "eagle3", "p-eagle")


def fleet(aws: Account, **more: Any) -> Fleet:
    specs = {key: make_spec(f"cmp-{key}") for key in KEYS}
    return Fleet(specs, aws.session(), pacing=aws.pacing(), **more)


def run(aws: Account, body: Callable[[], None] = lambda: None) -> BaseException | None:
    try:
        with fleet(aws) as up:
            assert sorted(up.endpoints) == sorted(KEYS)
            assert len(aws.names("endpoint")) == 3
            body()
    except (PeagleError, KeyboardInterrupt, ZeroDivisionError) as error:
        return error
    return None


def raising(error: BaseException) -> Callable[[], None]:
    def body() -> None:
        raise error

    return body


def test_all_come_up_together_and_nothing_is_left(aws: Account) -> None:
    """What the fleet created itself is not said to be of an earlier run."""
    messages = list[str]()
    with fleet(aws, progress=lambda event: messages.append(event.message)):
        pass
    assert not aws.everything()
    assert "CreateEndpoint" not in aws.calls[aws.calls.index("DeleteEndpoint") :]
    assert aws.seconds < 2 * CREATE_S + 3 * DELETE_S, "they were created one after the other"
    assert not [message for message in messages if "earlier run" in message or "already" in message]
    for key in KEYS:
        assert messages.count(f"endpoint cmp-{key} is in service") == 1
        assert messages.count(f"endpoint cmp-{key} created") == 1
    assert len([message for message in messages if message.startswith("lifetime schedule")]) == len(KEYS)


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), ZeroDivisionError(), EndpointFailed("died")], ids=repr
)
def test_whatever_ends_the_measurement_all_are_deleted(aws: Account, error: BaseException) -> None:
    assert run(aws, raising(error)) is error
    assert not aws.everything()


def test_one_that_does_not_come_up_takes_the_others_with_it(aws: Account) -> None:
    broken = make_spec("cmp-eagle3", env={"SCRIPT_EXIT_LINE": "ValueError: no such head"})
    specs = {"none": make_spec("cmp-none"), "eagle3": broken}
    with (
        pytest.raises(EndpointFailed, match="cmp-eagle3"),
        Fleet(specs, aws.session(), pacing=aws.pacing()),
    ):
        pass
    assert not aws.everything()


@pytest.mark.parametrize("cause", ["Ctrl-C", "a failure"])
def test_one_that_hangs_in_creating_delays_the_end_of_no_other(aws: Account, cause: str) -> None:
    """While its own clean-up waits for it, the others, which are billed, are deleted."""
    failed = list[float]()
    aws.held["cmp-none"] = 550.0

    def fail(operation: str) -> BaseException | None:
        if not failed and aws.seconds >= 100 and operation == "DescribeEndpoint":
            failed.append(aws.seconds)
            return KeyboardInterrupt() if cause == "Ctrl-C" else denied(operation)
        return None

    gone: dict[str, float] = {}

    def note(operation: str) -> None:
        if failed and operation == "DescribeEndpoint":
            left = aws.names("endpoint")
            for key in KEYS:
                if f"cmp-{key}" not in left:
                    gone.setdefault(key, aws.seconds)

    aws.before, aws.after = fail, note
    assert run(aws) is not None
    assert not aws.everything()
    assert aws.seconds >= 550
    assert max(gone["eagle3"], gone["p-eagle"]) < 160


def test_what_is_there_already_is_neither_used_nor_deleted(aws: Account) -> None:
    deploy(make_spec("cmp-eagle3"), session=aws.session(), pacing=aws.pacing())
    before = aws.everything()
    error = run(aws)
    assert isinstance(error, PlanRefused)
    assert "cmp-eagle3: name already in use" in str(error)
    assert "peagle-sm delete cmp-eagle3 --region us-east-1" in str(error.next_step)
    assert aws.everything() == before


FAULTS: list[Callable[[str], BaseException]] = [lost, denied, lambda operation: KeyboardInterrupt()]


def test_one_fault_anywhere_leaves_nothing_or_names_it(aws: Account) -> None:
    assert run(aws) is None
    for number in range(0, len(aws.calls), 20):
        fault = FAULTS[number // 20 % len(FAULTS)]
        _run_with(aws, {number: fault})


def test_ctrl_c_and_again_brings_every_limit_forward(aws: Account) -> None:
    """The second Ctrl-C comes two calls after the first, in the middle of the clean-up."""
    assert run(aws) is None
    for number in range(4, len(aws.calls), 30):
        _run_with(aws, {number: FAULTS[-1], number + 2: FAULTS[-1]})


def _run_with(aws: Account, faults: dict[int, Callable[[str], BaseException]]) -> None:
    """Run a fleet whose calls of these numbers fail; the error must name every endpoint that is left."""
    world = Account(aws.server, aws.boto3)

    def strike(operation: str) -> BaseException | None:
        fault = faults.get(len(world.calls) - 1)
        return fault(operation) if fault else None

    def guarded(operation: str) -> None:
        if operation in ("CreateEndpoint", "DeleteSchedule"):
            schedules = world.schedules()
            for name in world.names("endpoint"):
                assert f"peagle-{name}-lifetime" in schedules, f"{name} has no lifetime schedule"

    world.before, world.after = strike, guarded
    error = run(world)
    named = f"{error} {getattr(error, 'next_step', '')} {getattr(error, 'details', '')}"
    for name in world.names("endpoint"):
        assert isinstance(error, BillableLeft), f"{name} is left, and {error!r} does not say so"
        assert f"endpoint/{name}" in error.details["resources"]
        assert name in str(error.next_step)
    assert not world.everything() or "cmp-" in named, f"something is left and not named: {error!r}"
    assert error is None or isinstance(error, PeagleError | KeyboardInterrupt | Interrupted)
    world.clear()


def test_an_endpoint_that_another_run_creates_in_between_is_neither_used_nor_deleted(aws: Account) -> None:
    begun = list[str]()

    def another_run(operation: str) -> None:
        if operation == "CreateEndpoint" and not begun:  # the first of the fleet; the names were free before
            begun.append(operation)
            deploy(make_spec("cmp-eagle3"), session=aws.session(), pacing=aws.pacing(), wait=False)

    aws.before = another_run
    ended = run(aws)
    assert isinstance(ended, PlanRefused)
    assert aws.names("endpoint") == ["cmp-eagle3"]
    assert aws.status("cmp-eagle3") != "Deleting"
