"""When the user will not wait for a clean-up: the lifetime limit takes over, at once."""

from __future__ import annotations

from typing import NoReturn

from peagle_sm.aws.control import lifetime
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.session.errors import is_refused_connection
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import Interrupted, PeagleError
from peagle_sm.core.plan.payloads import schedule_name
from peagle_sm.service.events import Pacing
from peagle_sm.service.lifecycle.teardown import billable_left, local_server_gone


def leave_to_the_schedule(
    session: Session, name: str, pacing: Pacing, *, unsettled: bool = False, undo: str = "delete"
) -> NoReturn:
    """Bring the lifetime limit of endpoint ``name`` forward to now, and raise what remains.

    ``unsettled``: a CreateEndpoint may still be on its way, so absence proves nothing. ``undo`` is the
    command that finishes: delete, or pause where config and model are to stay.

    Raises:
        Interrupted: the endpoint is gone already, and only what costs nothing may be left; or the local
            SageMaker is gone, and everything with it.
        BillableLeft: it is not; ``next_step`` is the command that finishes.
    """
    try:
        limit = lifetime.get(session, schedule_name(name))
        if limit is None or not limit.ends(name):
            outlook = "; it has no lifetime limit"
        else:
            lifetime.bring_forward(session, limit, pacing.clock())
            outlook = "; its lifetime limit was brought forward to now and deletes it within about 10 minutes"
    except (PeagleError, KeyboardInterrupt) as error:
        end_with_the_local_server(session, error)
        outlook = "; its lifetime limit could not be brought forward and holds at its own time"
    gone = False
    try:
        gone = not unsettled and control.describe_endpoint(session, name) is None
    except (PeagleError, KeyboardInterrupt) as error:
        end_with_the_local_server(session, error)
    if gone:
        raise Interrupted(
            f"Interrupted: endpoint {name} is gone; its config, model or schedule may be left (free).",
            next_step=f"peagle-sm {undo} {name} --yes{session.command_flags()}",
            details={"left": ["endpoint-config", "model", "schedule"]},
        ) from None
    left = billable_left(session, name, "interrupted while cleaning up", outlook)
    left.next_step = f"peagle-sm {undo} {name} --yes{session.command_flags()}"
    raise left from None


def end_with_the_local_server(session: Session, error: BaseException) -> None:
    """After Ctrl-C: where nobody listens any more at the local SageMaker's address, nothing is left to end.

    Raises:
        Interrupted: it is so. On AWS a refused connection proves nothing.
    """
    if session.local_url is not None and is_refused_connection(error):
        raise Interrupted(
            f"Interrupted. {local_server_gone(session.local_url)}", details={"deleted": [], "left": []}
        ) from None
