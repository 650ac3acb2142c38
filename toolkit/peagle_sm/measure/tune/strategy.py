"""Which K is measured when: in one running engine, or one deployment after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from peagle_sm.measure.tune.levels import level, noise_of
from peagle_sm.measure.tune.plan import RUNTIME_ROUNDS, next_deployment, next_round
from peagle_sm.measure.tune.reading import Reading
from peagle_sm.measure.tune.side import Side

Tell = Callable[[str], None]
Bring = Callable[[int], AbstractContextManager[Side]]
"""Deploys one K; leaving it deletes the endpoint."""


def in_one_engine(
    side: Side,
    baseline: Side | None,
    concurrencies: Sequence[int],
    max_k: int,
    tell: Tell,
    *,
    rounds: int = RUNTIME_ROUNDS,
) -> list[Reading]:
    """Every K once, then rounds over those still in question; each round in the other direction."""
    readings: list[Reading] = []
    for concurrency in concurrencies:
        for block in range(rounds):
            clean = level(readings)
            ks = next_round(clean, max_k, concurrency, noise_of(clean))
            if not ks:
                break
            tell(f"c={concurrency}, round {block + 1} of at most {rounds}: K {_listed(ks)}")
            readings += _round(side, baseline, ks, concurrency, block)
    return readings


def every_k(
    side: Side, concurrencies: Sequence[int], max_k: int, rounds: int, tell: Tell, first_block: int = 0
) -> list[Reading]:
    """The exhaustive sweep: every K in every round."""
    readings: list[Reading] = []
    for concurrency in concurrencies:
        for block in range(rounds):
            tell(f"sweep, c={concurrency}, round {block + 1} of {rounds}")
            readings += _round(side, None, range(1, max_k + 1), concurrency, first_block + block)
    return readings


def side_by_side(
    sides: Mapping[tuple[str, int], Side], concurrencies: Sequence[int], rounds: int, tell: Tell
) -> dict[str, list[Reading]]:
    """Arms that are all up, in turns: each round asks every one, in the other direction than the last.

    One at a time: they share the host's processors, so that one under load would slow the others. Returns
    the readings by mode.
    """
    found: dict[str, list[Reading]] = {mode: [] for mode, _ in sides}
    for concurrency in concurrencies:
        for block in range(rounds):
            tell(f"c={concurrency}, round {block + 1} of {rounds}: {len(sides)} arms in turns")
            order = list(sides)
            for mode, k in order if block % 2 == 0 else reversed(order):
                found[mode].append(sides[mode, k].read(k, concurrency, block))
    return found


def by_deployments(
    bring: Bring,
    baseline: Side | None,
    concurrencies: Sequence[int],
    max_k: int,
    tell: Tell,
    *,
    most: int,
    beside: bool,
) -> tuple[list[Reading], int]:
    """One deployment for each K, as few as possible; returns the readings and how many were deployed.

    ``beside``: the baseline is measured again next to each, because both share one machine.
    """
    readings: list[Reading] = []
    block = 0
    if baseline is not None:
        readings += [baseline.read(0, concurrency, block) for concurrency in concurrencies]
    while (k := next_deployment(readings, max_k, most)) is not None:
        tell(f"deployment {block + 1} of at most {most}: K={k}")
        with bring(k) as side:
            for concurrency in concurrencies:
                readings.append(side.read(k, concurrency, block))
                if beside and baseline is not None and block:
                    readings.append(baseline.read(0, concurrency, block))
        block += 1
    return readings, block


def _round(
    side: Side, baseline: Side | None, ks: Sequence[int], concurrency: int, block: int
) -> list[Reading]:
    order = list(ks) if block % 2 == 0 else list(reversed(ks))
    found = [side.read(k, concurrency, block) for k in order]
    if baseline is not None:
        found.append(baseline.read(0, concurrency, block))
    return found


def _listed(ks: Sequence[int]) -> str:
    in_a_row = len(ks) > 3 and ks[-1] - ks[0] == len(ks) - 1
    return f"{ks[0]} to {ks[-1]}" if in_a_row else ", ".join(map(str, ks))
