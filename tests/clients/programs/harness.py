"""Reads answers with one client, in that client's environment; only the standard library is imported.

A job is a line of JSON on stdin, what came of it a line on stdout. A reader that does not come to an end is
interrupted: after ``cpu_s`` seconds of this process's CPU, which a loop without an end spends and a busy
machine does not, or after ``wall_s`` seconds in all.
"""

import asyncio
import contextlib
import faulthandler
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NoReturn

Job = dict[str, Any]
Reader = Callable[[Job], Iterator[str]]
_SECOND_TRY_S = 1.0


class TookTooLong(BaseException):
    """No client is to catch it."""


def serve(read: Reader) -> NoReturn:
    """Read one answer for each line of stdin, until there are no more."""
    fdopen = os.fdopen(os.dup(1), "w")  # whatever a client prints goes elsewhere
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(_outcome(read, json.loads(line), fdopen)), file=fdopen, flush=True)
    os._exit(0)  # threads that a client left behind are not waited for


def _outcome(read: Reader, job: Job, told: Any) -> dict[str, Any]:
    texts: list[str] = []
    try:
        with _limited(job, texts, told):
            # One by one: what was read before an error is what a program would have shown by then.
            texts.extend(read(job))
    except TookTooLong:
        return {"text": "".join(texts), "hang": True, "error": None}
    except Exception as error:
        kind = type(error)
        return {
            "text": "".join(texts),
            "hang": False,
            "error": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."),
            "said": str(error)[:500],
        }
    return {"text": "".join(texts), "hang": False, "error": None}


@contextlib.contextmanager
def _limited(job: Job, texts: list[str], told: Any) -> Iterator[None]:
    tries = 0

    def interrupt(number: int, frame: object) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise TookTooLong
        # It waits for a thread or a lock: only the end of the process ends it.
        faulthandler.dump_traceback()
        by_name = {"text": "".join(texts), "hang": True, "error": None, "ended": True}
        print(json.dumps(by_name), file=told, flush=True)
        os._exit(0)

    timers = ((signal.ITIMER_PROF, signal.SIGPROF, "cpu_s"), (signal.ITIMER_REAL, signal.SIGALRM, "wall_s"))
    for timer, number, limit in timers:
        signal.signal(number, interrupt)
        signal.setitimer(timer, job[limit], _SECOND_TRY_S)
    try:
        yield
    finally:
        for timer, _, _ in timers:
            signal.setitimer(timer, 0)


def drained(texts: AsyncIterator[str]) -> Iterator[str]:
    """What an asynchronous reader gives, one by one."""
    with asyncio.Runner() as runner:
        while True:
            try:
                yield runner.run(_next(texts))
            except StopAsyncIteration:
                return


async def _next(texts: AsyncIterator[str]) -> str:
    return await anext(texts)


def body(job: Job) -> bytes:
    """The request of a job, for clients that are given a body."""
    return json.dumps({"messages": messages(job), "stream": True, **job["options"]}).encode()


def messages(job: Job) -> list[dict[str, str]]:
    """The request's messages."""
    return [{"role": "user", "content": job["prompt"]}]


def text_of(line: bytes) -> str:
    """The text in one line of an answer, as programs around a line iterator read it."""
    line = line.strip()
    if not line.startswith(b"data:") or line == b"data: [DONE]":
        return ""
    choices = json.loads(line[5:])["choices"]
    return str(choices[0]["delta"].get("content") or "") if choices else ""
