"""Lambda's Invoke: concurrency, metrics and logs, asynchronous events."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from sagemaker_local.clock import LocalClock
from sagemaker_local.control import ApiError
from sagemaker_local.lambdas.dead_letters import DeadLetters
from sagemaker_local.lambdas.events import Event, EventQueue
from sagemaker_local.lambdas.records import Function, Functions
from sagemaker_local.lambdas.runner import Outcome, Runner
from sagemaker_local.lambdas.telling import Teller
from sagemaker_local.other_services.moto import Moto

log = logging.getLogger(__name__)


class Lambdas:
    """The functions of one server. All of it runs in the server's loop."""

    def __init__(self, *, moto: Moto, clock: LocalClock, url: str, directory: Path) -> None:
        self._functions = Functions(moto)
        self._runner = Runner(directory=directory, environment=_environment(url, moto.region))
        self._teller = Teller(moto, clock)
        self._clock = clock
        self._running: Counter[str] = Counter()
        self._called: set[asyncio.Task[Outcome]] = set()
        self._queue = EventQueue(clock=clock, attempt=self._attempt, give_up=DeadLetters(moto).give_up)

    async def close(self) -> None:
        """End every invocation."""
        await self._queue.close()
        for task in self._called:
            task.cancel()
        await asyncio.gather(*self._called, return_exceptions=True)

    async def invoke(self, name_or_arn: str, event: Any) -> Outcome:
        """Run a function and wait for its end ("RequestResponse"): its own error is an Outcome, too.

        A caller who leaves does not end it.

        Raises:
            ApiError: there is no such function (404), or it is at its reserved concurrency (429).
        """
        task = asyncio.create_task(self._run(self._functions.find(name_or_arn), event))
        self._called.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def send(self, name_or_arn: str, event: Any) -> None:
        """Run a function soon ("Event"), with retries; failed events go to its dead letters.

        Raises:
            ApiError: there is no such function (404).
        """
        self._queue.add(self._functions.find(name_or_arn), event)

    def check(self, name_or_arn: str) -> None:
        """Only check ("DryRun"); raises ApiError if the function does not exist."""
        self._functions.find(name_or_arn)

    @property
    def busy(self) -> bool:
        """Whether an asynchronous event is running."""
        return self._queue.busy

    def due(self) -> datetime | None:
        """Time of the next asynchronous attempt, by the local clock; None if none waits."""
        return self._queue.due()

    def start_due(self) -> None:
        """Start every asynchronous event that is due."""
        self._queue.start_due()

    async def settle(self) -> None:
        """Wait until no asynchronous event is running; events waiting for a retry stay queued."""
        await self._queue.settle()

    def _forget(self, task: asyncio.Task[Outcome]) -> None:
        self._called.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, so that one whose caller has left is no complaint of asyncio's

    async def _attempt(self, event: Event) -> Outcome:
        # The function may have been changed or deleted since the event was accepted.
        return await self._run(self._functions.find(event.function.arn), event.payload)

    async def _run(self, function: Function, event: Any) -> Outcome:
        if function.reserved is not None and self._running[function.name] >= function.reserved:
            self._teller.throttled(function)
            raise ApiError("TooManyRequestsException", "Rate Exceeded.", 429)
        self._running[function.name] += 1
        began = self._clock.now()
        try:
            outcome = await self._runner.run(function, event)
        finally:
            self._running[function.name] -= 1
        self._teller.ended(function, began, outcome)
        if outcome.error is not None:
            log.warning(
                "function %s failed: %s", function.name, outcome.payload.decode(errors="replace")[:500]
            )
        return outcome


def _environment(url: str, region: str) -> Mapping[str, str]:
    return {
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_ENDPOINT_URL": url,
        "AWS_ENDPOINT_URL_S3": url,
        "AWS_EC2_METADATA_DISABLED": "true",
        # The user's own account stays out of reach.
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "PEAGLE_LOCAL_CLOCK_URL": f"{url}/_peagle/clock",
    }


def parsed(body: bytes) -> Any:
    """Read an invocation's payload; nothing at all is an empty object.

    Raises:
        ApiError: it is not JSON.
    """
    try:
        return json.loads(body) if body.strip() else {}
    except ValueError as error:
        raise ApiError(
            "InvalidRequestContentException", f"Could not parse request body into json: {error}", 400
        ) from error
