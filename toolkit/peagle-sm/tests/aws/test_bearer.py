"""Bearer tokens: the form of the SageMaker SDK's, and their end.

`recorded/bearer_tokens.json` holds what sagemaker-core's own function returned for fixed keys and time.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

import boto3
import pytest
from botocore.credentials import Credentials, RefreshableCredentials

from peagle_sm.aws.session.session import Session
from peagle_sm.aws.session.signing import bearer_token, presigned, provider
from peagle_sm.core.errors import CredentialsError, SpecError

RECORDED = json.loads((Path(__file__).parent / "recorded" / "bearer_tokens.json").read_text())["tokens"]
NOW = datetime.now(UTC)


class Boto3:
    """A boto3 session's credentials and region, which are all that a token needs."""

    def __init__(self, credentials: Any) -> None:
        self.region_name = "us-east-1"
        self._credentials = credentials

    def get_credentials(self) -> Any:
        return self._credentials


def session_with(credentials: Any) -> Session:
    return Session.from_boto3(Boto3(credentials))


def temporary(ends: datetime, renewed: datetime | None = None) -> RefreshableCredentials:
    """Temporary credentials by a clock that stands at NOW; renewing them gives an end at `renewed`."""

    def renew() -> dict[str, str]:
        end = renewed or ends
        return {"access_key": "b", "secret_key": "b", "token": "b", "expiry_time": end.isoformat()}

    return RefreshableCredentials("a", "a", "a", ends, renew, "test", time_fetcher=lambda: NOW)


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["access_key"])
def test_the_token_has_the_fields_of_the_sdks(case: dict[str, Any]) -> None:
    keys = Credentials(case["access_key"], case["secret_key"], case["session_token"]).get_frozen_credentials()
    ours, theirs = map(url_of, (presigned(keys, case["region"], case["seconds"]), case["token"]))
    assert ours.path == theirs.path
    new, recorded = dict(parse_qsl(ours.query)), dict(parse_qsl(theirs.query))
    assert list(new) == list(recorded)
    for name in new.keys() - {"X-Amz-Date", "X-Amz-Credential", "X-Amz-Signature"}:
        assert new[name] == recorded[name]


def url_of(token: str) -> SplitResult:
    return urlsplit(base64.b64decode(token.removeprefix("sagemaker-api-key-")).decode())


def test_a_token_ends_with_its_credentials_and_does_not_print_itself() -> None:
    created = bearer_token(session_with(Credentials("local", "local")))
    assert timedelta(hours=11) < created.expires_at - datetime.now(UTC) <= timedelta(hours=12)
    assert "sagemaker-api-key" not in repr(created)
    ends = NOW + timedelta(hours=1)
    assert bearer_token(session_with(temporary(ends))).expires_at == ends


def test_credentials_about_to_end_are_renewed_before_they_sign() -> None:
    session = session_with(temporary(NOW + timedelta(minutes=1), renewed=NOW + timedelta(hours=6)))
    assert bearer_token(session, hours=12).expires_at == NOW + timedelta(hours=6)


def test_expired_credentials_are_refused_with_a_next_step() -> None:
    with pytest.raises(CredentialsError, match="expired") as raised:
        bearer_token(session_with(temporary(NOW - timedelta(minutes=1))))
    assert "aws sso login" in str(raised.value.next_step)


def test_no_credentials() -> None:
    with pytest.raises(CredentialsError, match="No AWS credentials"):
        bearer_token(session_with(None))


@pytest.mark.parametrize("hours", [0, -1, 12.001, 13, float("inf"), float("nan"), 1e300, 1e-9])
def test_hours_out_of_range_are_refused(hours: float) -> None:
    with pytest.raises(SpecError, match="allowed: a second to 12 hours"):
        bearer_token(session_with(Credentials("a", "b")), hours=hours)


def test_a_provider_signs_each_call_for_a_quarter_of_an_hour() -> None:
    fresh = provider(session_with(Credentials("a", "b")))
    assert dict(parse_qsl(url_of(fresh()).query))["X-Amz-Expires"] == "900"


def test_a_real_boto3_session_signs_too() -> None:
    real = boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="eu-west-1")
    assert bearer_token(Session.from_boto3(real)).token.startswith("sagemaker-api-key-")
