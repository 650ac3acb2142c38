"""What an update writes on an endpoint and its config."""

from __future__ import annotations

import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.core.plan.tags_and_schedules import HOURS, PAUSED, SCHEDULER_ROLE
from peagle_sm.service import Pacing, deploy, update
from tests.service.account import Account, arn_of
from tests.service.setting import make_spec

LIFECYCLE = {"max_lifetime_hours": 8}


@pytest.mark.parametrize("hours", [None, "Mon-Fri 08:00-18:00 Europe/Berlin"], ids=["", "with a stale tag"])
def test_the_marks_of_an_old_pause_go_whatever_else_is_stale(
    aws: Account, session: Session, pacing: Pacing, hours: str | None
) -> None:
    before = make_spec(lifecycle=LIFECYCLE, hours=hours)
    deploy(before, session=session, pacing=pacing)
    aws.tag({PAUSED: "2026-11-20T08:00:00+00:00", SCHEDULER_ROLE: "arn:aws:iam::1:role/r"})
    aws.sagemaker.delete_tags(ResourceArn=arn_of("endpoint", "demo"), TagKeys=[PAUSED, SCHEDULER_ROLE])
    after = make_spec(lifecycle={**LIFECYCLE, "idle_minutes": 90})
    update(after, session=session, pacing=pacing, strategy="in-place")
    (config,) = aws.names("endpoint-config")
    tags = aws.tags("endpoint-config", config)
    assert tags == aws.tags("endpoint", "demo")
    assert not {PAUSED, SCHEDULER_ROLE, HOURS} & tags.keys()
    assert tags["peagle-sm:idle-minutes"] == "90"
