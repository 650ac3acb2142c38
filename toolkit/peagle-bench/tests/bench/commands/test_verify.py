"""`peagle-sm verify` on its way: what is said while the answers come."""

from __future__ import annotations

import pytest

from peagle_bench.commands.verify import _counting
from peagle_sm.cli.base import State


def test_a_check_that_takes_minutes_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 4.0, 11.0, 12.0, 75.5])
    tick = _counting(State(monotonic=lambda: next(times)))
    for _ in range(4):
        tick()
    assert capsys.readouterr().err == "    11s  2 answers so far\n  1m15s  4 answers so far\n"
