"""The kinds of worlds: mixed ones, and one kind for each event that a guard may meet on AWS.

A kind's worlds have short lives and traffic that returns around the announced end, where harm is done. What
the events look like is written from AWS's documentation, not from the guard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.guard.simulator.guard_run import run_guard
from tests.guard.simulator.making import BEGIN, MINUTE
from tests.guard.simulator.worlds.generate import make_world
from tests.guard.simulator.worlds.timetables import repeated_hour
from tests.guard.simulator.worlds.traffic import HOUR, Requests, Traffic
from tests.guard.simulator.worlds.world import (
    BadItem,
    CloudWatch,
    Failing,
    Flap,
    Hang,
    Hours,
    Lambdas,
    Late,
    Lease,
    Plan,
    World,
)

LENGTH = 8 * HOUR


@dataclass(slots=True)
class Draft:
    """What a kind draws from."""

    random: Random
    seed: int
    begin: int

    def plan(self, name: str = "code", **changes: Any) -> Plan:
        """An endpoint of ours with traffic that returns around the announced end."""
        random = self.random
        created = self.begin + random.randrange(20 * MINUTE)
        plain = Plan(
            name=name,
            owner=random.choice(("stack", "direct")),
            created_at=created,
            creating_s=random.randint(3, 10) * MINUTE,
            traffic=(),
            idle_minutes=random.choice((5, 10, 15, 15, 20, 30)),
            grace_minutes=random.choice((10, 10, 12, 15, 20)),
            lifetime_hours=round(random.uniform(3, 6), 2),
            drain_s=random.randint(20, 300),
        )
        plain = replace(plain, **changes)
        return plain if plain.traffic else replace(plain, traffic=self.lanes(plain, self.returning(plain)))

    def returning(self, plan: Plan) -> Requests:
        """A few requests, then silence that ends around the mark, in the grace, or soon after it."""
        random = self.random
        requests, moment = [], float(plan.created_at + plan.creating_s + random.uniform(0, HOUR / 2))
        for _ in range(random.randint(1, 6)):
            for _ in range(random.choice((1, 1, 1, 2, 6))):
                length = random.choice((2, 5, 20, 60, 240, 470))
                requests.append((int(moment), int(moment) + length))
                moment += length * random.uniform(0.2, 1.2)
            moment += plan.idle_s + random.uniform(-3 * MINUTE, plan.grace_s + 25 * MINUTE)
        return requests

    def lanes(self, plan: Plan, requests: Requests, count: int = 1) -> tuple[tuple[str, Traffic], ...]:
        """Spread requests over variants or components."""
        names = (
            [f"{plan.name}-copy-{n}" for n in range(count)] if plan.components else ["AllTraffic", "B", "C"]
        )
        lanes: dict[str, Requests] = {name: [] for name in names[:count]}
        for request in requests:
            lanes[self.random.choice(names[:count])].append(request)
        return tuple((name, Traffic.of(each)) for name, each in lanes.items())

    def cloudwatch(self, **changes: Any) -> CloudWatch:
        """A CloudWatch that is on time."""
        random = self.random
        plain = CloudWatch(
            lag_s=random.randint(30, 120), zeros=random.random() < 0.5, concurrency=random.random() < 0.6
        )
        return replace(plain, **changes)

    def world(self, *plans: Plan, **changes: Any) -> World:
        """A world of these endpoints."""
        plain = World(
            seed=self.seed,
            begin=self.begin,
            end=self.begin + LENGTH,
            plans=plans,
            cloudwatch=changes.pop("cloudwatch", None) or self.cloudwatch(),
        )
        return replace(plain, **changes)


def late_requests(draft: Draft) -> World:
    """The request metrics come 5 to 24 minutes late, steadily or growing; the utilisation is on time."""
    return draft.world(draft.plan(), cloudwatch=draft.cloudwatch(late=_lateness(draft)))


def _lateness(draft: Draft) -> tuple[Late, ...]:
    random, rows, begin = draft.random, list[Late](), draft.begin
    while begin < draft.begin + LENGTH:
        end = begin + random.choice((30, 60, 120, 480)) * MINUTE
        first = random.randint(5, 24) * MINUTE
        last = random.choice((first, random.randint(5, 24) * MINUTE))
        rows.append(Late(begin, end, first, last))
        begin = end + random.choice((0, 0, 20, 60)) * MINUTE
    return tuple(rows)


def lost_requests(draft: Draft) -> World:
    """The request metrics are not written for up to 24 minutes, now and again; the utilisation is."""
    random, gaps, moment = draft.random, list[tuple[int, int]](), float(draft.begin)
    while moment < draft.begin + LENGTH:
        moment += random.uniform(5, 60) * MINUTE
        length = random.choice((6, 12, 24, 24)) * MINUTE
        gaps.append((int(moment), int(moment) + length))
        moment += length
    return draft.world(draft.plan(), cloudwatch=draft.cloudwatch(request_gaps=tuple(gaps)))


def lost_minutes(draft: Draft) -> World:
    """Minutes of one publisher or of both are never written: one, some, one in each so many, or hours."""
    random = draft.random
    plan = draft.plan(lifetime_hours=30.0, idle_minutes=random.choice((5, 10, 15, 30, 60, 120)))
    if random.random() < 0.5:
        plan = replace(plan, traffic=draft.lanes(plan, []))
    elif random.random() < 0.7:
        plan = replace(plan, traffic=draft.lanes(plan, draft.returning(plan)[:2]))
    lost = _lost(draft, plan)
    where = random.choice(("gaps", "gaps", "request_gaps", "host_gaps"))
    # Where nothing is written without traffic, nobody can see that requests are lost: another kind.
    more = {"zeros": True} if where == "request_gaps" else {}
    return draft.world(
        plan, cloudwatch=draft.cloudwatch(**{where: lost}, **more), end=draft.begin + 24 * HOUR
    )


def _lost(draft: Draft, plan: Plan) -> tuple[tuple[int, int], ...]:
    """Draw lost minutes: near the mark and the grace, periodic ones, or hours; they end after 14 hours."""
    random, served = draft.random, plan.created_at + plan.creating_s
    period = plan.idle_s + plan.grace_s
    last = draft.begin + 14 * HOUR

    def minute() -> int:
        return (served + random.randrange(random.choice((period, 2 * period, 10 * HOUR)))) // MINUTE * MINUTE

    pattern = random.choice(("one", "one", "some", "periodic", "periodic", "hours"))
    if pattern == "periodic":
        every = random.choice((2, 3, 7, plan.idle_minutes, period // MINUTE + random.randint(-5, 5), 60))
        end = random.choice((served + 3 * HOUR, last))
        return tuple((at, at + MINUTE) for at in range(minute(), end, max(2, every) * MINUTE))
    if pattern == "hours":
        begin = minute()
        return ((begin, min(last, begin + random.randint(10, 7 * 60) * MINUTE)),)
    return tuple((at, at + MINUTE) for at in {minute() for _ in range(1 if pattern == "one" else 6)})


def late_sweeps(draft: Draft) -> World:
    """A sweep runs three, five or eight minutes after the time in its event."""
    random = draft.random
    delay_s = random.choice((180, 300, 480))
    delays = random.choice(((delay_s,), (0, delay_s), (0, 0, delay_s), (180, 300, 480), (0, 180, 0, 480)))
    return draft.world(draft.plan(), lambdas=Lambdas(delays_s=delays))


def clocks(draft: Draft) -> World:
    """The guard's clock is up to seven minutes ahead of, or behind, the clock of SageMaker and CloudWatch."""
    offset = draft.random.choice((-1, 1)) * draft.random.choice((30, 90, 180, 300, 420))
    return draft.world(draft.plan(), lambdas=Lambdas(clock_s=offset))


