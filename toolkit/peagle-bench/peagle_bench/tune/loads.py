"""K by load in one engine: the table of K, and its alternatives. Pure.

K=0 in an engine with a draft head is not an engine without one: the head still reads every token. So both are
measured: K=0 inside the engine, which a table can contain, and the baseline on an endpoint of its own.

vLLM looks up K in each step by the number of requests that the step computes, prefills included, and drafts
this many tokens for the next step (vLLM 0.32, ``v1/core/sched/scheduler.py`` and
``v1/spec_decode/dynamic/utils.py``). A batch between two rows gets the K before the gap, one beyond the last
row the last K, and no K exceeds ``num_speculative_tokens``. The tables made here have no gaps.

* At a measured load every K counts that the tuner's rule would allow: expected to lose little.
* Hysteresis against noise: neighbouring loads share a K as long as one is allowed at all of them, so the
  table has the fewest rows possible. To share, a K may lose a little more than the tuner's rule allows:
  `SHARED_LOSS`.
* Between two measured loads with different K, the table changes where their rates are expected to be equal:
  the logarithm of their ratio is interpolated over the logarithm of the load.
* The first row begins at 1; the last one ends at `LARGEST_BATCH`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from peagle_bench.results.records import (
    Alternative,
    Load,
    Mode,
    TableCheck,
    TableRecord,
)
from peagle_bench.tune.choice import good_enough
from peagle_bench.tune.curve import Rates, Ratio, fit, level, noise_of
from peagle_bench.tune.outcome import ModeResult, conclude
from peagle_bench.tune.readings import Reading
from peagle_bench.tune.validate import is_accepted, reason_of
from peagle_sm.core.spec.endpoint_spec import Mode as SpecMode
from peagle_sm.core.spec.endpoint_spec import Row, k_at

#: End of the last row. An engine with a smaller ``max_num_seqs`` cuts the row there, and one with a larger
#: value continues with the last K.
LARGEST_BATCH = 1024
#: Expected share of the rate that a K may lose to be shared by neighbours.
#: On simulated endpoints 1% gave fewer rows than 0.5% and no more regret (2026-11-24).
SHARED_LOSS = 0.01


@dataclass(frozen=True)
class LoadTable:
    """K by batch size: ``rows`` [first, last, K] from 1 on without gaps, and the K at each measured load."""

    rows: tuple[Row, ...]
    by_load: Mapping[int, int]

    @property
    def is_constant(self) -> bool:
        """Whether one K serves every load, so that no table is needed."""
        return len(self.rows) == 1

    @property
    def max_k(self) -> int:
        """Largest K: the ``num_speculative_tokens`` that the engine needs."""
        return max(k for _, _, k in self.rows)

    def k_at(self, batch: int) -> int:
        """Return the K that the engine uses for a batch size from 1."""
        return k_at(self.rows, batch)

    @property
    def words(self) -> str:
        """Return ``K=7 up to 3 requests in flight, K=4 up to 11, K=0 beyond``."""
        parts = [f"K={k} up to {last}" for _, last, k in self.rows[:-1]]
        if not parts:
            return f"K={self.rows[0][2]} at every load"
        parts[0] += " requests in flight"
        return ", ".join([*parts, f"K={self.rows[-1][2]} beyond"])


def make_table(rates: Mapping[int, Rates]) -> LoadTable:
    """Make the table from the rates predicted at each measured load, by load.

    Only a K that was measured at a load is chosen for it. K=0 is the engine with drafts turned off.

    Raises:
        ValueError: no load.
    """
    if not rates:
        raise ValueError("make_table: needs at least one load")
    loads = sorted(rates)
    runs = share_k({load: good_enough(rates[load], loss=SHARED_LOSS) for load in loads})
    rows: list[Row] = []
    first = 1
    for (own, k), (following, other) in pairwise(runs):
        last = boundary(rates[own[-1]], rates[following[0]], k, other)
        rows.append((first, last, k))
        first = last + 1
    rows.append((first, max(LARGEST_BATCH, first), runs[-1][1]))
    return LoadTable(tuple(rows), {load: k for own, k in runs for load in own})


def share_k(allowed: Mapping[int, Sequence[int]]) -> list[tuple[tuple[int, ...], int]]:
    """Split the loads, in ascending order, into the fewest runs of neighbours that share an allowed K.

    Returns each run's loads with the smallest K that all of them allow.

    Raises:
        ValueError: a load allows no K.
    """
    found: list[tuple[tuple[int, ...], set[int]]] = []
    for load in sorted(allowed):
        here = set(allowed[load])
        if not here:
            raise ValueError(f"share_k: no K is allowed at load {load}")
        if found and found[-1][1] & here:
            loads, common = found[-1]
            found[-1] = ((*loads, load), common & here)
        else:
            found.append(((load,), here))
    return [(loads, min(common)) for loads, common in found]


def boundary(lower: Rates, upper: Rates, k: int, other: int) -> int:
    """Return the last batch size for ``k``; from the next one on ``other`` is used.

    It is from ``lower.concurrency`` to one below ``upper.concurrency``: the point where both are expected to
    be equally fast. If the noise puts one of them ahead at both loads, the change is at the nearer end; if a
    K was not measured at both, in the geometric middle.
    """
    low, high = lower.concurrency, upper.concurrency
    if not {k, other} <= set(lower.measured) & set(upper.measured):
        share = 0.5
    else:
        ahead = math.log(lower.of(k) / lower.of(other))
        behind = math.log(upper.of(other) / upper.of(k))
        share = 0.0 if ahead <= 0 else 1.0 if behind <= 0 else ahead / (ahead + behind)
    equal = math.exp((1 - share) * math.log(low) + share * math.log(high))
    return min(max(math.floor(equal + 1e-9), low), high - 1)


@dataclass(frozen=True)
class LoadResult:
    """Result of one mode: the table, the one K for all loads, and the rates they come from.

    ``fixed`` compares with the baseline (its K=0), ``engine`` has K=0 of the engine with the head.
    """

    table: LoadTable
    fixed: ModeResult
    engine: Mapping[int, Rates]

    @property
    def mode(self) -> Mode:
        """Mode that was tuned."""
        return self.fixed.mode

    @property
    def spec_mode(self) -> SpecMode:
        """The same, as a spec names it."""
        return "eagle3" if self.mode == "eagle3" else "p-eagle"

    def over_none(self, load: int, k: int) -> Ratio:
        """Return the rate at ``k`` over the rate without speculation at one load.

        K=0 is compared by way of the best K above 0, which was measured beside both.
        """
        beside_none = self.fixed.rates[load]
        if k:
            return beside_none.ratio(k, 0)
        link = beside_none.speculating().best
        return self.engine[load].ratio(0, link).times(beside_none.ratio(link, 0))


def conclude_loads(mode: Mode, engine: Sequence[Reading], plain: Sequence[Reading]) -> LoadResult:
    """Make the table of one mode, and find the one K for all loads, from the readings of `in_one_engine`."""
    fixed = conclude(mode, [*(reading for reading in engine if reading.k), *plain], deployments=1)
    clean = level(engine)
    rates = fit(clean, noise_of(clean))
    return LoadResult(make_table(rates), fixed, rates)


def alternatives(own: LoadResult, ks: Mapping[int, int], others: Sequence[LoadResult]) -> list[Alternative]:
    """Compare one mode with mode none and with the other modes at each load.

    ``ks`` are the K in use by load; the other modes use those of their tables. Two modes are compared by way
    of the baseline, which was measured in the rounds of both, so drift of the machine between them cancels.
    """
    compared = []
    for load, k in sorted(ks.items()):
        none_over_own = own.over_none(load, k).inverse()
        at = Load("closed", concurrency=load)
        compared.append(Alternative(at, "none", 0, none_over_own.interval()))
        for other in others:
            other_k = other.table.by_load[load]
            ratio = other.over_none(load, other_k).times(none_over_own)
            compared.append(Alternative(at, other.mode, other_k, ratio.interval()))
    return compared


def record_of(own: LoadResult, checks: Sequence[TableCheck], others: Sequence[LoadResult]) -> TableRecord:
    """Make the record of one mode: its table, whether it was accepted and why, and the alternatives."""
    accepted = is_accepted(checks)
    fixed_k = own.fixed.common.k
    ks = own.table.by_load if accepted else dict.fromkeys(own.table.by_load, fixed_k)
    reason = (
        f"no table of K is needed: one K is good enough at every measured load. K={fixed_k} is written, the "
        "tuner's choice for all of them"
        if own.table.is_constant
        else reason_of(checks)
    )
    return TableRecord(
        own.mode,
        own.table.rows,
        fixed_k,
        accepted,
        reason,
        tuple(checks),
        tuple(alternatives(own, ks, others)),
    )
