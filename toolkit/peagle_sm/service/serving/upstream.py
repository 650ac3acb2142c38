"""Signs a request as boto3 does and sends it to one endpoint of SageMaker Runtime."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp

from peagle_sm.aws.session.bearer import frozen
from peagle_sm.aws.session.session import CONNECT_TIMEOUT_S, RUNTIME_READ_TIMEOUT_S, USER_AGENT, Session
from peagle_sm.aws.session.sigv4 import sign
from peagle_sm.aws.session.wire import end_with_its_connection

_SERVICE = "sagemaker"
#: SageMaker keeps an idle connection longer; a new one costs a TLS handshake.
_KEEP_ALIVE_S = 20.0


@dataclass(frozen=True)
class Upstream:
    """One endpoint, or one inference component of it.

    ``credentials`` are botocore's, which renew themselves; ``utc`` is the time of signatures, seconds since
    1970.
    """

    endpoint_url: str
    region: str
    credentials: Any
    endpoint: str
    component: str | None = None
    utc: Callable[[], float] = field(default=time.time, compare=False)

    @classmethod
    def of(cls, session: Session, endpoint: str, component: str | None) -> Upstream:
        """Take address and credentials from a session.

        Raises:
            CredentialsError: it has none.
        """
        url = session.client("sagemaker-runtime").meta.endpoint_url
        return cls(url, session.region, session.credentials(), endpoint, component)

    @asynccontextmanager
    async def send(
        self, http: aiohttp.ClientSession, body: bytes, *, streamed: bool
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Invoke with ``body``; leaving before the answer's end drops the connection, and so the work.

        Raises:
            CredentialsError: the credentials have expired and could not be renewed.
            aiohttp.ClientError: no answer came.
        """
        call = "invocations-response-stream" if streamed else "invocations"
        path = f"/endpoints/{quote(self.endpoint, safe='')}/{call}"
        headers = {"content-type": "application/json"}
        if self.component is not None:
            headers["x-amzn-sagemaker-inference-component"] = self.component
        signed = sign(
            host=urlsplit(self.endpoint_url).netloc,
            path=path,
            headers=headers,
            body=body,
            keys=await self._keys(),
            region=self.region,
            service=_SERVICE,
            utc=self.utc(),
        )
        from yarl import URL

        url = URL(self.endpoint_url.rstrip("/") + path, encoded=True)
        async with http.post(url, data=body, headers={**signed, "user-agent": USER_AGENT}) as answer:
            end_with_its_connection(answer)
            yield answer

    async def _keys(self) -> Any:
        # Renewing asks STS or SSO; other streams are not to wait for that.
        needed = getattr(self.credentials, "refresh_needed", None)
        if needed is not None and needed():
            return await asyncio.to_thread(frozen, self.credentials)
        return frozen(self.credentials)


def open_http(endpoint_url: str) -> aiohttp.ClientSession:
    """Return the connections to SageMaker; close them after use."""
    host = urlsplit(endpoint_url).hostname or ""
    remote = not (host == "localhost" or host.startswith("127.") or host == "::1")
    connector = aiohttp.TCPConnector(
        limit=0, keepalive_timeout=_KEEP_ALIVE_S if remote else 2.0, ssl=_certificates() if remote else True
    )
    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=RUNTIME_READ_TIMEOUT_S
    )
    return aiohttp.ClientSession(
        connector=connector, timeout=timeout, auto_decompress=False, trust_env=remote
    )


def _certificates() -> Any:
    import ssl

    from botocore.httpsession import get_cert_path

    # As boto3 does: what the user names, else the certificates that botocore carries.
    return ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE") or get_cert_path(True))
