"""Checks bearer tokens as AWS says it does: decoded, signature validated, expiry verified. Pure.

What is not known of AWS's answers (which code for which fault) is taken from its other services' words for
the same faults in a signed request; docs/explanation/local.md says so.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, quote

PREFIX = "sagemaker-api-key-"
HOST = "sagemaker.amazonaws.com"
LONGEST_S = 43_200
#: How far ahead of the server a client's clock may be: SigV4's usual five minutes.
SKEW = timedelta(minutes=5)
#: The local server's only keys: those that `--local` and the documents use.
DUMMY_KEYS: Mapping[str, str] = {"local": "local"}

_FIELDS = (
    "Action",
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-SignedHeaders",
    "X-Amz-Signature",
    "Version",
)
_SECOND = timedelta(seconds=1)
_TIME = "%Y%m%dT%H%M%SZ"
_OPTIONAL = ("X-Amz-Security-Token",)
_INVALID = "The security token included in the request is invalid."


class BearerRefused(Exception):
    """A rejected token: AWS's error name, and a message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def verify(
    token: str,
    *,
    region: str,
    now: datetime,
    local_time_of: Callable[[datetime], datetime],
    secrets: Mapping[str, str] = DUMMY_KEYS,
) -> None:
    """Accept a token that `sagemaker.core.token_generator` would make with keys of ``secrets``.

    Args:
        token: what follows ``Bearer ``.
        region: of this endpoint; a token is scoped to one.
        now: the local clock.
        local_time_of: what the local clock showed at the real moment that the token names.
        secrets: secret keys by access key.

    Raises:
        BearerRefused: it is malformed, of another service or region, wrongly signed, or over.
    """
    fields = _fields(token)
    access_key, date, scope = _scope(fields, region)
    if access_key not in secrets:
        raise BearerRefused("UnrecognizedClientException", _INVALID)
    expected = _signature(fields, secrets[access_key], date, scope)
    if not hmac.compare_digest(expected, fields["X-Amz-Signature"]):
        raise BearerRefused(
            "InvalidSignatureException",
            "The request signature we calculated does not match the signature you provided. Check your AWS "
            "Secret Access Key and signing method.",
        )
    _check_time(fields, now, local_time_of)


def _fields(token: str) -> dict[str, str]:
    malformed = BearerRefused("UnrecognizedClientException", _INVALID)
    if not token.startswith(PREFIX):
        raise malformed
    try:
        url = base64.b64decode(token.removeprefix(PREFIX), validate=True).decode("ascii")
        pairs = parse_qsl(url.removeprefix(f"{HOST}/?"), keep_blank_values=True, strict_parsing=True)
    except (binascii.Error, ValueError) as error:
        raise malformed from error
    fields = dict(pairs)
    complete = set(_FIELDS) <= fields.keys() <= {*_FIELDS, *_OPTIONAL}
    if not url.startswith(f"{HOST}/?") or len(pairs) != len(fields) or not complete:
        raise malformed
    if fields["Action"] != "CallWithBearerToken" or fields["Version"] != "1":
        raise malformed
    if fields["X-Amz-Algorithm"] != "AWS4-HMAC-SHA256" or fields["X-Amz-SignedHeaders"] != "host":
        raise malformed
    if not fields["X-Amz-Expires"].isdigit() or not 1 <= int(fields["X-Amz-Expires"][:9]) <= LONGEST_S:
        raise malformed
    return fields


def _scope(fields: Mapping[str, str], region: str) -> tuple[str, str, str]:
    parts = fields["X-Amz-Credential"].rsplit("/", 4)
    if len(parts) != 5 or parts[4] != "aws4_request":
        raise BearerRefused("UnrecognizedClientException", _INVALID)
    access_key, date, signed_region, service, _ = parts
    if service != "sagemaker":
        raise BearerRefused(
            "InvalidSignatureException", "Credential should be scoped to correct service: 'sagemaker'."
        )
    if signed_region != region:
        raise BearerRefused("InvalidSignatureException", "Credential should be scoped to a valid region.")
    return access_key, date, "/".join(parts[1:])


def _signature(fields: Mapping[str, str], secret: str, date: str, scope: str) -> str:
    signed = {name: value for name, value in fields.items() if name not in ("X-Amz-Signature", "Version")}
    query = "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in sorted(signed.items()))
    request = "\n".join(["POST", "/", query, f"host:{HOST}", "", "host", hashlib.sha256(b"").hexdigest()])
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", fields["X-Amz-Date"], scope, digest])
    key = f"AWS4{secret}".encode()
    for part in (date, *scope.split("/")[1:]):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _check_time(
    fields: Mapping[str, str], now: datetime, local_time_of: Callable[[datetime], datetime]
) -> None:
    try:
        signed = datetime.strptime(fields["X-Amz-Date"], _TIME).replace(tzinfo=UTC)
    except ValueError as error:
        raise BearerRefused("UnrecognizedClientException", _INVALID) from error
    # A token names whole seconds: one made just after the clock was moved must not seem to be from before.
    began = local_time_of(signed + _SECOND) - _SECOND
    ends = began + timedelta(seconds=int(fields["X-Amz-Expires"]))
    if began > now + SKEW:
        raise BearerRefused(
            "InvalidSignatureException",
            f"Signature not yet current: {began:{_TIME}} is still later than {now + SKEW:{_TIME}} "
            f"({now:{_TIME}} + 5 min.)",
        )
    if ends <= now:
        raise BearerRefused("ExpiredTokenException", "The security token included in the request is expired")
