"""More mixed worlds than each run has: the next hundred seeds, and two with 250 endpoints."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.guard.simulator.campaign import run_batch
from tests.guard.simulator.kinds import MIXED
from tests.guard.simulator.test_guard_in_worlds import WORLDS

pytestmark = pytest.mark.campaign


@pytest.mark.parametrize("seeds", [range(WORLDS, 150), (4504, 5780)], ids=["100 more", "250 endpoints"])
def test_no_promise_is_broken(seeds: Sequence[int]) -> None:
    assert run_batch(MIXED, seeds).broken == []
