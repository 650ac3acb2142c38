"""Signing, TLS and error handling for direct HTTP clients, and bearer tokens.

botocore signs. A bearer token is for an endpoint's OpenAI route. It is a presigned URL, made without a call,
in the format of ``sagemaker.core.token_generator`` (sagemaker-core 2.27.0): a presigned ``POST
https://sagemaker.amazonaws.com/?Action=CallWithBearerToken``, without its scheme, with ``&Version=1``
appended, in base64, after ``sagemaker-api-key-``. A token carries the rights of the credentials that signed
it: protect it as you protect those. Its user needs sagemaker:InvokeEndpoint on the endpoint and
sagemaker:CallWithBearerToken on "*" (developer guide, "Invoke endpoints with OpenAI-compatible APIs").
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.aws.session.session import USER_AGENT, Session
from peagle_sm.core.errors import LOGIN_STEP, CredentialsError, SpecError

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials as Keys

SERVICE = "sagemaker"


def signed_invocation(
    endpoint_url: str,
    region: str,
    keys: Keys,
    endpoint: str,
    component: str | None,
    body: bytes,
    *,
    streamed: bool = True,
    headers: Mapping[str, str] | None = None,
) -> tuple[str, dict[str, str]]:
    """Return the URL and the headers of a call of InvokeEndpoint, or with a response stream.

    The URL is percent-encoded and signed: the client must not encode it again.
    """
    call = "invocations-response-stream" if streamed else "invocations"
    url = f"{endpoint_url.rstrip('/')}/endpoints/{quote(endpoint, safe='')}/{call}"
    unsigned = {"content-type": "application/json", "user-agent": USER_AGENT, **(headers or {})}
    if component is not None:
        unsigned["x-amzn-sagemaker-inference-component"] = component
    return url, sign(url, unsigned, body, keys, region)


def sign(url: str, headers: Mapping[str, str], body: bytes, keys: Keys, region: str) -> dict[str, str]:
    """Return ``headers`` with the signature of a POST of ``body``, valid for five minutes.

    ``url`` is percent-encoded and has no query.
    """
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest

    request = AWSRequest("POST", url, dict(headers), body)
    SigV4Auth(keys, SERVICE, region).add_auth(request)
    return dict(request.headers.items())


async def current_keys(credentials: Any) -> Keys:
    """Return botocore's credentials at this moment; a refresh, which blocks, runs in a thread.

    Raises:
        CredentialsError: they have expired and could not be refreshed.
    """
    needs_refresh = getattr(credentials, "refresh_needed", None)
    if needs_refresh is not None and needs_refresh():
        return await asyncio.to_thread(frozen, credentials)
    return frozen(credentials)


def error_name(headers: Mapping[str, str], document: Mapping[str, Any]) -> str:
    """Return AWS's name of an error (``ThrottlingException`` …), or an empty string."""
    named = headers.get("x-amzn-errortype") or str(document.get("__type") or document.get("code") or "")
    return named.split(":")[0].rpartition("#")[2]


def json_object(content: bytes) -> dict[str, Any]:
    """Parse a JSON object; return an empty one if ``content`` is not an object."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def is_remote(url: str) -> bool:
    """Return whether a URL is remote, so that proxies and certificates apply."""
    host = urlsplit(url).hostname or ""
    return not (host == "localhost" or host.startswith("127.") or host == "::1")


def certificates() -> Any:
    """Return an ``ssl.SSLContext`` with boto3's certificates."""
    from botocore.httpsession import get_cert_path

    # As boto3 does: the user's certificates, else those of botocore.
    return _context(os.environ.get("AWS_CA_BUNDLE") or get_cert_path(True))


@lru_cache(maxsize=4)
def _context(path: str) -> Any:
    """Return a cached context: reading the certificates takes 20 ms of CPU."""
    import ssl

    return ssl.create_default_context(cafile=path)


def end_with_its_connection(response: Any) -> None:
    """Raise an error to an aiohttp response's reader when its connection ends.

    At a malformed chunk, aiohttp (3.14.5) closes the connection without an error to the reader, which then
    waits until its timeout. A chunked body without an end is always an error once its connection is closed.
    """
    protocol = None if response.connection is None else response.connection.protocol
    closed = None if protocol is None else protocol.closed
    if closed is None or "chunked" not in response.headers.get("Transfer-Encoding", "").lower():
        return

    def fail(_: object) -> None:
        from aiohttp import ClientPayloadError

        content = response.content
        if not content.is_eof() and content.exception() is None:
            content.set_exception(ClientPayloadError("the server sent a malformed chunk"))

    closed.add_done_callback(fail)


PREFIX = "sagemaker-api-key-"
HOST = "sagemaker.amazonaws.com"
LONGEST = timedelta(hours=12)
#: Lifetime of a token for one request: it must be valid when the request arrives.
ONE_REQUEST = timedelta(minutes=15)


@dataclass(frozen=True)
class BearerToken:
    """A bearer token; ``expires_at`` is never later than the credentials' end.

    Times are by this machine's clock. Its repr does not show the token.
    """

    token: str = field(repr=False)
    expires_at: datetime


def bearer_token(session: Session, *, hours: float = 12) -> BearerToken:
    """Sign a token with the session's credentials, refreshed if they can be.

    ``hours`` is its validity, from a second to 12 hours, always in real time.

    Raises:
        SpecError: ``hours`` is out of range.
        CredentialsError: there are no credentials, or expired ones that cannot be refreshed.
    """
    length = _length(hours)
    credentials = session.credentials()
    keys = frozen(credentials, session.local_url)
    now = datetime.now(UTC)
    ends = now + length
    keys_end = _end_of(credentials)
    if keys_end is not None and keys_end <= now:
        raise _expired(f"they ended at {keys_end:%Y-%m-%d %H:%M} UTC")
    text = presigned(keys, session.region, int(length.total_seconds()))
    return BearerToken(text, ends if keys_end is None else min(ends, keys_end))


def provider(session: Session) -> Callable[[], str]:
    """Return a function that returns a new token for 15 minutes at each call.

    AWS recommends a new token for each use; it needs no call.
    """

    return lambda: bearer_token(session, hours=ONE_REQUEST / timedelta(hours=1)).token


def presigned(keys: Keys, region: str, seconds: int) -> str:
    """Return the text of a token that is valid for ``seconds`` from now."""
    from botocore.auth import SigV4QueryAuth
    from botocore.awsrequest import AWSRequest

    request = AWSRequest("POST", f"https://{HOST}/", {"host": HOST}, params={"Action": "CallWithBearerToken"})
    SigV4QueryAuth(keys, SERVICE, region, expires=seconds).add_auth(request)
    url = str(request.url).removeprefix("https://") + "&Version=1"
    return PREFIX + base64.b64encode(url.encode()).decode()


def frozen(credentials: Any, local_url: str | None = None) -> Keys:
    """Return a consistent set of keys, refreshed if they are about to expire.

    Raises:
        CredentialsError: they have expired and could not be refreshed.
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
            next_step="Give at most 12; for longer, renew the token, as endpoint.openai() does.",
        )
    return length


def _end_of(credentials: Any) -> datetime | None:
    """Return the end of temporary credentials from botocore, or None if unknown."""
    expiry = getattr(credentials, "_expiry_time", None)
    return expiry if isinstance(expiry, datetime) else None


def _expired(why: str) -> CredentialsError:
    return CredentialsError(
        f"the AWS credentials have expired, so they cannot sign a token: {why}.",
        next_step=LOGIN_STEP,
    )
