"""The traffic of an endpoint: when requests arrive and how long they last.

Shapes: steady, office hours, bursts, one long stream, streams back to back, a trickle, traffic that comes
back within the grace, and none. No request lasts longer than eight minutes, SageMaker's limit for a
stream.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

STREAM_LIMIT_S = 480
"""SageMaker's own limit of a response stream, in seconds."""

HOUR = 3600
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests sorted by arrival: ``starts[i]`` to ``ends[i]``, in seconds since 1970."""

    starts: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()

    @staticmethod
    def of(requests: list[tuple[int, int]]) -> Traffic:
        """Sort (start, end) pairs into a traffic."""
        ordered = sorted(requests)
        return Traffic(tuple(s for s, _ in ordered), tuple(e for _, e in ordered))

    def until(self, moment: int) -> Traffic:
        """Return the requests that arrive before a moment."""
        count = bisect_left(self.starts, moment)
        return Traffic(self.starts[:count], self.ends[:count])


@dataclass(frozen=True, slots=True)
class Span:
    """The time in which traffic may fall, and what the endpoint calls idle; all in seconds."""

    begin: int
    end: int
    idle_s: int
    grace_s: int


Requests = list[tuple[int, int]]


def _request(random: Random, start: float) -> tuple[int, int]:
    """Most requests last seconds, some a minute, a few are long streams."""
    draw = random.random()
    if draw < 0.8:
        length = random.randint(1, 20)
    elif draw < 0.95:
        length = random.randint(20, 90)
    else:
        length = random.randint(90, STREAM_LIMIT_S)
    return int(start), int(start) + length


def none(random: Random, span: Span) -> Requests:
    """Nobody ever calls."""
    return []


def steady(random: Random, span: Span) -> Requests:
    """A request every half minute to every few minutes, until it stops for good."""
    every = random.uniform(30, 240)
    stop = random.uniform(span.begin, span.end)
    requests, moment = [], span.begin + random.uniform(0, 600)
    while moment < stop:
        requests.append(_request(random, moment))
        moment += every * random.uniform(0.3, 1.7)
    return requests


def office(random: Random, span: Span) -> Requests:
    """Requests between nine and half past five, UTC, with a lunch break; none at the weekend."""
    requests, moment = [], float(span.begin)
    while moment < span.end:
        second = moment % DAY
        weekend = (int(moment) // DAY + 3) % 7 >= 5
        open_now = 9 * HOUR <= second < 12 * HOUR or 13 * HOUR <= second < 17.5 * HOUR
        if weekend or not open_now:
            moment += 900
            continue
        requests.append(_request(random, moment))
        moment += random.expovariate(1 / 300)
    return requests


def bursts(random: Random, span: Span) -> Requests:
    """A few dozen requests at once, then silence for minutes to hours."""
    requests, moment = [], span.begin + random.uniform(0, 2 * HOUR)
    stop = random.uniform(span.begin, span.end)
    while moment < stop:
        for _ in range(random.randint(1, 25)):
            requests.append(_request(random, moment + random.uniform(0, 120)))
        moment += random.uniform(300, 4 * HOUR)
    return requests


def one_stream(random: Random, span: Span) -> Requests:
    """One answer that streams for up to eight minutes, and nothing else."""
    start = int(random.uniform(span.begin, min(span.end, span.begin + 6 * HOUR)))
    return [(start, start + random.randint(240, STREAM_LIMIT_S))]


def streams(random: Random, span: Span) -> Requests:
    """Long streams one after the other, with pauses, so that most minutes have no new arrival."""
    requests, moment = [], span.begin + random.uniform(0, HOUR)
    stop = random.uniform(span.begin, span.end)
    while moment < stop:
        length = random.randint(240, STREAM_LIMIT_S)
        requests.append((int(moment), int(moment) + length))
        moment += length + random.uniform(1, span.idle_s + span.grace_s)
    return requests


def trickle(random: Random, span: Span) -> Requests:
    """One request every N minutes; N from three minutes to somewhat above idle plus grace."""
    every = random.uniform(180, span.idle_s + span.grace_s + 1200)
    stop = random.uniform(span.begin, span.end)
    requests, moment = [], span.begin + random.uniform(0, every)
    while moment < stop:
        requests.append(_request(random, moment))
        moment += every * random.uniform(0.95, 1.05)
    return requests


def returning(random: Random, span: Span) -> Requests:
    """A busy while, silence longer than idle, back within the grace; several times, then the end."""
    requests, moment = [], span.begin + random.uniform(0, HOUR)
    for _ in range(random.randint(1, 5)):
        for _ in range(random.randint(1, 12)):
            requests.append(_request(random, moment))
            moment += random.uniform(5, 200)
        moment = max(end for _, end in requests) + span.idle_s + random.uniform(0, span.grace_s)
    requests.append(_request(random, moment))
    return [request for request in requests if request[0] < span.end]


SHAPES: dict[str, Callable[[Random, Span], Requests]] = {
    "none": none,
    "steady": steady,
    "office": office,
    "bursts": bursts,
    "one stream": one_stream,
    "streams": streams,
    "trickle": trickle,
    "returning": returning,
}
"""Every shape by its name in the report."""
