"""What happens while a load runs: each request goes into the file, and a line says how it goes."""

from __future__ import annotations

import time
from collections.abc import Callable

from peagle_sm.measure.records import Load, Phase, RequestRecord
from peagle_sm.measure.result_file import ResultWriter
from peagle_sm.service.events import Event, Progress


class Spending:
    """What an endpoint has cost since the run began: its price times the time; None without a price."""

    def __init__(self, usd_per_hour: float | None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._usd_per_hour = usd_per_hour
        self._monotonic = monotonic
        self._began = monotonic()

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return self._monotonic() - self._began

    @property
    def usd(self) -> float | None:
        """So far; None where no price is known, or nothing is billed."""
        return self._usd_per_hour * self.seconds / 3600 if self._usd_per_hour else None


class Watch:
    """The observer of one load: writes every request down and tells its progress now and then.

    ``total`` is how many requests (conversations) are to be measured, None where the time decides.
    """

    def __init__(
        self,
        load: Load,
        writer: ResultWriter,
        progress: Progress,
        spending: Spending,
        *,
        total: int | None,
        every_s: float = 0.5,
    ) -> None:
        self.requests = 0
        self.errors = 0
        self._load = load
        self._writer = writer
        self._progress = progress
        self._spending = spending
        self._total = total
        self._every_s = every_s
        self._told_s = float("-inf")
        self._phase: Phase = "warm-up"
        self._began_s = 0.0
        self._tokens = self._drafts = self._accepted = self._prompts = 0

    def phase(self, phase: Phase) -> None:
        """A phase begins."""
        self._phase, self._began_s = phase, self._spending.seconds
        self._tell()

    def request(self, record: RequestRecord) -> None:
        """A request has ended: write it down."""
        self._writer.append(record)
        if record.phase == "measured":
            self.requests += 1
            self._prompts += record.turn == 0
            self.errors += record.error is not None
            self._tokens += record.output_tokens or 0
            self._drafts += record.drafts or 0
            self._accepted += record.accepted or 0
        if self._spending.seconds - self._told_s >= self._every_s:
            self._tell()

    def line(self) -> str:
        """``c=8: 57 of 164 requests, 1,234 tokens/s, acceptance length 3.41``."""
        if self._phase == "warm-up":
            return f"{self._load.label}: warm-up"
        of = "" if self._total is None else f" of {self._total}"
        # With --repeat a prompt is sent several times; of a conversation all turns count as one.
        what = "conversations" if self.requests > self._prompts else "requests"
        words = [f"{self._load.label}: {self._prompts}{of} {what}"]
        seconds = self._spending.seconds - self._began_s
        if self._phase == "measured" and self._tokens and seconds > 0:
            words.append(f"{self._tokens / seconds:,.0f} tokens/s")
        if self._drafts:
            words.append(f"acceptance length {1 + self._accepted / self._drafts:.2f}")
        if self.errors:
            words.append(f"{self.errors} failed")
        return ", ".join(words)

    def _tell(self) -> None:
        self._told_s = self._spending.seconds
        self._progress(Event("waiting", self.line(), self._load.label, self._told_s, self._spending.usd))
