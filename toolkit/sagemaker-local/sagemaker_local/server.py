"""The server process: ``python -m sagemaker_local.server --port N``."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from aiohttp import web

from sagemaker_local.assembly import Assembly, Options
from sagemaker_local.process import state
from sagemaker_local.process.status import LocalStatus

log = logging.getLogger(__name__)

OnReady = Callable[[LocalStatus], None]

# How long requests in flight may take to end once the server shuts down, in seconds.
_GRACE_S = 2.0


async def serve(options: Options, on_ready: OnReady, stop: asyncio.Event) -> None:
    """Run the server until ``stop`` is set; every engine is ended before this returns.

    Raises:
        OSError: the port is taken.
    """
    async with _running(options, stop) as status:
        on_ready(status)
        await stop.wait()
        log.info("shutting down")


@contextlib.asynccontextmanager
async def _running(options: Options, stop: asyncio.Event) -> AsyncIterator[LocalStatus]:
    assembly = Assembly(options, shutdown=stop.set)
    async with contextlib.AsyncExitStack() as stack:
        runner = web.AppRunner(
            assembly.front.app(), handler_cancellation=True, access_log=None, shutdown_timeout=_GRACE_S
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        # Listening first makes a taken port known at once; a request before `open` ends waits in the backlog.
        await _listen(runner, options.port)
        stack.callback(state.forget, options.port)
        stack.callback(shutil.rmtree, state.work_dir(options.port), ignore_errors=True)
        stack.push_async_callback(assembly.close)
        await assembly.open()
        yield assembly.status()


async def _listen(runner: web.AppRunner, port: int) -> None:
    await web.TCPSite(runner, "127.0.0.1", port).start()
    with contextlib.suppress(OSError):  # a machine without IPv6; "localhost" may mean either
        await web.TCPSite(runner, "::1", port).start()


async def run(options: Options, on_ready: OnReady) -> None:
    """Run the server until SIGTERM, SIGINT or a request to shut down."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await serve(options, on_ready, stop)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def main(argv: list[str] | None = None) -> int:
    """Parse arguments and run; the status goes as one JSON line to ``--ready-fd`` when it answers."""
    parser = argparse.ArgumentParser(prog="python -m sagemaker_local.server", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--engine-python", type=Path, help="Python of a ready engine environment")
    parser.add_argument("--ready-fd", type=int, help="file descriptor that gets the status")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=state.LOG_FORMAT)

    def ready(status: LocalStatus) -> None:
        log.info("the local SageMaker answers at %s", status.endpoint_url)
        if arguments.ready_fd is not None:
            with os.fdopen(arguments.ready_fd, "w") as parent:
                parent.write(json.dumps(status.to_dict()) + "\n")

    options = Options(port=arguments.port, engine_python=arguments.engine_python)
    try:
        asyncio.run(run(options, ready))
    except OSError as error:
        log.error("cannot listen on port %s: %s", arguments.port, error)
        return 10
    return 0


if __name__ == "__main__":
    sys.exit(main())
