"""Metric series, aggregated by minute, so that a query costs the same whatever was served.

CloudWatch keeps one-minute aggregates for 15 days ("Metrics retention" in its concepts page). Percentiles
need the values themselves; a minute keeps them in bins 1% wide, so a percentile is right to 1%.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

RETENTION = timedelta(days=15)
_MINUTE = 60
_BIN = math.log(1.01)
# How often a whole pass removes what is older than the retention, in minutes of the local clock.
_PASS_MINUTES = 60

Dimensions = tuple[tuple[str, str], ...]


class SeriesKey(NamedTuple):
    """Key of a metric series; each unit has its own series, as in CloudWatch."""

    namespace: str
    name: str
    dimensions: Dimensions
    unit: str


@dataclass
class Aggregate:
    """The statistics of some minutes of a series."""

    count: float = 0.0
    total: float = 0.0
    minimum: float = math.inf
    maximum: float = -math.inf
    bins: dict[int, tuple[float, float]] = field(default_factory=dict)

    def add(self, value: float, count: float = 1.0) -> None:
        """Add ``count`` equal values."""
        self._widen(value, value)
        self.count += count
        self.total += value * count
        self._bin(_bin_of(value), count, value * count)

    def add_set(self, *, count: float, total: float, minimum: float, maximum: float) -> None:
        """Add a statistic set; percentiles take all of its values as the mean."""
        if count <= 0:
            return
        self._widen(minimum, maximum)
        self.count += count
        self.total += total
        self._bin(_bin_of(total / count), count, total)

    def merge(self, other: Aggregate) -> None:
        """Add another aggregate's values."""
        if not other.count:
            return
        self._widen(other.minimum, other.maximum)
        self.count += other.count
        self.total += other.total
        for key, (count, total) in other.bins.items():
            self._bin(key, count, total)

    def statistic(self, name: str) -> float:
        """Return SampleCount, Sum, Average, Minimum, Maximum, or a percentile such as ``p99`` or ``p99.9``.

        Raises:
            ValueError: it is none of these.
        """
        known = {
            "SampleCount": self.count,
            "Sum": self.total,
            "Average": self.total / self.count if self.count else math.nan,
            "Minimum": self.minimum,
            "Maximum": self.maximum,
        }
        return known[name] if name in known else self._percentile(percent_of(name))

    def _percentile(self, percent: float) -> float:
        wanted, seen = percent / 100 * self.count, 0.0
        for key in sorted(self.bins):
            count, total = self.bins[key]
            seen += count
            if seen >= wanted:
                return total / count
        return self.maximum

    def _widen(self, low: float, high: float) -> None:
        self.minimum, self.maximum = min(self.minimum, low), max(self.maximum, high)

    def _bin(self, key: int, count: float, total: float) -> None:
        known, sum_of = self.bins.get(key, (0.0, 0.0))
        self.bins[key] = (known + count, sum_of + total)


def percent_of(statistic: str) -> float:
    """Return 99.9 for ``p99.9``.

    Raises:
        ValueError: it is not a percentile from p0 to p100.
    """
    if statistic[:1] != "p" or not statistic[1:].replace(".", "", 1).isdecimal():
        raise ValueError(
            f"the statistic {statistic!r} is not one of SampleCount, Sum, Average, Minimum, Maximum, pNN"
        )
    percent = float(statistic[1:])
    if percent > 100:
        raise ValueError(f"the percentile {statistic!r} is not between p0 and p100")
    return percent


def _bin_of(value: float) -> int:
    if value == 0:
        return 0
    # 1e-12 and less share the lowest bin of their sign.
    size = 1 + max(0, round(math.log(max(abs(value), 1e-12) / 1e-12) / _BIN))
    return size if value > 0 else -size


class MetricSeries:
    """Every series of one account and region, in memory, for 15 days of the local clock."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._series: dict[SeriesKey, dict[int, Aggregate]] = {}
        self._keys: dict[tuple[str, str], set[SeriesKey]] = {}
        self._passed = minute_of(now())

    def put(self, namespace: str, data: Iterable[dict[str, Any]]) -> None:
        """Add metric data as PutMetricData takes them; a naive timestamp is UTC."""
        now = self._now()
        with self._lock:
            for datum in data:
                dimensions = tuple(sorted((d["Name"], d["Value"]) for d in datum.get("Dimensions") or ()))
                key = SeriesKey(namespace, datum["MetricName"], dimensions, datum.get("Unit") or "None")
                _add(self._minute(key, minute_of(datum.get("Timestamp") or now)), datum)
            self._forget(minute_of(now))

    def periods(
        self, key: SeriesKey, start: datetime, end: datetime, period_s: int, *, any_unit: bool
    ) -> list[tuple[datetime, Aggregate]]:
        """Return the aggregates of each period from ``start`` (a whole minute) that has data, oldest first.

        With ``any_unit`` the unit of ``key`` is not looked at.
        """
        keys = [key]
        first, last = minute_of(start), minute_of(end - timedelta(microseconds=1))
        step = max(1, period_s // _MINUTE)
        merged: dict[int, Aggregate] = {}
        with self._lock:
            if any_unit:
                named = self._keys.get((key.namespace, key.name), ())
                keys = [series_key for series_key in named if series_key.dimensions == key.dimensions]
            for series_key in keys:
                for minute, aggregate in _within(self._series.get(series_key, {}), first, last):
                    merged.setdefault((minute - first) // step, Aggregate()).merge(aggregate)
        return [
            (datetime.fromtimestamp((first + place * step) * _MINUTE, UTC), merged[place])
            for place in sorted(merged)
        ]

    def keys(self, namespace: str | None = None, name: str | None = None) -> list[SeriesKey]:
        """Return the series that have data, sorted; both filters are exact."""
        with self._lock:
            return sorted(
                key
                for (space, metric), keys in self._keys.items()
                for key in keys
                if namespace in (None, space) and name in (None, metric)
            )

    def _minute(self, key: SeriesKey, minute: int) -> Aggregate:
        self._keys.setdefault((key.namespace, key.name), set()).add(key)
        return self._series.setdefault(key, {}).setdefault(minute, Aggregate())

    def _forget(self, now: int) -> None:
        if now - self._passed < _PASS_MINUTES:
            return
        self._passed = now
        oldest = now - int(RETENTION.total_seconds()) // _MINUTE
        for key, minutes in list(self._series.items()):
            for minute in [each for each in minutes if each < oldest]:
                del minutes[minute]
            if not minutes:
                del self._series[key]
                self._keys[key.namespace, key.name].discard(key)


def minute_of(moment: datetime) -> int:
    """Return the minutes since 1970; a naive moment is UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() // _MINUTE)


def _within(minutes: dict[int, Aggregate], first: int, last: int) -> Iterator[tuple[int, Aggregate]]:
    if last - first < len(minutes):
        for minute in range(first, last + 1):
            if minute in minutes:
                yield minute, minutes[minute]
    else:
        yield from ((minute, one) for minute, one in minutes.items() if first <= minute <= last)


def _add(aggregate: Aggregate, datum: dict[str, Any]) -> None:
    if datum.get("Values"):
        counts = datum.get("Counts") or [1.0] * len(datum["Values"])
        for value, count in zip(datum["Values"], counts, strict=True):
            aggregate.add(float(value), float(count))
    elif datum.get("StatisticValues"):
        given = datum["StatisticValues"]
        aggregate.add_set(
            count=float(given["SampleCount"]),
            total=float(given["Sum"]),
            minimum=float(given["Minimum"]),
            maximum=float(given["Maximum"]),
        )
    else:
        aggregate.add(float(datum.get("Value") or 0.0))
