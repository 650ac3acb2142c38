"""When the user will not wait for a clean-up: the lifetime limit takes over, at once."""

from __future__ import annotations

from contextlib import suppress
from typing import NoReturn

from peagle_sm.aws import control, lifetime
from peagle_sm.aws.session import Session
from peagle_sm.core.errors import Interrupted, PeagleError
from peagle_sm.core.payloads import schedule_name
from peagle_sm.service.events import Pacing
from peagle_sm.service.teardown import billable_left


def leave_to_the_schedule(
    session: Session, name: str, pacing: Pacing, *, unsettled: bool = False, undo: str = "delete"
) -> NoReturn:
    """Bring the lifetime limit of endpoint ``name`` forward to now, and raise what remains.

    ``unsettled``: a CreateEndpoint may still be on its way, so absence proves nothing. ``undo`` is the
    command that finishes: delete, or pause where config and model are to stay.

    Raises:
        Interrupted: the endpoint is gone already; only what costs nothing may be left.
        BillableLeft: it is not; ``next_step`` is the command that finishes.
    """
    try:
        limit = lifetime.get(session, schedule_name(name))
        if limit is None or limit.endpoint != name:
            outlook = "; it has no lifetime limit"
        else:
            lifetime.bring_forward(session, limit, pacing.clock())
            outlook = "; its lifetime limit was brought forward to now and deletes it within about 10 minutes"
    except (PeagleError, KeyboardInterrupt):
        outlook = "; its lifetime limit could not be brought forward and holds at its own time"
    gone = False
    with suppress(PeagleError, KeyboardInterrupt):
        gone = not unsettled and control.describe_endpoint(session, name) is None
    if gone:
        raise Interrupted(
            f"Interrupted: endpoint {name} is gone; its config, model or schedule may be left (free).",
            next_step=f"peagle-sm {undo} {name} --yes{session.command_flags()}",
            details={"left": ["endpoint-config", "model", "schedule"]},
        ) from None
    left = billable_left(session, name, "interrupted while cleaning up", outlook)
    left.next_step = f"peagle-sm {undo} {name} --yes{session.command_flags()}"
    raise left from None