def kept(draft: Draft) -> World:
    """Keep at any moment of a life: around the mark, in the turn-off, before and after the limit's event."""
    random = draft.random
    plan = draft.plan(lifetime_hours=round(random.uniform(1, 3), 2))
    expires = plan.created_at + round(plan.lifetime_hours * HOUR)
    if random.random() < 0.4:
        steady = [(at, at + 5) for at in range(plan.created_at, draft.begin + LENGTH, 200)]
        plan = replace(plan, traffic=draft.lanes(plan, steady))
    world = draft.world(plan, delivery_s=random.choice((0, 0, 30, 59, 110)))
    life = run_guard(world).account.sagemaker.lives[0]
    off = life.turning_off_at or expires
    leases = []
    for _ in range(random.choice((1, 1, 2))):
        at = random.choice(
            (
                random.uniform(plan.created_at, expires + 600),
                off + random.uniform(-120, plan.drain_s),
                off + random.uniform(-120, plan.drain_s),
                expires + random.uniform(-120, 900),
            )
        )
        until = int(at) + random.randint(15, 240) * MINUTE
        leases.append(Lease(int(at), plan.name, until, takes_s=random.choice((0, 1, 5, 20, 60))))
    return replace(world, leases=tuple(sorted(leases, key=lambda lease: lease.at)))


