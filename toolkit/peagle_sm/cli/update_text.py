"""What an update shows before it asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peagle_sm.cli.status_text import when
from peagle_sm.cli.table import render_fields
from peagle_sm.cli.words import usd

if TYPE_CHECKING:
    from peagle_sm.core.plan.updates import Change
    from peagle_sm.service import UpdateOffer

_LONGEST_VALUE = 60


def render_update(offer: UpdateOffer) -> str:
    """What differs, what the way there costs, and the new end of its life."""
    changed = "\n".join(_change(one) for one in offer.changes) or "nothing that the spec names"
    fields = [
        (
            "update",
            f"{offer.name}: config {offer.old_config} -> {offer.config}" if offer.fleet else offer.name,
        ),
        ("changes", changed),
        ("how", _how(offer)),
        ("price", f"{usd(offer.usd_per_hour, 'hour')} afterwards ({offer.price_source})"),
        ("meanwhile", _meanwhile(offer)),
        ("undone by", _undone_by(offer)),
        ("lifetime", _lifetime(offer)),
    ]
    return render_fields([(name, value) for name, value in fields if value])


def question(offer: UpdateOffer) -> str:
    """What is asked."""
    if not offer.fleet:
        return f"Update {offer.name}?"
    stops = "" if offer.strategy == "in-place" else " It does not answer meanwhile."
    return f"Update {offer.name} {offer.strategy}?{stops}"


def _change(one: Change) -> str:
    return f"{one.field}: {_short(one.before)} -> {_short(one.after)}"


def _short(value: str | None) -> str:
    if value is None:
        return "(none)"
    return value if len(value) <= _LONGEST_VALUE else value[: _LONGEST_VALUE - 1] + "…"


def _how(offer: UpdateOffer) -> str:
    if not offer.fleet:
        return "tags and lifetime only: nothing is started"
    if offer.strategy == "in-place":
        return "in-place: a second fleet beside the first, which serves until the new one does"
    if offer.is_off:
        return "off-update-on: it is off already, and starts with the new config"
    return "off-update-on: it is turned off, and does not serve until the new config does"


def _meanwhile(offer: UpdateOffer) -> str:
    if not offer.second_fleet_hours:
        return ""
    price = usd(offer.second_fleet_usd_per_hour, "hour")
    most = ""
    if offer.second_fleet_usd_per_hour is not None:
        most = f", at most {usd(offer.second_fleet_usd_per_hour * offer.second_fleet_hours)}"
    return f"{price} on top while both fleets run ({offer.second_fleet_hours:g} h at the most{most})"


def _undone_by(offer: UpdateOffer) -> str:
    if not offer.alarms:
        return ""
    # AWS's guide, "Auto-rollback configuration and monitoring".
    rights = "the execution role needs cloudwatch:DescribeAlarms; the guard's has it"
    return f"alarm {', '.join(offer.alarms)} ({rights})"


def _lifetime(offer: UpdateOffer) -> str:
    before = f", before: {when(offer.expired_at)}" if offer.expired_at else ""
    return f"deleted at {when(offer.expires_at)} whatever happens{before}"
