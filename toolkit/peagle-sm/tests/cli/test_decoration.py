"""What only decorates a result never hides it: a status that cannot be read is a note."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import boto3
import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.aws.streams.answers import Completion, StreamSummary
from peagle_sm.cli.base import Settings, State
from peagle_sm.cli.commands.endpoints.invoke import finish
from peagle_sm.cli.commands.endpoints.status import emit_ready
from peagle_sm.core.errors import CredentialsError

DENIED = "ListModels: not authorized to perform: sagemaker:ListModels"
SUMMARY = StreamSummary(
    output_tokens=2,
    prompt_tokens=1,
    ttft_ms=None,
    total_ms=1000.0,
    otps=2.0,
    tpot_ms=None,
    finish_reason="stop",
    request_id="req-1",
    acceptance=None,
)
SESSION = Session.from_boto3(boto3.Session(region_name="us-east-1"))
ANSWER = Completion("paid for", "stop", SUMMARY, {}, "req-1")


def _refuse() -> NoReturn:
    raise CredentialsError(DENIED)


def _state(output_format: str) -> State:
    return State(Settings(format=output_format), environ={})


def test_an_endpoint_that_came_up_is_printed_without_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    emit_ready(_state("json"), "demo", _refuse, SESSION)
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"name": "demo", "status": None}
    assert json.loads(shown.err) == {"note": f"note: the endpoint's status could not be read: {DENIED}"}
    emit_ready(_state("table"), "demo", _refuse, SESSION)
    shown = capsys.readouterr()
    assert shown.out == (
        "name  demo\n\n"
        "check it:   peagle-sm status demo --region us-east-1\n"
        "delete it:  peagle-sm delete demo --region us-east-1\n"
    )
    emit_ready(_state("quiet"), "demo", _refuse, SESSION)
    assert capsys.readouterr() == ("demo\n", "")


class _Endpoint:
    name = "demo"

    def status(self) -> NoReturn:
        _refuse()


@pytest.mark.parametrize("output_format", ["json", "table"])
def test_an_answer_that_was_paid_for_is_printed(
    capsys: pytest.CaptureFixture[str], output_format: str
) -> None:
    finish(_state(output_format), _Endpoint(), ANSWER)
    shown = capsys.readouterr()
    assert DENIED in shown.err
    if output_format == "json":
        document: dict[str, Any] = json.loads(shown.out)
        assert (document["text"], document["stand_in_weights"]) == ("paid for", None)
        assert document["summary"]["output_tokens"] == 2
    else:
        assert "2 tokens in 1.00 s" in shown.err
