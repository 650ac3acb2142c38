"""Detector of falls of the acceptance length, by slice of the traffic. Pure.

It says which slice fell, since when and by how much, and a change of the mix of slices is no fall: drafts are
compared only with earlier drafts of the same stratum, that is, of the same values of all slices and the same
K. For each slice and each possible beginning the differences of its strata are added up with
Mantel-Haenszel weights. The unit of chance is the request, since the drafts of one request are alike; and
where whole stretches of traffic differ more than their requests explain, that counts as noise, too.

The gate runs it on what it counts, and `peagle-sm acceptance` on its log lines or on recorded requests. It is
one file, since the image has no toolkit: ``peagle_sm.core.drift`` is a link to it. Standard library only.
docs/explanation/container.md has its error rates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

#: Values of the chosen slices, in their order, and K.
Stratum = tuple[tuple[str, ...], int]
#: A slice: a dimension's index and its value; ``ALL`` is every request.
Slice = tuple[int, str]
ALL: Slice = (-1, "")
ALL_REQUESTS = "all requests"

#: A fall has to be this many standard errors large. Fewer would do for one test; this one is made
#: for each slice, each minute and each possible beginning, and requests are not normal.
Z = 5.1
#: A slice is named when its fall explains the traffic so much better than any other slice: the difference of
#: the squares of the standard errors. Above `SURE` the best one is named anyway.
LEAD, SURE = 3.0, 7.0
LEAST_FALL = 0.06  #: of the acceptance length; less is not worth an alarm
#: What has to be there before and after a change.
DRAFTS_BEFORE, REQUESTS_BEFORE = 3000, 60
DRAFTS_AFTER, REQUESTS_AFTER = 300, 16
#: A stratum with less before the change says nothing about it.
STRATUM_DRAFTS, STRATUM_REQUESTS = 200, 8
#: Beginnings that are tried: each has this much more drafts after it than the one before.
GROWTH = 1.1
#: Blocks of one size; two of the oldest are then joined into one of twice the size.
BLOCKS_OF_A_SIZE = 12
#: How many of the clearest slices and beginnings are examined closely.
MOST_COMPARED = 6
#: What is older is forgotten: then the new acceptance is the normal one.
HORIZON_S = 7 * 24 * 3600.0
#: Weight of a slice's own noise, in drafts of one of its strata.
_NOISE_PRIOR = 1000.0
#: Stretches without noise that are added when the noise of whole stretches is estimated.
_STRETCH_PRIOR = 8.0
#: Above this number of drafts a fall has to be in the newest quarter, too: a past one is not reported.
_RECENT_FROM = 6000


@dataclass(slots=True)
class Sums:
    """Sums over the requests of a stratum: what their mean and their spread need."""

    requests: float = 0.0
    drafts: float = 0.0
    accepted: float = 0.0
    drafts2: float = 0.0
    drafts_accepted: float = 0.0
    accepted2: float = 0.0

    @classmethod
    def of_request(cls, drafts: float, accepted: float) -> Sums:
        """Return the sums of one request."""
        return cls(1, drafts, accepted, drafts * drafts, drafts * accepted, accepted * accepted)

    def add(self, other: Sums, sign: float = 1.0) -> None:
        """Add other requests, or take them away."""
        self.requests += sign * other.requests
        self.drafts += sign * other.drafts
        self.accepted += sign * other.accepted
        self.drafts2 += sign * other.drafts2
        self.drafts_accepted += sign * other.drafts_accepted
        self.accepted2 += sign * other.accepted2

    @property
    def rate(self) -> float:
        """Accepted tokens of a draft."""
        return self.accepted / self.drafts

    @property
    def residual2(self) -> float:
        """Sum of the squared differences between a request's accepted tokens and those expected."""
        rate = self.rate
        return self.accepted2 - 2 * rate * self.drafts_accepted + rate * rate * self.drafts2

    def to_list(self) -> list[int]:
        """Return the sums as the log has them."""
        return [
            round(total)
            for total in (
                self.requests,
                self.drafts,
                self.accepted,
                self.drafts2,
                self.drafts_accepted,
                self.accepted2,
            )
        ]


Counts = Mapping[Stratum, Sums]


@dataclass(frozen=True)
class AcceptanceFall:
    """A fall of the acceptance length in one slice.

    Attributes:
        slice: for example ``script: han``, or ``all requests``.
        since: when it began, in seconds since 1970; the beginning of the block in which it is.
        fall: share of the acceptance length that is lost, at the same mix of traffic.
        low: lower 95% confidence bound of ``fall``.
        high: upper one.
        before: acceptance length before it, at the mix of the traffic after it.
        after: acceptance length since then.
        drafts: drafts of the slice since then.
    """

    slice: str
    since: float
    fall: float
    low: float
    high: float
    before: float
    after: float
    drafts: int


