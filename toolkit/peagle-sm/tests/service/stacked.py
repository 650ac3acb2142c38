"""An endpoint as `cdk deploy` makes it, over the AWS in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peagle_sm.aws.session.session import Session
from peagle_sm.service import deploy
from tests.service.fakes import FakeAws
from tests.service.setting import make_spec, pacing_of, session_of


def in_a_stack(aws: FakeAws) -> Session:
    """An endpoint as `cdk deploy` makes it, and a switch that turns it off and on in a minute."""
    session = session_of(aws)
    deploy(make_spec(), session=session, pacing=pacing_of(aws))
    aws.calls.clear()
    for rows in (aws.endpoints, aws.configs, aws.models):
        for row in rows.values():
            row.tags["peagle-sm:stack"] = "Peagle-demo"
    aws.schedules.clear()
    aws.stacks["Peagle-demo"] = "CREATE_COMPLETE"
    kept = aws.endpoints["demo"]

    def settle(status: str, act: Callable[[], object]) -> None:
        aws.stacks["Peagle-demo"] = "UPDATE_IN_PROGRESS"

        def end() -> None:
            aws.stacks["Peagle-demo"] = status
            act()

        aws.late.append((aws.clock.seconds + 60, end))

    def switch(event: dict[str, Any]) -> dict[str, Any]:
        if event == {"action": "off", "stack": "Peagle-demo"}:
            if "demo" not in aws.endpoints:
                return {"state": "done", "detail": "it is off"}
            settle("UPDATE_COMPLETE", lambda: aws.endpoints.pop("demo", None))
        elif event == {"action": "on", "stack": "Peagle-demo"}:
            settle("UPDATE_COMPLETE", lambda: aws.endpoints.update(demo=kept))
        else:
            return {"state": "refused", "detail": f"not understood: {event}"}
        return {"state": "in-progress", "detail": "the stack is being updated"}

    aws.switch = switch
    return session
