"""What a notebook shows of an endpoint and of a checkup, and the doctor as a function."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import peagle_sm
from peagle_sm.core.checks.base import Result
from peagle_sm.core.errors import SpecError
from peagle_sm.service import EndpointStatus, EndpointSummary
from peagle_sm.service.preflight import Checkup
from tests.local.serving import Server

STATUS = EndpointStatus(
    summary=EndpointSummary(
        name="coder",
        status="InService",
        managed=True,
        mode="p-eagle",
        num_speculative_tokens=7,
        instance_type="ml.p5.48xlarge",
        instance_count=1,
        age_s=5400.0,
        usd_per_hour=12.5,
        spent_usd=18.75,
        expires_at=datetime(2026, 11, 20, 12, tzinfo=UTC),
        idle_minutes=60,
    ),
    arn="arn",
    config_name="coder-0a1b2c3d",
    config_asked=None,
    model_name="coder",
    image="vllm:0.32.0",
    failure_reason=None,
    speculative_config=None,
    lifetime=None,
    engine=None,
    warnings=("an update rolled back",),
)
SHOWN = """\
coder: InService

  speculation  p-eagle, 7 draft tokens
  instance     1 x ml.p5.48xlarge
  price        12.50 USD/hour, 18.75 USD spent so far
  age          1h30m
  lifetime     deleted at 2026-11-20 12:00 UTC in any case
  idle         counts as idle after 60 min without traffic
  config       coder-0a1b2c3d

note: warning: an update rolled back"""
CHECKUP = """\
3 checks
1 in error, 1 unknown, 1 in order

in order: 1
  check   what it checks
  region  The region.

note: error: quota: none left. Next: Ask for one.
note: unknown: role: denied. Next: Look yourself."""


def test_a_status_in_a_notebook() -> None:
    assert str(STATUS) == SHOWN
    assert STATUS.card().tone == "good"


def test_a_checkup_in_a_notebook() -> None:
    checkup = Checkup(
        (
            Result("quota", "error", "none left", "The quota.", "", "Ask for one."),
            Result("role", "unknown", "denied", "The role.", "", "Look yourself."),
            Result("region", "ok", "", "The region.", ""),
        )
    )
    assert str(checkup) == CHECKUP
    assert (checkup.ok, [each.check for each in checkup.errors]) == (False, ["quota"])


def test_one_session_serves_every_call(server: Server) -> None:
    session = peagle_sm.make_session(local=int(server.url.rpartition(":")[2]))
    spec = {"name": "carded", "model": "tiny-code", "speculation": {"mode": "p-eagle"}}
    assert session.local_url == server.url
    assert head(peagle_sm.plan(spec, session=session)) == "Plan for carded in us-east-1, the local SageMaker"
    checkup = peagle_sm.doctor(spec, session=session)
    assert head(checkup) == f"{len({each.check for each in checkup.results})} checks"
    with peagle_sm.deploy(
        spec, session=session, yes=True, unguarded=True, progress=lambda event: None
    ) as made:
        assert made.session is session
        assert head(peagle_sm.connect("carded", session=session).status()) == "carded: InService"


def head(shown: object) -> str:
    return str(shown).splitlines()[0]


def test_a_session_of_the_sdk_beside_local_is_refused() -> None:
    with pytest.raises(SpecError, match="sagemaker_session and local: found both"):
        peagle_sm.make_session(local=True, sagemaker_session=object())
