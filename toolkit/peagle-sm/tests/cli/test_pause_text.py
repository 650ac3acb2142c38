"""What `keep`, `pause` and `resume` promise before anything is paid; test_pause_cycle.py runs them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from peagle_sm.cli.commands.endpoints.pause import render_kept, render_lease, render_offer, render_paused
from peagle_sm.cli.commands.endpoints.status import render_list
from peagle_sm.service import EndpointSummary, Lease, PauseReport, ResumeOffer
from tests.cli.samples import NOW
from tests.cli.test_status_text import FULL

HOUR = timedelta(hours=1)
LEASE = Lease(
    name="coder",
    keep_until=NOW + 6 * HOUR,
    expires_at=NOW + 6 * HOUR,
    expired_at=NOW + 4 * HOUR,
    usd_per_hour=12.5,
    more_usd=25.0,
    spent_usd=18.75,
    budget_usd=100.0,
    guarded=True,
)
AS_BEFORE = {"expired_at": LEASE.expires_at, "more_usd": 0.0, "budget_usd": None, "guarded": False}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ("until 2026-11-20 14:00 UTC, even if idle", "(before: 2026-11-20 12:00 UTC)", "25.00 USD")),
        ({}, ("100.00 USD, 18.75 USD of it spent: the guard turns it off",)),
        (AS_BEFORE, ("(unchanged)", "no guard is installed: only the lifetime schedule deletes it")),
        ({"guarded": False, "limit_acts": False}, ("cannot act", "nothing deletes it automatically")),
    ],
)
def test_a_lease_shows_its_end_its_price_and_only_limits_that_act(
    changes: dict[str, object], said: tuple[str, ...]
) -> None:
    lease = replace(LEASE, **changes)  # type: ignore[arg-type]
    shown = " ".join(render_lease(lease).split())
    assert [each for each in said if each not in shown] == []
    assert ("even if idle" in shown) == lease.guarded
    assert ("nothing deletes it" in render_kept(lease)) == (not lease.limit_acts)


def test_an_offer_shows_the_price_before_it_is_paid() -> None:
    end, hours = NOW + 4 * HOUR, "Mon-Fri 08:00-19:00 Europe/Berlin"
    offer = ResumeOffer("coder", "coder-0a1b2c3d", "Peagle-coder", 12.5, 4.0, 50.0, end, hours)
    assert render_offer(offer) == (
        "resume    coder with config coder-0a1b2c3d\n"
        "stack     Peagle-coder\n"
        "price     12.50 USD/hour\n"
        "at most   50.00 USD in its lifetime of 4 h\n"
        "lifetime  deleted at 2026-11-20 12:00 UTC even if in use\n"
        "hours     Mon-Fri 08:00-19:00 Europe/Berlin: the guard turns it off when they next end"
    )


@pytest.mark.parametrize(
    ("report", "first"),
    [
        (PauseReport("coder", False, "Peagle-coder", 12.5, ("model/m",)), "cost a few USD a month"),
        (PauseReport("coder", True, None, None, ()), "coder was off already: it costs nothing"),
        (PauseReport("coder", False, "Peagle-coder", 0.0, ()), "coder is off: it costs nothing"),
    ],
)
def test_what_goes_on_costing_while_it_is_off(report: PauseReport, first: str) -> None:
    shown = render_paused(report, " --local-port 1").splitlines()
    assert first in shown[0]
    assert shown[-1].split("  ")[-1].strip() == "peagle-sm resume coder --local-port 1"
    assert [line.split()[1] for line in shown if line.startswith("kept")] == list(report.kept)


def test_a_paused_endpoint_in_list_and_status() -> None:
    paused = EndpointSummary("coder", "Paused", managed=True, mode="none", usd_per_hour=12.5, stack="S")
    paused = replace(paused, off_why="by hand", off_since=NOW, hours="Mon-Fri 08:00-19:00 Europe/Berlin")
    row = render_list([paused], NOW).splitlines()[1].split()
    assert row == ["coder", "Paused", "none", "-", "-", "12.50", "-", "-"]
    shown = str(replace(FULL, summary=paused, read_at=NOW))
    assert "off          by hand, since 2026-11-20 08:00 UTC (now)\n" in shown
    assert "price        12.50 USD/hour when it is on\n" in shown
    assert "hours        Mon-Fri 08:00-19:00 Europe/Berlin" in shown