@dataclass(slots=True)
class _Block:
    """Some intervals: their requests, and the intervals themselves as if each were one request."""

    since: float
    size: int
    sums: dict[Stratum, Sums]
    intervals: dict[Stratum, Sums]


@dataclass(slots=True)
class _Side:
    """One slice's drafts and requests after a possible beginning."""

    drafts: float = 0.0
    requests: float = 0.0
    tried: float = 0.0


@dataclass(slots=True)
class _Candidate:
    slice: Slice
    index: int
    z: float
    fall: float
    error: float
    before: float
    after: float
    drafts: float


@dataclass
class Detector:
    """Collector of intervals, which finds falls in them.

    Attributes:
        dimensions: names of the chosen slices.
    """

    dimensions: tuple[str, ...]
    _blocks: list[_Block] = field(default_factory=list)
    _total: dict[Stratum, Sums] = field(default_factory=dict)

    def add(self, since: float, counts: Counts) -> None:
        """Add what was counted in an interval that began at ``since``, in seconds; oldest first."""
        if not counts:
            return
        whole = {stratum: Sums.of_request(sums.drafts, sums.accepted) for stratum, sums in counts.items()}
        block = _Block(since, 1, {}, {})
        for target, added in ((block.sums, counts), (block.intervals, whole), (self._total, counts)):
            _add(target, added)
        self._blocks.append(block)
        self._join()
        while self._blocks[0].since < since - HORIZON_S:
            _add(self._total, self._blocks.pop(0).sums, -1.0)

    def _join(self) -> None:
        """Keep few blocks: the older they are, the longer."""
        index, size = len(self._blocks) - 1, 1
        while True:
            first = index
            while first >= 0 and self._blocks[first].size == size:
                first -= 1
            if index - first <= BLOCKS_OF_A_SIZE:
                return
            older, newer = self._blocks[first + 1], self._blocks[first + 2]
            _add(older.sums, newer.sums)
            _add(older.intervals, newer.intervals)
            older.size += newer.size
            del self._blocks[first + 2]
            index, size = first + 1, older.size

    def changes(self) -> tuple[AcceptanceFall, ...]:
        """Return the falls that last; the clearest first, each in what the ones before it leave."""
        falls: list[AcceptanceFall] = []
        left = set(self._total)
        while left and len(falls) < 4:
            best = self._clearest(left)
            if best is None:
                break
            falls.append(self._change(best))
            left -= {stratum for stratum in left if best.slice in _slices(stratum)}
        return tuple(falls)

    def _clearest(self, left: set[Stratum]) -> _Candidate | None:
        """Return the clearest fall; None if there is none, or not yet one slice that explains it."""
        members: dict[Slice, list[Stratum]] = {}
        for stratum in left:
            for key in _slices(stratum):
                members.setdefault(key, []).append(stratum)
        best: tuple[_Candidate, _Split] | None = None
        for tried in self._candidates(left, members):
            split = self._split(tried.index)
            difference = self._compared(tried.slice, members, split)
            if difference is not None and difference.z >= (best[0].z if best else Z):
                best = difference, split
        return self._leader(*best, members) if best is not None else None

    def _candidates(self, left: set[Stratum], members: Mapping[Slice, Sequence[Stratum]]) -> list[_Candidate]:
        """Return the clearest slices and beginnings as all requests together show the noise."""
        noise = _Noise(self._total)
        sides = {key: _Side() for key in members}
        after: dict[Stratum, Sums] = {}
        candidates: list[_Candidate] = []
        for index in range(len(self._blocks) - 1, 0, -1):
            for key in self._take_in(index, left, after, sides):
                side = sides[key]
                if side.drafts < max(DRAFTS_AFTER, GROWTH * side.tried) or side.requests < REQUESTS_AFTER:
                    continue
                side.tried = side.drafts
                tried = _difference(key, members[key], self._total, after, noise, index)
                if tried is not None and tried.z >= Z and tried.fall >= LEAST_FALL:
                    candidates.append(tried)
        return sorted(candidates, key=lambda tried: -tried.z)[:MOST_COMPARED]

    def _take_in(
        self, index: int, left: set[Stratum], after: dict[Stratum, Sums], sides: Mapping[Slice, _Side]
    ) -> set[Slice]:
        """Move a block to the later side, and return the slices that it has."""
        touched: set[Slice] = set()
        for stratum, sums in self._blocks[index].sums.items():
            if stratum in left:
                after.setdefault(stratum, Sums()).add(sums)
                for key in _slices(stratum):
                    sides[key].drafts += sums.drafts
                    sides[key].requests += sums.requests
                    touched.add(key)
        return touched

    def _split(self, index: int) -> _Split:
        """Return both sides of a block's beginning, and the noise as it was before."""
        before: dict[Stratum, Sums] = {}
        intervals: dict[Stratum, Sums] = {}
        for block in self._blocks[:index]:
            _add(before, block.sums)
            _add(intervals, block.intervals)
        after: dict[Stratum, Sums] = {}
        for block in self._blocks[index:]:
            _add(after, block.sums)
        older = sum(block.size for block in self._blocks[:index])
        return _Split(index, before, after, _Noise(before, intervals), older)

    def _compared(
        self, key: Slice, members: Mapping[Slice, Sequence[Stratum]], split: _Split
    ) -> _Candidate | None:
        """Compare a slice after a beginning with before; None if it did not fall, or the fall is over."""
        difference = _difference(key, members[key], self._total, split.after, split.noise, split.index)
        if difference is None or difference.fall < LEAST_FALL:
            return None
        inside = set(members[key])
        more = self._unrest(difference, inside, split)
        difference.z, difference.error = _normal(difference.z / more, split.older), difference.error * more
        return difference if self._lasts(difference, inside, split) else None

    def _unrest(self, candidate: _Candidate, inside: set[Stratum], split: _Split) -> float:
        """Return by how much the standard error is larger, since whole stretches of traffic differ.

        A stretch has half as many drafts of the slice as there are after the beginning, or a few more.
        """
        squares, stretches = 0.0, 0
        off = spread = drafts = 0.0
        for block in self._blocks[: split.index]:
            for stratum, sums in block.sums.items():
                if stratum in inside:
                    off += sums.accepted - sums.drafts * split.before[stratum].rate
                    spread += sums.drafts * split.noise.of(stratum, candidate.slice)
                    drafts += sums.drafts
            if drafts >= candidate.drafts / 2:
                # Without any spread, as in a stratum that accepts nothing, a stretch is what was expected.
                squares, stretches = squares + (off * off / spread if spread > 0 else 0.0), stretches + 1
                off = spread = drafts = 0.0
        known = stretches + _STRETCH_PRIOR
        return math.sqrt(_excess((squares + _STRETCH_PRIOR) / known, known))

    def _lasts(self, candidate: _Candidate, inside: set[Stratum], split: _Split) -> bool:
        """Decide whether the newest quarter of a long fall is low as well: at least half as much."""
        if candidate.drafts < _RECENT_FROM:
            return True
        lost = expected = drafts = 0.0
        for block in reversed(self._blocks):
            for stratum, sums in block.sums.items():
                if stratum in inside and stratum in split.before:
                    rate = split.before[stratum].rate
                    expected += sums.drafts * (1 + rate)
                    lost += sums.drafts * rate - sums.accepted
                    drafts += sums.drafts
            if drafts >= candidate.drafts / 4:
                break
        return expected > 0 and lost / expected >= candidate.fall / 2

    def _leader(
        self, best: _Candidate, split: _Split, members: Mapping[Slice, Sequence[Stratum]]
    ) -> _Candidate | None:
        """Return the slice that explains the fall best; None while another may do so as well."""
        rivals = []
        for key, strata in members.items():
            # With the same noise for all, so that only the drafts decide.
            tried = _difference(key, strata, self._total, split.after, split.noise, split.index, like=ALL)
            if tried is not None:
                tried.z = _normal(tried.z, split.older)
                rivals.append(tried)
        first, *others = sorted(rivals, key=lambda tried: -tried.z)
        clear = first.z >= SURE or all(
            first.z**2 - other.z**2 >= LEAD
            for other in others
            if other.z > 0 and set(members[other.slice]) != set(members[first.slice])
        )
        if not clear:
            return None
        return best if first.slice == best.slice else self._compared(first.slice, members, split)

    def _change(self, candidate: _Candidate) -> AcceptanceFall:
        half = 1.96 * candidate.error
        return AcceptanceFall(
            self.name(candidate.slice),
            self._blocks[candidate.index].since,
            candidate.fall,
            candidate.fall - half,
            candidate.fall + half,
            candidate.before,
            candidate.after,
            round(candidate.drafts),
        )

    def name(self, key: Slice) -> str:
        """Return a slice's name: ``script: han``."""
        return ALL_REQUESTS if key == ALL else f"{self.dimensions[key[0]]}: {key[1]}"


