"""Bearer tokens: the very bytes that the SageMaker SDK makes, and ends that are told truly.

`recorded/bearer_tokens.json` holds what sagemaker-core's own function returned for fixed keys and time.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.credentials import Credentials, RefreshableCredentials

from peagle_sm.aws.session.session import Session
from peagle_sm.aws.session.signing import bearer_token, presigned, provider
from peagle_sm.core.errors import CredentialsError, SpecError

RECORDED = json.loads((Path(__file__).parent / "recorded" / "bearer_tokens.json").read_text())["tokens"]
NOW = datetime(2026, 11, 22, 3, 4, 5, tzinfo=UTC)


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
def test_the_token_is_the_sdk_s_own_to_the_byte(case: dict[str, Any]) -> None:
    keys: Any = Credentials(case["access_key"], case["secret_key"], case["session_token"])
    at = datetime.fromisoformat(case["at"]).timestamp()
    created = presigned(keys.get_frozen_credentials(), case["region"], case["seconds"], at)
    assert created == case["token"]


def test_a_session_s_token_says_when_it_ends_and_does_not_print_itself() -> None:
    created = bearer_token(session_with(Credentials("local", "local")), utc=NOW.timestamp)
    assert created.token == RECORDED[0]["token"]
    assert created.expires_at == NOW + timedelta(hours=12)
    assert "sagemaker-api-key" not in repr(created)


def test_a_token_ends_with_the_credentials_that_signed_it() -> None:
    ends = NOW + timedelta(hours=1)
    assert bearer_token(session_with(temporary(ends)), utc=NOW.timestamp).expires_at == ends


def test_credentials_about_to_end_are_renewed_before_they_sign() -> None:
    session = session_with(temporary(NOW + timedelta(minutes=1), renewed=NOW + timedelta(hours=6)))
    created = bearer_token(session, hours=12, utc=NOW.timestamp)
    assert created.expires_at == NOW + timedelta(hours=6)


def test_expired_credentials_are_told_with_what_to_do() -> None:
    ended = NOW - timedelta(minutes=1)
    with pytest.raises(CredentialsError, match="expired") as raised:
        bearer_token(session_with(temporary(ended)), utc=NOW.timestamp)
    assert "aws sso login" in str(raised.value.next_step)


def test_no_credentials() -> None:
    with pytest.raises(CredentialsError, match="No AWS credentials"):
        bearer_token(session_with(None))


@pytest.mark.parametrize("hours", [0, -1, 12.001, 13, float("inf"), float("nan"), 1e300, 1e-9])
def test_hours_out_of_range_are_refused(hours: float) -> None:
    with pytest.raises(SpecError, match="allowed: a second to 12 hours"):
        bearer_token(session_with(Credentials("a", "b")), hours=hours)


def test_a_provider_makes_a_token_for_each_call() -> None:
    times = iter((NOW.timestamp(), NOW.timestamp() + 60))
    fresh = provider(session_with(Credentials("a", "b")), utc=lambda: next(times))
    assert fresh() != fresh()


def test_a_real_boto3_session_signs_too() -> None:
    real = boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="eu-west-1")
    assert bearer_token(Session.from_boto3(real)).token.startswith("sagemaker-api-key-")
