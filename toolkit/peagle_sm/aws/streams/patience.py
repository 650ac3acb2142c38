"""How long a stream is waited for, and what ends a wait that nothing else would end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TypeVar

from peagle_sm.aws.session.session import RUNTIME_READ_TIMEOUT_S
from peagle_sm.core.errors import SpecError
from peagle_sm.core.stream_errors import StreamStalled

Result = TypeVar("Result")

READ_TIMEOUT_S = float(RUNTIME_READ_TIMEOUT_S)
"""SageMaker ends a stream after 8 minutes by itself, and nothing need arrive before the first token."""
TOTAL_TIMEOUT_S = 500.0
DRAIN_S = 1.0
"""How long the end of the connection is waited for once the answer is whole, so that it can be used again."""


@dataclass(frozen=True)
class Patience:
    """``read_s``: the longest silence; ``total_s``: the longest answer, counted from the sending."""

    read_s: float = READ_TIMEOUT_S
    total_s: float = TOTAL_TIMEOUT_S

    def __post_init__(self) -> None:
        """Raises: SpecError: a time that is not above 0."""
        for name, value in (("read_timeout_s", self.read_s), ("total_timeout_s", self.total_s)):
            if not value > 0:
                raise SpecError(
                    f"{name}: found {value}; allowed: seconds above 0.",
                    next_step="Leave it out to wait as long as SageMaker streams (8 minutes).",
                )

    @classmethod
    def of(cls, read_s: float | None, total_s: float | None) -> Patience:
        """Take what is given, and the longest that SageMaker streams for the rest."""
        return cls(
            READ_TIMEOUT_S if read_s is None else read_s, TOTAL_TIMEOUT_S if total_s is None else total_s
        )

    @property
    def silence_s(self) -> float:
        """The longest wait for the next byte."""
        return min(self.read_s, self.total_s)

    def silent(self) -> StreamStalled:
        """Nothing came for too long."""
        if self.total_s < self.read_s:
            return self.too_long()
        return StreamStalled(
            f"The stream stalled: nothing came for {self.read_s:g} s.",
            details={"read_timeout_s": self.read_s},
        )

    def too_long(self) -> StreamStalled:
        """There was no end in time."""
        return StreamStalled(
            f"The stream was dropped: it had not ended {self.total_s:g} s after the request was sent.",
            details={"total_timeout_s": self.total_s},
        )


class Deadline:
    """Calls ``interrupt`` from a thread of its own when the time is over: it ends a read that is blocked.

    A socket's own timeout counts silence only, so a stream that trickles would outlast any total.
    """

    def __init__(self, seconds: float, interrupt: Callable[[], object]) -> None:
        """Start to count."""
        self.passed = False
        self._until = time.monotonic() + seconds
        self._interrupt = interrupt
        self._over = False
        self._changed = threading.Condition()
        threading.Thread(target=self._watch, name="peagle-sm stream deadline", daemon=True).start()

    def shorten(self, seconds: float) -> None:
        """Let it end ``seconds`` from now, if that is sooner."""
        with self._changed:
            self._until = min(self._until, time.monotonic() + seconds)
            self._changed.notify()

    def cancel(self) -> None:
        """Let it never end."""
        with self._changed:
            self._over = True
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while not self._over:
                left = self._until - time.monotonic()
                if left <= 0:
                    self.passed = True
                    break
                self._changed.wait(left)
            else:
                return
        self._interrupt()


def call_within(seconds: float, call: Callable[[], Result], discard: Callable[[Result], object]) -> Result:
    """Run ``call`` in a thread of its own; return its result, or raise its error.

    A socket's own timeout counts silence only, so headers that trickle would outlast any total. A call
    that is given up ends in its thread, and ``discard`` gets what it returns.

    Raises:
        CallTooLong: it had not ended after ``seconds``.
    """
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:  # raised again where it is waited for
            outcome.set_exception(error)
        else:
            outcome.set_result(result)

    threading.Thread(target=run, name="peagle-sm stream request", daemon=True).start()
    ended, _ = wait([outcome], timeout=seconds)
    if not ended:
        outcome.add_done_callback(lambda late: late.exception() is None and discard(late.result()))
        raise CallTooLong
    return outcome.result()


class CallTooLong(Exception):
    """A call had not ended in time."""