def stack_tag(draft: Draft) -> World:
    """An idle endpoint has a tag peagle-sm:stack that names the stack of another, which is busy."""
    random = draft.random
    busy = draft.plan("chat", owner="stack")
    begin = busy.created_at + busy.creating_s
    end = draft.begin + 4 * HOUR
    steady = [(at, at + 20) for at in range(begin + 30, end, random.choice((60, 120, 240)))]
    busy = replace(busy, traffic=draft.lanes(busy, steady), lifetime_hours=round(random.uniform(5, 9), 2))
    idle = draft.plan(
        "code", stack_tag=random.choice(("Peagle-chat", "Peagle-chat", "Network", "Peagle-gone"))
    )
    return draft.world(busy, idle, end=end)


def redelivery(draft: Draft) -> World:
    """Every event comes twice: each sweep, each firing of a schedule, each wake."""
    random = draft.random
    lambdas = Lambdas(twice_share=1.0, redelivered=True)
    if random.random() < 0.8:
        return draft.world(draft.plan(), lambdas=lambdas, delivery_s=random.choice((0, 40)))
    begin = draft.begin
    hours = Hours(
        "Mon-Sun 00:00-02:00 UTC",
        tuple((begin + n * 24 * HOUR, begin + (n * 24 + 2) * HOUR) for n in range(3)),
    )
    plan = draft.plan(owner="direct", hours=hours, lifetime_hours=round(random.uniform(1, 40), 2))
    if random.random() < 0.5:
        steady = [(at, at + 5) for at in range(plan.created_at, begin + 27 * HOUR, 120)]
        plan = replace(plan, traffic=draft.lanes(plan, steady))
    return draft.world(plan, lambdas=lambdas, end=begin + 27 * HOUR)


def dismantling(draft: Draft) -> World:
    """The first, second or third step of a turn-off fails for minutes, and then traffic comes back."""
    random = draft.random
    components = random.random() < 0.7
    plan = draft.plan(owner="direct", components=components, scales=random.random() < 0.6)
    plan = replace(
        plan, traffic=draft.lanes(plan, draft.returning(plan), random.choice((2, 3)) if components else 1)
    )
    operation = random.choice(("DeleteInferenceComponent", "DeleteInferenceComponent", "DeleteEndpoint"))
    if not components:
        operation = "DeleteEndpoint"
    nth = random.choice((1, 2, 2, 3)) if operation == "DeleteInferenceComponent" else 1
    failing = Failing(operation, nth, random.choice((4, 9, 14, 30, 45)) * MINUTE)
    return draft.world(plan, failing=(failing,))


