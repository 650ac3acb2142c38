"""The simulated CloudWatch: what two publishers write about the traffic that really reached an endpoint.

The host writes the utilisation, the request path writes Invocations, concurrency and the backlog. Each has
its own lateness and its own losses. A request enters its series once, when a query first passes its start.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.guard.simulator.worlds.traffic import Traffic
from tests.guard.simulator.worlds.world import CloudWatch

MINUTE = 60
FOREVER = 1 << 40
QUIET_PERCENT, BUSY_PERCENT = 4.0, 40.0

Points = list[tuple[int, float]]
"""(minute in seconds since 1970 by CloudWatch's clock, value), oldest first."""


@dataclass(slots=True)
class Series:
    """One metric of one lane: the values above 0 by the start of their interval."""

    values: dict[int, float] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    """The keys of ``values``, sorted."""

    def add(self, start: int) -> None:
        """Count one more in an interval."""
        if start not in self.values:
            self.values[start] = 0.0
            insort(self.starts, start)
        self.values[start] += 1


@dataclass(slots=True)
class Lane:
    """The traffic of one variant or component, and how much of it the metrics have counted."""

    traffic: list[Traffic] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    """For each traffic, how many of its requests were counted."""
    next_at: int = 0
    """No request arrives before."""
    arrivals: Series = field(default_factory=Series)
    in_flight: Series = field(default_factory=Series)
    deaf: list[list[int]] = field(default_factory=list)
    """[from, to) pairs in which its component is gone while others still serve."""


@dataclass(slots=True)
class Served:
    """What one endpoint name served: its lanes, and when something of that name was in service."""

    lanes: dict[str, Lane] = field(default_factory=dict)
    alive: list[list[int]] = field(default_factory=list)
    """[from, to) pairs; the last one is open (a far future) while the endpoint serves."""
    deaf: list[list[int]] = field(default_factory=list)
    """[from, to) pairs in which its instances run and no request succeeds."""
    publish_s: int = MINUTE
    enhanced: bool = False
    async_config: bool = False
    instances: tuple[tuple[int, int], ...] = ()

    def serves(self, moment: int, lane: Lane) -> bool:
        """Say whether a request at this moment found its variant or component in service."""
        return (
            _within(moment, self.alive) and not _within(moment, self.deaf) and not _within(moment, lane.deaf)
        )

    def instances_at(self, moment: int) -> int:
        """Return how many instances a variant has at a moment."""
        result = 1
        for begin, count in self.instances:
            result = count if begin <= moment else result
        return result

    def size(self, requests: bool) -> int:
        """Return the interval in which a publisher writes, at least CloudWatch's minute."""
        return max(MINUTE, self.publish_s) if self.enhanced or not requests else MINUTE


def _within(moment: int, pairs: Iterable[Sequence[int]]) -> bool:
    for begin, end in pairs:  # noqa: SIM110  (a generator takes three times as long)
        if begin <= moment < end:
            return True
    return False


@dataclass(slots=True)
class Metrics:
    """Datapoints of every endpoint name, as late, sparse or wrong as the world says."""

    rules: CloudWatch
    served: dict[str, Served] = field(default_factory=dict)

    def failing(self, now: int) -> bool:
        """Say whether GetMetricData fails at this moment."""
        return _within(now, self.rules.errors)

    def partial(self, now: int) -> bool:
        """Say whether GetMetricData says that it returns only a part."""
        return _within(now, self.rules.partial)

    def utilisation(self, name: str, begin: int, end: int, now: int, *, samples: bool = False) -> Points:
        """Return the CPU datapoints of each interval in service, traffic or not: a value, or the samples."""
        served = self.served.get(name)
        if served is None:
            return []
        stamps = self._stamps(served, begin, end, now, requests=False)
        if not self.rules.jitter_every and not (samples and served.instances):
            value = float(max(1, MINUTE // served.publish_s)) if samples else QUIET_PERCENT
            return [(stamp, value) for stamp, _ in stamps]
        rows = [(stamp, self._samples(served, start)) for stamp, start in stamps]
        return [(stamp, float(count) if samples else QUIET_PERCENT) for stamp, count in rows if count]

    def gpu(self, name: str, begin: int, end: int, now: int) -> Points:
        """Return the GPU utilisation of each interval: above 0 where a request was in flight."""
        served = self.served.get(name)
        if served is None:
            return []
        for lane in served.lanes.values():
            self._count(served, lane, now)
        size, found = served.size(requests=False), list[tuple[int, float]]()
        for stamp, start in self._stamps(served, begin, end, now, requests=False):
            minutes = range(start, start + size, MINUTE)
            lanes = served.lanes.values()
            busy = any(lane.in_flight.values.get(minute) for lane in lanes for minute in minutes)
            found.append((stamp, BUSY_PERCENT if busy else 0.0))
        return found

    def invocations(self, name: str, lane: str, begin: int, end: int, now: int) -> Points:
        """Return how many requests arrived in each interval; idle ones are 0 or absent, async has none."""
        served = self.served.get(name)
        if served is None or served.async_config:
            return []
        return self._filled(served, lane, begin, end, now, flying=False)

    def concurrency(self, name: str, lane: str, begin: int, end: int, now: int) -> Points:
        """Return the most requests in flight in each interval; nothing where it is not written."""
        served = self.served.get(name)
        if served is None or served.async_config or not self.rules.concurrency:
            return []
        return self._filled(served, lane, begin, end, now, flying=True)

    def backlog(self, name: str, begin: int, end: int, now: int) -> Points:
        """Return ApproximateBacklogSize of an async endpoint: every minute, by EndpointName alone."""
        served = self.served.get(name)
        if served is None or not served.async_config:
            return []
        for lane in served.lanes.values():
            self._count(served, lane, now)
        lanes = served.lanes.values()
        return [
            (stamp, sum(lane.in_flight.values.get(start, 0.0) for lane in lanes))
            for stamp, start in self._stamps(served, begin, end, now, requests=True)
        ]

    def first_shown(self, name: str, start: int, end: int) -> int | None:
        """Return when CloudWatch first shows a request by a request metric; None: it never does."""
        served = self.served[name]
        size, skew = served.size(requests=True), self.rules.skew_s
        # An async endpoint's backlog counts what is being processed, as concurrency does.
        last = end if self.rules.concurrency or served.async_config else start
        first = (start + skew) // size * size
        shown = (self._shown_at(bin_start, size, True) for bin_start in range(first, last + skew + 1, size))
        return min((moment for moment in shown if moment is not None), default=None)

    def _shown_at(self, start: int, size: int, requests: bool) -> int | None:
        """When the datapoint of an interval can be seen; None where it is lost."""
        if self._lost(start, size, requests):
            return None
        shown = start + size + self.rules.lag_s - self.rules.skew_s + self._lateness(start, requests)
        for begin, end in self.rules.stale:
            if begin <= shown < end:
                shown = end
        return shown

    def _count(self, served: Served, lane: Lane, now: int) -> None:
        """Enter the requests that have arrived by now into the series of their lane."""
        if now < lane.next_at:
            return
        skew, size, lane.next_at = self.rules.skew_s, served.size(requests=True), FOREVER
        for number, traffic in enumerate(lane.traffic):
            first, last = lane.counted[number], bisect_left(traffic.starts, now + 1)
            for index in range(first, last):
                start, end = traffic.starts[index], traffic.ends[index] + skew
                if served.serves(start, lane):
                    start = (start + skew) // size * size
                    lane.arrivals.add(start)
                    for each in range(start, end + 1, size):
                        lane.in_flight.add(each)
            lane.counted[number] = last = max(first, last)
            if last < len(traffic.starts):
                lane.next_at = min(lane.next_at, traffic.starts[last])

    def _filled(self, served: Served, name: str, begin: int, end: int, now: int, *, flying: bool) -> Points:
        lane = served.lanes.get(name)
        if lane is not None:
            self._count(served, lane, now)
        series = Series() if lane is None else lane.in_flight if flying else lane.arrivals
        if self.rules.zeros:
            get = series.values.get
            return [
                (stamp, get(start, 0.0))
                for stamp, start in self._stamps(served, begin, end, now, requests=True)
            ]
        size = served.size(requests=True)
        low = bisect_left(series.starts, begin - size)
        high = bisect_left(series.starts, end)
        if low == high:
            return []
        shown = self._stamps(served, begin, end, now, requests=True)
        values = series.values
        return [(stamp, values[start]) for stamp, start in shown if start in values]

    def _stamps(
        self, served: Served, begin: int, end: int, now: int, *, requests: bool
    ) -> list[tuple[int, int]]:
        """(stamp, start) of the intervals stamped in [begin, end) that were in service and can be seen."""
        rules, size = self.rules, served.size(requests)
        shift = size - MINUTE if rules.stamped_at_end else 0
        last = self._visible_until(now, size)
        skew, found = rules.skew_s, list[tuple[int, int]]()
        for alive_from, alive_to in served.alive:
            first = max((alive_from + skew) // size * size, -(-(begin - shift) // size) * size)
            stop = min(alive_to + skew - 1, end - 1 - shift, last)
            found += [(start + shift, start) for start in range(first, stop + 1, size)]
        if requests and rules.late:
            return list(self._kept(found, size, now, requests))
        if rules.lost:
            return [each for each in found if not self._lost(each[1], size, requests)]
        return found

    def _kept(
        self, stamps: list[tuple[int, int]], size: int, now: int, requests: bool
    ) -> Iterator[tuple[int, int]]:
        for stamp, start in stamps:
            shown = self._shown_at(start, size, requests)
            if shown is not None and shown <= now:
                yield stamp, start

    def _lost(self, start: int, size: int, requests: bool) -> bool:
        # What is lost is what the publisher sends at the end of an interval.
        sent = start + size - MINUTE - self.rules.skew_s
        gaps = self.rules.request_gaps if requests else self.rules.host_gaps
        return _within(sent, self.rules.gaps) or _within(sent, gaps)

    def _lateness(self, start: int, requests: bool) -> int:
        minute = start - self.rules.skew_s
        late = self.rules.late if requests else ()
        return max((each.at(minute) for each in late if each.begin <= minute < each.end), default=0)

    def _samples(self, served: Served, start: int) -> int:
        """How many utilisation samples fall into an interval: one for each instance, jitter apart."""
        per_minute = max(1, MINUTE // served.publish_s)
        size = served.size(requests=False)
        here = range(served.instances_at(start - self.rules.skew_s))
        before = range(served.instances_at(start - size - self.rules.skew_s))
        kept = sum(not self._moved(start, number, size) for number in here)
        moved = sum(self._moved(start - size, number, size) for number in before)
        return (kept + moved) * per_minute

    def _moved(self, start: int, number: int, size: int) -> bool:
        every = self.rules.jitter_every
        return every > 0 and (start // size * 31 + number * 7) % every == 0

    def _visible_until(self, now: int, size: int) -> int:
        """The start of the last interval whose datapoint can be seen now."""
        seen = now
        for begin, end in self.rules.stale:
            if begin <= now < end:
                seen = min(seen, begin)
        return seen + self.rules.skew_s - self.rules.lag_s - size
