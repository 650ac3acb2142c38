"""An endpoint as `cdk deploy` makes it: tagged with its stack, which the guard's switch turns off and on."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from botocore.exceptions import ClientError

from peagle_sm.aws.session.session import Session
from peagle_sm.service import deploy, plan_for
from tests.service.account import Account
from tests.service.setting import make_spec

STACK = "Peagle-demo"


def in_a_stack(aws: Account) -> Session:
    """Deploy the endpoint of a stack, and let a switch turn it off and on in a minute."""
    session = aws.session()
    create = plan_for(make_spec(), session).parameters("create_endpoint")
    deploy(make_spec(), session=session, pacing=aws.pacing())
    aws.remove_schedules()
    aws.tag({"peagle-sm:stack": STACK})
    aws.calls.clear()
    aws.stacks[STACK] = "CREATE_COMPLETE"
    tags = [*create["Tags"], {"Key": "peagle-sm:stack", "Value": STACK}]

    def end() -> None:
        aws.stacks[STACK] = "UPDATE_COMPLETE"

    def switch(event: dict[str, Any]) -> dict[str, Any]:
        if event == {"action": "off", "stack": STACK}:
            if aws.status() is None:
                return {"state": "done", "detail": "it is off"}
            with suppress(ClientError):
                aws.sagemaker.delete_endpoint(EndpointName="demo")
        elif event == {"action": "on", "stack": STACK}:
            with suppress(ClientError):
                aws.sagemaker.create_endpoint(**{**create, "Tags": tags})
        else:
            return {"state": "refused", "detail": f"not understood: {event}"}
        aws.stacks[STACK] = "UPDATE_IN_PROGRESS"
        aws.late.append((aws.seconds + 60, end))
        return {"state": "in-progress", "detail": "the stack is being updated"}

    aws.switch = switch
    return session