def hanging_switch(draft: Draft) -> World:
    """The switch does not answer for one of several endpoints, for an hour or for good."""
    random = draft.random
    plans = [draft.plan(name) for name in ("apple", "code", "fig", "plum")[: random.choice((2, 3, 4))]]
    hangs = []
    for plan in random.sample(plans, random.choice((1, 1, 2)) if len(plans) > 2 else 1):
        begin = draft.begin + random.randrange(2 * HOUR)
        hangs.append(Hang(plan.name, begin, random.choice((begin + HOUR, draft.begin + LENGTH))))
    return draft.world(*plans, hangs=tuple(hangs))


BAD_VALUES = (
    ("instances", ("N", "1.5")),
    ("instances", ("S", "two")),
    ("wake_tries", ("S", "two")),
    ("tags_json", ("S", "{not json")),
    ("tags_json", ("S", "[]")),
    ("tags_json", ("N", "7")),
    ("variants", ("S", "[")),
    ("variants", ("S", "7")),
    ("spent_usd", ("S", "inf")),
    ("spent_usd", ("S", "much")),
    ("marked_at", ("N", "1780272000")),
    ("marked_at", ("S", "yesterday")),
    ("keep_until", ("S", "9999-12-31T23:59:59-12:00")),
    ("expires_at", ("S", "2026-13-01T00:00:00")),
    ("created_at", ("S", "")),
    ("off_by", ("S", "boredom")),
    ("version", ("N", "0.5")),
    ("paused", ("S", "true")),
)


def bad_items(draft: Draft) -> World:
    """An attribute of one item of the register becomes unreadable; other endpoints are in it too."""
    random = draft.random
    plans = [draft.plan(name) for name in ("apple", "code", "fig")[: random.choice((1, 2, 3))]]
    rows = []
    for _ in range(random.choice((1, 1, 2))):
        attribute, value = random.choice(BAD_VALUES)
        name = random.choice((plans[0].name, plans[0].name, "gone-long-ago"))
        rows.append(BadItem(draft.begin + random.randrange(3 * HOUR), name, attribute, value))
    return draft.world(*plans, bad_items=tuple(sorted(rows, key=lambda bad: bad.at)))


def long_streams(draft: Draft) -> World:
    """No concurrency series, and streams of 40 to 90 minutes."""
    random = draft.random
    plan = draft.plan(lifetime_hours=7.0)
    moment, streams = float(plan.created_at + plan.creating_s + random.uniform(0, HOUR)), []
    for _ in range(random.randint(1, 3)):
        length = random.randint(40, 90) * MINUTE
        streams.append((int(moment), int(moment) + length))
        moment += length + random.uniform(0, plan.idle_s + plan.grace_s)
    plan = replace(plan, traffic=draft.lanes(plan, streams))
    return draft.world(plan, cloudwatch=draft.cloudwatch(concurrency=False))


def scale_out(draft: Draft) -> World:
    """After a scale-out every second minute is lost, with the requests in it."""
    random = draft.random
    at = draft.begin + random.randint(20, 90) * MINUTE
    after = random.choice(((1, 2), (2, 4), (1, 3)))
    plan = draft.plan(
        instances=((draft.begin, after[0]), (at, after[1])), flaps=(Flap(at, at + 180, "Updating"),)
    )
    every, end = random.choice((2, 2, 2, 3)), at + random.randint(2, 6) * HOUR
    gaps = tuple((minute, minute + MINUTE) for minute in range(at, end, every * MINUTE))
    hidden = [(_into(start, at, every), 0) for start, _ in draft.returning(plan)]
    hidden = [(start, start + random.choice((2, 5, 25))) for start, _ in hidden]
    plan = replace(plan, traffic=draft.lanes(plan, hidden))
    jitter = random.choice((0, 0, 7, 13))
    cloudwatch = draft.cloudwatch(gaps=gaps, concurrency=random.random() < 0.3, jitter_every=jitter)
    return draft.world(plan, cloudwatch=cloudwatch)


