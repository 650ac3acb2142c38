"""What a client that signs for itself needs: the address, the headers, the certificates, the error's name."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlsplit

from peagle_sm.aws.session.session import USER_AGENT
from peagle_sm.aws.session.sigv4 import Keys, sign

SERVICE = "sagemaker"


def signed_stream_request(
    *,
    endpoint_url: str,
    region: str,
    keys: Keys,
    endpoint: str,
    component: str | None,
    body: bytes,
    utc: float,
) -> tuple[str, dict[str, str]]:
    """Return the URL and the headers of a call of InvokeEndpointWithResponseStream.

    The URL is percent-encoded and signed as it stands: nobody may encode it anew.
    """
    path = f"/endpoints/{quote(endpoint, safe='')}/invocations-response-stream"
    headers = {"content-type": "application/json"}
    if component is not None:
        headers["x-amzn-sagemaker-inference-component"] = component
    signed = sign(
        host=urlsplit(endpoint_url).netloc,
        path=path,
        headers=headers,
        body=body,
        keys=keys,
        region=region,
        service=SERVICE,
        utc=utc,
    )
    return endpoint_url.rstrip("/") + path, {**signed, "user-agent": USER_AGENT}


def error_name(headers: Mapping[str, str], told: Mapping[str, Any]) -> str:
    """The name of an error as AWS writes it (``ThrottlingException``, ``ModelError`` …), or nothing."""
    named = headers.get("x-amzn-errortype") or str(told.get("__type") or told.get("code") or "")
    return named.split(":")[0].rpartition("#")[2]


def json_object(content: bytes) -> dict[str, Any]:
    """The JSON object that ``content`` is; empty where it is none."""
    try:
        told = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def is_remote(url: str) -> bool:
    """Whether an address is on another machine, where proxies and certificates of the environment apply."""
    host = urlsplit(url).hostname or ""
    return not (host == "localhost" or host.startswith("127.") or host == "::1")


def certificates() -> Any:
    """An ``ssl.SSLContext`` that trusts what boto3 trusts."""
    from botocore.httpsession import get_cert_path

    # As boto3 does: what the user names, else the certificates that botocore carries.
    return _context(os.environ.get("AWS_CA_BUNDLE") or get_cert_path(True))


@lru_cache(maxsize=4)
def _context(path: str) -> Any:
    """Reading the certificates takes 20 ms of CPU, so they are read once."""
    import ssl

    return ssl.create_default_context(cafile=path)


def end_with_its_connection(response: Any) -> None:
    """End the reading of an aiohttp response when its connection ends.

    aiohttp (3.14.5) closes the connection at a malformed chunk without an error to the reader, who then waits
    until its timeout. A chunked body that has no end yet when its connection is gone is always an error.
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
