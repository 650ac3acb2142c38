"""The detector of falls: what is one and what is not, on drafts that are made without chance."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_gate.drift import (
    BLOCKS_OF_A_SIZE,
    HORIZON_S,
    Counts,
    Detector,
    Stratum,
    Sums,
    read_counts,
)

MINUTE = 60.0
HAN, LATIN = ("text", "han"), ("text", "latin")
JSON_HAN, JSON_LATIN = ("json", "han"), ("json", "latin")


def requests(accepted: float, count: int, drafts: int = 30) -> Sums:
    """Requests whose accepted tokens a draft are this, some more and some less."""
    sums = Sums()
    for number in range(count):
        near = accepted * (1 + 0.1 * ((number % 5) - 2) / 2)
        sums.add(Sums.of_request(drafts, round(drafts * near)))
    return sums


def minute(rates: Mapping[tuple[str, str], tuple[float, int]], k: int = 7) -> Counts:
    return {(values, k): requests(rate, count) for values, (rate, count) in rates.items() if count}


def after(intervals: Iterable[Counts], start: float = 0.0) -> Detector:
    detector = Detector(("format", "script"))
    for number, counts in enumerate(intervals):
        detector.add(start + number * MINUTE, counts)
    return detector


HEALTHY = minute({HAN: (1.5, 8), LATIN: (3.0, 10), JSON_HAN: (2.0, 5), JSON_LATIN: (4.0, 5)})


def test_a_fall_says_which_slice_since_when_and_by_how_much() -> None:
    fallen = minute({HAN: (1.0, 8), LATIN: (3.0, 10), JSON_HAN: (1.4, 5), JSON_LATIN: (4.0, 5)})
    (change,) = after([HEALTHY] * 100 + [fallen] * 10).changes()
    assert change.slice == "script: han"
    assert change.since == pytest.approx(100 * MINUTE, abs=10 * MINUTE)
    assert change.fall == pytest.approx(0.2, abs=0.02)
    assert change.low < change.fall < change.high
    assert change.before == pytest.approx(2.7, abs=0.05)
    assert change.after == pytest.approx(2.15, abs=0.05)
    assert change.drafts == pytest.approx(3900, rel=0.2)


def test_all_slices_at_once_are_all_requests() -> None:
    fallen = minute({HAN: (1.1, 8), LATIN: (2.3, 10), JSON_HAN: (1.5, 5), JSON_LATIN: (3.1, 5)})
    (change,) = after([HEALTHY] * 100 + [fallen] * 10).changes()
    assert change.slice == "all requests"


def test_two_slices_that_fell_are_both_named() -> None:
    rates = {HAN: (1.0, 12), LATIN: (3.0, 40), JSON_LATIN: (2.8, 12)}
    healthy = minute({HAN: (1.6, 12), LATIN: (3.0, 40), JSON_LATIN: (4.0, 12)})
    changes = after([healthy] * 100 + [minute(rates)] * 20).changes()
    assert {change.slice for change in changes} == {"script: han", "format: json"}


def test_simpsons_paradox_a_mix_that_changes_is_no_fall() -> None:
    """Each slice becomes better, and all together become much worse."""
    before = minute({HAN: (1.0, 2), LATIN: (4.0, 28), JSON_HAN: (1.2, 2), JSON_LATIN: (5.0, 8)})
    now = minute({HAN: (1.05, 28), LATIN: (4.2, 2), JSON_HAN: (1.26, 8), JSON_LATIN: (5.2, 2)})
    pooled = [
        sum(sums.accepted for sums in counts.values()) / sum(sums.drafts for sums in counts.values())
        for counts in (before, now)
    ]
    assert pooled[1] < 0.5 * pooled[0]
    assert after([before] * 100 + [now] * 60).changes() == ()


def test_a_mix_that_changes_within_a_slice_is_no_fall_of_it() -> None:
    """Latin requests go from JSON to text, which is harder."""
    now = minute({HAN: (1.5, 8), LATIN: (3.0, 30), JSON_HAN: (2.0, 5), JSON_LATIN: (4.0, 1)})
    assert after([HEALTHY] * 100 + [now] * 60).changes() == ()


def test_a_fall_is_found_while_the_mix_hides_it() -> None:
    """Latin falls by a quarter, and more of it comes: the pooled length rises."""
    fallen = minute({HAN: (1.5, 2), LATIN: (2.1, 25), JSON_HAN: (2.0, 1), JSON_LATIN: (2.8, 20)})
    (change,) = after([HEALTHY] * 100 + [fallen] * 10).changes()
    assert change.slice == "script: latin"


def test_another_k_is_no_fall_and_a_fall_at_another_k_is() -> None:
    """A table lowers K under load: fewer tokens can be accepted."""
    low_k = minute({HAN: (1.1, 8), LATIN: (1.8, 10), JSON_HAN: (1.3, 5), JSON_LATIN: (2.1, 5)}, k=3)
    both = [HEALTHY, low_k] * 50
    assert after([HEALTHY] * 100 + [low_k] * 60).changes() == ()
    assert after(both + [low_k] * 60).changes() == ()
    fallen = minute({HAN: (0.6, 8), LATIN: (1.8, 10), JSON_HAN: (0.7, 5), JSON_LATIN: (2.1, 5)}, k=3)
    (change,) = after(both + [fallen] * 20).changes()
    assert change.slice == "script: han"


def test_a_new_slice_and_a_restart_have_nothing_to_be_compared_with() -> None:
    worse = minute({HAN: (0.5, 8), LATIN: (3.0, 10), JSON_HAN: (2.0, 5), JSON_LATIN: (4.0, 5)})
    new = minute({("text", "thai"): (0.3, 20), LATIN: (3.0, 10)})
    assert after([worse] * 50).changes() == ()
    assert after([HEALTHY] * 100 + [new] * 60).changes() == ()


def test_what_recovered_is_no_fall_any_more() -> None:
    fallen = minute({HAN: (0.9, 8), LATIN: (3.0, 10), JSON_HAN: (1.2, 5), JSON_LATIN: (4.0, 5)})
    days = [HEALTHY] * 200 + [fallen] * 30
    assert after(days).changes()
    assert after([*days, *[HEALTHY] * 200]).changes() == ()


def test_after_a_week_the_new_acceptance_is_the_normal_one() -> None:
    fallen = minute({HAN: (0.9, 8), LATIN: (3.0, 10), JSON_HAN: (1.2, 5), JSON_LATIN: (4.0, 5)})
    detector = after([HEALTHY] * 100 + [fallen] * 100)
    assert detector.changes()
    for hour in range(24 * 8):
        detector.add(200 * MINUTE + hour * 3600, fallen)
    assert detector.changes() == ()


values = st.tuples(st.sampled_from(["text", "json"]), st.sampled_from(["han", "latin"]))
strata: st.SearchStrategy[Stratum] = st.tuples(values, st.integers(0, 7))
sums = st.builds(
    lambda drafts, share, count: requests(share * 7, count, drafts),
    st.integers(1, 500),
    st.floats(0, 1),
    st.integers(1, 40),
)


@given(st.lists(st.tuples(st.floats(0, 10 * HORIZON_S / 100), st.dictionaries(strata, sums)), max_size=60))
def test_any_traffic_is_taken_in_bounded_space(steps: list[tuple[float, Counts]]) -> None:
    detector, now = Detector(("format", "script")), 0.0
    for pause, counts in steps:
        now += pause
        detector.add(now, counts)
        for change in detector.changes():
            assert 0 < change.fall < 1
            assert 0 <= change.since <= now
    sizes = [block.size for block in detector._blocks]
    assert sizes == sorted(sizes, reverse=True)
    assert all(sizes.count(size) <= BLOCKS_OF_A_SIZE for size in sizes)
    for stratum, total in detector._total.items():
        parts = [block.sums[stratum].to_list() for block in detector._blocks if stratum in block.sums]
        assert total.to_list() == [sum(column) for column in zip(*parts, strict=True)]


def test_a_stretch_in_which_nothing_is_accepted_has_no_spread_to_divide_by() -> None:
    han, json_han, other = (("text", "han"), 0), (("json", "han"), 0), (("text", "han"), 1)
    detector = Detector(("format", "script"))
    detector.add(0.0, {han: requests(0.0, 1, 1), json_han: requests(7.0, 40, 70)})
    detector.add(0.0, {han: requests(0.0, 20, 10), other: requests(0.0, 1, 1)})
    detector.add(0.0, {han: requests(0.0, 1, 1), json_han: requests(0.0, 23, 13)})
    assert detector.changes() == ()  # two intervals before it are too few to know the noise


def test_a_year_of_minutes_takes_few_blocks() -> None:
    detector = Detector(("format", "script"))
    for number in range(20_000):
        detector.add(number * 30.0, {(HAN, 7): Sums.of_request(30, 60)})
    assert len(detector._blocks) < 150


@given(st.dictionaries(strata, sums))
def test_counts_in_the_log_are_read_back(counts: Counts) -> None:
    rows = [[list(value), k, *sums.to_list()] for (value, k), sums in counts.items()]
    read = read_counts(json.loads(json.dumps(rows)))
    assert {stratum: sums.to_list() for stratum, sums in read.items()} == {
        stratum: sums.to_list() for stratum, sums in counts.items()
    }


@pytest.mark.parametrize("rows", [[1], [[]], [["text", 7, 1]], [[["text"], "x", 1, 1, 1, 1, 1, 1]]])
def test_rows_that_are_no_counts_are_refused(rows: list[list[object]]) -> None:
    with pytest.raises(ValueError, match="no counts of a stratum"):
        read_counts(rows)
