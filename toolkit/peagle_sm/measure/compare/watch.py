"""What is told while a comparison runs: how far it is, and how fast each arm has been so far."""

from __future__ import annotations

from collections import defaultdict

from peagle_sm.measure.bench_watch import Spending
from peagle_sm.measure.records import Load, Phase, RequestRecord
from peagle_sm.service.events import Event, Progress


class Watch:
    """The observer of all turns of a comparison; the rates are those that a single request sees."""

    def __init__(self, progress: Progress, spending: Spending, *, every_s: float = 0.5) -> None:
        self._progress = progress
        self._spending = spending
        self._every_s = every_s
        self._told_s = float("-inf")
        self.begin(Load("closed", concurrency=1), 0)

    def begin(self, load: Load, total: int) -> None:
        """Another load, or the same in another deployment, of ``total`` measured prompts of all arms."""
        self._load, self._total = load, total
        self._done = self._failed = 0
        self._turns = False
        self._tokens: dict[str, int] = defaultdict(int)
        self._seconds: dict[str, float] = defaultdict(float)

    def end(self) -> None:
        """The load is over."""
        seconds = self._spending.seconds
        self._progress(Event("done", self.line(), self._load.label, seconds, self._spending.usd))

    def phase(self, phase: Phase) -> None:
        """Turns begin and end too often to be told."""

    def request(self, record: RequestRecord) -> None:
        """A request has ended."""
        if record.phase == "measured" and not record.prompt_id.endswith("#warm-up"):
            self._done += record.turn == 0
            self._turns |= record.turn > 0
            self._failed += record.error is not None
            self._tokens[record.arm] += record.output_tokens or 0
            self._seconds[record.arm] += record.done_s - record.sent_s
        if self._spending.seconds - self._told_s >= self._every_s:
            self._told_s = self._spending.seconds
            self._progress(Event("waiting", self.line(), self._load.label, self._told_s, self._spending.usd))

    def line(self) -> str:
        """``c=1: 57 of 492 requests; tokens/s a request: none 92, p-eagle 131``."""
        rates = [
            f"{arm} {tokens / self._seconds[arm]:,.0f}"
            for arm, tokens in self._tokens.items()
            if self._seconds[arm] > 0
        ]
        # Each prompt goes to every arm; of a conversation, each with an arm counts once.
        what = "conversations" if self._turns else "requests"
        told = f"{self._load.label}: {self._done} of {self._total} {what}"
        told += f"; tokens/s a request: {', '.join(rates)}" if rates else ""
        return told + (f"; {self._failed} failed" if self._failed else "")
