"""What went wrong in a world, and what it cost: from the truth of the traffic alone.

The promise that is judged: an endpoint is turned off for idleness only after idle plus grace without use.
Use is a request in flight where CloudWatch shows concurrency, and an arrival where it does not; a request
in flight as the endpoint goes is counted against the guard in both. A request is *protected* if it
arrives within idle plus grace of the last use (or of the first InService), within the grace of the mark
that was announced, or early enough that CloudWatch could show it before the deletion. What comes after
the grace in the last minutes before the deletion, which CloudWatch cannot have shown, does not count.
"""

from __future__ import annotations

from collections import Counter
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


EXPLAINED = ("blind", "lost", "streams", "unproven", "left_running")
"""What no datapoint could show, and what only some worlds promise: counted apart."""


@dataclass(slots=True)
class Tally:
    """What was seen in worlds of one kind."""

    worlds: int = 0
    lives: int = 0
    idle_offs: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """How often each promise was broken, and what is counted apart."""
    broken: list[str] = field(default_factory=list)
    """Each broken promise, in words."""

    def note(self, name: str, text: str) -> None:
        """Count something; unless it is explained, remember where."""
        self.counts[name] += 1
        if name not in EXPLAINED:
            self.broken.append(f"{name}: {text}")

    def add(self, other: Tally) -> None:
        """Add what was seen in other worlds."""
        self.worlds += other.worlds
        self.lives += other.lives
        self.idle_offs += other.idle_offs
        self.counts.update(other.counts)
        self.broken += other.broken


def judge(world: World, ended: list[Ended]) -> Tally:
    """Judge every life of a world."""
    tally = Tally(worlds=1)
    for each in ended:
        life = each.life
        if not life.plan.ours:
            if life.ended_by not in ("", "user"):
                tally.note("foreign", f"{life.plan.name} deleted by {life.ended_by}")
            continue
        tally.lives += 1
        if life.double_actions:
            tally.note("double", f"{life.plan.name} deleted again {life.double_actions} times")
        _waste(world, each, tally)
        _limits(world, each, tally)
        if each.cause == IDLE:
            _idle(world, each, tally)
    if world.metrics_work:
        _hours(world, ended, tally)
    return tally


def _hours(world: World, ended: list[Ended], tally: Tally) -> None:
    timed = [each for each in ended if each.life.plan.hours is not None]
    if timed and all(_undisturbed(world, each) for each in timed):
        missed = missed_hours(world, [(each.life, each.cause) for each in timed])
        for text in missed:
            tally.note("hours_missed", text)


def requests(plan: Plan) -> list[tuple[int, int]]:
    """Return all requests of an endpoint, whichever variant they go to, in the order of arrival."""
    return sorted(pair for _, lane in plan.traffic for pair in zip(lane.starts, lane.ends, strict=True))


def _idle(world: World, each: Ended, tally: Tally) -> None:
    life = each.life
    plan, off = life.plan, life.turning_off_at
    if off is None or life.deleting_at is None:
        return
    tally.idle_offs += 1
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
    text = f"{plan.name} off for idleness at {off} (marked {each.marked_at})"
    if in_flight:
        tally.note("in_flight", f"{text}, a request in flight")
    if back is not None and back <= until:
        tally.note("before_return", f"{text}, a request within the grace at {back}")
    if each.kept_until > off:
        tally.note("kept_killed", f"{text}, kept until {each.kept_until}")
    if off < until:  # harm or not
        tally.note("too_early", f"{text}, {until - off} s early")


def _limits(world: World, each: Ended, tally: Tally) -> None:
    life, off = each.life, each.life.deleting_at
    limit = each.expires_at + _drain_s(life, each.expires_at, off or world.end)
    if (off if off is not None else world.end) > limit:
        text = f"{life.plan.name} alive after {limit} (expired {each.expires_at}, ended {off})"
        tally.note("survivors", text)


def _drain_s(life: Life, expires: int, off: int) -> int:
    """What the last line may take: the switch, half an hour later the endpoint, a try every ten minutes.

    While AWS refuses, nobody can delete; each of its lies costs one more try, and so does a status that ends.
    """
    plan = life.plan
    busy = max(0, min(off, life.in_service_at) - expires)
    busy += sum(max(0, min(off, flap.end) - max(expires, flap.begin)) for flap in plan.flaps)
    tries = 1 + plan.lies + (2 if busy else 0) + (2 if plan.components else 0)
    return (HARD_S if plan.owner == "stack" else 0) + busy + RATE_S * tries


def _waste(world: World, each: Ended, tally: Tally) -> None:
    life = each.life
    end = life.deleting_at if life.deleting_at is not None else world.end
    served_until = end if life.turning_off_at is None else life.turning_off_at
    if life.in_service_at >= end:
        return
    stretches = quiet_stretches(life, end, served_until)
    tail = stretches[-1][1] - stretches[-1][0] if stretches and stretches[-1][1] == end else 0
    tally.counts["left_running"] += life.deleting_at is None and tail > LEFT_S
    if not world.metrics_work or not _undisturbed(world, each):
        return
    allowed = life.plan.idle_s + life.plan.grace_s
    if not world.cloudwatch.zeros:
        allowed += LATEST_S
    acted = acted_at(life, end)
    longest = max((min(stop, acted) - begin for begin, stop in stretches), default=0)
    # Traffic that CloudWatch shows only after the first mark moves the mark by a sweep.
    if longest > allowed + 2 * SWEEP_S + world.cloudwatch.lag_s + MINUTE_S:
        text = f"{life.plan.name} quiet for {longest - allowed} s above idle plus grace"
        tally.note("beyond_bound", text)


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
