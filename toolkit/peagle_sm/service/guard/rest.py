"""An endpoint that is off on purpose: why, since when, and which config brings it back."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from peagle_sm.aws.control import register
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.register import Entry
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import CredentialsError, PeagleError
from peagle_sm.core.plan.tags import PAUSED, SCHEDULER_ROLE
from peagle_sm.service.inventory.belongings import Belongings, Note

BY_HAND = "by hand"
_BY_THE_GUARD = {
    "idle": "idle",
    "lifetime": "its lifetime was over",
    "budget": "its budget was spent",
    "hours": "outside its hours",
    "failed": "it had failed",
}


@dataclass(frozen=True)
class Rest:
    """Why an endpoint is off, and since when as far as is known."""

    why: str
    since: datetime | None = None


def rest_of(one: Belongings, entry: Entry | None) -> Rest | None:
    """Return why the endpoint is off; None when it is there, or when what is left has no such reason."""
    if one.endpoint is not None or not one.configs:
        return None
    if one.kept_config is not None:
        return Rest(BY_HAND, one.paused_at)
    if entry is not None and entry.gone_at is not None and entry.off_by in _BY_THE_GUARD and not entry.paused:
        return Rest(_BY_THE_GUARD[entry.off_by], entry.gone_at)
    if one.is_off:
        by_hand = entry is not None and entry.paused
        return Rest(
            BY_HAND if by_hand else f"{one.stack} has it turned off", entry.gone_at if entry else None
        )
    return None


def known_entries(session: Session, note: Note | None = None) -> dict[str, Entry]:
    """Return the guard's register; empty where there is no guard, or where it could not be read.

    A list of endpoints is worth showing without it; ``note`` is called with what it then lacks.
    """
    try:
        return register.entries(session)
    except CredentialsError:
        return {}
    except PeagleError as error:
        if note is not None:
            note(
                f"{error.message}; without the guard's register no lease of `keep` is shown, and an endpoint "
                "that the guard turned off may be shown as Orphaned"
            )
        return {}


def known_entry(session: Session, name: str) -> Entry | None:
    """Return the guard's entry of one name; None where there is no guard, or where it may not be read."""
    try:
        return register.get(session, name)
    except CredentialsError:
        return None


def forget(session: Session, name: str) -> None:
    """Take a name that was deleted for good out of the guard's register, where there is one."""
    with suppress(PeagleError):  # at worst the guard tries to wake it, and fails for want of its config
        register.forget(session, name)


def awake(session: Session, config_arn: str) -> None:
    """Take off a config what `pause` wrote on it: its endpoint is there again, or about to be."""
    control.remove_tags(session, config_arn, (PAUSED, SCHEDULER_ROLE))
