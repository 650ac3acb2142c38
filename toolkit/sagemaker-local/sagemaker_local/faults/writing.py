"""Writes a streamed answer to a connection, with its fault, if any."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiohttp import ClientError, web

from sagemaker_local.faults.book import Strike
from sagemaker_local.faults.stream import Action, Cut, Send, Wait, transform
from sagemaker_local.faults.wires import Wire


class EndedByFault(Exception):
    """A fault has ended the answer; write nothing more."""


class ClientLeft(Exception):
    """The client has closed the connection of a stream."""


class PartWriter:
    """Writer of a streamed answer: the engine's bytes go in.

    Every route that streams ends in one, so that `peagle-sm local fault` reaches it. The OpenAI route, for
    example (``response`` prepared, its headers sent)::

        strike = faults.strike("openai", endpoint)     # once a request; then see refusals.refusal_of(strike)
        writer = PartWriter(request, response, BareWire(), strike)
        try:
            async for chunk in engine_answer.content.iter_any():
                await writer.part(chunk)
            await writer.end()
        except (EndedByFault, ClientLeft):
            return response

    Without a fault a part costs one call and one write.
    """

    def __init__(
        self, request: web.Request, response: web.StreamResponse, wire: Wire, strike: Strike | None
    ) -> None:
        self.response = response
        self._request = request
        self._wire = wire
        self._transform = transform(strike, wire)
        self._deaf = strike is not None and strike.kind == "keeps-generating"

    async def part(self, payload: bytes) -> None:
        """Write the next part.

        Raises:
            EndedByFault: the answer ends here.
            ClientLeft: whoever asked has closed the connection.
        """
        if self._transform is None:
            await self.raw(self._wire.part(payload))
            return
        for action in self._transform.part(payload):
            await self._perform(action)

    async def end(self) -> None:
        """Write what is left at the answer's end; errors as `part`."""
        if self._transform is not None:
            for action in self._transform.end():
                await self._perform(action)

    async def left(self, answer: AsyncIterator[bytes]) -> None:
        """Note that the client has left. With the fault `keeps-generating` the engine's answer is read on."""
        if self._deaf:
            with contextlib.suppress(ClientError, TimeoutError):
                async for _ in answer:
                    pass

    async def raw(self, data: bytes) -> None:
        """Write bytes past the fault; errors as `part`."""
        try:
            await self.response.write(data)
        except ConnectionResetError:  # aiohttp's error is a ClientError too: do not blame the engine
            raise ClientLeft from None

    async def _perform(self, action: Action) -> None:
        match action:
            case Send(data):
                await self.raw(data)
            case Wait(seconds):
                await asyncio.sleep(seconds)
            case Cut(clean):
                if not clean:
                    hang_up(self._request)
                raise EndedByFault


def silence_of(strike: Strike | None) -> float:
    """Delay of a whole answer, in seconds."""
    return float(strike.option("seconds")) if strike is not None and strike.kind == "stall" else 0.0


async def sent_whole(request: web.Request, answer: web.Response, strike: Strike | None) -> web.StreamResponse:
    """Return an answer that is sent in one piece, cut short by its fault, if any.

    A clean cut is an answer whose length is right and whose end is missing; another one promises the whole
    length and breaks off half-way, or before the first byte.
    """
    body = answer.body
    if strike is None or strike.kind != "cut" or not isinstance(body, bytes):
        return answer
    half = b"" if strike.option("where") == "start" else body[: len(body) // 2]
    if strike.option("clean"):
        return web.Response(status=answer.status, headers=answer.headers, body=half)
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.content_length = len(body)
    await response.prepare(request)
    with contextlib.suppress(ConnectionResetError):
        await response.write(half)
    hang_up(request)
    return response


def hang_up(request: web.Request) -> None:
    """Close a request's connection once what was written has left; the answer is left without its end."""
    if request.transport is not None:
        request.transport.close()
