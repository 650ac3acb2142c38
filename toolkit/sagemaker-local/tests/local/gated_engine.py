"""An engine inside the server's own process that comes up, and goes, only when the test lets it.

It costs no process, so a matrix of hundreds of deploys can be run; and no transition depends on how busy the
machine is. A model's environment asks for it: SCRIPT_GATE is the gate's name; SCRIPT_EXIT_LINE makes the
engine exit with these words instead of coming up.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

_OPEN: set[str] = set()
_POLL_S = 0.005
# A test that died must not keep the server from ending.
_LONGEST_S = 20.0


@contextmanager
def opened(gate: str) -> Iterator[None]:
    """While this is open, the engines behind the gate come up or go as they were asked to."""
    _OPEN.add(gate)
    try:
        yield
    finally:
        _OPEN.discard(gate)


class GatedEngine:
    """One engine, as `EngineProcess` is one real one; it answers /ping to the control plane only."""

    engine_version = "gated"
    image_version = "gated"
    url = "http://127.0.0.1:9"  # nothing is invoked here; port 9 discards

    def __init__(self, environment: Mapping[str, str], on_line: Callable[[str], None]) -> None:
        self.started_at = datetime.now(UTC)
        self.overrides = ["gated: no engine runs"]
        self.exited: int | None = None
        self._gate = environment["SCRIPT_GATE"]
        self._words = environment.get("SCRIPT_EXIT_LINE", "")
        self._on_line = on_line
        self._ready = False

    @property
    def pid(self) -> int:
        return os.getpid()

    async def ping(self) -> bool:
        if self._gate in _OPEN and not self._ready and self.exited is None:
            if self._words:
                self._on_line(self._words)
                self.exited = 1
            else:
                self._ready = True
        return self._ready and self.exited is None

    def last_words(self, n: int = 15) -> str:
        return self._words

    async def stop(self) -> None:
        waited = 0.0
        while self._ready and self._gate not in _OPEN and waited < _LONGEST_S:
            await asyncio.sleep(_POLL_S)
            waited += _POLL_S
        self.exited = 0 if self.exited is None else self.exited
