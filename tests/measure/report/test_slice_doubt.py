"""A slice is never surer than the comparison that it is a part of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peagle_sm.measure.report.slices.columns import verdict
from peagle_sm.measure.report.slices.rows import slices_in
from peagle_sm.measure.results.records import Interval, SliceRecord
from tests.measure.report import making


@pytest.mark.parametrize(("conversations", "said"), [(7, "no verdict"), (8, "slower")])
def test_a_slice_has_the_doubt_of_its_comparison(conversations: int, said: str) -> None:
    results = making.stand_in()
    row = next(each for each in results.comparisons if not each.control)
    row = replace(row, conversations=conversations)
    slow = Interval(0.8, 0.7, 0.9)
    one = SliceRecord(
        row.faster, row.load, "script", "latin", 20, 20, None, baseline=row.slower, speed_up=slow
    )
    (found,) = slices_in(replace(results, comparisons=(row,), slices=(one,), points=()))
    assert (verdict(found), found.costs_money) == (said, conversations == 8)
