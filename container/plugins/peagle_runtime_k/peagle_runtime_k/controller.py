"""The decision of the controller: K from measured goodput. Pure: standard library, no clock, no vLLM.

Goodput is tokens emitted per second of step time at a number of running requests (n)::

    goodput(n, K) = n AL(K) / T(n, K)

Both factors are learned from the engine's own steps. The acceptance length AL is that of the text now: it
does not depend on n, and changes within seconds. The step time T belongs to the machine: it depends on n
and K, and stays. What all steps of a moment have in common, such as a slower machine, is removed from T
before it is learned, so that it is not taken for an effect of K.

`Controller.record` learns, `Controller.decide` returns K. The rules of a decision:

- K is at most ``bounds[n]``, at once, whatever else holds.
- Nothing else changes K within `DWELL_S` seconds of a change.
- A table (bounds that differ) was measured before: its K is used until another one is better by `GAIN`.
- A K that was not measured near this n has to be better by `UNSURE` besides, or it is tried within
  `BUDGET`: the share of all work that tries may lose. Each change goes half of the way at most.
- A K at which the engine did less than `COLLAPSE` of the predicted work is not used again (vllm#49548).
- Where it cannot see (``why``), K is that of the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

DWELL_S = 5.0  #: at most one change in this time
DECIDE_S = 0.5  #: seconds of work between two decisions
GAIN = 0.015  #: hysteresis: least predicted gain, in log goodput
UNSURE = 0.06  #: error of the prediction for a K that was not measured, in log goodput
BUDGET = 0.003  #: share of the work that tries may lose
CREDIT_S = 0.3  #: seconds of work that tries may lose at the start
MOST_LOSS = 0.06  #: predicted loss of a try
COLLAPSE = 0.4  #: share of the predicted work; below it the engine has stalled
JUDGE_S = 1.0  #: seconds of work after a change of K before it is judged
MOST_NOISE = 0.3  #: spread of a step time (logarithm) above which no K can be told from another
UNSEEN_S = 30.0  #: seconds of work without a step to learn from, after which the controller is off
LONG_STEP = 4.0  #: a step this many times longer than predicted is not learned from
TEXT_S = 20.0  #: memory of the acceptance, in seconds of work
DRIFT_S = 3.0  #: memory of what is common to all steps
CELL_S = 60.0  #: memory of one cell of the step times
BLIND_S = 60.0  #: at K=0 no acceptance is seen: seconds until a larger K is tried, doubled each time
PRIOR = 0.03  #: weight of the assumed cost of drafts beside a measured step time
DRAFTS_COST = 0.15  #: assumed share of a step
#: A head with K drafts reads its early positions too low: the AL of a smaller K by up to this share (the
#: tuner measured 3 to 7%, docs/how-to/tuner.md).
LOW_READING = 0.04
SHARP = 8  #: cells of the number of requests in each doubling
NEAR_N, NEAR_K = 3.0, 1.2  #: reach of a measured cell, in cells and in K


@dataclass(frozen=True)
class Steps:
    """Sums over steps of decodes only, alike in the number of requests and in the drafts verified for each.

    ``survived[i]`` counts the drafts of which at least i + 1 tokens were accepted. ``alike`` is False if the
    steps drafted another K than they verified: they show what a change costs, and not what a K costs.
    """

    running: int
    k: int
    steps: int
    seconds: float
    survived: Sequence[int] = ()
    alike: bool = True

    @property
    def tokens(self) -> int:
        """Tokens emitted."""
        return self.steps * self.running + sum(self.survived)


@dataclass
class _Cell:
    """Step time at one n and K: logarithm of seconds without the drift, and the seconds seen."""

    n: float
    log_n: float
    k: int
    log_s: float
    seen_s: float


@dataclass(frozen=True)
class _Guess:
    """Predicted goodput (logarithm), its error, and whether this K was measured near this n."""

    score: float
    unsure: float
    measured: bool


@dataclass
class _Since:
    """Work since the last change of K: seconds, and the seconds that were predicted for the same steps.

    ``loss`` is the predicted loss of a try, 0 if K was not changed to try it. ``stalled`` is None until it is
    judged.
    """

    loss: float = 0.0
    seconds: float = 0.0
    predicted: float = 0.0
    stalled: bool | None = None


@dataclass
class Controller:
    """K of one engine. ``bounds[n]`` is the largest K allowed with n requests running; index 0 is unused.

    Attributes:
        k: K that was decided last, before the bound of the batch.
        switches: number of changes of K in use.
        banned: K that are not used again, since the engine stalled at them.
        why: why K does not follow the load now; "" if it does.
    """

    bounds: Sequence[int]
    k: int = -1
    switches: int = 0
    banned: set[int] = field(default_factory=set)
    why: str = "no step was measured yet"
    _gain: list[float] = field(default_factory=list)
    _cells: dict[tuple[int, int], _Cell] = field(default_factory=dict)
    _drift: float = 0.0
    _noise: float = 0.0
    _since: _Since = field(default_factory=_Since)
    _changed_at: float = -math.inf
    _decided_at: float = -math.inf
    _work_s: float = 0.0
    _unseen_s: float = 0.0
    _lost_s: float = 0.0
    _blind_from: float = 0.0
    _blind_s: float = BLIND_S
    _suspect: int | None = None
    _in_use: int = -1
    _has_table: bool = False

    def __post_init__(self) -> None:
        """Begin with the largest K that any number of requests may use."""
        if self.k < 0:
            self.k = max(self.bounds[1:])
        self._has_table = len(set(self.bounds[1:])) > 1

    def record(self, steps: Steps) -> None:
        """Learn from steps that have ended."""
        if steps.steps < 1 or steps.seconds <= 0 or steps.running < 1:
            return
        fair = self._judge(steps)
        if steps.alike:
            self._unseen_s = 0.0
            self.why = "" if self._noise < MOST_NOISE**2 else "the step times vary too much"
            if self.why:
                self.k = max(self.bounds[1:])
            self._work_s += steps.seconds
            if not fair or self._learn_time(steps):
                self._learn_acceptance(steps)

    def unseen(self, seconds: float, why: str) -> None:
        """Note work that nothing can be learned from; after `UNSEEN_S` of it the controller is off."""
        self._unseen_s += seconds
        if self._unseen_s > UNSEEN_S:
            self.why, self.k = why, max(self.bounds[1:])

    def decide(self, now: float, running: int) -> int:
        """Return K for a step with ``running`` requests; ``now`` is in seconds, of any origin."""
        running = min(max(running, 1), len(self.bounds) - 1)
        may_change = now - self._changed_at >= DWELL_S
        if may_change and not self.why and now - self._decided_at >= DECIDE_S:
            self._decided_at = now
            self._lost_s += self._since.loss * DWELL_S
            self._since.loss = 0.0
            self._choose(running)
        used = min(self.k, self.bounds[running])
        if self._in_use < 0:
            self._in_use = used
        elif used != self._in_use and (may_change or self._in_use > self.bounds[running]):
            self._in_use, self._changed_at, self._blind_from = used, now, self._work_s
            self.switches += 1
            self._since = _Since(self._since.loss)
        return self._in_use

    # --- decision

    def _choose(self, running: int) -> None:
        """Set ``k`` to the best choice for ``running`` requests."""
        bound = self.bounds[running]
        current = min(self.k, bound)
        allowed = [k for k in range(bound + 1) if k not in self.banned]
        if not allowed:
            return
        line = self._line()
        guesses = {k: self._guess(line, running, k) for k in {*allowed, current}}
        here = guesses[current].score
        if self._has_table and bound not in self.banned and here <= guesses[bound].score:
            current, here, self.k = bound, guesses[bound].score, bound
        if self._has_table and bound not in self.banned and not guesses[bound].measured:
            self.k = bound  # a table was measured before: it decides where nothing else was
            return
        # A line through few cells is wrong far from them: each change goes half of the way at most.
        firm = [k for k in guesses if guesses[k].measured or k == current]
        allowed = [k for k in allowed if any(abs(k - other) <= max(1, other // 2) for other in firm)]
        best = max(allowed or [current], key=lambda k: (guesses[k].score - guesses[k].unsure, -k))
        if current in self.banned or guesses[best].score - guesses[best].unsure > here + GAIN:
            self.k = best
        elif (tried := self._worth_a_try(guesses, allowed, current, bound)) is not None:
            self.k = tried
            self._since.loss = min(self._price(guesses, tried, current), MOST_LOSS)

    def _worth_a_try(
        self, guesses: dict[int, _Guess], allowed: Sequence[int], current: int, bound: int
    ) -> int | None:
        """Return a K that may be better and was not measured here, if the budget covers its loss."""
        room = BUDGET * self._work_s + CREDIT_S - self._lost_s
        hope = 0.0 if self._has_table else 1.0
        first = max(allowed, key=lambda k: (guesses[k].score + hope * guesses[k].unsure, -k))
        if current == 0 and self._work_s - self._blind_from > self._blind_s and len(allowed) > 1:
            # At K=0 nothing shows the acceptance of now.
            self._blind_from, self._blind_s = self._work_s, 2 * self._blind_s
            return max((k for k in allowed if k), key=lambda k: guesses[k].score)
        half = bound - bound // 2
        if not self._has_table and len({cell.k for cell in self._cells.values()}) == 1 and half in allowed:
            return half  # one K alone does not show what a K costs
        if guesses[first].score + hope * guesses[first].unsure < guesses[current].score + GAIN:
            return None
        loss = self._price(guesses, first, current)
        return first if first != current and loss < MOST_LOSS and loss * DWELL_S < room else None

    def _price(self, guesses: dict[int, _Guess], tried: int, current: int) -> float:
        return max(guesses[current].score - guesses[tried].score, guesses[tried].unsure / 2)

    def _judge(self, steps: Steps) -> bool:
        """Compare the first work after a change with the predicted; return whether it may be learned from.

        A K at which the engine stalls is banned. If the K after it is as slow, it was the machine, and the
        ban is lifted.
        """
        since = self._since
        at = math.log2(steps.running)
        if self.switches == 0 or since.stalled is not None or self._in_use in self.banned:
            return self._in_use not in self.banned
        if not any(abs(cell.log_n - at) <= 0.5 for cell in self._cells.values()):
            return True  # with so many requests nothing was measured
        log_s = self._log_time(self._line(), steps.running, steps.k)[0] + self._drift
        predicted = steps.steps * math.exp(log_s)
        since.seconds += steps.seconds
        since.predicted += predicted
        if since.seconds >= JUDGE_S:
            since.stalled = since.predicted < COLLAPSE * since.seconds
            if since.stalled and self._suspect is None:
                self.banned.add(self._in_use)
                self._suspect = self._in_use
            else:
                if since.stalled and self._suspect is not None:
                    self.banned.discard(self._suspect)
                self._suspect = None
        return predicted >= COLLAPSE * steps.seconds

    def goodput(self, running: int, k: int) -> float:
        """Return the logarithm of the predicted tokens per second."""
        return self._guess(self._line(), running, k).score

    def _guess(self, line: Sequence[float], running: int, k: int) -> _Guess:
        """Predict the goodput of K with ``running`` requests."""
        log_s, near = self._log_time(line, running, k)
        score = math.log(running * self.acceptance_length(k)) - log_s
        return _Guess(score, UNSURE * (1 - near), near > 0.5)

    # --- acceptance

    def acceptance_length(self, k: int) -> float:
        """Return the predicted acceptance length of K for the text of now."""
        return 1 + sum(self._gain[:k])

    def _learn_acceptance(self, steps: Steps) -> None:
        drafts, k = steps.steps * steps.running, min(steps.k, max(self.bounds[1:]))
        if k == 0 or len(steps.survived) < k:
            return
        lengths = [1.0]
        for count in steps.survived[:k]:
            lengths.append(lengths[-1] + count / drafts)
        lengths = [
            length * math.exp(LOW_READING * (1 - at / k)) if at else 1.0 for at, length in enumerate(lengths)
        ]
        seen = [min(max(after - at, 1e-3), 0.999) for at, after in pairwise(lengths)]
        if not self._gain:
            beyond = min(seen[-1] ** (1 / k), seen[-1] / seen[-2] if k > 1 else 1.0, 0.999)
            most = max(self.bounds[1:])
            self._gain = seen + [seen[-1] * beyond**further for further in range(1, most - k + 1)]
            return
        weight = 1 - math.exp(-steps.seconds / TEXT_S)
        before = self._gain[k - 1]
        onward = [after / at for at, after in zip(self._gain[k - 1 :], self._gain[k:], strict=False)]
        for at, value in enumerate(seen):
            self._gain[at] += weight * (value - self._gain[at])
        # What lies beyond K was not drafted. Each of its hazards changes as much as those that were seen.
        change = math.log(self._gain[k - 1]) / math.log(before)
        for at, share in enumerate(onward, start=k):
            self._gain[at] = max(self._gain[at - 1] * min(share, 0.999) ** change, 1e-6)

    # --- step time

    def _learn_time(self, steps: Steps) -> bool:
        """Learn how long these steps took; False if they were so long that something else happened."""
        key = (round(SHARP * math.log2(steps.running)), steps.k)
        log_s = math.log(steps.seconds / steps.steps)
        cell = self._cells.get(key)
        if cell is None:
            at = math.log2(steps.running)
            self._cells[key] = _Cell(steps.running, at, steps.k, log_s - self._drift, steps.seconds)
            return True
        surprise = log_s - self._drift - cell.log_s
        weight = 1 - math.exp(-steps.seconds / CELL_S)
        self._noise += weight * (min(surprise * surprise, 4.0) - self._noise)
        long = surprise > math.log(LONG_STEP)
        if cell.seen_s >= 2.0:
            share = 1 - math.exp(-min(steps.seconds, 1.0) / DRIFT_S)
            self._drift += share * min(surprise, math.log(LONG_STEP))
        if long:
            return False
        cell.seen_s += steps.seconds
        cell.log_s += min(steps.seconds / min(cell.seen_s, CELL_S), 1.0) * (log_s - self._drift - cell.log_s)
        return True

    def _log_time(self, line: Sequence[float], running: int, k: int) -> tuple[float, float]:
        """Predict the step time, and say how well it is known: 1 if it was measured for two seconds.

        It is the line through all cells, and how far the near ones are off it.
        """
        off = weights = nearest = 0.0
        at = math.log2(running)
        for cell in self._cells.values():
            if (cell.k == 0) != (k == 0) or abs(cell.k - k) > 3 or abs(cell.log_n - at) > 1:
                continue
            apart = (SHARP * (cell.log_n - at) / NEAR_N) ** 2 + ((cell.k - k) / NEAR_K) ** 2
            weight = math.exp(-apart / 2) * min(1.0, cell.seen_s / 2)
            off += weight * (cell.log_s - math.log(_on(line, cell.n, cell.k)))
            weights += weight
            if cell.k == k:
                nearest = max(nearest, weight)
        return math.log(_on(line, running, k)) + off / max(weights, 1.0), nearest

    def _line(self) -> list[float]:
        """Fit T = a + b n (K + 1) + c K, none below 0, to the measured cells, by relative errors."""
        matrix, right = [[1e-9] * 3 for _ in range(3)], [0.0] * 3
        cells = [(min(1.0, cell.seen_s / 2), cell.n, cell.k, cell.log_s) for cell in self._cells.values()]
        if len({k for _, _, k, _ in cells}) == 1:
            # One K alone does not show what drafts cost: assume a little.
            cells += [
                (PRIOR * weight, n, 0, log_s + math.log(1 - DRAFTS_COST))
                for weight, n, k, log_s in cells
                if k
            ]
        for weight, n, k, log_s in cells:
            scale = math.exp(-log_s)
            row = [scale * value for value in (1.0, n * (k + 1), k)]
            for i in range(3):
                right[i] += weight * row[i]
                for j in range(3):
                    matrix[i][j] += weight * row[i] * row[j]
        return _least_squares(matrix, right)


def _least_squares(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Return the x with the least x'Mx - 2r'x and none below 0: the best over all sets of variables."""
    best, least = [0.0] * 3, math.inf
    for used in ((0, 1, 2), (0, 1), (0, 2), (1, 2), (0,), (1,), (2,)):
        rows = [[*(matrix[i][j] for j in used), right[i]] for i in used]
        for at, row in enumerate(rows):
            if abs(row[at]) < 1e-12:
                break
            for other in rows[at + 1 :]:
                factor = other[at] / row[at]
                for column in range(at, len(row)):
                    other[column] -= factor * row[column]
        else:
            found = [0.0] * 3
            for at in reversed(range(len(used))):
                rest = rows[at][-1] - sum(rows[at][j] * found[used[j]] for j in range(at + 1, len(used)))
                found[used[at]] = rest / rows[at][at]
            error = sum(
                found[i] * (sum(matrix[i][j] * found[j] for j in range(3)) - 2 * right[i]) for i in range(3)
            )
            if min(found) >= 0 and error < least:
                best, least = found, error
    return best


def _on(line: Sequence[float], n: float, k: int) -> float:
    return max(line[0] + line[1] * n * (k + 1) + line[2] * k, 1e-9)
