"""The simulated CloudWatch: one datapoint a minute from the traffic that really reached an endpoint."""

from __future__ import annotations

from dataclasses import dataclass, field

from stacks.guard.simulator.traffic import STREAM_LIMIT_S, Traffic
from stacks.guard.simulator.worlds import CloudWatch, Interval

MINUTE = 60

Points = list[tuple[int, float]]
"""(start of the minute in seconds since 1970 by CloudWatch's clock, value), oldest first."""


@dataclass(slots=True)
class Served:
    """What one endpoint name served: its lanes, and when something of that name was in service."""

    lanes: dict[str, list[Traffic]] = field(default_factory=dict)
    alive: list[list[int]] = field(default_factory=list)
    """[from, to) pairs; the last one is open (a far future) while the endpoint serves."""

    deaf: list[list[int]] = field(default_factory=list)
    """[from, to) pairs in which its instances run and its components are gone: requests fail."""

    def serves(self, moment: int) -> bool:
        """Say whether a request at this moment found the endpoint in service."""
        if any(begin <= moment < end for begin, end in self.deaf):
            return False
        return any(begin <= moment < end for begin, end in self.alive)


FOREVER = 1 << 40


@dataclass(slots=True)
class Metrics:
    """Datapoints of every endpoint name, as late, sparse or wrong as the world says."""

    rules: CloudWatch
    served: dict[str, Served] = field(default_factory=dict)

    def failing(self, now: int) -> bool:
        """Say whether GetMetricData fails at this moment."""
        return any(begin <= now < end for begin, end in self.rules.errors)

    def utilisation(self, name: str, begin: int, end: int, now: int) -> Points:
        """Return the CPU datapoints: one for each minute in service, traffic or not."""
        return [(minute, 4.0) for minute in self._minutes(name, begin, end, now)]

    def invocations(self, name: str, lane: str, begin: int, end: int, now: int) -> Points:
        """Return how many requests arrived in each minute; idle ones are 0 or absent."""
        return self._filled(name, begin, end, now, self._arrivals(name, lane, begin, end))

    def concurrency(self, name: str, lane: str, begin: int, end: int, now: int) -> Points:
        """Return the most requests in flight in each minute; nothing where the world does not write it."""
        if not self.rules.concurrency:
            return []
        return self._filled(name, begin, end, now, self._in_flight(name, lane, begin, end))

    def _arrivals(self, name: str, lane: str, begin: int, end: int) -> dict[int, float]:
        skew, found = self.rules.skew_s, dict[int, float]()
        served = self.served[name]
        for traffic in served.lanes.get(lane, ()):
            for index in traffic.between(begin - skew - MINUTE, end - skew + MINUTE):
                start = traffic.starts[index]
                if served.serves(start):
                    minute = (start + skew) // MINUTE * MINUTE
                    found[minute] = found.get(minute, 0.0) + 1
        return found

    def _in_flight(self, name: str, lane: str, begin: int, end: int) -> dict[int, float]:
        skew, found = self.rules.skew_s, dict[int, float]()
        served = self.served[name]
        for traffic in served.lanes.get(lane, ()):
            for index in traffic.between(begin - skew - STREAM_LIMIT_S, end - skew + MINUTE):
                start, stop = traffic.starts[index] + skew, traffic.ends[index] + skew
                if served.serves(start - skew):
                    for minute in range(start // MINUTE * MINUTE, stop + 1, MINUTE):
                        found[minute] = found.get(minute, 0.0) + 1
        return found

    def _filled(self, name: str, begin: int, end: int, now: int, values: dict[int, float]) -> Points:
        if self.rules.zeros:
            return [(minute, values.get(minute, 0.0)) for minute in self._minutes(name, begin, end, now)]
        if not values:
            return []
        shown = set(self._minutes(name, begin, end, now))
        return sorted((minute, value) for minute, value in values.items() if minute in shown)

    def _minutes(self, name: str, begin: int, end: int, now: int) -> list[int]:
        """The minutes in [begin, end) in which something was in service and whose datapoints are visible."""
        served = self.served.get(name)
        if served is None:
            return []
        last = self._visible_until(now)
        skew, found = self.rules.skew_s, list[int]()
        for alive_from, alive_to in served.alive:
            first = max((alive_from + skew) // MINUTE * MINUTE, _up(begin))
            stop = min(alive_to + skew - 1, end - 1, last)
            if first <= stop:
                found.extend(range(first, stop + 1, MINUTE))
        gaps = [
            gap for gap in self.rules.gaps if gap[0] < end - skew + MINUTE and gap[1] > begin - skew - MINUTE
        ]
        return [minute for minute in found if not _inside(minute - skew, gaps)] if gaps else found

    def _visible_until(self, now: int) -> int:
        """The start of the last minute whose datapoint can be seen now."""
        seen = now
        for begin, end in self.rules.stale:
            if begin <= now < end:
                seen = min(seen, begin)
        return seen + self.rules.skew_s - self.rules.lag_s - MINUTE


def _up(moment: int) -> int:
    return -(-moment // MINUTE) * MINUTE


def _inside(moment: int, intervals: list[Interval]) -> bool:
    return any(begin <= moment < end for begin, end in intervals)
