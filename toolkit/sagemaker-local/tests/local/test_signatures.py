"""What is wrong with a signature, in AWS's codes and words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sagemaker_local.wire.signatures import Scope, refusal

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
SCOPE = Scope("us-east-1", "sagemaker")
CREDENTIAL = "Credential=AKID/20261122/us-east-1/sagemaker/aws4_request"
REST = "SignedHeaders=host;x-amz-date, Signature=abc"


def refused(authorization: str | None, date: str | None = "20261122T120000Z") -> tuple[str, str] | None:
    given = {"Authorization": authorization, "X-Amz-Date": date}
    result = refusal({name: value for name, value in given.items() if value is not None}, SCOPE, NOW)
    return None if result is None else (result.code, result.message)


@pytest.mark.parametrize("blank", [", ", ",", " "])
def test_a_well_formed_signature_passes(blank: str) -> None:
    parts = [CREDENTIAL, "SignedHeaders=host;x-amz-date", "Signature=abc"]
    assert refused(f"AWS4-HMAC-SHA256 {blank.join(parts)}") is None


@pytest.mark.parametrize(
    ("authorization", "date", "code", "said"),
    [
        (None, "x", "MissingAuthenticationToken", "Missing Authentication Token"),
        ("Bearer token", "x", "MissingAuthenticationToken", "Missing Authentication Token"),
        (
            f"AWS4-HMAC-SHA256 {REST}",
            "20261122T120000Z",
            "IncompleteSignature",
            "Authorization header requires 'Credential' parameter. Authorization=AWS4-HMAC-SHA256 ",
        ),
        (
            f"AWS4-HMAC-SHA256 {CREDENTIAL}",
            None,
            "IncompleteSignature",
            "Authorization header requires 'Signature' parameter. Authorization header requires "
            "'SignedHeaders' parameter. Authorization header requires existence of either a 'X-Amz-Date' or "
            "a 'Date' header. Authorization=",
        ),
        (
            f"AWS4-HMAC-SHA1 {CREDENTIAL}, {REST}",
            "20261122T120000Z",
            "IncompleteSignature",
            "Unsupported AWS 'algorithm': 'AWS4-HMAC-SHA1' (only AWS4-HMAC-SHA256 for now). ",
        ),
        (
            f"AWS4-HMAC-SHA256 {CREDENTIAL}, {REST}",
            "yesterday",
            "IncompleteSignature",
            "Date must be in ISO-8601 'basic format'. Got 'yesterday'.",
        ),
        (
            f"AWS4-HMAC-SHA256 {CREDENTIAL}, {REST}",
            "20261122T115459Z",
            "InvalidSignature",
            "Signature expired: 20261122T115459Z is now earlier than 20261122T115500Z "
            "(20261122T120000Z - 5 min.)",
        ),
        (
            f"AWS4-HMAC-SHA256 {CREDENTIAL}, {REST}",
            "20261122T120501Z",
            "InvalidSignature",
            "Signature not yet current: 20261122T120501Z is still later than 20261122T120500Z "
            "(20261122T120000Z + 5 min.)",
        ),
        (
            f"AWS4-HMAC-SHA256 {CREDENTIAL}, SignedHeaders=x-amz-date, Signature=abc",
            "20261122T120000Z",
            "InvalidSignature",
            "'Host' must be a 'SignedHeader' in the AWS Authorization.",
        ),
        (
            f"AWS4-HMAC-SHA256 Credential=AKID/us-east-1/sagemaker/aws4_request, {REST}",
            "20261122T120000Z",
            "IncompleteSignature",
            "Credential must have exactly 5 slash-delimited elements",
        ),
        (
            f"AWS4-HMAC-SHA256 Credential=AKID/20261121/mars/s3/end, {REST}",
            "20261122T120000Z",
            "InvalidSignature",
            "Credential should be scoped to a valid region. Credential should be scoped to correct service: "
            "'sagemaker'. Credential should be scoped with a valid terminator: 'aws4_request', not 'end'. "
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: "
            "'20261121' != '20261122', from '20261122T120000Z'.",
        ),
    ],
)
def test_what_is_refused(authorization: str | None, date: str | None, code: str, said: str) -> None:
    result = refused(authorization, date)
    assert result is not None
    assert result[0] == f"{code}Exception"
    assert result[1].startswith(said)
