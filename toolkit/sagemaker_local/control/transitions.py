"""What the life of an endpoint and that of a component do alike with the tasks that they run."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

_log = logging.getLogger(__name__)


async def guarded(transition: Coroutine[Any, Any, None], what: str, fail: Callable[[str], None]) -> None:
    """Run a transition of ``what``; a fault of our own must not leave it in progress for ever."""
    try:
        await transition
    except Exception as fault:
        _log.exception("%s: a transition failed", what)
        fail(f"The local SageMaker failed: {type(fault).__name__}: {fault}")


async def stopped(watch: asyncio.Task[None] | None) -> None:
    """Cancel a watch, where there is one, and wait until it has ended."""
    if watch is not None:
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
