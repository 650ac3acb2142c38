from __future__ import annotations

import math

import pytest

from peagle_bench.compare.confidence_intervals import t_quantile


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