def _into(start: int, begin: int, every: int) -> int:
    """Move a request into the next lost minute."""
    if start < begin:
        return start
    minute = begin + -(-(start - begin) // (every * MINUTE)) * every * MINUTE
    return minute + start % 30


def publish_interval(draft: Draft) -> World:
    """The utilisation, and with enhanced metrics the requests too, are published every 10 s to 5 minutes."""
    random = draft.random
    plan = draft.plan(
        publish_s=random.choice((10, 30, 60, 120, 120, 180, 240, 300, 300)),
        enhanced=random.random() < 0.5,
    )
    cloudwatch = draft.cloudwatch(
        stamped_at_end=random.random() < 0.5, jitter_every=random.choice((0, 0, 11))
    )
    return draft.world(plan, cloudwatch=cloudwatch)


def async_endpoints(draft: Draft) -> World:
    """An operator gave the endpoint config an AsyncInferenceConfig: it writes no Invocations."""
    return draft.world(draft.plan(async_config=True))


def combined(draft: Draft) -> World:
    """Several at once: late requests, an interval, late sweeps, another clock, everything delivered twice."""
    random = draft.random
    components = random.random() < 0.3
    plan = draft.plan(
        components=components, publish_s=random.choice((60, 60, 60, 120, 300)), enhanced=random.random() < 0.5
    )
    requests = draft.returning(plan)
    plan = replace(plan, traffic=draft.lanes(plan, requests, random.choice((1, 2, 3))))
    twice = random.random() < 0.4
    lambdas = Lambdas(
        delays_s=random.choice(((), (0, 180), (180, 300, 480))),
        clock_s=random.choice((0, 0, -420, -180, 180, 420)),
        redelivered=twice,
        twice_share=1.0 if twice else 0.0,
        failing_share=random.choice((0.0, 0.0, 0.3)),
    )
    late = _lateness(draft) if random.random() < 0.6 else ()
    cloudwatch = draft.cloudwatch(late=late, stamped_at_end=random.random() < 0.5)
    return draft.world(plan, cloudwatch=cloudwatch, lambdas=lambdas, delivery_s=random.choice((0, 50)))


def _repeated_hour(draft: Draft) -> World:
    """A timetable closes at the hour that comes twice, at its first reading or inside it."""
    hours, begin, end = repeated_hour(draft.random)
    draft.begin = begin
    plan = draft.plan(hours=hours, lifetime_hours=200.0)
    steady = [(at, at + 5) for at in range(plan.created_at, end, 240)]
    plan = replace(plan, traffic=draft.lanes(plan, steady))
    return draft.world(plan, end=end)


KINDS: dict[str, Callable[[Draft], World]] = {
    "late-requests": late_requests,
    "lost-requests": lost_requests,
    "lost-minutes": lost_minutes,
    "late-sweeps": late_sweeps,
    "clocks": clocks,
    "keep": kept,
    "stack-tag": stack_tag,
    "redelivery": redelivery,
    "dismantling": dismantling,
    "hanging-switch": hanging_switch,
    "bad-items": bad_items,
    "long-streams": long_streams,
    "scale-out": scale_out,
    "repeated-hour": _repeated_hour,
    "publish-interval": publish_interval,
    "async": async_endpoints,
    "combined": combined,
}
"""Every kind by its name on the command line."""

MIXED = "mixed"
"""The worlds of ``generate``: whole days, none to four faults at once."""

PLAIN = "plain"
"""Worlds of the kinds' own shape in which nothing goes wrong."""


def kind_world(kind: str, seed: int) -> World:
    """Make the world of a kind and a seed; the same seed gives the same world."""
    if kind == MIXED:
        return make_world(seed)
    draft = Draft(Random(f"{kind} {seed}"), seed, BEGIN)
    if kind == PLAIN:
        return draft.world(draft.plan())
    return replace(KINDS[kind](draft), faults=frozenset({kind}))
