"""The routes under ``/_peagle/``: the API of `peagle-sm local`. Not part of AWS."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

import aiohttp
from aiohttp import web

from sagemaker_local.control import ApiError, Route, Stock
from sagemaker_local.errors import EngineError, InvalidRequest, NotFound
from sagemaker_local.faults import FaultBook, parse
from sagemaker_local.other_services.pricing import PriceList
from sagemaker_local.runtime.logs import EndpointLogs
from sagemaker_local.wire import awsjson

PREFIX = "/_peagle/"
# Seconds between two lines of progress.
_PROGRESS_S = 1.0


class Admin:
    """Answers status, clock, shutdown, faults, and an endpoint's engine metrics and log lines."""

    def __init__(
        self,
        *,
        status: Callable[[], dict[str, Any]],
        now: Callable[[], datetime],
        advance: Callable[[float], Awaitable[datetime]],
        shutdown: Callable[[], None],
        route: Callable[[str, str | None, str | None], Route],
        logs: EndpointLogs,
        interrupt: Callable[[str], None],
        stock: Stock,
        prices: PriceList,
        faults: FaultBook,
        prepare: Callable[[Sequence[str], Callable[[str], None]], Awaitable[None]],
    ) -> None:
        self._status = status
        self._now = now
        self._advance = advance
        self._shutdown = shutdown
        self._route = route
        self._logs = logs
        self._interrupt = interrupt
        self._stock = stock
        self._prices = prices
        self._faults = faults
        self._prepare = prepare

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request whose path starts with the prefix."""
        parts = request.path.removeprefix(PREFIX).strip("/").split("/")
        match request.method, parts:
            case "GET", ["status"]:
                return _json(self._status())
            case "GET", ["clock"]:
                return _json({"now": self._now().isoformat()})
            case "GET", ["artifacts"]:
                return await self._artifacts(request)
            case "POST", ["capacity"]:
                return await self._capacity(request)
            case "POST", ["prices"]:
                return await self._price_list(request)
            case "POST", ["training-jobs", name, "interrupt"]:
                return self._interrupted(name)
            case "POST", ["clock"]:
                return await self._clock(request)
            case "POST", ["shutdown"]:
                self._shutdown()
                return _json({"shutting_down": True})
            case "GET", ["endpoints", name, "metrics"]:
                return await self._metrics(name, request.query.get("variant"), request.query.get("component"))
            case "GET", ["endpoints", name, "logs"]:
                lines = request.query.get("lines", "200")
                return _json({"lines": self._logs.recent(name, int(lines) if lines.isdigit() else 200)})
            case "GET", ["faults"]:
                return _json({"faults": [each.to_dict() for each in self._faults.entries()]})
            case "POST", ["faults"]:
                return await self._add_fault(request)
            case "DELETE", ["faults", *ids]:
                return self._clear_faults(ids)
        return _json(
            {
                "message": f"no such route: {request.method} {request.path}; there are GET status, GET "
                "and POST clock, GET artifacts?uri=<S3 URI>, POST capacity, POST prices, POST shutdown, "
                "GET endpoints/<name>/metrics, GET endpoints/<name>/logs, POST "
                "training-jobs/<name>/interrupt, GET and POST faults, and DELETE faults[/<id>]"
            },
            404,
        )

    async def _artifacts(self, request: web.Request) -> web.StreamResponse:
        """Have the files at some S3 URIs downloaded; the answer has progress as JSON, a line a second."""
        lines: list[str] = []
        work = asyncio.ensure_future(self._prepare(request.query.getall("uri", []), lines.append))
        answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        try:
            await answer.prepare(request)
            while not (await asyncio.wait([work], timeout=_PROGRESS_S))[0]:
                await answer.write(awsjson.dumps({"line": lines[-1] if lines else ""}) + b"\n")
            work.result()
        except EngineError as error:
            failure = {"error": error.message, "next_step": error.next_step}
            await answer.write(awsjson.dumps(failure) + b"\n")
        finally:
            work.cancel()
        await answer.write_eof()
        return answer

    async def _clock(self, request: web.Request) -> web.Response:
        try:
            body = json.loads(await request.read() or b"{}")
            seconds = float(body["advance_seconds"])
        except (ValueError, KeyError, TypeError):
            return _json({"message": 'send {"advance_seconds": <number>}, for example 7200'}, 400)
        if not 0 <= seconds <= 366 * 86_400:
            problem = f"advance_seconds is {seconds:g}"
            return _json(
                {"message": f"{problem}; allowed: 0 to 31622400 (a year); the clock only goes forward"}, 400
            )
        return _json({"clock": (await self._advance(seconds)).isoformat()})

    async def _capacity(self, request: web.Request) -> web.Response:
        """For tests: an instance type with insufficient capacity."""
        try:
            body = json.loads(await request.read() or b"{}")
            name, instances = str(body["instance_type"]), body["instances"]
            self._stock.set(name, None if instances is None else int(instances))
        except (ValueError, KeyError, TypeError):
            wanted = '{"instance_type": "ml.g7e.2xlarge", "instances": 0}, later {…, "instances": null}'
            return _json({"message": f"send {wanted}"}, 400)
        return _json({"short": self._stock.to_dict()})

    async def _price_list(self, request: web.Request) -> web.Response:
        """Replace the packaged price list by a recorded one, for tests."""
        try:
            documents = json.loads(await request.read())
        except ValueError:
            documents = None
        if not isinstance(documents, list) or not all(isinstance(document, dict) for document in documents):
            return _json({"message": "send a JSON list of GetProducts' documents"}, 400)
        self._prices.set(documents)
        return _json({"documents": len(documents)})

    def _interrupted(self, name: str) -> web.Response:
        """For tests: the Spot instances of a training job are taken away, with the usual notice."""
        try:
            self._interrupt(name)
        except ApiError as error:
            return _json({"message": error.message}, 400)
        return _json({"interrupting": name})

    async def _add_fault(self, request: web.Request) -> web.Response:
        try:
            body = json.loads(await request.read() or b"{}")
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return _json({"message": 'send a JSON object, for example {"kind": "cut", "times": 1}'}, 400)
        try:
            return _json(self._faults.add(parse(body)).to_dict())
        except InvalidRequest as error:
            return _json({"message": error.message}, 400)

    def _clear_faults(self, ids: list[str]) -> web.Response:
        try:
            return _json({"faults": [each.to_dict() for each in self._faults.clear(ids)]})
        except NotFound as error:
            return _json({"message": error.message, "next_step": error.next_step}, 404)

    async def _metrics(self, name: str, variant: str | None, component: str | None) -> web.Response:
        try:
            url = f"{self._route(name, variant, component).engine_url}/metrics"
        except ApiError as error:
            return _json({"message": error.message}, 404)
        try:
            timeout = aiohttp.ClientTimeout(total=10)
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
                return web.Response(status=answer.status, body=await answer.read(), content_type="text/plain")
        except (aiohttp.ClientError, TimeoutError) as error:
            return _json({"message": f"the engine of {name} did not answer: {error}"}, 502)


def _json(body: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(status=status, body=awsjson.dumps(body), content_type="application/json")
