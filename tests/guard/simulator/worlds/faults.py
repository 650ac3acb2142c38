"""What goes wrong in a world: each fault changes a draft of it, drawn from the world's own random numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from tests.guard.simulator.worlds.traffic import DAY, HOUR
from tests.guard.simulator.worlds.world import CloudWatch, Flap, Interval, Lambdas, Lease, Plan

MINUTE = 60


@dataclass(slots=True)
class Draft:
    """A world in the making."""

    random: Random
    begin: int
    end: int
    plans: list[Plan]
    cloudwatch: CloudWatch
    lambdas: Lambdas
    throttled_share: float
    tag_lag_s: int
    leases: list[Lease]


def _intervals(draft: Draft, count: int, shortest_s: int, longest_s: int) -> tuple[Interval, ...]:
    random, faults = draft.random, []
    for _ in range(count):
        begin = int(random.uniform(draft.begin, draft.end))
        faults.append((begin, begin + random.randint(shortest_s, longest_s)))
    return tuple(sorted(faults))


def late(draft: Draft) -> None:
    """Datapoints come two to five minutes after their minute."""
    draft.cloudwatch = replace(draft.cloudwatch, lag_s=draft.random.randint(121, 300))


def gaps(draft: Draft) -> None:
    """Some minutes never get a datapoint."""
    count = draft.random.randint(1, 30)
    draft.cloudwatch = replace(draft.cloudwatch, gaps=_intervals(draft, count, MINUTE, 40 * MINUTE))


def stale(draft: Draft) -> None:
    """For a while nothing new appears; later it does."""
    count = draft.random.randint(1, 4)
    draft.cloudwatch = replace(draft.cloudwatch, stale=_intervals(draft, count, 5 * MINUTE, 3 * HOUR))


def blind(draft: Draft) -> None:
    """The metrics end for good at some moment."""
    begin = int(draft.random.uniform(draft.begin, draft.end - 6 * HOUR))
    draft.cloudwatch = replace(draft.cloudwatch, gaps=((begin, draft.end + 30 * DAY),))


def errors(draft: Draft) -> None:
    """GetMetricData fails for minutes to hours."""
    count = draft.random.randint(1, 6)
    draft.cloudwatch = replace(draft.cloudwatch, errors=_intervals(draft, count, MINUTE, 2 * HOUR))


def skewed(draft: Draft) -> None:
    """CloudWatch's clock is up to two minutes off the guard's."""
    draft.cloudwatch = replace(
        draft.cloudwatch, skew_s=draft.random.choice((-1, 1)) * draft.random.randint(5, 120)
    )


def failing(draft: Draft) -> None:
    """A share of the sweeps never runs."""
    draft.lambdas = replace(draft.lambdas, failing_share=draft.random.uniform(0.05, 0.9))


def outage(draft: Draft) -> None:
    """No function of the guard runs for hours."""
    count = draft.random.randint(1, 3)
    draft.lambdas = replace(draft.lambdas, outages=_intervals(draft, count, 10 * MINUTE, 8 * HOUR))


def dead(draft: Draft) -> None:
    """No function of the guard ever runs."""
    draft.lambdas = replace(draft.lambdas, dead=True)


def twice(draft: Draft) -> None:
    """Sweeps are delivered twice."""
    draft.lambdas = replace(draft.lambdas, twice_share=draft.random.uniform(0.1, 0.6))


def throttled(draft: Draft) -> None:
    """A share of all calls is refused for being too many."""
    draft.throttled_share = draft.random.uniform(0.02, 0.3)


def lagging_tags(draft: Draft) -> None:
    """tag:GetResources is minutes behind."""
    draft.tag_lag_s = draft.random.randint(60, 30 * MINUTE)


def leased(draft: Draft) -> None:
    """People say keep; some of it is lost on the way."""
    ours = [plan for plan in draft.plans if plan.ours]
    for _ in range(draft.random.randint(1, 4) if ours else 0):
        plan, at = draft.random.choice(ours), int(draft.random.uniform(draft.begin, draft.end - HOUR))
        until = at + draft.random.randint(15, 300) * MINUTE
        draft.leases.append(Lease(at, plan.name, until, lost=draft.random.random() < 0.3))
    draft.leases.sort(key=lambda lease: lease.at)


def _each_of_ours(draft: Draft, change: Callable[[Plan], Plan]) -> None:
    draft.plans = [change(plan) if plan.ours else plan for plan in draft.plans]


def flapping(draft: Draft) -> None:
    """Updates, roll-backs and AWS's own patches, some just as the endpoint becomes idle or expires."""
    random = draft.random

    def flap(plan: Plan) -> Plan:
        ends = [traffic.ends[-1] for _, traffic in plan.traffic if traffic.ends]
        bad = [
            plan.created_at + round(plan.lifetime_hours * HOUR) - 120,
            max(ends, default=plan.created_at) + plan.idle_s + plan.grace_s,
        ]
        rows = []
        for _ in range(random.randint(1, 4)):
            anywhere = random.uniform(plan.created_at + plan.creating_s, draft.end)
            begin = int(random.choice((anywhere, *bad)) + random.uniform(-600, 300))
            status = random.choice(("Updating", "SystemUpdating", "RollingBack", "Updating"))
            rows.append(Flap(begin, begin + random.randint(2 * MINUTE, 50 * MINUTE), status))
        return replace(plan, flaps=tuple(sorted(rows, key=lambda each: each.begin)))

    _each_of_ours(draft, flap)


def slow_to_create(draft: Draft) -> None:
    """Creating takes up to two hours, or fails; the lifetime may end before it does."""
    random = draft.random
    _each_of_ours(
        draft,
        lambda plan: replace(
            plan,
            creating_s=random.randint(20, 120) * MINUTE,
            fails=random.random() < 0.3,
            lifetime_hours=random.choice((plan.lifetime_hours, random.uniform(0.1, 2.5))),
        ),
    )


def stubborn(draft: Draft) -> None:
    """DeleteEndpoint answers 200 and does nothing, once or several times; Deleting is slow."""
    random = draft.random
    _each_of_ours(
        draft, lambda plan: replace(plan, lies=random.randint(1, 4), drain_s=random.randint(30, 30 * MINUTE))
    )


def busy_stacks(draft: Draft) -> None:
    """Somebody else's stack update is in progress, for minutes to hours."""
    _each_of_ours(
        draft,
        lambda plan: replace(plan, stack_faults=_intervals(draft, 3, 5 * MINUTE, 2 * HOUR)),
    )


FAULTS: dict[str, Callable[[Draft], None]] = {
    "late metrics": late,
    "gaps": gaps,
    "stale metrics": stale,
    "metrics end": blind,
    "metric errors": errors,
    "clock skew": skewed,
    "sweeps fail": failing,
    "Lambda outage": outage,
    "Lambda dead": dead,
    "sweeps twice": twice,
    "throttling": throttled,
    "lagging tags": lagging_tags,
    "leases": leased,
    "status flaps": flapping,
    "slow or failed creation": slow_to_create,
    "deletes that do nothing": stubborn,
    "busy stacks": busy_stacks,
}
"""Every fault by its name in the report."""
