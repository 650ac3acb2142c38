"""Samples made for the tests: any arm, any prompt, any speed."""

from __future__ import annotations

from scripts.bench.comparison.sample import Output, Sample


def output(ids: tuple[int, ...] = (1, 2, 3, 4), histogram: tuple[int, ...] = (), text: str = "x") -> Output:
    drafts = sum(histogram) if histogram else None
    accepted = sum(j * n for j, n in enumerate(histogram)) if histogram else None
    return Output(text, ids, len(ids), "length", drafts, accepted, histogram)


def sample(
    arm: str,
    prompt: str,
    seconds: float,
    ids: tuple[int, ...] = (1, 2, 3, 4),
    histogram: tuple[int, ...] = (),
) -> Sample:
    return Sample(arm, prompt, seconds, output(ids, histogram))
