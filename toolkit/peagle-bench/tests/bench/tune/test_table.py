from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peagle_bench.tune.loads import LARGEST_BATCH, boundary, make_table, share_k
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from tests.bench.tune.reading_of import rates_at


def test_k_falls_where_the_rates_are_expected_to_be_equal() -> None:
    table = make_table(
        {
            1: rates_at(1, {0: 50, 2: 100, 7: 120}),
            4: rates_at(4, {0: 200, 2: 400, 7: 445}),
            16: rates_at(16, {0: 700, 2: 1100, 7: 1000}),
            32: rates_at(32, {0: 1500, 2: 1200, 7: 1000}),
        }
    )
    # From 4 to 16 both are about 10% ahead at their end, so they meet near the geometric middle.
    assert table.rows[0] == (1, 8, 7)
    assert [k for _, _, k in table.rows] == [7, 2, 0]
    assert table.rows[-1][1] == LARGEST_BATCH
    assert table.by_load == {1: 7, 4: 7, 16: 2, 32: 0}
    assert [table.k_at(batch) for batch in (1, 8, 9, 32, 5000)] == [7, 7, 2, 0, 0]


def test_noise_makes_no_rows() -> None:
    """The best K changes from load to load, but no difference is significant."""
    rates = [{3: 100.0, 4: 100.4}, {3: 200.6, 4: 200.0}, {3: 300.0, 4: 301.0}]
    table = make_table(
        {load: rates_at(load, r, error=0.02) for load, r in zip((1, 2, 4), rates, strict=True)}
    )
    assert table.is_constant
    assert table.rows == ((1, LARGEST_BATCH, 3),)


def test_neighbours_share_a_k_that_both_allow() -> None:
    assert share_k({1: (5, 7), 2: (3, 5), 4: (3,), 8: (0, 3)}) == [((1, 2), 5), ((4, 8), 3)]
    with pytest.raises(ValueError, match="load 2"):
        share_k({1: (1,), 2: ()})
    with pytest.raises(ValueError, match="at least one load"):
        make_table({})


def test_a_k_that_was_not_measured_at_both_loads_changes_in_the_middle() -> None:
    assert boundary(rates_at(2, {7: 100}), rates_at(32, {1: 100}), 7, 1) == 8
    ahead_at_both = rates_at(2, {7: 100, 1: 110}), rates_at(32, {7: 100, 1: 110})
    assert boundary(*ahead_at_both, 7, 1) == 2
    assert boundary(*ahead_at_both, 1, 7) == 31


SURFACES = st.dictionaries(
    st.integers(1, 64),
    st.lists(st.floats(10, 1000), min_size=5, max_size=5),
    min_size=1,
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(SURFACES, st.floats(0.0, 0.1))
def test_every_table_is_whole_and_vllm_takes_it(rates: dict[int, list[float]], noise: float) -> None:
    by_load = {
        load: rates_at(load, dict(zip((0, 1, 3, 5, 9), row, strict=True)), error=noise)
        for load, row in rates.items()
    }
    table = make_table(by_load)
    assert table.rows[0][0] == 1
    for (_, last, k), (first, end, other) in zip(table.rows, table.rows[1:], strict=False):
        assert (first, k != other) == (last + 1, True)
        assert first <= end
    for load, one in by_load.items():
        assert table.k_at(load) == table.by_load[load] in one.measured
    assert len(table.rows) <= len(by_load)
    if max_k := max(k for _, _, k in table.rows):
        spec = EndpointSpec(
            name="demo",
            model="tiny-code",
            speculation={
                "num_speculative_tokens": max_k,
                "num_speculative_tokens_per_batch_size": [list(row) for row in table.rows],
            },
        )
        assert spec.speculation.num_speculative_tokens_per_batch_size == table.rows
