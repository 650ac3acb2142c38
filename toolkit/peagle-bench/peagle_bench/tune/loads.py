"""Table of K by batch size, from the rates at each measured load. Pure.

vLLM looks up K in each step by the number of requests that the step computes, prefills included, and drafts
this many tokens for the next step (vLLM 0.32, ``v1/core/sched/scheduler.py`` and
``v1/spec_decode/dynamic/utils.py``). A batch between two rows gets the K before the gap, one beyond the last
row the last K, and no K exceeds ``num_speculative_tokens``. The tables made here have no gaps, and no K=0:
a change to K=0 has stalled an engine (vllm#49548), and on simulated endpoints it gained 0.03% of the rate.

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

from peagle_bench.tune.choice import good_enough
from peagle_bench.tune.curve import Rates
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

    def k_at(self, batch: int) -> int:
        """Return the K that the engine uses for a batch size from 1."""
        return k_at(self.rows, batch)


def make_table(rates: Mapping[int, Rates]) -> LoadTable:
    """Make the table from the rates predicted at each measured load, by load.

    Only a K that was measured at a load is chosen for it.

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
    runs: list[tuple[tuple[int, ...], set[int]]] = []
    for load in sorted(allowed):
        here = set(allowed[load])
        if not here:
            raise ValueError(f"share_k: no K is allowed at load {load}")
        if runs and runs[-1][1] & here:
            loads, common = runs[-1]
            runs[-1] = ((*loads, load), common & here)
        else:
            runs.append(((load,), here))
    return [(loads, min(common)) for loads, common in runs]


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
