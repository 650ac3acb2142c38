"""The judge of events sees each kind of harm: what a wrong guard would do is done here by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.guard.simulator.__main__ import main
from tests.guard.simulator.campaign import campaign, run_batch
from tests.guard.simulator.guard_run import NO_REASON, GuardRun, start
from tests.guard.simulator.judging.judge import Tally
from tests.guard.simulator.judging.judge_events import judge_events
from tests.guard.simulator.making import BEGIN, MINUTE, plan, world
from tests.guard.simulator.people import SETTINGS
from tests.guard.simulator.worlds.traffic import HOUR
from tests.guard.simulator.worlds.world import CloudWatch, Lease, World

MARK, OFF = 30 * MINUTE, 40 * MINUTE
"""Seconds after BEGIN; idle is 15 minutes, the grace 10."""


def _ended(given: World, off: int = OFF, cause: str = "idle", mark: int = MARK) -> Tally:
    """Delete the first endpoint at ``off``, as a guard would that marked it at ``mark``."""
    run = start(given)
    run.account.events.run_until(BEGIN + off)
    run.account.sagemaker.delete("code", BEGIN + off, "guard")
    return _judged(run, cause, mark)


def _judged(run: GuardRun, cause: str, mark: int) -> Tally:
    run.account.events.run_until(run.account.world.end)
    run.endings[id(run.account.sagemaker.lives[0])] = (cause, BEGIN + mark)
    return judge_events(run.account.world, run)


def _broken(tally: Tally) -> set[str]:
    return {name for name, count in tally.counts.items() if count}


@pytest.mark.parametrize(
    ("request_s", "lag_s", "expected"),
    [
        ((400, 410), 60, set()),
        ((20 * MINUTE, 20 * MINUTE + 5), 60, {"in_grace", "shown"}),  # less than idle plus grace ago
        ((35 * MINUTE, 35 * MINUTE + 5), 60, {"in_grace", "shown"}),
        ((35 * MINUTE, 35 * MINUTE + 5), 600, {"in_grace"}),
        ((41 * MINUTE, 45 * MINUTE), 60, {"shown"}),
        ((43 * MINUTE, 45 * MINUTE), 120, {"blind"}),
        ((43 * MINUTE, 43 * MINUTE + 5), 120, set()),
    ],
)
def test_requests_are_judged_by_what_was_announced_and_shown(
    request_s: tuple[int, int], lag_s: int, expected: set[str]
) -> None:
    given = world(plan((400, 410), request_s), cloudwatch=CloudWatch(lag_s=lag_s))
    assert _broken(_ended(given, off=44 * MINUTE)) == expected


IN_THE_GRACE = plan((400, 410), (35 * MINUTE, 35 * MINUTE + 5))
LOST = ((BEGIN + 20 * MINUTE, BEGIN + 44 * MINUTE),)


@pytest.mark.parametrize(
    ("given", "cause", "expected"),
    [
        (world(IN_THE_GRACE, cloudwatch=CloudWatch(request_gaps=LOST)), "idle", "in_grace"),
        # Without zeros nobody could see that it was lost.
        (world(IN_THE_GRACE, cloudwatch=CloudWatch(request_gaps=LOST, zeros=False)), "idle", "lost"),
        (world(plan((360, 3600)), cloudwatch=CloudWatch(concurrency=False)), "idle", "streams"),
        (world(plan()), NO_REASON, "no_reason"),
        (world(plan(), leases=(Lease(BEGIN + 35 * MINUTE, "code", BEGIN + 2 * HOUR),)), "idle", "kept"),
    ],
    ids=["in_grace", "lost", "streams", "no_reason", "kept"],
)
def test_each_harm_is_seen_or_counted_apart(given: World, cause: str, expected: str) -> None:
    assert _broken(_ended(given, cause=cause)) == {expected}


def test_an_endpoint_that_never_ends_is_seen() -> None:
    run = start(world(plan(lifetime_hours=2.0)))
    run.account.events.run_until(BEGIN + MINUTE)
    for name in list(run.account.scheduler.armed):
        run.account.scheduler.remove(name)
    run.account.events.run_until(BEGIN + 10 * HOUR)
    assert _broken(judge_events(run.account.world, run)) >= {"survivors", "overdue"}


def _take_a_component(run: GuardRun, now: int) -> None:
    run.account.sagemaker.delete_component("code-copy-0", now, "guard")


def _take_a_target(run: GuardRun, now: int) -> None:
    run.account.sagemaker.deregister("inference-component/code-copy-1", now)


@pytest.mark.parametrize("take", [_take_a_component, _take_a_target])
def test_a_half_dismantled_endpoint_is_seen(take: Callable[[GuardRun, int], None]) -> None:
    lanes = tuple((f"code-copy-{n}", plan((400, 410)).traffic[0][1]) for n in range(2))
    run = start(world(plan(components=True, scales=True, traffic=lanes, lifetime_hours=2.0)))
    run.account.events.run_until(BEGIN + OFF)
    take(run, BEGIN + OFF)
    assert "half" in _broken(_judged(run, "idle", MARK))


def test_a_schedule_that_moved_under_a_life_is_seen() -> None:
    run = start(world(plan(lifetime_hours=2.0)))
    run.account.events.run_until(BEGIN + OFF)
    run.account.scheduler.arm("peagle-code-lifetime", BEGIN + 3 * HOUR, BEGIN + 9 * HOUR, lambda _: None)
    assert "schedule_moved" in _broken(_judged(run, "", MARK))


def test_a_failure_of_the_guards_code_is_seen() -> None:
    run = start(world(plan()))
    run.crashes.append("the sweep ended: ValueError: wrong")
    assert "crashes" in _broken(judge_events(run.account.world, run))
    assert SETTINGS.table == "peagle-guard"


# --- the campaign -------------------------------------------------------------------------------------


def test_a_campaign_adds_up_to_the_same_in_parts_and_processes(capsys: pytest.CaptureFixture[str]) -> None:
    (whole,) = campaign("late-requests", 6, 0, 1)
    joined = run_batch("late-requests", range(3))
    joined.add(run_batch("late-requests", range(3, 6)))
    assert whole == joined
    assert main(["--kind", "late-requests", "--worlds", "6", "--jobs", "2"]) == 0
    assert capsys.readouterr().out.startswith("late-requests: 6 worlds, 6 lives, ")


def test_a_broken_promise_fails_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    broken = Tally(1, 1, 1, Counter(in_grace=1), ["seed 0: in_grace: code"])
    assert main(["--kind", "plain", "--worlds", "1"], lambda *_: iter([broken])) == 1
    assert "in_grace 1\n  seed 0: in_grace: code" in capsys.readouterr().out


def test_a_number_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--worlds", "0"])
    assert "allowed: a whole number, at least 1" in capsys.readouterr().err
