"""Tell a person what goes on: live on a terminal, plain lines elsewhere; all of it on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

Tick = Callable[[str], None]
_LINES = 10  #: how many plain lines one run of turns may print


@dataclass
class Reporter:
    """Writes progress to ``stream`` and remembers how long each phase took."""

    stream: TextIO = sys.stderr
    monotonic: Callable[[], float] = time.monotonic
    seconds: dict[str, float] = field(default_factory=dict)

    def say(self, line: str) -> None:
        """One line."""
        print(line, file=self.stream, flush=True)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Announce a phase and add its seconds to :attr:`seconds`, also when it fails."""
        self.say(f"== {name}")
        began = self.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + self.monotonic() - began, 1)

    @contextmanager
    def turns(self, title: str, total: int) -> Iterator[Tick]:
        """Progress of ``total`` requests; call what it gives once per request, with a note."""
        if self.stream.isatty():
            with self._bar(title, total) as tick:
                yield tick
        else:
            yield self._lines(title, total)

    @contextmanager
    def _bar(self, title: str, total: int) -> Iterator[Tick]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, TextColumn("{task.fields[note]}"), console=Console(file=self.stream)) as bar:
            task = bar.add_task(title, total=total, note="")
            yield lambda note: bar.update(task, advance=1, note=note)

    def _lines(self, title: str, total: int) -> Tick:
        done = 0

        def tick(note: str) -> None:
            nonlocal done
            done += 1
            if done * _LINES // total > (done - 1) * _LINES // total:
                self.say(f"   {title}: {done} of {total} requests; {note}")

        return tick

    def times(self) -> str:
        """Seconds of each phase and their sum, one line each."""
        width = max(map(len, [*self.seconds, "total"]))
        rows = [*self.seconds.items(), ("total", sum(self.seconds.values()))]
        return "\n".join(f"   {name:<{width}}  {seconds:7.1f} s" for name, seconds in rows)
