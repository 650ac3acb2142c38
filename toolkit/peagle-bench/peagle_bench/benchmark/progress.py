"""Progress of a load: write each request as it ends, and report how far the load is and the time left."""

from __future__ import annotations

import time
from collections.abc import Callable

from peagle_bench.results.records import Load, Phase, RequestRecord
from peagle_sm.core.words import elapsed
from peagle_sm.service.progress import Event, Progress


class Spending:
    """Cost of an endpoint since the run began: price times time; None without a price."""

    def __init__(self, usd_per_hour: float | None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._usd_per_hour = usd_per_hour
        self._monotonic = monotonic
        self._began = monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return self._monotonic() - self._began

    @property
    def usd(self) -> float | None:
        """USD so far; None if the price is unknown or nothing is billed."""
        return self._usd_per_hour * self.seconds / 3600 if self._usd_per_hour else None


class LoadWatch:
    """Observer of one load: passes each request on and reports progress with the time left.

    Attributes:
        requests: measured requests that have ended.
        errors: those of them that failed.
    """

    def __init__(
        self,
        load: Load,
        keep: Callable[[RequestRecord], None],
        progress: Progress,
        spending: Spending,
        *,
        total: int | None,
        seconds: float | None = None,
        every_s: float = 0.5,
        status: str | None = None,
        title: str | None = None,
        windows_after: int = 0,
        loads_after: int = 0,
    ) -> None:
        """``total`` is the number of measured requests (conversations), None when ``seconds`` decides.

        ``windows_after``: about this many measurements of the same length follow; they count as time left.
        ``loads_after``: other loads that follow, of unknown length. ``status`` is that of the events
        (default: the load's label), and part of ``title``, with which each line begins.
        """
        self.requests = 0
        self.errors = 0
        self._load = load
        self._keep = keep
        self._progress = progress
        self._spending = spending
        self._total = total
        self._seconds = seconds
        self._every_s = every_s
        self._status = status or load.label
        self._title = title or load.label
        self._windows_after = windows_after
        self._loads_after = loads_after
        self._reported_s = float("-inf")
        self._phase: Phase = "warm-up"
        self._began_s = 0.0
        self._tokens = self._drafts = self._accepted = self._prompts = 0

    def phase(self, phase: Phase) -> None:
        """Note that a phase begins."""
        self._phase, self._began_s = phase, self._spending.seconds
        self._report()

    def request(self, record: RequestRecord) -> None:
        """Pass on a request that has ended, and report progress if it is time."""
        self._keep(record)
        if record.phase == "measured":
            self.requests += 1
            self._prompts += record.turn == 0
            self.errors += record.error is not None
            self._tokens += record.output_tokens or 0
            self._drafts += record.drafts or 0
            self._accepted += record.accepted or 0
        if self._spending.seconds - self._reported_s >= self._every_s:
            self._report()

    def left_s(self) -> float | None:
        """Estimate the seconds left of this measurement and those like it; None while unknown."""
        so_far = self._spending.seconds - self._began_s
        if self._phase != "measured" or so_far <= 0:
            return None
        if self._seconds is not None:
            whole = self._seconds
        elif self._total and self._prompts:
            whole = so_far * self._total / self._prompts
        else:
            return None
        return max(0.0, whole - so_far) + self._windows_after * whole

    def line(self) -> str:
        """Return ``c=8: 57 of 164 requests, 1,234 tokens/s, acceptance length 3.41, about 1m20s left``."""
        if self._phase == "warm-up":
            return f"{self._title}: warm-up"
        of = "" if self._total is None else f" of {self._total}"
        # With --repeat a prompt is sent several times; all turns of a conversation count as one.
        what = "conversations" if self.requests > self._prompts else "requests"
        words = [f"{self._title}: {self._prompts}{of} {what}"]
        seconds = self._spending.seconds - self._began_s
        if self._phase == "measured" and self._tokens and seconds > 0:
            words.append(f"{self._tokens / seconds:,.0f} tokens/s")
        if self._drafts:
            words.append(f"acceptance length {1 + self._accepted / self._drafts:.2f}")
        if self.errors:
            words.append(f"{self.errors} failed")
        left = self.left_s()
        if left is not None:
            after = ""
            if self._loads_after:
                after = f", then {self._loads_after} more load{'' if self._loads_after == 1 else 's'}"
            words.append(f"about {elapsed(left)} left{after}")
        return ", ".join(words)

    def _report(self) -> None:
        self._reported_s = self._spending.seconds
        event = Event(
            "waiting",
            self.line(),
            self._status,
            self._reported_s,
            self._spending.usd,
            done=self._prompts,
            total=self._total,
            left_s=self.left_s(),
        )
        self._progress(event)
