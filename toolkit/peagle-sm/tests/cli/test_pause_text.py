from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from peagle_sm.cli.commands.endpoints.pause import (
    render_kept,
    render_lease,
    render_offer,
    render_paused,
    render_running,
)
from peagle_sm.cli.commands.endpoints.status import render_list
from peagle_sm.service import EndpointStatus, EndpointSummary, Lease, PauseReport, ResumeOffer
from tests.cli.samples import NOW
from tests.cli.test_status_text import FULL, SERVING

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
OFFER = ResumeOffer(
    name="coder",
    config="coder-0a1b2c3d",
    stack="Peagle-coder",
    usd_per_hour=12.5,
    lifetime_hours=4.0,
    max_usd=50.0,
    expires_at=NOW + 4 * HOUR,
    hours="Mon-Fri 08:00-19:00 Europe/Berlin",
)
PAUSED = EndpointSummary(
    "coder",
    "Paused",
    managed=True,
    mode="none",
    usd_per_hour=12.5,
    off_why="by hand",
    off_since=NOW,
    stack="Peagle-coder",
    hours="Mon-Fri 08:00-19:00 Europe/Berlin",
)


def test_a_lease_shows_the_new_end_and_its_price() -> None:
    assert render_lease(LEASE) == (
        "keep        coder\n"
        "until       2026-11-20 14:00 UTC, even if idle\n"
        "lifetime    deleted at 2026-11-20 14:00 UTC even if in use (before: 2026-11-20 12:00 UTC)\n"
        "price       12.50 USD/hour\n"
        "extra cost  at most 25.00 USD\n"
        "budget      100.00 USD, 18.75 USD of it spent: the guard turns it off when the budget is spent"
    )
    assert render_kept(LEASE) == (
        "coder is kept until 2026-11-20 14:00 UTC; its lifetime ends at 2026-11-20 14:00 UTC"
    )


def test_a_lease_within_the_lifetime_and_without_a_guard() -> None:
    lease = replace(LEASE, expired_at=LEASE.expires_at, more_usd=0.0, budget_usd=None, guarded=False)
    assert render_lease(lease) == (
        "keep      coder\n"
        "lifetime  deleted at 2026-11-20 14:00 UTC even if in use (unchanged)\n"
        "price     12.50 USD/hour\n"
        "note      no guard is installed: only the lifetime schedule deletes it"
    )
    assert render_kept(lease) == "coder: its lifetime ends at 2026-11-20 14:00 UTC"


def test_a_lease_whose_limit_cannot_act_promises_nothing() -> None:
    lease = replace(LEASE, budget_usd=None, guarded=False, limit_acts=False)
    assert render_lease(lease) == (
        "keep        coder\n"
        "lifetime    the schedule at 2026-11-20 14:00 UTC cannot act: its role was deleted with the guard\n"
        "price       12.50 USD/hour\n"
        "extra cost  at most 25.00 USD\n"
        "note        no guard is installed: nothing deletes it automatically"
    )
    assert render_kept(lease) == (
        "coder: nothing deletes it automatically: the role of its lifetime schedule was deleted "
        "with the guard"
    )


def test_an_offer_shows_the_price_before_it_is_paid() -> None:
    assert render_offer(OFFER) == (
        "resume    coder with config coder-0a1b2c3d\n"
        "stack     Peagle-coder\n"
        "price     12.50 USD/hour\n"
        "at most   50.00 USD in its lifetime of 4 h\n"
        "lifetime  deleted at 2026-11-20 12:00 UTC even if in use\n"
        "hours     Mon-Fri 08:00-19:00 Europe/Berlin: the guard turns it off when they next end"
    )


def test_what_pausing_stops_and_keeps() -> None:
    assert render_running(SERVING) == "coder is InService and costs 12.50 USD/hour (18.75 USD so far)."
    report = PauseReport("coder", False, "Peagle-coder", 12.5, ("endpoint-config/c", "model/m"))
    assert render_paused(report, " --local-port 1") == (
        "coder is off: no instance is billed; the key, alarms and dashboard of Peagle-coder cost "
        "a few USD a month\n"
        "kept     endpoint-config/c\n"
        "kept     model/m\n"
        "stack    Peagle-coder is in sync: `cdk diff` shows no change\n"
        "resume   peagle-sm resume coder --local-port 1"
    )
    again = render_paused(PauseReport("coder", True, None, None, ()), "")
    assert again == "coder was off already: it costs nothing\nresume   peagle-sm resume coder"
    local = render_paused(PauseReport("coder", False, "Peagle-coder", 0.0, ()), "")
    assert local.startswith("coder is off: it costs nothing\n")


def test_a_paused_endpoint_in_list_and_status() -> None:
    assert render_list([PAUSED], NOW).splitlines()[1].split() == [
        "coder",
        "Paused",
        "none",
        "-",
        "-",
        "12.50",
        "-",
        "-",
    ]
    result: EndpointStatus = replace(
        FULL, summary=PAUSED, config_name="c", config_asked="c", warnings=(), read_at=NOW
    )
    assert str(result) == (
        "name         coder\n"
        "status       Paused\n"
        "off          by hand, since 2026-11-20 08:00 UTC (now)\n"
        "stack        Peagle-coder\n"
        "speculation  none\n"
        "instance     -\n"
        "image        registry/vllm:0.30.0-gpu\n"
        "model        coder-0a1b2c3d\n"
        "config       c\n"
        "created      -\n"
        "price        12.50 USD/hour when it is on\n"
        "             off: no instance is billed; the key, alarms and dashboard of Peagle-coder cost "
        "a few USD a month\n"
        "hours        Mon-Fri 08:00-19:00 Europe/Berlin"
    )
