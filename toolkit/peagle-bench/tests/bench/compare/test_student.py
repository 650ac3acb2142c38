from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.compare.confidence_intervals import t_quantile, t_within


@pytest.mark.parametrize(
    ("freedom", "t"),
    [
        (1, 12.7062),
        (2, 4.30265),
        (4, 2.77645),
        (9, 2.26216),
        (63, 1.99834),
        (1000, 1.96234),
        (1e6, 1.959964),
        (math.inf, 1.959964),
    ],
)
def test_the_tables_of_student(freedom: float, t: float) -> None:
    assert t_quantile(freedom) == pytest.approx(t, rel=1e-5)


@given(st.floats(1, 500), st.floats(0.5, 0.99))
def test_a_quantile_is_the_inverse_of_the_share(freedom: float, confidence: float) -> None:
    assert t_within(t_quantile(freedom, confidence), freedom) == pytest.approx(confidence, abs=1e-7)


@pytest.mark.parametrize(("freedom", "confidence"), [(0, 0.95), (math.nan, 0.95), (3, 1.0), (3, 0.0)])
def test_what_has_no_answer_is_refused(freedom: float, confidence: float) -> None:
    with pytest.raises(ValueError, match="freedom"):
        t_quantile(freedom, confidence)
