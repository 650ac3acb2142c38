"""Every cut of every recorded stream, and random splits: exact, or a typed error."""

from __future__ import annotations

import random

import pytest

from tests.aws.streams import NAMES, Outcome, cut_at, framed, outcome, recorded

#: The seed of the splits: each run takes 1,000, and the campaign 20,000 others.
SEEDS = [pytest.param(20261122, 1_000), pytest.param(20261123, 20_000, marks=pytest.mark.campaign)]


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_stream_is_read_alike_in_any_wrapping(name: str) -> None:
    whole = outcome([framed(name)])
    assert whole.error is None
    crlf = recorded(name).replace(b"\n", b"\r\n")
    for data, frames in ((framed(name), True), (recorded(name), False), (crlf, False)):
        parts = [data[n : n + 1] for n in range(len(data))]
        assert outcome(parts, frames=frames) == outcome([data], frames=frames) == whole


@pytest.mark.parametrize("name", NAMES)
def test_cut_short_at_every_byte(name: str) -> None:
    data = framed(name)
    whole = outcome([data])
    kinds = set()
    for end in range(len(data)):
        result = outcome([data[:end]])
        _check_cut(result, whole)
        kinds.add(result.error)
    assert kinds <= {"StreamCut", None}
    assert "StreamCut" in kinds


@pytest.mark.parametrize("name", NAMES)
def test_bare_events_cut_short_at_every_byte(name: str) -> None:
    data = recorded(name)
    whole = outcome([data], frames=False)
    for end in range(len(data)):
        _check_cut(outcome([data[:end]], frames=False), whole)


@pytest.mark.parametrize("name", NAMES)
def test_cut_in_two_at_every_byte(name: str) -> None:
    data = framed(name)
    whole = outcome([data])
    for place in range(len(data)):
        assert outcome([data[:place], data[place:]]) == whole


@pytest.mark.parametrize(("seed", "splits"), SEEDS)
def test_random_splits(seed: int, splits: int) -> None:
    chance = random.Random(seed)
    wholes = {name: outcome([framed(name)]) for name in NAMES}
    for number in range(splits):
        name = NAMES[number % len(NAMES)]
        data = framed(name)
        parts = cut_at(data, [chance.randrange(len(data) + 1) for _ in range(chance.randint(1, 60))])
        assert outcome(parts) == wholes[name], (number, name)


def _check_cut(found: Outcome, whole: Outcome) -> None:
    """Exact, or a typed error with a beginning of the text."""
    assert whole.text.startswith(found.text)
    assert whole.reasoning.startswith(found.reasoning)
    if found.error is None:
        assert found.answer == whole.answer
