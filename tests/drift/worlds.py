"""Worlds of traffic for the drift detector, written from issue 15 and from drafts of the real engine.

A world yields intervals as the gate does: for each stratum (values of the slices, and K) the sums over its
requests. Two kinds of requests: `recorded` ones are those of the real engine, drawn with replacement (vLLM
for CPU 0.32.0, the stand-in P-EAGLE at K = 7, 734 requests of 24 November 2026; their recorder was last in
edae080c); `parametric` ones have a rate of their own, drafts that depend on each other, and an acceptance
that depends on what no slice shows.

Nothing here imports the detector's rule: a world knows what happened, and the test compares.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RECORDED = Path(__file__).with_name("recorded.json.gz")
K = 7
Values = tuple[str, ...]
#: requests, drafts, accepted, and the sums of drafts^2, drafts * accepted, accepted^2
Sums = tuple[float, float, float, float, float, float]
Interval = dict[tuple[Values, int], Sums]


@dataclass(frozen=True)
class Fall:
    """A fall of the acceptance length in one slice (or in all requests), from a number of drafts on."""

    dimension: str
    value: str
    share: float = 0.15
    after: int = 40_000  #: drafts of this slice before it

    @property
    def slice(self) -> str:
        """The slice as people read it."""
        return f"{self.dimension}: {self.value}" if self.dimension else "all requests"


@dataclass(frozen=True)
class Setting:
    """What a world is made of.

    Attributes:
        dimensions: values of each, with their shares at the start.
        drafts: mean drafts of an interval.
        request_sd: of a request's own logit of acceptance, in parametric worlds.
        persistence: correlation of the difficulty from a draft to the next.
        step_sd: of a draft's own difficulty.
        mix_walk: sd of the random walk of the logits of the mix, for each interval.
        mix_jumps: chance of an interval at which the mix is drawn anew.
        day: amplitude of the daily course of load and mix; a day has `day_intervals`.
        wander: sd of a slow change of the acceptance that nothing explains, as a share of the acceptance.
        ks: K of a draft, by load: each request has one of them; several with ``k_within``.
        bursts: chance that a request is followed by others like it (same rate), up to 12.
        newcomer: chance of an interval at which a value appears that was never seen.
        recorded: requests of the real engine.
    """

    dimensions: Mapping[str, Mapping[str, float]]
    drafts: int = 600
    request_sd: float = 0.35
    persistence: float = 0.3
    step_sd: float = 0.5
    mix_walk: float = 0.05
    mix_jumps: float = 0.004
    day: float = 0.5
    day_intervals: int = 400
    wander: float = 0.0
    ks: tuple[int, ...] = (K,)
    k_within: bool = False
    bursts: float = 0.0
    newcomer: float = 0.0
    recorded: bool = False
    heavy: bool = False
    mean_drafts: float = 32.0


DIMENSIONS = {
    "format": {"text": 0.62, "json schema": 0.38},
    "script": {"latin": 0.6, "han": 0.3, "cyrillic": 0.1},
    "label:team": {"search": 0.5, "support": 0.3, "other": 0.2},
}


@cache
def recorded() -> dict[str, list[NDArray[np.int64]]]:
    """Accepted counts of each draft of the recorded requests, by kind of prompt and temperature."""
    banks: dict[str, list[NDArray[np.int64]]] = {}
    with gzip.open(RECORDED, "rt") as file:
        for row in json.load(file):
            banks.setdefault(row["kind"], []).append(np.array([int(digit) for digit in row["accepted"]]))
    return banks


class World:
    """Traffic of an endpoint, interval by interval.

    Attributes:
        slice_drafts: drafts so far of each slice, and of all requests under "all requests".
    """

    def __init__(self, setting: Setting, seed: int, fall: Fall | None = None) -> None:
        """Draw the acceptance of the slices."""
        self._setting = setting
        self._rng = rng = np.random.default_rng(seed)
        self._fall = fall
        self._names = tuple(setting.dimensions)
        self._values = {name: list(values) for name, values in setting.dimensions.items()}
        self._logits = {
            name: np.log(np.array(list(values.values()))) for name, values in setting.dimensions.items()
        }
        self._base = rng.normal(1.25, 0.25)
        self._main: dict[tuple[str, str], float] = {}
        self._cell: dict[Values, float] = {}
        self._banks: dict[Values, str] = {}
        self._interval = 0
        self._phase = rng.uniform(0, 2 * np.pi)
        self._wander = 0.0
        self.slice_drafts: dict[str, int] = {"all requests": 0}
        self._chance: float | None = None
        self.fell_at: int | None = None
        self.drafts_since = 0  #: drafts of the slice since it fell

    @property
    def names(self) -> tuple[str, ...]:
        """The dimensions."""
        return self._names

    def __iter__(self) -> Iterator[tuple[int, Interval]]:
        """Yield the intervals with their number, without end."""
        while True:
            yield self._interval, self._next()

    def _next(self) -> Interval:
        setting, rng = self._setting, self._rng
        self._interval += 1
        day = np.sin(2 * np.pi * self._interval / setting.day_intervals + self._phase)
        self._move_the_mix()
        self._wander = 0.98 * self._wander + np.sqrt(1 - 0.98**2) * rng.normal(0, setting.wander)
        load = max(0.05, 1 + setting.day * day) * rng.lognormal(0, 0.25)
        requests = int(rng.poisson(setting.drafts * load / setting.mean_drafts))
        by_name: dict[tuple[Values, int], list[float]] = {}
        k_now = setting.ks[min(len(setting.ks) - 1, int(load / 1.9 * len(setting.ks)))]
        chosen = self._cells(requests, day)
        position = 0
        while position < len(chosen):
            values = chosen[position]
            like = 1 if rng.random() >= setting.bursts else int(rng.integers(2, 13))
            accepted, ks = self._requests(values, like, k_now)
            for counts, k in zip(accepted, ks, strict=True):
                drafts, total = len(counts), int(counts.sum())
                sums = by_name.setdefault((values, round(k)), [0.0] * 6)
                for place, amount in enumerate(
                    (1, drafts, total, drafts * drafts, drafts * total, total * total)
                ):
                    sums[place] += amount
                self._note(values, drafts)
            position += 1
        return {key: tuple(sums) for key, sums in by_name.items()}  # type: ignore[misc]

    def _note(self, values: Values, drafts: int) -> None:
        for name, value in zip(self._names, values, strict=True):
            key = f"{name}: {value}"
            self.slice_drafts[key] = self.slice_drafts.get(key, 0) + drafts
        self.slice_drafts["all requests"] += drafts
        if self._fall is not None and self._falls(values):
            if self.fell_at is not None:
                self.drafts_since += drafts
            elif self.slice_drafts[self._fall.slice] >= self._fall.after:
                self.fell_at = self._interval

    def _falls(self, values: Values) -> bool:
        assert self._fall is not None
        if not self._fall.dimension:
            return True
        return values[self._names.index(self._fall.dimension)] == self._fall.value

    def _move_the_mix(self) -> None:
        setting, rng = self._setting, self._rng
        for name, logits in self._logits.items():
            if rng.random() < setting.mix_jumps:
                self._logits[name] = rng.normal(0, 1.2, len(logits))
            else:
                pull = np.log(np.array([*setting.dimensions[name].values()]))
                pull = np.concatenate([pull, np.full(len(logits) - len(pull), -2.0)])
                self._logits[name] = (
                    logits + 0.01 * (pull - logits) + rng.normal(0, setting.mix_walk, len(logits))
                )
        if rng.random() < setting.newcomer:
            name = self._names[int(rng.integers(len(self._names)))]
            if len(self._values[name]) < 8:
                self._values[name].append(f"new {len(self._values[name])}")
                self._logits[name] = np.append(self._logits[name], rng.normal(-1.5, 0.5))

    def _cells(self, requests: int, day: float) -> list[Values]:
        columns = []
        for place, name in enumerate(self._names):
            logits = self._logits[name].copy()
            logits[place % len(logits)] += 0.8 * self._setting.day * day  # who works at night asks otherwise
            shares = np.exp(logits - logits.max())
            shares /= shares.sum()
            columns.append(self._rng.choice(len(shares), size=requests, p=shares))
        # the dimensions depend on each other: half of one team's requests are in one script
        if len(columns) > 1 and requests:
            follow = (columns[-1] == 0) & (self._rng.random(requests) < 0.4)
            columns[0] = np.where(follow, 0, columns[0])
        return [
            tuple(self._values[name][column[row]] for name, column in zip(self._names, columns, strict=True))
            for row in range(requests)
        ]

    def _rate(self, values: Values) -> float:
        """Logit of the acceptance of a cell: a share for each value, and one of the cell's own."""
        if values not in self._cell:
            rate = self._base + self._rng.normal(0, 0.1)
            for pair in zip(self._names, values, strict=True):
                if pair not in self._main:
                    self._main[pair] = self._rng.normal(0, 0.3)
                rate += self._main[pair]
            self._cell[values] = float(np.clip(rate, 0.2, 2.4))
        return self._cell[values]

    def _requests(self, values: Values, like: int, k_now: int) -> tuple[list[NDArray[np.int64]], list[float]]:
        setting, rng = self._setting, self._rng
        if setting.recorded:
            bank = recorded()
            kind = self._banks.setdefault(values, list(bank)[int(rng.integers(len(bank)))])
            rows = bank[kind]
            total = [rows[int(rng.integers(len(rows)))]] * like  # a burst asks the same again
        else:
            own = self._rate(values) + self._wander_logit() + self._difficulty()
            total = [self._drafts(own + rng.normal(0, setting.request_sd / 3)) for _ in range(like)]
        out, ks = [], []
        for counts in total:
            k_of = np.full(len(counts), k_now)
            if setting.k_within:  # with a table, K moves while the request runs
                k_of = rng.choice(setting.ks, size=len(counts))
            counts = np.minimum(counts, k_of)
            if self.fell_at is not None and self._falls(values):
                counts = self._thinned(counts)
            out.append(counts)
            ks.append(float(k_of.mean()))
        return out, ks

    def _difficulty(self) -> float:
        sd = self._setting.request_sd
        if self._setting.heavy:  # few prompts are far from the rest
            return float(np.clip(self._rng.standard_t(3) * sd / 1.5, -3 * sd, 3 * sd))
        return float(self._rng.normal(0, sd))

    def _wander_logit(self) -> float:
        return 2.2 * self._wander  # about the change of the logit that changes the acceptance by that share

    def _drafts(self, rate: float) -> NDArray[np.int64]:
        setting, rng = self._setting, self._rng
        drafts = max(1, int(rng.gamma(2.0, setting.mean_drafts / 2)))
        noise = rng.normal(0, setting.step_sd, drafts)
        if setting.persistence:
            keep, new = setting.persistence, math.sqrt(1 - setting.persistence**2)
            # Floats of Python: five times as fast as one number of an array after the other.
            noise = np.array([*accumulate(noise.tolist(), lambda before, own: keep * before + new * own)])
        chance = 1 / (1 + np.exp(-(rate + noise)))
        runs = np.floor(np.log(rng.random(drafts)) / np.log(chance))
        astype: NDArray[np.int64] = np.minimum(runs, K).astype(np.int64)
        return astype

    def _thinned(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Each accepted token is refused with a chance that lowers the slice's acceptance length as asked."""
        assert self._fall is not None
        chance = self._thinning()
        runs = np.floor(np.log(self._rng.random(len(counts))) / np.log(1 - chance)).astype(np.int64)
        minimum: NDArray[np.int64] = np.minimum(counts, runs)
        return minimum

    def _thinning(self) -> float:
        """The chance q for which 1 + sum(s_i (1 - q)^i) is lower by the share that is asked for."""
        if self._chance is None:
            assert self._fall is not None
            survival = self._sample_survival()
            wanted = (1 - self._fall.share) * (1 + survival.sum()) - 1
            low, high = 0.0, 0.9
            for _ in range(40):
                middle = (low + high) / 2
                fallen = (survival * (1 - middle) ** np.arange(1, K + 1)).sum()
                low, high = (low, middle) if fallen < wanted else (middle, high)
            self._chance = (low + high) / 2
        return self._chance

    def _sample_survival(self) -> NDArray[np.float64]:
        """Survival by position in the slice that falls, from requests that are made for this only."""
        rows: list[NDArray[np.int64]] = []
        fell, self.fell_at = self.fell_at, None
        while sum(map(len, rows)) < 20_000:
            for values in self._cells(200, 0.0):
                if self._falls(values):
                    rows += self._requests(values, 1, max(self._setting.ks))[0]
        self.fell_at = fell
        counts = np.concatenate(rows)
        return np.array([(counts >= place).mean() for place in range(1, K + 1)])