@dataclass(slots=True)
class _Split:
    """Both sides of a possible beginning; ``older`` is the number of intervals before it."""

    index: int
    before: dict[Stratum, Sums]
    after: dict[Stratum, Sums]
    noise: _Noise
    older: int


def _difference(
    key: Slice,
    members: Sequence[Stratum],
    total: Counts,
    after: Counts,
    noise: _Noise,
    index: int,
    *,
    like: Slice | None = None,
) -> _Candidate | None:
    """Compare a slice after a beginning with before, stratum by stratum; None with too little of either.

    ``like`` is the slice with whose noise it is compared, by default its own.
    """
    difference = weight = variance = earlier = requests = drafts = 0.0
    before_mean = after_mean = 0.0
    for stratum in members:
        late = after.get(stratum)
        if late is None:
            continue
        n0, n1 = total[stratum].drafts - late.drafts, late.drafts
        requests0 = total[stratum].requests - late.requests
        if n0 < STRATUM_DRAFTS or requests0 < STRATUM_REQUESTS:
            continue
        before, now = (total[stratum].accepted - late.accepted) / n0, late.accepted / n1
        share = n0 * n1 / (n0 + n1)
        difference += share * (before - now)
        weight += share * (1 + before)
        variance += share * share * noise.of(stratum, like or key) * (1 / n0 + 1 / n1)
        earlier += n0
        requests += requests0
        drafts += n1
        before_mean += n1 * before
        after_mean += n1 * now
    if earlier < DRAFTS_BEFORE or requests < REQUESTS_BEFORE or drafts < DRAFTS_AFTER or variance <= 0:
        return None
    error = math.sqrt(variance)
    means = 1 + before_mean / drafts, 1 + after_mean / drafts
    return _Candidate(key, index, difference / error, difference / weight, error / weight, *means, drafts)


