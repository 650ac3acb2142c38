"""The judge of events sees each kind of harm: what a wrong guard would do is done here by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.guard.simulator import event_campaign
from tests.guard.simulator.__main__ import main
from tests.guard.simulator.event_campaign import KindTally, kind_batch, kind_campaign
from tests.guard.simulator.guard_run import NO_REASON, GuardRun, start
from tests.guard.simulator.judging.judge_events import EXPLAINED, PROMISES, Findings, judge_events
from tests.guard.simulator.kinds import PLAIN
from tests.guard.simulator.making import BEGIN, MINUTE, plan, world
from tests.guard.simulator.people import SETTINGS
from tests.guard.simulator.worlds.traffic import HOUR
from tests.guard.simulator.worlds.world import CloudWatch, Lease, World

MARK, OFF = 30 * MINUTE, 40 * MINUTE
"""Seconds after BEGIN; idle is 15 minutes, the grace 10."""


def _ended(given: World, off: int = OFF, cause: str = "idle", mark: int = MARK) -> Findings:
    """Delete the first endpoint at ``off``, as a guard would that marked it at ``mark``."""
    run = start(given)
    run.account.events.run_until(BEGIN + off)
    run.account.sagemaker.delete("code", BEGIN + off, "guard")
    return _judged(run, cause, mark)


def _judged(run: GuardRun, cause: str, mark: int) -> Findings:
    run.account.events.run_until(run.account.world.end)
    run.endings[id(run.account.sagemaker.lives[0])] = (cause, BEGIN + mark)
    return judge_events(run.account.world, run)


def _broken(found: Findings) -> set[str]:
    return {name for name, count in found.counts.items() if count}


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


@pytest.mark.parametrize(("zeros", "expected"), [(True, "in_grace"), (False, "lost")])
def test_a_lost_request_counts_unless_its_loss_could_not_be_seen(zeros: bool, expected: str) -> None:
    lost = (BEGIN + 20 * MINUTE, BEGIN + 44 * MINUTE)
    rules = CloudWatch(request_gaps=(lost,), zeros=zeros)
    found = _ended(world(plan((400, 410), (35 * MINUTE, 35 * MINUTE + 5)), cloudwatch=rules))
    assert _broken(found) == {expected}


def test_a_long_stream_without_concurrency_is_counted_apart() -> None:
    given = world(plan((360, 3600)), cloudwatch=CloudWatch(concurrency=False))
    assert _broken(_ended(given)) == {"streams"}


def test_an_end_without_a_reason_is_seen() -> None:
    assert _broken(_ended(world(plan()), cause=NO_REASON)) == {"no_reason"}


def test_an_end_before_the_promised_one_is_seen() -> None:
    lease = Lease(BEGIN + 35 * MINUTE, "code", BEGIN + 2 * HOUR)
    assert _broken(_ended(world(plan(), leases=(lease,)))) == {"kept"}


def test_an_endpoint_that_never_ends_is_seen() -> None:
    run = start(world(plan(lifetime_hours=2.0)))
    run.account.events.run_until(BEGIN + MINUTE)
    for name in list(run.account.scheduler.armed):
        run.account.scheduler.remove(name)
    run.account.events.run_until(BEGIN + 10 * HOUR)
    assert _broken(judge_events(run.account.world, run)) >= {"never_ended", "overdue"}


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
    name = run.limit_of(run.account.sagemaker.lives[0])
    run.account.scheduler.arm(name, BEGIN + 3 * HOUR, BEGIN + 9 * HOUR, lambda _: None)
    assert "schedule_moved" in _broken(_judged(run, "", MARK))


def test_a_failure_of_the_guards_code_is_seen() -> None:
    run = start(world(plan()))
    run.crashes.append("the sweep ended: ValueError: wrong")
    assert "crashes" in _broken(judge_events(run.account.world, run))
    assert SETTINGS.table == "peagle-guard"


# --- the table ----------------------------------------------------------------------------------------


def test_every_count_of_the_judge_has_its_column() -> None:
    assert {*event_campaign.COLUMNS, *event_campaign.OTHER} - {"other"} == {*PROMISES, *EXPLAINED}


def test_tallies_of_a_kind_join_to_what_one_run_gives() -> None:
    heard: list[int] = []
    whole = kind_campaign("late-requests", 6, 0, 1, lambda done, _: heard.append(done))
    joined = kind_batch("late-requests", range(3))
    joined.join(kind_batch("late-requests", range(3, 6)))
    assert event_campaign.row(whole, "c") == event_campaign.row(joined, "c")
    assert heard == [6]


def test_a_row_replaces_its_kinds_row_and_no_other() -> None:
    page = f"before\n{event_campaign.BEGIN}\n{event_campaign.END}\nafter\n"
    rows = {kind: event_campaign.row(KindTally(kind, worlds=1), "c1") for kind in ("async", PLAIN)}
    page = event_campaign.section(page, rows)
    page = event_campaign.section(page, {"async": event_campaign.row(KindTally("async", worlds=2), "c2")})
    lines = page.splitlines()
    assert [line.split("|")[1:3] for line in lines if line.endswith(("c1 |", "c2 |"))] == [
        [" plain ", " 1 "],
        [" async ", " 2 "],
    ]
    assert (lines[0], lines[-1]) == ("before", "after")
    with pytest.raises(ValueError, match="are missing"):
        event_campaign.section("before\n", rows)


def test_the_command_prints_the_row_of_a_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--kind", "plain", "--worlds", "2", "--print-only"]) == 0
    assert capsys.readouterr().out.startswith("| plain | 2 | 2 | 2 | 0 |")
