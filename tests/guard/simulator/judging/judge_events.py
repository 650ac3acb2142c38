"""What the guard did to the lives of an event's world, judged by the traffic and by what CloudWatch showed.

The judge does not know the guard's rules. It knows when each request really ran, at what moment CloudWatch
first showed it, when the mark was really written, and when the first deletion or stack update was really
asked for. No request may have begun in the grace after the mark, or less than idle plus grace before the end.
"""

from __future__ import annotations

from collections import Counter

from peagle_sm.core.plan.tags_and_schedules import schedule_name
from tests.guard.simulator.guard_run import NO_REASON, GuardRun
from tests.guard.simulator.judging.judge import (
    IDLE,
    LATEST_S,
    Ended,
    Tally,
    acted_at,
    judge,
    quiet_stretches,
    requests,
)
from tests.guard.simulator.worlds.traffic import HOUR
from tests.guard.simulator.worlds.world import World

HALF_S = 20 * 60
OVERDUE_S = HOUR
SEEN_GONE_S = 15 * 60
"""A sweep sees within this that an endpoint is gone."""

LIMIT_S = 90
"""A schedule that was moved later than its life's end by more than this is wrong."""

LIMITS = ("survivors", "hours_missed", "double")
"""What counts of the plain judge: its rules about traffic would need to know which fault explains what."""


def judge_events(world: World, run: GuardRun) -> Tally:
    """Judge every life of a world."""
    tally, ended = Tally(worlds=1), run.ended()
    limits = judge(world, ended)
    for each in ended:
        if not each.life.plan.ours:
            continue
        tally.lives += 1
        tally.idle_offs += each.cause == IDLE
        _traffic(run, each, tally)
        _kept(run, each, tally)
        _half(run, each, tally)
        _overdue(world, each, tally)
        _moved(run, each, tally)
        _notices(run, each, tally)
    if limits.counts["left_running"]:
        tally.note("never_ended", "quiet for hours at the world's end")
    tally.counts += Counter({name: limits.counts[name] for name in LIMITS})
    tally.broken += [text for text in limits.broken if text.startswith(LIMITS)]
    for text in run.crashes:
        tally.note("crashes", text)
    return tally


def _traffic(run: GuardRun, each: Ended, tally: Tally) -> None:
    """Requests that were cut, by what was announced and by what CloudWatch showed."""
    life, off = each.life, each.life.turning_off_at
    if off is None or each.cause not in (IDLE, NO_REASON):
        return
    name, plan = life.plan.name, life.plan
    if each.cause == NO_REASON:
        tally.note("no_reason", f"{name} ended at {off} without a reason of its own")
        return
    acted = acted_at(life, run.account.world.end)
    if life.targets_lost_at is not None:
        # Its autoscaling was the first to go: from then on it is carried through.
        acted = min(acted, life.targets_lost_at)
    marked = each.marked_at if each.marked_at is not None else acted - plan.grace_s
    quiet_from = min(marked, acted - plan.idle_s - plan.grace_s)
    announced = marked + plan.grace_s
    seen = set()
    for start, end in requests(plan):
        if start < life.in_service_at or start > off:
            continue
        if start < quiet_from:
            if end > off:
                seen.add("streams")
            continue
        shown = run.account.metrics.first_shown(name, start, min(end, off))
        if shown is not None and shown <= acted:
            seen.add("shown")
        if shown is None and not _proof(world=run.account.world):
            seen.add("lost")
        elif start < announced:
            seen.add("in_grace")
        elif end > off and (shown is None or shown > acted):
            seen.add("blind")
    for what in sorted(seen):
        tally.note(what, f"{name} marked {marked}, announced {announced}, acted {acted}, off {off}")


def _proof(world: World) -> bool:
    """Whether what was lost could be seen to be lost: another series of the same publisher has a hole."""
    return bool(world.cloudwatch.gaps) or world.cloudwatch.zeros


