"""The single port: routes every request to the service that answers it.

SageMaker's control plane and runtime, CloudFormation, Lambda's Invoke and the price list are ours,
``/_peagle/`` is for `peagle-sm local`, the rest is moto's.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from email.utils import format_datetime
from typing import Any, Protocol

from aiohttp import web

from sagemaker_local import admin
from sagemaker_local.control import ApiError
from sagemaker_local.control.requests import bad_token
from sagemaker_local.other_services import request_checks
from sagemaker_local.other_services.moto import LARGEST_BODY
from sagemaker_local.runtime.openai_route import address_of
from sagemaker_local.scheduler.requests import refusal
from sagemaker_local.wire import awsjson, tokens

log = logging.getLogger(__name__)

_TARGET = "SageMaker."
_SERVICE_ROLE = "scheduler.amazonaws.com"
_INVOCATIONS = ("/invocations", "/invocations-response-stream")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Control = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class Invocations(Protocol):
    """Handler of Lambda invocations."""

    def takes(self, request: web.Request) -> bool:
        """Return whether a request is an invocation; moto answers other calls about functions."""

    async def handle(self, request: web.Request) -> web.Response:
        """Answer an invocation."""


class Front:
    """Dispatches requests."""

    def __init__(
        self,
        *,
        region: str,
        control: Control,
        runtime: Handler,
        openai: Handler,
        admin: Handler,
        cloudformation: Handler,
        lambdas: Invocations,
        pricing: Handler,
        moto: Handler,
        prepare_read: Callable[[web.Request], Awaitable[web.Response | None]],
        trusts: Callable[[str, str], bool],
        schedules_changed: Callable[[], Awaitable[None]],
        now: Callable[[], datetime],
    ) -> None:
        """Set up the routes; ``trusts(role_arn, service)``: whether the role lets a service assume it.

        ``prepare_read`` puts what a request reads into S3, and returns an error if it cannot.
        ``now`` is the local clock, which every answer carries as its Date.
        """
        self._region = region
        self._control = control
        self._runtime = runtime
        self._openai = openai
        self._admin = admin
        self._cloudformation = cloudformation
        self._lambdas = lambdas
        self._pricing = pricing
        self._moto = moto
        self._prepare_read = prepare_read
        self._trusts = trusts
        self._schedules_changed = schedules_changed
        self._now = now

    def app(self) -> web.Application:
        """Build the web application."""
        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", self.handle)
        app.on_response_prepare.append(self._dated)
        return app

    async def _dated(self, request: web.Request, response: web.StreamResponse) -> None:
        """Date the answer by the local clock: the guard's sweeper uses it."""
        response.headers["Date"] = format_datetime(self._now(), usegmt=True)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        try:
            return await self._dispatch(request)
        except RecursionError:  # from json.loads, whichever part reads the body
            return awsjson.error("SerializationException", "The request body is nested too deeply.")

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        if not _is_local(request.host):
            return awsjson.error(
                "AccessDeniedException",
                f"the local SageMaker accepts only localhost and 127.0.0.1; found Host {request.host!r}",
                403,
            )
        if request.path.startswith(admin.PREFIX):
            return await self._admin(request)
        if address_of(request.rel_url.raw_path) is not None:
            return await self._openai(request)
        caller = awsjson.caller_of(request)
        if request.headers.get("X-Amz-Target", "").startswith(_TARGET):
            return self._refusal(caller) or await self._sagemaker(request)
        if _is_invocation(request.path, caller):
            return await self._runtime(request)
        if caller is not None and caller.service == "cloudformation":
            return await self._cloudformation(request)
        if caller is not None and caller.service == "lambda" and self._lambdas.takes(request):
            return await self._lambdas.handle(request)
        if caller is not None and caller.service == "pricing":
            return await self._pricing(request)
        refused = await request_checks.refusal(request, caller) or await self._prepare_read(request)
        if refused is not None:
            return refused
        if caller is not None and caller.service == "scheduler":
            return await self._schedule(request)
        if request.path.startswith("/moto-api"):
            return awsjson.error("UnknownOperationException", "moto's own routes are disabled here", 404)
        return await self._moto(request)

    def _refusal(self, caller: awsjson.Caller | None) -> web.Response | None:
        """Refuse what AWS's regional endpoint refuses before it reads the request."""
        if caller is None:
            return awsjson.error("MissingAuthenticationTokenException", "Missing Authentication Token", 403)
        if caller.region != self._region:
            message = "Credential should be scoped to a valid region."
            return awsjson.error("InvalidSignatureException", message, 403)
        return None

    async def _sagemaker(self, request: web.Request) -> web.Response:
        operation = request.headers["X-Amz-Target"].removeprefix(_TARGET)
        try:
            body = json.loads(await request.read() or b"{}")
        except ValueError:
            return awsjson.error("SerializationException", "The request body is not JSON.")
        if not isinstance(body, dict):
            return awsjson.error("SerializationException", "The request body is not a JSON object.")
        try:
            inner_body = body
            if body.get("NextToken") is not None:
                inner_body = {**body, "NextToken": tokens.unbound(operation, body)}
                if inner_body["NextToken"] is None:
                    raise bad_token()
            # A client that leaves must not stop a call half-way.
            answer = await asyncio.shield(self._control(operation, inner_body))
            if "NextToken" in answer:
                answer = {**answer, "NextToken": tokens.bound(operation, body, answer["NextToken"])}
            return awsjson.reply(answer)
        except ApiError as error:
            return awsjson.error(error.code, error.message, error.status)
        except RecursionError:
            raise
        except Exception as error:
            log.exception("%s failed", operation)
            return awsjson.error(
                "InternalFailure", f"{operation} failed: {type(error).__name__}: {error}", 500
            )

    async def _schedule(self, request: web.Request) -> web.StreamResponse:
        """Pass on to moto what EventBridge Scheduler would accept, and let the clock know."""
        if request.method in ("POST", "PUT") and request.path.startswith("/schedules/"):
            refused = self._refused_schedule(await request.read())
            if refused is not None:
                return refused
        response = await self._moto(request)
        if request.method != "GET":
            await self._schedules_changed()
        return response

    def _refused_schedule(self, body: bytes) -> web.Response | None:
        try:
            schedule = json.loads(body)
            role = schedule["Target"]["RoleArn"]
            wrong = refusal(schedule, self._now())
        except (ValueError, KeyError, TypeError):
            return None  # moto says what is missing
        if wrong is not None:
            return awsjson.runtime_error("ValidationException", wrong)
        if self._trusts(role, _SERVICE_ROLE):
            return None
        return awsjson.runtime_error(
            "ValidationException",
            "The execution role you provide must allow AWS EventBridge Scheduler to assume the role.",
        )


def _is_invocation(path: str, caller: awsjson.Caller | None) -> bool:
    """Whether SageMaker Runtime answers; a bucket may be called "endpoints" too, and S3 signs for itself."""
    if not path.startswith("/endpoints/"):
        return False
    return (
        caller is None
        or caller.service == "sagemaker"
        or (caller.service != "s3" and path.endswith(_INVOCATIONS))
    )


def _is_local(host: str) -> bool:
    """Whether a Host header names this machine; a foreign name means a web page rebinding its DNS."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return name in ("localhost", "127.0.0.1", "[::1]", "::1") or name.endswith(".localhost")
