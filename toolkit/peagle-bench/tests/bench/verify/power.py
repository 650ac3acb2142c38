"""The tables of docs/how-to/verify.md: `python -m tests.bench.verify.power` prints them anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from peagle_bench.verify.greedy import judge_greedy
from peagle_bench.verify.statistics import LEAST_DELTA, quantile, shift_found
from tests.bench.verify.corruptions import KINDS, Outcome, floor_kind, struck
from tests.bench.verify.worlds import NOISES, World, clean_world, recorded, true_shift

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


def near_ties(seed: int, runs: int = 20) -> str:
    """How often wrong choices within the noise floor are caught, by the share of them that goes wrong."""
    rng = np.random.default_rng(seed)
    lines = [
        "| wrong choices among tokens with a runner-up within delta | of all tokens | caught |",
        "|---:|---:|---:|",
    ]
    for rate in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0):
        caught = changed = tokens = 0
        for _ in range(runs):
            world = clean_world(rng, NOISES[8], prompts=164, tokens=96)
            cases, wrong = struck(rng, world, world.floor.delta, rate)
            caught += judge_greedy(cases, world.floor, world.max_tokens).passed is False
            changed += wrong
            tokens += world.floor.tokens
        lines.append(f"| {rate:.0%} | {changed / tokens:.2%} | {caught / runs:.0%} |")
    return "\n".join(lines)


def sampling() -> str:
    """The shift that a wrong temperature or nucleus makes, and how many tokens find it 9 times in 10."""
    rows = np.concatenate([truth[1:] for truth in recorded()["sampled_top_logprobs"]])
    best = np.exp(rows)[:, 0].astype(float)
    variance = float((best * (1 - best)).mean())
    lines = ["| sampled at | shift of the best token's share | tokens for 90% |", "|---|---:|---:|"]
    for temperature, top_p in (
        (0.5, 1),
        (0.8, 1),
        (0.9, 1),
        (0.95, 1),
        (1.05, 1),
        (1.2, 1),
        (1, 0.95),
        (1, 0.8),
    ):
        shift = true_shift(temperature, top_p) - true_shift(1.0)
        needed = (shift_found(variance, 1) / shift) ** 2
        name = f"temperature {temperature}" if top_p == 1 else f"top_p {top_p}"
        lines.append(f"| {name} | {shift:+.1%} | {needed:,.0f} |")
    return "\n".join(lines)


def false_alarms(seed: int, runs: int = 400) -> str:
    """Clean runs in which a single gap would raise the alarm, by two rules for delta."""
    simple = ours = 0
    for n in range(runs):
        rng = np.random.default_rng([seed, n])
        prompts, tokens = ((32, 48), (96, 96))[n % 2]
        world = clean_world(rng, NOISES[3 + n % 7], prompts, tokens, times=1.3 if n % 3 == 0 else 1.0)
        gaps = [gap for case in world.cases for s in (case.first, case.repeat) for gap in s.gaps]
        largest = max(gap for case in world.cases for gap in case.candidate.gaps)
        simple += largest > max(LEAST_DELTA, 2 * quantile(gaps, 0.999))
        ours += largest > world.floor.delta
    return f"Of {runs} clean runs: {simple} false alarms by the quantile of all gaps, {ours} by delta."


if __name__ == "__main__":
    print(table(seed=1, share=1.0), near_ties(seed=2), sampling(), false_alarms(seed=3), sep="\n\n")
