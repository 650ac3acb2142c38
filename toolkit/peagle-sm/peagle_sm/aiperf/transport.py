"""The transport that AIPerf loads; each of its workers creates one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
from aiperf.common.enums import ConnectionReuseStrategy
from aiperf.common.exceptions import NotInitializedError
from aiperf.common.models import ErrorDetails, RequestInfo, RequestRecord
from aiperf.common.redact import redact_headers
from aiperf.plugin.schema.schemas import TransportMetadata
from aiperf.transports.aiohttp_client import create_tcp_connector
from aiperf.transports.aiohttp_transport import AioHttpTransport
from aiperf.transports.base_transports import FirstTokenCallback
from aiperf.transports.http_defaults import AioHttpDefaults
from aiperf.transports.sse_utils import AsyncSSEStreamReader

from peagle_sm.aiperf.protocol import Address, AnswerCheck, Signer, parse, payload_parts
from peagle_sm.aws.streams.runtime import answers_asked
from peagle_sm.core.errors import PeagleError

_CANCELLED = 499  # what AIPerf's own transport reports for a request that it cancelled
_SECRET = ("x-amz-security-token", "x-amz-date")


class SageMakerTransport(AioHttpTransport):
    """Sends AIPerf's requests to SageMaker Runtime."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._signers: dict[str | None, Signer] = {}  # by region
        # Now, not with the first request: looking up credentials takes time, and may find none.
        self._signer(parse(self.model_endpoint.endpoint.base_url).region)

    @classmethod
    def metadata(cls) -> TransportMetadata:
        """Return the transport's name for AIPerf."""
        return TransportMetadata(transport_type="sagemaker", url_schemes=[])

    def get_url(self, request_info: RequestInfo) -> str:
        """Return the URL of the runtime API; the path of AIPerf's endpoint type is not used."""
        endpoint = request_info.model_endpoint.endpoint
        return self._address(request_info).url(streaming=endpoint.streaming)

    async def send_request(
        self,
        request_info: RequestInfo,
        payload: dict[str, Any] | bytes,
        *,
        first_token_callback: FirstTokenCallback | None = None,
    ) -> RequestRecord:
        """Send one request and record it; every failure becomes the record's error."""
        if self.aiohttp_client is None:
            raise NotInitializedError("SageMakerTransport: call initialize() before send_request().")
        record = RequestRecord(start_perf_ns=time.perf_counter_ns())
        try:
            address = self._address(request_info)
            url, body = self.get_url(request_info), _body(payload, address.model)
            headers = self.build_headers(request_info) | address.headers
            headers = await self._signer(address.region).sign(url, headers, body)
            connector, owner = self._connector(request_info)
            if not request_info.model_endpoint.endpoint.streaming:
                record = await self.aiohttp_client.post_request(
                    url,
                    body,
                    headers,
                    cancel_after_ns=request_info.cancel_after_ns,
                    connector=connector,
                    connector_owner=owner,
                )
            else:
                session = self._session(connector, owner, headers)
                await self._stream(record, session, url, body, request_info, first_token_callback)
            record.request_headers = _redacted(headers)
        except Exception as error:
            record.end_perf_ns = time.perf_counter_ns()
            record.error = _details(error)
        finally:
            await self._release(request_info, record)
        return record

    async def _stream(
        self,
        record: RequestRecord,
        session: aiohttp.ClientSession,
        url: str,
        body: bytes,
        request_info: RequestInfo,
        first_token_callback: FirstTokenCallback | None,
    ) -> None:
        """Fill the record from a response stream; a request that AIPerf cancels gets its error 499."""
        after = request_info.cancel_after_ns
        try:
            async with asyncio.timeout(None if after is None else after / 1e9), session:
                # Both clocks at one instant: AIPerf pairs them.
                record.start_perf_ns, record.timestamp_ns = time.perf_counter_ns(), time.time_ns()
                async with session.post(url, data=body) as response:
                    check = AnswerCheck(answers_asked(orjson.loads(body)))
                    await self._read(record, response, first_token_callback, check)
        except TimeoutError:
            if after is None:
                raise
            record.cancellation_perf_ns = time.perf_counter_ns()
            message = f"Request cancelled {after / 1e9:.3f} s after it was begun"
            record.error = ErrorDetails(type="RequestCancellationError", message=message, code=_CANCELLED)
        record.end_perf_ns = time.perf_counter_ns()

    async def _read(
        self,
        record: RequestRecord,
        response: aiohttp.ClientResponse,
        first_token_callback: FirstTokenCallback | None,
        check: AnswerCheck,
    ) -> None:
        record.status = response.status
        if not 200 <= response.status < 300:
            kind = (response.headers.get("x-amzn-ErrorType") or response.reason or "").split(":")[0]
            record.error = ErrorDetails(code=response.status, type=kind, message=await response.text())
            return
        record.recv_start_perf_ns = time.perf_counter_ns()
        seen_first = first_token_callback is None
        async for message in AsyncSSEStreamReader(payload_parts(_chunks(response))):
            AsyncSSEStreamReader.inspect_message_for_error(message)
            record.responses.append(message)
            check.take(message.extract_data_content())
            if not seen_first and first_token_callback is not None:
                seen_first = await first_token_callback(message.perf_ns - record.start_perf_ns, message)
        record.end_perf_ns = time.perf_counter_ns()
        check.finish()

    def _address(self, request_info: RequestInfo) -> Address:
        return parse(request_info.model_endpoint.endpoint.get_url(request_info.url_index))

    def _signer(self, region: str | None) -> Signer:
        if region not in self._signers:
            self._signers[region] = Signer.from_environment(region)
        return self._signers[region]

    def _connector(self, request_info: RequestInfo) -> tuple[aiohttp.TCPConnector, bool]:
        """Return the connection pool of AIPerf's reuse strategy, and whether the request closes it."""
        strategy = self.model_endpoint.endpoint.connection_reuse_strategy
        if strategy == ConnectionReuseStrategy.NEVER:
            once = {**self.tcp_kwargs, "force_close": True, "limit": 1, "keepalive_timeout": None}
            return create_tcp_connector(**once), True
        if self.lease_manager is not None:
            return self.lease_manager.get_connector(request_info.x_correlation_id), False
        return self.aiohttp_client.tcp_connector, False

    def _session(
        self, connector: aiohttp.TCPConnector, owner: bool, headers: dict[str, str]
    ) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector,
            connector_owner=owner,
            timeout=self.aiohttp_client.timeout,
            headers=headers,
            # A header that aiohttp added by itself would not be signed.
            skip_auto_headers=[*headers, "User-Agent", "Accept-Encoding"],
            trust_env=AioHttpDefaults.TRUST_ENV,
        )

    async def _release(self, request_info: RequestInfo, record: RequestRecord) -> None:
        """Release a session's own connection at its last turn or after an error."""
        if self.lease_manager is not None and (request_info.is_final_turn or record.error is not None):
            await self.lease_manager.release_lease(request_info.x_correlation_id)


async def _chunks(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async for data in response.content.iter_any():
        yield data


def _body(payload: dict[str, Any] | bytes, model: str | None) -> bytes:
    """Return the JSON body with the address's model instead of AIPerf's label."""
    if isinstance(payload, bytes) and b'"model"' not in payload:
        return payload
    given: dict[str, Any] = orjson.loads(payload) if isinstance(payload, bytes) else payload
    kept = {key: value for key, value in given.items() if key != "model"}
    return orjson.dumps(kept if model is None else {"model": model, **kept})


def _redacted(headers: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in headers.items() if name not in _SECRET}
    return dict(redact_headers(kept))


def _details(error: Exception) -> ErrorDetails:
    if isinstance(error, PeagleError):
        message = f"{error.message} {error.next_step}" if error.next_step else error.message
        return ErrorDetails(type=type(error).__name__, message=message, code=None)
    return ErrorDetails.from_exception(error)
