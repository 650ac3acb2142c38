"""What went wrong in a world, and what it cost: from the truth of the traffic alone.

The promise that is judged: an endpoint is turned off for idleness only after idle plus grace without use.
Use is a request in flight where CloudWatch shows concurrency, and an arrival where it does not; a request
in flight as the endpoint goes is counted against the guard in both. A request is *protected* if it
arrives within idle plus grace of the last use (or of the first InService), within the grace of the mark
that was announced, or early enough that CloudWatch could show it before the deletion. What comes after
the grace in the last minutes before the deletion, which CloudWatch cannot have shown, does not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.guard.simulator.fake_services.cloudformation import UPDATE_S
from tests.guard.simulator.fake_services.sagemaker import Life
from tests.guard.simulator.judging.judge_hours import missed_hours
from tests.guard.simulator.worlds.traffic import HOUR
from tests.guard.simulator.worlds.world import Plan, World

SWEEP_S = 300
MINUTE_S = 60
FLUSH_S = 120
"""A datapoint's own minute, and the minute in which a sweep reads it."""

LATEST_S = 27 * 60
"""The lateness of request metrics that docs/explanation/guard.md promises to wait out.

It is not read from the guard's code.
"""

HARD_S = 30 * 60
RATE_S = 600
LEFT_S = 4 * HOUR
IDLE = "idle"

BROKEN = (
    "in_flight",
    "before_return",
    "too_early",
    "survivors",
    "foreign",
    "double",
    "beyond_bound",
    "kept_killed",
    "hours_missed",
)
"""Counts of a verdict that must be 0."""


@dataclass(frozen=True, slots=True)
class Ended:
    """One life as the world's end left it, with what the guard said of it."""

    life: Life
    cause: str
    """``idle``, ``lifetime``, ``budget``, ``hours``, ``failed``, ``schedule``, ``user``, or nothing."""
    marked_at: int | None
    kept_until: int
    """The latest lease that reached the register, or 0."""
    expires_at: int
    """The end of its lifetime, leases included."""


@dataclass(slots=True)
class Verdict:
    """Counts of one world."""

    lives: int = 0
    idle_offs: int = 0
    in_flight: int = 0
    before_return: int = 0
    """Turned off before traffic that arrives within the grace."""
    too_early: int = 0
    """Turned off for idleness before idle plus grace had passed, harm or not."""
    survivors: int = 0
    """Alive after the lifetime limit plus drain."""
    left_running: int = 0
    """Alive at the world's end, quiet for more than four hours."""
    foreign: int = 0
    double: int = 0
    beyond_bound: int = 0
    """Quiet for longer than idle, grace and two sweeps, in a world in which everything works.

    Where CloudWatch writes no zeros, the longest delay of request metrics comes on top.
    """
    hours_missed: int = 0
    """Still on after its hours and the grace, or not on soon after they began; where everything works."""
    kept_killed: int = 0
    """Turned off for idleness during a lease that had reached the register."""
    notes: list[str] = field(default_factory=list)


def judge(world: World, ended: list[Ended]) -> Verdict:
    """Judge every life of a world."""
    verdict = Verdict()
    for each in ended:
        life = each.life
        if not life.plan.ours:
            if life.ended_by not in ("", "user"):
                verdict.foreign += 1
                verdict.notes.append(f"foreign {life.plan.name} deleted by {life.ended_by}")
            continue
        verdict.lives += 1
        verdict.double += life.double_actions
        _waste(world, each, verdict)
        _limits(world, each, verdict)
        if each.cause == IDLE:
            _idle(world, each, verdict)
    if world.metrics_work:
        _hours(world, ended, verdict)
    return verdict


def _hours(world: World, ended: list[Ended], verdict: Verdict) -> None:
    timed = [each for each in ended if each.life.plan.hours is not None]
    if timed and all(_undisturbed(world, each) for each in timed):
        missed = missed_hours(world, [(each.life, each.cause) for each in timed])
        verdict.hours_missed += len(missed)
        verdict.notes += missed


def requests(plan: Plan) -> list[tuple[int, int]]:
    """Return all requests of an endpoint, whichever variant they go to, in the order of arrival."""
    return sorted(pair for _, lane in plan.traffic for pair in zip(lane.starts, lane.ends, strict=True))


