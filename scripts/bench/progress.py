"""Progress on stderr, one line at a time, and the seconds of each phase."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO


@dataclass
class Reporter:
    """Writes progress to ``stream`` and remembers how long each phase took."""

    stream: TextIO = sys.stderr
    monotonic: Callable[[], float] = time.monotonic
    seconds: dict[str, float] = field(default_factory=dict)
    _last: str = ""

    def say(self, line: str) -> None:
        """One line; not again if it is the one before, since each poll of an endpoint is an event."""
        if line != self._last:
            print(line, file=self.stream, flush=True)
        self._last = line

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Announce a phase and add its seconds to :attr:`seconds`, also when it fails."""
        self.say(f"== {name}")
        began = self.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + self.monotonic() - began, 1)

    def times(self) -> str:
        """Seconds of each phase and their sum, one line each."""
        width = max(map(len, [*self.seconds, "total"]))
        rows = [*self.seconds.items(), ("total", sum(self.seconds.values()))]
        return "\n".join(f"   {name:<{width}}  {seconds:7.1f} s" for name, seconds in rows)


def seconds_left(expected: Sequence[float], finished: Sequence[float], current: float) -> float:
    """Estimate the seconds that are left, at the pace of the parts that are finished.

    ``expected`` has what each part was thought to take, ``finished`` what the first of them took, and
    ``current`` what the one after these has taken so far; all in seconds. Below 0: later than estimated.
    """
    done = len(finished)
    pace = sum(finished) / sum(expected[:done]) if finished else 1.0
    return pace * sum(expected[done:]) - current
