"""Starts operations on stacks, each in a thread of its own, and ends them with the server."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from sagemaker_local.cloudformation.errors import Interrupted
from sagemaker_local.cloudformation.operations import Operation
from sagemaker_local.cloudformation.stack import Stack
from sagemaker_local.cloudformation.store import Store
from sagemaker_local.cloudformation.tools import Tools

log = logging.getLogger(__name__)


class Engine:
    """Runs operations."""

    def __init__(self, tools: Tools, store: Store) -> None:
        self._tools = tools
        self._store = store
        self._running: dict[str, tuple[Operation, threading.Thread]] = {}

    def start(
        self,
        stack: Stack,
        run: Callable[[Operation], None],
        *,
        status: str | None = None,
        token: str | None = None,
    ) -> None:
        """Set a stack's status and start ``run`` on it; the caller holds the lock.

        If an earlier operation still runs (a cancelled creation), the thread waits for it first.
        """
        operation = Operation(self._tools, stack, token, self._store.wrong_exports)
        if status is not None:
            operation.move(status, "User Initiated")
        _, earlier = self._running.get(stack.stack_id, (None, None))
        thread = threading.Thread(
            target=self._run, args=(operation, run, earlier), name=f"stack {stack.name}", daemon=True
        )
        self._running[stack.stack_id] = operation, thread
        thread.start()

    def cancel(self, stack: Stack) -> None:
        """Cancel the running operation: no new work starts."""
        running = self._running.get(stack.stack_id)
        if running is not None:
            running[0].cancelled.set()

    def join(self, seconds: float) -> None:
        """Wait until no operation is running, with a timeout."""
        limit = time.monotonic() + seconds
        with self._tools.lock:
            threads = [thread for _, thread in self._running.values()]
        for thread in threads:
            thread.join(max(0.0, limit - time.monotonic()))

    def _run(
        self, operation: Operation, run: Callable[[Operation], None], earlier: threading.Thread | None
    ) -> None:
        stack = operation.stack
        if earlier is not None:
            earlier.join()
        try:
            run(operation)
        except Interrupted:
            log.info("stack %s: interrupted in %s", stack.name, stack.status)
        except Exception:
            log.exception("stack %s: the operation broke", stack.name)
            with self._tools.lock:
                failed = stack.status.replace("_COMPLETE_CLEANUP", "").replace("_IN_PROGRESS", "_FAILED")
                stack.move(failed, "Internal Failure", operation.token)
        finally:
            with self._tools.lock:
                if self._running[stack.stack_id][0] is operation:
                    del self._running[stack.stack_id]
