"""The tables of docs/verify.md: `python -m tests.measure.verify.power` prints them anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from tests.measure.verify.corruptions import KINDS, Outcome, floor_kind
from tests.measure.verify.worlds import NOISES, World, clean_world

EXACT, NOISY = NOISES[0], (NOISES[4], NOISES[7], NOISES[8])


def corrupted(seed: int, share: float = 1.0) -> Iterator[tuple[str, World, Outcome]]:
    """Each kind so many times as `KINDS` says (times ``share``), a third of them on an exact floor."""
    rng = np.random.default_rng(seed)
    worlds = [clean_world(rng, EXACT)] + [clean_world(rng, noise) for noise in NOISY for _ in range(2)]
    for kind, (corrupt, times) in KINDS.items():
        for n in range(round(times * share)):
            world = worlds[0] if n % 3 == 0 else worlds[1 + n % (len(worlds) - 1)]
            yield kind, world, corrupt(rng, world)


def table(seed: int, share: float) -> str:
    """How many of each kind there were, above the stated gap and below it, and how many were caught."""
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for kind, world, outcome in corrupted(seed, share):
        row = counts[kind, floor_kind(world.floor) if kind != "sampling" else "any"]
        at = 0 if outcome.stated else 2
        row[at] += 1
        row[at + 1] += outcome.verdict.passed is False
    lines = [
        "| fault | floor | above the stated gap | caught | below it | caught |",
        "|---|---|---:|---:|---:|---:|",
    ]
    lines += [f"| {k} | {f} | {a} | {b} | {c} | {d} |" for (k, f), (a, b, c, d) in counts.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(seed=1, share=1.0))
