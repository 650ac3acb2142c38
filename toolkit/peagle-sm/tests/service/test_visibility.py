"""A resource created a moment ago may not be visible yet: the request is retried for a limited time."""

from __future__ import annotations

import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, PeagleError
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import Event, Pacing, deploy
from peagle_sm.service.progress import Reporter, once_visible
from tests.service.account import Account
from tests.service.aws_errors import client_error
from tests.service.setting import ROLE

ARN = "arn:aws:sagemaker:us-east-1:123456789012"
CASES = {
    "CreateSchedule": "The execution role you provide must allow AWS EventBridge Scheduler to assume the "
    "role.",
    "CreateModel": f"Could not assume role {ROLE}. Please ensure that the role exists.",
    "CreateEndpointConfig": f'Could not find model "{ARN}:model/demo".',
    "CreateEndpoint": f'Could not find endpoint configuration "{ARN}:endpoint-config/demo".',
}


@pytest.mark.parametrize("operation", CASES)
def test_what_is_not_seen_yet_is_asked_for_again(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing, operation: str
) -> None:
    events: list[Event] = []
    aws.before = lambda called: (
        client_error(called, "ValidationException", CASES[operation])
        if called == operation and aws.calls.count(called) <= 3
        else None
    )
    deploy(spec, session=session, pacing=pacing, progress=events.append)
    assert aws.calls.count(operation) == 4
    assert aws.calls.count("CreateEndpoint") == (4 if operation == "CreateEndpoint" else 1)
    assert sum("retrying" in event.message for event in events) == 3
    assert aws.schedules() == ["peagle-demo-lifetime"]


@pytest.mark.parametrize("operation", CASES)
def test_what_never_appears_ends_in_about_a_minute_with_aws_s_own_words(
    aws: Account, session: Session, spec: EndpointSpec, pacing: Pacing, operation: str
) -> None:
    aws.before = lambda called: (
        client_error(called, "ValidationException", CASES[operation]) if called == operation else None
    )
    with pytest.raises(PeagleError) as caught:
        deploy(spec, session=session, pacing=pacing)
    assert CASES[operation] in caught.value.message
    assert 30 <= aws.seconds <= 120
    assert not aws.everything()


@pytest.mark.parametrize(
    "message", ['Could not find endpoint "demo".', "Member must have value less than or equal to 3600"]
)
def test_another_refusal_is_not_asked_for_again(aws: Account, pacing: Pacing, message: str) -> None:
    requests: list[int] = []

    def send() -> None:
        requests.append(1)
        raise NotFound(message, details={"code": "ValidationException"})

    with pytest.raises(NotFound):
        once_visible(send, pacing, Reporter(None, pacing))
    assert (len(requests), aws.seconds) == (1, 0)
