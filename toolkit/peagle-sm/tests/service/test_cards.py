"""What a notebook shows of an endpoint and of a checkup, and the doctor as a function."""

from __future__ import annotations

import pytest

import peagle_sm
from peagle_sm.cli.commands.endpoints.status import status_data
from peagle_sm.core.checks.base import Result
from peagle_sm.core.errors import SpecError
from peagle_sm.service.preflight import Checkup
from tests.cli.test_status_text import FULL, STATUS
from tests.local.serving import Server

CHECKUP = """\
Errors
  quota: none left
    next: Ask for one.

Unknown (could not be checked)
  role: denied

3 checks: 1 with errors, 1 unknown, 1 passed"""


def test_a_status_in_a_notebook_has_the_lines_of_the_terminal() -> None:
    assert str(FULL) == STATUS
    shown = status_data(FULL)
    assert shown["stand_in_weights"] is False
    assert "read_at" not in shown


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
    assert f"{len({each.check for each in checkup.results})} checks: " in str(checkup)
    with peagle_sm.deploy(
        spec, session=session, yes=True, unguarded=True, progress=lambda event: None
    ) as endpoint:
        assert endpoint.session is session
        assert head(peagle_sm.connect("carded", session=session).status()) == "name         carded"


def head(shown: object) -> str:
    return str(shown).splitlines()[0]


def test_a_session_of_the_sdk_beside_local_is_refused() -> None:
    with pytest.raises(SpecError, match="boto3_session and local: found both"):
        peagle_sm.make_session(local=True, boto3_session=object())