def _kept(run: GuardRun, each: Ended, tally: Tally) -> None:
    """Lives that ended before the end that ``keep`` promised."""
    life, off = each.life, each.life.turning_off_at
    if off is None or each.cause in ("user", "budget"):
        return
    for lease in run.account.kept.get(id(life), ()):
        if off < lease.until:
            tally.note("kept", f"{life.plan.name} off at {off}, kept at {lease.at} until {lease.until}")
            return


def _half(run: GuardRun, each: Ended, tally: Tally) -> None:
    """Endpoints that lost a component or a scalable target, still bill, and neither go on nor come back."""
    life, account = each.life, run.account
    begun = [moment for moment in (life.turning_off_at, life.targets_lost_at) if moment is not None]
    if not begun:
        return
    failing = [
        account.first_failures.get(each.operation, 0) + each.lasting_s for each in account.world.failing
    ]
    missed = HOUR if account.world.lambdas.failing_share else 0  # Several sweeps in a row may not run.
    limit = max(min(begun), *failing, 0) + HALF_S + missed
    end = life.deleting_at if life.deleting_at is not None else account.world.end
    if end > limit:
        tally.note("half", f"{life.plan.name} half dismantled from {min(begun)} to {end}")


def _overdue(world: World, each: Ended, tally: Tally) -> None:
    """Quiet for more than an hour beyond what the rules take.

    Where CloudWatch writes nothing when idle, or is late, the lateness has to be waited out. A register item
    that was lost takes what was proven with it. While minutes are being lost, nothing proves quiet: counted
    apart. After the last of them the time begins anew.
    """
    life, rules = each.life, world.cloudwatch
    end = life.turning_off_at if life.turning_off_at is not None else world.end
    if life.plan.hours is not None or life.in_service_at >= end or each.kept_until:
        return
    if any(hang.endpoint == life.plan.name for hang in world.hangs):
        return  # Only its schedule can end it while the switch does not answer.
    once = life.plan.idle_s + life.plan.grace_s + (0 if rules.zeros and not rules.late else LATEST_S)
    allowed = once + OVERDUE_S + sum(each.lasting_s for each in world.failing)
    allowed += once * sum(bad.endpoint == life.plan.name for bad in world.bad_items)
    longest = known = 0
    for begin, stop in quiet_stretches(life, end, end):
        lost_until = max((last for first, last in rules.lost if first < stop), default=0)
        longest = max(longest, stop - begin)
        known = max(known, stop - max(begin, lost_until))
    if longest > allowed:
        name = "overdue" if known > allowed else "unproven"
        tally.note(name, f"{life.plan.name} quiet for {longest - allowed} s too long, ended {end}")


def _notices(run: GuardRun, each: Ended, tally: Tally) -> None:
    """Count lives with more than three notices within a day.

    A lease needs one of its own, and a register item that was lost takes with it what was sent.
    """
    life, name = each.life, each.life.plan.name
    lost = any(bad.endpoint == name for bad in run.account.world.bad_items)
    if lost or run.account.kept.get(id(life)):
        return
    end = run.account.world.end if life.gone_at is None else life.gone_at + SEEN_GONE_S
    about = (at for at, subject, _ in run.aws.notices if f": {name} " in subject)
    sent = sorted(at for at in about if life.created_at < at <= end)
    if any(later - first < 24 * HOUR for first, later in zip(sent, sent[3:], strict=False)):
        tally.note("notices", f"{len(sent)} about {name}")


def _moved(run: GuardRun, each: Ended, tally: Tally) -> None:
    """Lives with a lifetime schedule later than their end, although nobody kept them."""
    life = each.life
    if any(lease.endpoint == life.plan.name for lease in run.account.world.leases):
        return
    end = life.gone_at if life.gone_at is not None else run.account.world.end
    for at, name, start in run.account.scheduler.log:
        if (
            name == schedule_name(life.plan.name)
            and life.created_at < at < end
            and start > life.expires_at + LIMIT_S
        ):
            tally.note("schedule_moved", f"{life.plan.name} at {at} from {life.expires_at} to {start}")
            return