class _Noise:
    """Variance of the accepted tokens for each draft, from the spread of the requests.

    Requests of one interval may be alike: a client that asks the same again, a conversation. Where whole
    intervals differ more than their requests explain, the variance is that of the intervals.
    """

    def __init__(self, total: Counts, intervals: Counts | None = None) -> None:
        rows: dict[Slice, list[float]] = {}
        for stratum, sums in total.items():
            whole = intervals[stratum] if intervals is not None else sums
            if whole.requests >= 2 and sums.requests >= 2:
                for key in _slices(stratum):
                    row = rows.setdefault(key, [0.0, 0.0, 0.0, 0.0])
                    row[0] += sums.residual2 * sums.requests / (sums.requests - 1)
                    row[1] += whole.residual2 * whole.requests / (whole.requests - 1)
                    row[2] += sums.drafts
                    row[3] += whole.requests
        self._slices = {key: row[0] / row[2] for key, row in rows.items()}
        self._alike = {key: _excess(row[1] / row[0], row[3]) for key, row in rows.items() if row[0] > 0}
        self._strata = {stratum: (sums.residual2, sums.drafts) for stratum, sums in total.items()}

    def of(self, stratum: Stratum, key: Slice) -> float:
        """Return a stratum's variance; with few drafts, that of the slice."""
        residual2, drafts = self._strata[stratum]
        own = (residual2 + _NOISE_PRIOR * self._slices.get(key, 1.0)) / (drafts + _NOISE_PRIOR)
        return own * self._alike.get(key, 1.0)


def _excess(ratio: float, of: float) -> float:
    """Return by how much a variance is above the expected one, beyond the chance of so few values."""
    return max(1.0, ratio - math.sqrt(2 / of))


def _normal(t: float, of: float) -> float:
    """Return the standard errors of a normal value as rare as ``t``, whose variance has so many values.

    D. L. Wallace's approximation of 1959. With few intervals the noise is not known well.
    """
    return t * (1 - 1 / (4 * of)) / math.sqrt(1 + t * t / (2 * of)) if of >= 1 else 0.0


def _slices(stratum: Stratum) -> Iterator[Slice]:
    yield ALL
    yield from enumerate(stratum[0])


def _add(target: dict[Stratum, Sums], counts: Counts, sign: float = 1.0) -> None:
    for stratum, sums in counts.items():
        if stratum not in target:
            target[stratum] = Sums()
        target[stratum].add(sums, sign)
        if sign < 0 and target[stratum].requests < 0.5:
            del target[stratum]


def read_counts(rows: Iterable[Sequence[object]]) -> dict[Stratum, Sums]:
    """Read the rows of a log line: the values, K, and six sums.

    Raises:
        ValueError: a row is something else.
    """
    counts: dict[Stratum, Sums] = {}
    for row in rows:
        try:
            values, k, *sums = row
            if not isinstance(values, list) or len(sums) != 6:
                raise ValueError(row)
            stratum = tuple(str(value) for value in values), int(k)  # type: ignore[call-overload]
            counts.setdefault(stratum, Sums()).add(Sums(*(float(value) for value in sums)))  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            raise ValueError(f"no counts of a stratum: {str(row)[:100]}") from error
    return counts
