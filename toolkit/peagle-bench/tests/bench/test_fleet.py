from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.report.fleet import Demand, Serving, fleet_for, usd_per_million_tokens

POSITIVE = st.floats(min_value=0.01, max_value=1e6, allow_nan=False)


def test_usd_per_million_tokens() -> None:
    assert usd_per_million_tokens(3.6, 1000) == pytest.approx(1.0)
    assert usd_per_million_tokens(7.2, 1000) == pytest.approx(2.0)
    assert usd_per_million_tokens(3.6, 0) is None


def test_a_fleet_keeps_its_headroom() -> None:
    fleet = fleet_for(Demand(otps=700, headroom=0.3), Serving(1000, 5, 4.2, gpus=1))
    assert fleet is not None
    assert (fleet.copies, fleet.instances, fleet.gpus, fleet.usd_per_hour) == (1, 1, 1, 4.2)
    more = fleet_for(Demand(otps=701, headroom=0.3), Serving(1000, 5, 4.2, gpus=1))
    assert more is not None
    assert (more.copies, more.usd_per_hour) == (2, 8.4)
    assert more.use == pytest.approx(0.3505)


def test_copies_of_a_component_share_an_instance() -> None:
    fleet = fleet_for(Demand(otps=9000, headroom=0), Serving(1000, 5, 100.0, copies_per_instance=8, gpus=1))
    assert fleet is not None
    assert (fleet.copies, fleet.instances, fleet.gpus, fleet.usd_per_hour) == (9, 2, 9, 200.0)


def test_requests_are_sized_by_requests() -> None:
    fleet = fleet_for(Demand(requests_per_s=12, headroom=0), Serving(1000, 5, None))
    assert fleet is not None
    assert (fleet.instances, fleet.gpus, fleet.usd_per_hour) == (3, None, None)


def test_what_serves_nothing_has_no_fleet() -> None:
    assert fleet_for(Demand(otps=1), Serving(0, 0, 1.0)) is None


@pytest.mark.parametrize(("otps", "requests", "headroom"), [(None, None, 0.3), (1, 1, 0.3), (1, None, 1.0)])
def test_a_demand_that_makes_no_sense(otps: float | None, requests: float | None, headroom: float) -> None:
    with pytest.raises(ValueError, match=r"demand|headroom"):
        Demand(otps, requests, headroom)


@given(POSITIVE, POSITIVE, st.floats(0, 0.9), st.integers(1, 8))
def test_a_fleet_is_enough_and_not_one_copy_more(
    asked: float, each: float, headroom: float, per_instance: int
) -> None:
    fleet = fleet_for(Demand(otps=asked, headroom=headroom), Serving(each, 1, 1.0, per_instance))
    assert fleet is not None
    able = each * (1 - headroom)
    assert fleet.copies * able >= asked * (1 - 1e-6)
    assert fleet.copies == 1 or (fleet.copies - 1) * able < asked
    assert fleet.instances == math.ceil(fleet.copies / per_instance)
