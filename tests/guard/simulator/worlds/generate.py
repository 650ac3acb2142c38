"""From a seed to a world: endpoints, traffic, and none to four faults."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

from tests.guard.simulator.worlds.faults import FAULTS, Draft
from tests.guard.simulator.worlds.timetables import CLOCK_CHANGES, timetable
from tests.guard.simulator.worlds.traffic import DAY, HOUR, SHAPES, Span, Traffic
from tests.guard.simulator.worlds.world import CloudWatch, Lambdas, Plan, World

CLEAR_SHARE = 0.3
"""Share of the worlds in which nothing goes wrong."""

DEAD_SHARE = 0.04
FLEET_SHARE = 0.002
FLEET = 250
"""Endpoints of a world that fills several pages."""

TIMETABLE_SHARE = 0.03
REUSE_SHARE = 0.08


def make_world(seed: int) -> World:
    """Make the world of a seed; the same seed gives the same world."""
    random = Random(seed)
    begin = _begin(random)
    end = begin + DAY
    fleet = random.random() < FLEET_SHARE
    timed = not fleet and random.random() < TIMETABLE_SHARE
    if timed:
        end = begin + 3 * DAY
    plans = _fleet(random, begin, end) if fleet else _plans(random, begin, end)
    extra = {"250 endpoints"} if fleet else set()
    if timed:
        plans[0] = _timed(random, plans[0], begin, end)
        extra.add("timetable")
    elif not fleet and random.random() < REUSE_SHARE:
        plans.append(_reused(random, plans[0], end))
        extra.add("reused names")
    if any(not plan.ours for plan in plans):
        extra.add("foreign endpoints")
    draft = Draft(random, begin, end, plans, _cloudwatch(random), Lambdas(), 0.0, 0, [])
    chosen = _faults(random)
    for name in chosen:
        FAULTS[name](draft)
    return World(
        seed=seed,
        begin=begin,
        end=end,
        plans=tuple(draft.plans),
        cloudwatch=draft.cloudwatch,
        lambdas=draft.lambdas,
        throttled_share=draft.throttled_share,
        tag_lag_s=draft.tag_lag_s,
        leases=tuple(draft.leases),
        faults=frozenset(extra | set(chosen)),
    )


def _begin(random: Random) -> int:
    """A minute of some day in 2026; every third world begins just before a clock change."""
    if random.random() < 1 / 3:
        day = datetime.combine(random.choice(CLOCK_CHANGES), datetime.min.time(), tzinfo=UTC) - timedelta(
            days=1
        )
    else:
        day = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=random.randrange(365))
    return int(day.timestamp()) + random.randrange(DAY // 60) * 60


def _cloudwatch(random: Random) -> CloudWatch:
    return CloudWatch(
        lag_s=random.randint(30, 120), zeros=random.random() < 0.5, concurrency=random.random() < 0.7
    )


def _faults(random: Random) -> list[str]:
    if random.random() < DEAD_SHARE:
        others = [name for name in FAULTS if name not in ("Lambda dead", "sweeps twice")]
        return ["Lambda dead", *random.sample(others, random.choice((0, 1, 2)))]
    if random.random() < CLEAR_SHARE:
        return []
    return random.sample([name for name in FAULTS if name != "Lambda dead"], random.choice((1, 1, 2, 3, 4)))


def _plans(random: Random, begin: int, end: int) -> list[Plan]:
    count = random.choice((1, 1, 1, 2, 3))
    plans = [_plan(random, f"code-{index}", begin, end) for index in range(count)]
    if random.random() < 0.25:
        ours = plans[0].name
        similar = random.choice((f"{ours}-2", f"my-{ours}", f"{ours}x", ours[:-1]))
        plan = _plan(random, similar, begin, end)
        plans.append(replace(plan, owner="foreign", borrowed_tags=random.random() < 0.4, lifetime_hours=1e6))
    return plans


def _plan(random: Random, name: str, begin: int, end: int) -> Plan:
    idle = random.choice((5, 10, 15, 15, 20, 30, 30, 45, 60, 90))
    grace = random.choice((10, 10, 10, 12, 15, 20, 30))
    created = begin + random.randrange(0, 2 * HOUR)
    creating = random.randint(3, 15) * 60
    owner = random.choice(("stack", "direct"))
    lifetime = random.choice((random.uniform(1, 8), random.uniform(4, 20), 8.0))
    span = Span(created + creating, end - 4 * HOUR, idle * 60, grace * 60)
    components = random.random() < 0.15
    return Plan(
        name=name,
        owner=owner,
        created_at=created,
        creating_s=creating,
        traffic=_lanes(random, name, span, components),
        idle_minutes=idle,
        grace_minutes=grace,
        lifetime_hours=round(lifetime, 2),
        components=components,
        drain_s=random.randint(20, 300),
        budget_usd=round(random.uniform(100, 1500), 2) if random.random() < 0.15 else None,
    )


def _lanes(random: Random, name: str, span: Span, components: bool) -> tuple[tuple[str, Traffic], ...]:
    """Spread the traffic over one to three variants or components; often only the last gets any."""
    requests = random.choice(list(SHAPES.values()))(random, span)
    count = random.choice((1, 1, 1, 2, 3)) if not components else random.choice((1, 2, 3))
    names = [f"{name}-copy-{i}" for i in range(count)] if components else ["AllTraffic", "B", "C"][:count]
    lanes: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    only_last = random.random() < 0.5
    for request in requests:
        lanes[names[-1] if only_last else random.choice(names)].append(request)
    return tuple((name, Traffic.of(each)) for name, each in lanes.items())


def _timed(random: Random, plan: Plan, begin: int, end: int) -> Plan:
    hours = timetable(random, begin, end)
    return replace(plan, hours=hours, budget_usd=None, lifetime_hours=round(random.uniform(6, 200), 2))


def _reused(random: Random, first: Plan, end: int) -> Plan:
    """Somebody deletes the endpoint and makes a new one of the same name, perhaps not even one of ours."""
    at = first.created_at + random.randrange(HOUR // 2, 10 * HOUR)
    again = _plan(random, first.name, at, end)
    owner = random.choice((first.owner, "direct", "foreign"))
    foreign = owner == "foreign"
    return replace(
        again,
        owner=owner,
        created_at=at,
        traffic=tuple((name, _from(traffic, at)) for name, traffic in again.traffic),
        lifetime_hours=1e6 if foreign else again.lifetime_hours,
        budget_usd=None if foreign else again.budget_usd,
    )


def _from(traffic: Traffic, moment: int) -> Traffic:
    kept = [pair for pair in zip(traffic.starts, traffic.ends, strict=True) if pair[0] >= moment]
    return Traffic.of(kept)


def _fleet(random: Random, begin: int, end: int) -> list[Plan]:
    """250 endpoints: most of ours long gone within hours, some foreign among them."""
    plans = []
    for index in range(FLEET):
        plan = _plan(random, f"fleet-{index:03}", begin, end)
        foreign = random.random() < 0.2
        lifetime = 1e6 if foreign else random.uniform(0.5, 3)
        plan = replace(
            plan, owner="foreign" if foreign else plan.owner, lifetime_hours=lifetime, budget_usd=None
        )
        plans.append(plan)
    return plans
