"""Prices for `peagle-sm cost`: given, recorded, or looked up once for each kind of instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peagle_sm.cli.output import note
from peagle_sm.cli.state import State

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.measure.costs import Pricing
    from peagle_sm.measure.records import ArmRecord
    from peagle_sm.measure.report.view import View


def pricing_for(state: State, view: View, usd_per_hour: float | None, reprice: bool) -> Pricing:
    """What an arm's endpoint costs an hour, and the source.

    ``usd_per_hour`` is of one instance and goes before all; ``reprice`` looks up what is recorded too.
    """
    from peagle_sm.aws.control.prices import HourlyPrice, hourly
    from peagle_sm.measure.costs import recorded

    known: dict[tuple[str | None, int], HourlyPrice] = {}
    region = state.region(_region_of(view))
    sessions: list[Session | None] = []

    def session() -> Session | None:
        if not sessions:
            sessions.append(_session(state, region))
        return sessions[0]

    def look_up(arm: ArmRecord) -> tuple[float | None, str]:
        key = arm.instance_type, arm.instance_count
        if key not in known:
            known[key] = hourly(session() if arm.instance_type else None, *key, region=region)
            if known[key].note:
                note(state, f"{(known[key].note or '').rstrip('.')}; taken: {known[key].source}")
        return known[key].usd_per_hour, known[key].source

    def price(arm: ArmRecord) -> tuple[float | None, str]:
        if usd_per_hour is not None:
            return usd_per_hour * max(1, arm.instance_count), "the price that was given with --usd-per-hour"
        if arm.usd_per_hour is None or reprice:
            return look_up(arm)
        return recorded(arm)

    return price


def _region_of(view: View) -> str | None:
    found = {header.provenance.get("region") for header in view.headers} - {None}
    return str(found.pop()) if len(found) == 1 else None


def _session(state: State, region: str | None) -> Session | None:
    """A session to ask AWS with; None without a region or profile, since the catalogue is left."""
    from peagle_sm.cli.connect import open_session
    from peagle_sm.core.errors import CredentialsError

    try:
        return open_session(state, region)
    except CredentialsError as error:
        note(state, error.message)
        return None
