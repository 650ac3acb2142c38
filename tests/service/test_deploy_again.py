"""A deploy of what is in service already."""

from __future__ import annotations

from peagle_sm.aws.session import Session
from peagle_sm.core.records import Plan
from peagle_sm.core.spec import EndpointSpec
from peagle_sm.service import Event, Pacing, deploy
from tests.service.fakes import FakeAws
from tests.service.setting import make_spec


def test_a_deploy_of_what_is_in_service_asks_nothing_and_says_that_nothing_was_created(
    aws: FakeAws, session: Session, spec: EndpointSpec, pacing: Pacing
) -> None:
    deploy(spec, session=session, pacing=pacing)
    asked: list[Plan] = []
    states: list[str] = []
    told: list[Event] = []

    def confirm(plan: Plan) -> bool:
        asked.append(plan)
        return True

    def again(spec: EndpointSpec) -> None:
        deploy(
            spec,
            session=session,
            pacing=pacing,
            confirm=confirm,
            surveyed=lambda found: states.append(found.state),
            progress=told.append,
        )

    again(spec)
    assert (asked, states) == ([], ["live"])
    assert told[-1].message == "endpoint demo is in service with this spec already: nothing was created"
    again(make_spec(lifecycle={"max_lifetime_hours": 8, "idle_minutes": 20}))
    assert told[-1].message.endswith(
        ". The spec asks for other tags (peagle-sm:idle-minutes): "
        "`peagle-sm update SPEC --region us-east-1` writes them"
    )
    aws.schedules.clear()
    again(spec)
    assert len(asked) == 1
