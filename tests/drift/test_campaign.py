"""What issue 15 asks of the detector, in worlds of traffic with fresh seeds.

A window is 2,000 drafts of an endpoint; the detector looks at the end of each interval, some 600 drafts. Each
run of the tests has 300 healthy windows; `--all` has 12,000 tuned and 8,000 hostile windows, and 600 falls. A
fall is one of the acceptance length, by 15%, in all requests of one slice.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context

import numpy as np
import pytest

from peagle_gate.drift import AcceptanceFall, Detector, Sums
from tests.drift.worlds import DIMENSIONS, Fall, Interval, Setting, World

WINDOW = 2000
WINDOWS_OF_A_WORLD = 50
MOST_LOOKS = 400  #: at one world: with little traffic a window has many intervals
BEFORE_A_FALL = 20  #: intervals from one look at the healthy traffic before a fall to the next
FALLS = (Fall("script", "han"), Fall("format", "json schema"), Fall("label:team", "support"))
#: A request's acceptance length differs by 10% from prompt to prompt, besides the chance of its own drafts.
USUAL = Setting(DIMENSIONS, request_sd=0.1, step_sd=0.3)
NOISY = replace(USUAL, request_sd=0.35, step_sd=0.5)
HEALTHY = {
    "usual": USUAL,
    "noisy": NOISY,
    "the real engine's requests": Setting(DIMENSIONS, recorded=True),
    "a table of K by load": replace(USUAL, ks=(7, 5, 3)),
    "K that changes within requests": replace(USUAL, ks=(7, 5, 3), k_within=True),
    "new slices and jumps of the mix": replace(NOISY, newcomer=0.01, mix_jumps=0.02),
    "a few prompts far from the rest": replace(USUAL, request_sd=0.3, heavy=True),
    "days and nights": replace(NOISY, day=0.9, day_intervals=120),
}
#: The mix moves, but no slice becomes all of the traffic: then two names mean the same requests.
FALLING = replace(USUAL, mix_jumps=0.0)
#: Made after the detector, and not used to tune it.
HOSTILE = {
    "clients that ask the same again": replace(NOISY, bursts=0.05),
    "acceptance that wanders by 2%": replace(NOISY, wander=0.02),
    "long requests": replace(NOISY, mean_drafts=200.0, drafts=3000),
    "little traffic": replace(NOISY, drafts=80),
    "the real engine's requests, asked again": Setting(DIMENSIONS, recorded=True, bursts=0.05),
    "sixteen slices": Setting(
        {**DIMENSIONS, "prompt tokens": {"below 256": 0.4, "256 to 1k": 0.4, "1k to 4k": 0.2}},
        request_sd=0.3,
        newcomer=0.02,
    ),
}


def counts(interval: Interval) -> dict[tuple[tuple[str, ...], int], Sums]:
    return {stratum: Sums(*sums) for stratum, sums in interval.items()}


def healthy_alarms(job: tuple[Setting, int]) -> list[tuple[int, AcceptanceFall]]:
    """Alarms of one world in which nothing fell, each fall once."""
    setting, seed = job
    world = World(setting, seed)
    detector = Detector(world.names)
    by_name: dict[str, tuple[int, AcceptanceFall]] = {}
    for number, interval in world:
        detector.add(number * 60.0, counts(interval))
        for change in detector.changes():
            by_name.setdefault(change.slice, (number, change))
        enough = world.slice_drafts["all requests"] >= WINDOWS_OF_A_WORLD * WINDOW
        if enough or number >= MOST_LOOKS:
            return list(by_name.values())
    raise AssertionError


@dataclass(frozen=True)
class Run:
    """What came of one fall: drafts of the slice until it was found, and which slices were named."""

    true: str
    drafts: int
    named: tuple[str, ...]
    false: bool = False
    since_off: int = 0  #: intervals between the beginning and what the detector says
    fall: float = 0.0


def fall_run(job: tuple[Setting, Fall, int, int]) -> Run:
    """Run a world until its fall is found, or for ``limit`` drafts of the slice."""
    setting, fall, seed, limit = job
    world = World(setting, seed, fall)
    detector = Detector(world.names)
    for number, interval in world:
        detector.add(number * 60.0, counts(interval))
        # Alarms in healthy traffic are counted above; here a look now and then sees one that lasts.
        if world.fell_at is None and number % BEFORE_A_FALL:
            continue
        if changes := detector.changes():
            named = tuple(change.slice for change in changes)
            if world.fell_at is None:
                return Run(fall.slice, 0, named, false=True)
            off = round(changes[0].since / 60) - (world.fell_at - 1)
            return Run(fall.slice, world.drafts_since, named, since_off=off, fall=changes[0].fall)
        if world.drafts_since > limit:
            return Run(fall.slice, limit, ())
    raise AssertionError


def falls_of(
    setting: Setting, runs: int, seed: int, limit: int, falls: tuple[Fall, ...] = FALLS
) -> list[Run]:
    """Run each kind of fall in turn, on two processes if there are many."""
    jobs = [(setting, falls[number % len(falls)], seed + number, limit) for number in range(runs)]
    if runs < 40:
        return [fall_run(job) for job in jobs]
    with get_context("fork").Pool(min(2, os.cpu_count() or 1)) as pool:
        return pool.map(fall_run, jobs, chunksize=4)


def report(title: str, runs: Sequence[Run]) -> tuple[float, float]:
    """Print the figures; return the shares found within 2,000 drafts, and named right."""
    rows = [run for run in runs if run.named and not run.false]
    drafts = [run.drafts if run.named else 10**6 for run in runs if not run.false]
    within = sum(count <= WINDOW for count in drafts) / len(runs)
    right = sum(run.named[0] == run.true for run in rows) / max(1, len(rows))
    median, most = np.percentile(drafts, [50, 99])
    print(
        f"{title}: {len(runs)} falls, {sum(run.false for run in runs)} false alarms before, "
        f"found {len(rows)}, within 2,000 drafts {within:.1%}, drafts at the median {median:,.0f}, "
        f"at 99% {most:,.0f}, "
        f"right slice {right:.1%}, alone {sum(run.named == (run.true,) for run in rows)}"
    )
    return within, right


@pytest.mark.parametrize("name", ["usual", "the real engine's requests", "new slices and jumps of the mix"])
def test_no_alarm_in_healthy_traffic(name: str) -> None:
    assert [healthy_alarms((HEALTHY[name], seed)) for seed in (20_000, 20_001)] == [[], []]


@pytest.mark.campaign
@pytest.mark.parametrize("name", [*HEALTHY, *HOSTILE])
def test_no_alarm_in_12_000_healthy_windows(name: str) -> None:
    """12,000 windows over the eight kinds that were asked for, and as many a kind again over the others."""
    setting = {**HEALTHY, **HOSTILE}[name]
    jobs = [(setting, seed) for seed in range(50_000, 50_030)]
    with get_context("fork").Pool(min(2, os.cpu_count() or 1)) as pool:
        result = pool.map(healthy_alarms, jobs, chunksize=2)
    alarms = [alarm for world in result for alarm in world]
    print(f"{name}: {len(jobs)} worlds, {len(alarms)} alarms {alarms[:3]}")
    # Requests that are alike without a visible reason may give one: 4 in 18,000 windows.
    assert len(alarms) <= (1 if name in HOSTILE else 0)


@pytest.mark.campaign
def test_400_falls_are_found_within_2000_drafts_and_named() -> None:
    within, right = report("usual", falls_of(FALLING, 400, 60_000, 8000))
    assert within >= 0.99  # 994 of 1,000 with other seeds
    assert right >= 0.98


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("name", "setting", "falls", "limit"),
    [
        ("all requests at once", FALLING, (Fall("", ""),), 8000),
        ("noisy", replace(NOISY, mix_jumps=0.0), FALLS, 20_000),
        ("the real engine's requests", Setting(DIMENSIONS, recorded=True, mix_jumps=0.0), FALLS, 40_000),
        ("a table of K by load", replace(FALLING, ks=(7, 5, 3)), FALLS, 8000),
        ("jumps of the mix", USUAL, FALLS, 8000),
    ],
)
def test_falls_in_noise_are_found_later(
    name: str, setting: Setting, falls: tuple[Fall, ...], limit: int
) -> None:
    """The more requests differ from each other, the more of them it takes."""
    runs = falls_of(setting, 40, 70_000, limit, falls)
    _, right = report(name, runs)
    assert not any(run.false for run in runs)
    assert sum(bool(run.named) for run in runs) >= 39
    assert right >= 0.85