def _idle(world: World, each: Ended, verdict: Verdict) -> None:
    life = each.life
    plan, off = life.plan, life.turning_off_at
    if off is None or life.deleting_at is None:
        return
    verdict.idle_offs += 1
    promise = plan.idle_s + plan.grace_s
    until = life.in_service_at + promise
    shown_by = off - world.cloudwatch.lag_s - FLUSH_S
    # By CloudWatch's clock: where it is ahead, the last of the grace is shown as if it had been there before.
    ahead = max(0, world.cloudwatch.skew_s)
    announced = 0 if each.marked_at is None else each.marked_at + plan.grace_s - ahead
    in_flight = False
    back = None
    for start, end in requests(plan):
        if start < life.in_service_at:
            continue
        if start > off:
            back = start
            break
        if start <= until or start <= shown_by or start <= announced:
            until = max(until, (end if world.cloudwatch.concurrency else start) + promise)
            in_flight = in_flight or end > off
    verdict.in_flight += in_flight
    verdict.too_early += off < until
    verdict.before_return += back is not None and back <= until
    if each.kept_until > off:
        verdict.kept_killed += 1
        verdict.notes.append(
            f"{plan.name} turned off for idleness at {off} though kept until {each.kept_until}"
        )
    if off < until:
        verdict.notes.append(
            f"{plan.name} turned off {until - off} s early at {off} (marked {each.marked_at})"
        )


def _limits(world: World, each: Ended, verdict: Verdict) -> None:
    life, off = each.life, each.life.deleting_at
    limit = each.expires_at + _drain_s(life, each.expires_at, off or world.end)
    if (off if off is not None else world.end) > limit:
        verdict.survivors += 1
        verdict.notes.append(f"{life.plan.name} alive after {limit} (expired {each.expires_at}, ended {off})")


def _drain_s(life: Life, expires: int, off: int) -> int:
    """What the last line may take: the switch, half an hour later the endpoint, a try every ten minutes.

    While AWS refuses, nobody can delete; each of its lies costs one more try, and so does a status that ends.
    """
    plan = life.plan
    busy = max(0, min(off, life.in_service_at) - expires)
    busy += sum(max(0, min(off, flap.end) - max(expires, flap.begin)) for flap in plan.flaps)
    tries = 1 + plan.lies + (2 if busy else 0) + (2 if plan.components else 0)
    return (HARD_S if plan.owner == "stack" else 0) + busy + RATE_S * tries


def _waste(world: World, each: Ended, verdict: Verdict) -> None:
    life = each.life
    end = life.deleting_at if life.deleting_at is not None else world.end
    served_until = end if life.turning_off_at is None else life.turning_off_at
    if life.in_service_at >= end:
        return
    stretches = quiet_stretches(life, end, served_until)
    tail = stretches[-1][1] - stretches[-1][0] if stretches and stretches[-1][1] == end else 0
    verdict.left_running += life.deleting_at is None and tail > LEFT_S
    if not world.metrics_work or not _undisturbed(world, each):
        return
    allowed = life.plan.idle_s + life.plan.grace_s
    if not world.cloudwatch.zeros:
        allowed += LATEST_S
    acted = acted_at(life, end)
    longest = max((min(stop, acted) - begin for begin, stop in stretches), default=0)
    # Traffic that CloudWatch shows only after the first mark moves the mark by a sweep.
    if longest > allowed + 2 * SWEEP_S + world.cloudwatch.lag_s + MINUTE_S:
        verdict.beyond_bound += 1
        verdict.notes.append(f"{life.plan.name} quiet for {longest - allowed} s above idle plus grace")


def acted_at(life: Life, end: int) -> int:
    """Return when somebody acted on a life: before its stack took its time; ``end`` while nobody has."""
    if life.turning_off_at is None:
        return end
    return life.turning_off_at - (UPDATE_S if life.plan.owner == "stack" else 0)


def _undisturbed(world: World, each: Ended) -> bool:
    """Whether nothing of its own keeps it alive: leases, AWS's refusals, other people's updates."""
    plan = each.life.plan
    leased = any(lease.endpoint == plan.name for lease in world.leases)
    return not (leased or plan.flaps or plan.lies or plan.stack_faults or plan.fails or world.tag_lag_s)


def quiet_stretches(life: Life, end: int, served_until: int) -> list[tuple[int, int]]:
    """Return the times from the first InService to ``end`` in which nothing was in flight, oldest first."""
    stretches, quiet_from = [], life.in_service_at
    for start, stop in requests(life.plan):
        if start >= served_until or start < life.in_service_at:
            continue
        if start > quiet_from:
            stretches.append((quiet_from, start))
        quiet_from = max(quiet_from, stop)
    if quiet_from < end:
        stretches.append((quiet_from, end))
    return stretches
