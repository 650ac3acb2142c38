"""Bearer tokens for an endpoint's OpenAI route: a presigned URL, made here without a call.

The format is that of ``sagemaker.core.token_generator`` (sagemaker-core 2.27.0): a SigV4 presigned
``POST https://sagemaker.amazonaws.com/?Action=CallWithBearerToken``, without its scheme, with ``&Version=1``
after it, in base64, behind ``sagemaker-api-key-``. A test holds the two equal byte for byte.

A token carries the rights of the credentials that signed it: treat it as one treats those. Who presents it
needs sagemaker:InvokeEndpoint on the endpoint and sagemaker:CallWithBearerToken on "*" (developer guide,
"Invoke endpoints with OpenAI-compatible APIs").
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.session.sigv4 import Keys, signing_key
from peagle_sm.core.errors import CredentialsError, SpecError

PREFIX = "sagemaker-api-key-"
HOST = "sagemaker.amazonaws.com"
SERVICE = "sagemaker"
LONGEST = timedelta(hours=12)
#: What a client that makes a token for each request needs it for: the request's arrival.
ONE_REQUEST = timedelta(minutes=15)


@dataclass(frozen=True)
class BearerToken:
    """A token and its end, by this machine's clock; ``expires_at`` is never after the credentials' own end.

    Printing it does not show the token.
    """

    token: str = field(repr=False)
    expires_at: datetime


def bearer_token(session: Session, *, hours: float = 12, utc: Callable[[], float] = time.time) -> BearerToken:
    """Sign a token with the session's credentials, renewed where they renew themselves; nothing is called.

    Args:
        session: whose credentials and region sign.
        hours: how long it lasts: a second to 12 hours.
        utc: the time of the signature, seconds since 1970 (always real time, also for a local server).

    Raises:
        SpecError: ``hours`` is out of range.
        CredentialsError: there are no credentials, or they have expired and cannot be renewed.
    """
    length = _length(hours)
    credentials = session.credentials()
    keys = frozen(credentials, session.local_url)
    now = utc()
    ends = datetime.fromtimestamp(now, UTC) + length
    keys_end = _end_of(credentials)
    if keys_end is not None and keys_end <= datetime.fromtimestamp(now, UTC):
        raise _expired(f"they ended at {keys_end:%Y-%m-%d %H:%M} UTC")
    text = presigned(keys, session.region, int(length.total_seconds()), now)
    return BearerToken(text, ends if keys_end is None else min(ends, keys_end))


def provider(session: Session, *, utc: Callable[[], float] = time.time) -> Callable[[], str]:
    """Return a function that makes a fresh token of 15 minutes whenever it is called.

    AWS advises a fresh token at the point of use over one that is kept; it costs no call.
    """

    def fresh() -> str:
        return bearer_token(session, hours=ONE_REQUEST / timedelta(hours=1), utc=utc).token

    return fresh


def presigned(keys: Keys, region: str, seconds: int, utc: float) -> str:
    """Make the token's text. Pure."""
    at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(utc))
    scope = f"{at[:8]}/{region}/{SERVICE}/aws4_request"
    told = {
        "Action": "CallWithBearerToken",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{keys.access_key}/{scope}",
        "X-Amz-Date": at,
        "X-Amz-Expires": str(seconds),
        "X-Amz-SignedHeaders": "host",
    }
    if keys.token:
        told["X-Amz-Security-Token"] = keys.token
    query = "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in told.items())
    canonical = "&".join(sorted(query.split("&")))
    request = f"POST\n/\n{canonical}\nhost:{HOST}\n\nhost\n{hashlib.sha256(b'').hexdigest()}"
    text = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = signing_key(keys.secret_key, at[:8], region, SERVICE)
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    url = f"{HOST}/?{query}&X-Amz-Signature={signature}&Version=1"
    return PREFIX + base64.b64encode(url.encode()).decode()


def frozen(credentials: Any, local_url: str | None = None) -> Keys:
    """Return one coherent set of keys, renewed first where they are about to end.

    Raises:
        CredentialsError: they have expired and could not be renewed.
    """
    with aws_errors("credentials", local_url):
        try:
            keys: Keys = credentials.get_frozen_credentials()
        except RuntimeError as error:  # botocore: "Credentials were refreshed, but … are still expired."
            raise _expired(str(error)) from error
    return keys


def _length(hours: float) -> timedelta:
    length = timedelta(hours=hours) if 0 < hours <= 1e6 else timedelta(0)
    if not timedelta(seconds=1) <= length <= LONGEST:
        raise SpecError(
            f"hours of a bearer token: found {hours:g}; allowed: a second to 12 hours (AWS's limit).",
            next_step="Ask for at most 12; for longer, renew it, as endpoint.openai() does.",
        )
    return length


def _end_of(credentials: Any) -> datetime | None:
    """When temporary credentials end. botocore tells it by no public name; without one, nothing is known."""
    found = getattr(credentials, "_expiry_time", None)
    return found if isinstance(found, datetime) else None


def _expired(why: str) -> CredentialsError:
    return CredentialsError(
        f"the AWS credentials have expired, so no token can be signed with them: {why}.",
        next_step="Log in again (`aws sso login`, or new keys) and check with `aws sts get-caller-identity`.",
    )
