"""A second deploy of an endpoint that is in service."""

from __future__ import annotations

import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import Declined
from peagle_sm.core.planning import Plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import Event, Pacing, deploy
from peagle_sm.service.lifecycle.existing import Survey
from tests.service.fakes import FakeAws
from tests.service.setting import make_spec


def test_a_deploy_of_what_is_in_service_asks_nothing_and_says_that_nothing_was_created(
    aws: FakeAws, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    deploy(spec, session=session, pacing=pacing)
    requests: list[Plan] = []
    states: list[str] = []
    lines: list[Event] = []

    def confirm(plan: Plan) -> bool:
        requests.append(plan)
        return True

    def again(spec: EndpointSpec) -> None:
        deploy(
            spec,
            session=session,
            pacing=pacing,
            confirm=confirm,
            surveyed=lambda existing: states.append(existing.state),
            progress=lines.append,
        )

    again(spec)
    assert (requests, states) == ([], ["live"])
    assert lines[-1].message == "endpoint demo is already in service with this spec: nothing was created"
    again(make_spec(lifecycle={"max_lifetime_hours": 8, "idle_minutes": 20}))
    assert lines[-1].message.endswith(
        ". The spec has other tags (peagle-sm:idle-minutes): "
        "`peagle-sm update SPEC --region us-east-1` writes them"
    )
    aws.schedules.clear()
    again(spec)
    assert len(requests) == 1


def test_what_served_and_is_gone_before_the_call_is_asked_about(
    aws: FakeAws, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    """A slow preflight: the plan is made again, and the endpoint is gone."""
    deploy(spec, session=session, pacing=pacing)

    def slow(plan: Plan) -> None:
        aws.clock.sleep(120)

    def gone(existing: Survey) -> None:
        assert existing.state == "live"
        aws.endpoints.clear()

    with pytest.raises(Declined):
        deploy(
            spec, session=session, pacing=pacing, confirm=lambda plan: False, preflight=slow, surveyed=gone
        )
    assert not aws.endpoints
