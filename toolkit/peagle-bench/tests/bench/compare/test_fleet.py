"""Three endpoints for one comparison: whatever happens on the way, none is left without being named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peagle_bench.compare.deployments import Fleet
from peagle_sm.core.errors import BillableLeft, EndpointFailed, Interrupted, PeagleError, PlanRefused
from peagle_sm.service import deploy
from tests.service.fakes import FakeAws, denied, lost
from tests.service.setting import make_spec, pacing_of, session_of

KEYS = ("none", "eagle3", "p-eagle")


def fleet(aws: FakeAws) -> Fleet:
    specs = {key: make_spec(f"cmp-{key}") for key in KEYS}
    return Fleet(specs, session_of(aws), pacing=pacing_of(aws))


def run(aws: FakeAws, body: Callable[[], None] = lambda: None) -> BaseException | None:
    try:
        with fleet(aws) as up:
            assert sorted(up.endpoints) == sorted(KEYS)
            assert len(aws.endpoints) == 3
            body()
    except (PeagleError, KeyboardInterrupt, ZeroDivisionError) as error:
        return error
    return None


def raising(error: BaseException) -> Callable[[], None]:
    def body() -> None:
        raise error

    return body


def test_all_come_up_together_and_nothing_is_left() -> None:
    aws = FakeAws()
    assert run(aws) is None
    assert not aws.everything()
    assert not aws.unguarded
    assert aws.calls.index("DeleteEndpoint") > max(
        number for number, call in enumerate(aws.calls) if call == "CreateEndpoint"
    )
    assert aws.clock.seconds < 2 * aws.create_s + 3 * aws.delete_s, "they were created one after the other"


def test_what_it_asked_for_itself_is_not_said_to_be_of_an_earlier_run() -> None:
    aws, told = FakeAws(), list[str]()
    specs = {key: make_spec(f"cmp-{key}") for key in KEYS}
    with Fleet(
        specs, session_of(aws), pacing=pacing_of(aws), progress=lambda event: told.append(event.message)
    ):
        pass
    assert not [message for message in told if "earlier run" in message or "already" in message]
    for key in KEYS:
        assert told.count(f"endpoint cmp-{key} is in service") == 1
        assert told.count(f"endpoint cmp-{key} created") == 1
    assert len([message for message in told if message.startswith("lifetime schedule")]) == len(KEYS)


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), ZeroDivisionError(), EndpointFailed("died")], ids=repr
)
def test_whatever_ends_the_measurement_all_are_deleted(error: BaseException) -> None:
    aws = FakeAws()
    assert run(aws, raising(error)) is error
    assert not aws.everything()


def test_one_that_does_not_come_up_takes_the_others_with_it() -> None:
    aws = FakeAws()

    def fail_the_second(_: FakeAws, number: int, operation: str) -> None:
        if "cmp-eagle3" in aws.endpoints:
            aws.endpoints["cmp-eagle3"].outcome = "Failed"

    aws.before = fail_the_second
    error = run(aws)
    assert isinstance(error, EndpointFailed)
    assert "cmp-eagle3" in str(error)
    assert not aws.everything()


@pytest.mark.parametrize("cause", ["Ctrl-C", "a failure"])
def test_one_that_hangs_in_creating_delays_the_end_of_no_other(cause: str) -> None:
    """While its own clean-up waits for it, the others, which are billed, are deleted."""
    aws, failed = FakeAws(), list[float]()
    gone: dict[str, float] = {}

    def hang(_: FakeAws, number: int, operation: str) -> BaseException | None:
        if "cmp-none" in aws.endpoints:
            aws.endpoints["cmp-none"].ready_at = 550.0
        if not failed and aws.clock.seconds >= 100 and operation == "DescribeEndpoint":
            failed.append(aws.clock.seconds)
            return KeyboardInterrupt() if cause == "Ctrl-C" else denied(operation)
        for key in KEYS if failed else ():
            if f"cmp-{key}" not in aws.endpoints:
                gone.setdefault(key, aws.clock.seconds)
        return None

    aws.before = hang
    assert run(aws) is not None
    assert not aws.everything()
    assert gone["none"] >= 550
    assert max(gone["eagle3"], gone["p-eagle"]) < 160


def test_what_is_there_already_is_neither_used_nor_deleted() -> None:
    aws = FakeAws()
    deploy(make_spec("cmp-eagle3"), session=session_of(aws), pacing=pacing_of(aws))
    before = aws.everything()
    error = run(aws)
    assert isinstance(error, PlanRefused)
    assert "cmp-eagle3: name already in use" in str(error)
    assert "peagle-sm delete cmp-eagle3 --region us-east-1" in str(error.next_step)
    assert aws.everything() == before


def calls_of_a_quiet_run() -> list[str]:
    aws = FakeAws()
    run(aws)
    return aws.calls


QUIET = calls_of_a_quiet_run()
FAULTS: dict[str, Callable[[str], BaseException]] = {
    "no answer": lost,
    "permission denied": denied,
    "Ctrl-C": lambda operation: KeyboardInterrupt(),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("number", range(0, len(QUIET), 6), ids=lambda n: f"{n}-{QUIET[n]}")
def test_one_fault_anywhere_leaves_nothing_or_names_it(number: int, fault: str) -> None:
    aws = FakeAws()
    aws.before = lambda _, call, operation: FAULTS[fault](operation) if call == number else None
    check(aws, run(aws))


@pytest.mark.parametrize("number", range(0, len(QUIET), 4), ids=lambda n: f"{n}-{QUIET[n]}")
def test_ctrl_c_and_again_brings_every_limit_forward(number: int) -> None:
    """The second Ctrl-C comes two calls after the first, in the middle of the clean-up."""
    aws = FakeAws()
    aws.before = lambda _, call, operation: KeyboardInterrupt() if call in (number, number + 2) else None
    check(aws, run(aws))


def check(aws: FakeAws, error: BaseException | None) -> None:
    assert not aws.unguarded, "an endpoint existed without its lifetime limit"
    named = f"{error} {getattr(error, 'next_step', '')} {getattr(error, 'details', '')}"
    for name in aws.endpoints:
        assert isinstance(error, BillableLeft), f"{name} is left, and {error!r} does not say so"
        assert f"endpoint/{name}" in error.details["resources"]
        assert name in str(error.next_step)
    for resource in aws.everything():
        assert resource.partition("cmp-")[2].split("-lifetime")[0].split("-20")[0], resource
        assert "cmp-" in named, f"{resource} is left and not named: {error!r}"
    assert error is None or isinstance(error, PeagleError | KeyboardInterrupt | Interrupted)


def test_an_endpoint_that_another_run_creates_in_between_is_neither_used_nor_deleted() -> None:
    aws, other, begun = FakeAws(), make_spec("cmp-eagle3"), list[str]()

    def another_run(_: FakeAws, number: int, operation: str) -> None:
        if operation == "CreateEndpoint" and not begun:  # the first of the fleet; the names were free before
            begun.append(operation)
            deploy(other, session=session_of(aws), pacing=pacing_of(aws), wait=False)

    aws.before = another_run
    ended = run(aws)
    assert isinstance(ended, PlanRefused)
    assert list(aws.endpoints) == ["cmp-eagle3"]
    assert aws.endpoints["cmp-eagle3"].gone_at is None
    assert not aws.unguarded
