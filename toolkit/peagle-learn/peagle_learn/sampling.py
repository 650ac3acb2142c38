"""The target's own answers, from an endpoint that serves it; each is written once, when it is complete.

A kill loses at most the requests in flight: the journal has one line for each prompt, and the next run
continues after the last complete line. Sampling stops by itself at the budget, and before the endpoint's
lifetime or hours end.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

from peagle_bench.load.work import WorkItem
from peagle_bench.verify.answers import join_stream
from peagle_learn.core.conversations import exact_key
from peagle_learn.core.token_rows import Sampled, answer_text, checked, prompt_ids_of
from peagle_sm.aws.files import writing
from peagle_sm.core.errors import (
    PlanRefused,
    SpecError,
    StreamError,
    StreamReportedError,
    refused_by_engine,
)
from peagle_sm.core.spec.hours import Hours, HoursError, closing, next_closing, next_opening, parse_hours
from peagle_sm.core.words import elapsed
from peagle_sm.service.inventory.listing import EndpointSummary
from peagle_sm.service.progress import Event, Progress
from peagle_sm.traffic.redaction import Redactor

Wanted = TypeVar("Wanted")
ATTEMPTS = 3  #: of a prompt whose stream breaks
_FAILURES = 20  #: prompts in a row that fail, before the endpoint counts as broken


class Streams(Protocol):
    """An engine that streams, as `peagle_bench.verify.engines.EndpointEngine`."""

    def stream(self, body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return all events of a streamed answer."""


@dataclass(frozen=True)
class WantedAnswer:
    """One prompt to answer: its first request, and the conversation that it belongs to.

    ``turns`` are the user's messages of a conversation that is still to be held, one answer each.
    """

    item: WorkItem
    conversation: str
    turns: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Hash of the request, that identifies its answers in the journal."""
        return exact_key(self.item.body, self.turns)


@dataclass(frozen=True)
class SamplingLimits:
    """When sampling stops: a budget in USD for the endpoint, and a time.

    ``ends`` is what ends then: the lifetime or the hours.
    """

    usd_per_hour: float | None = None
    budget_usd: float | None = None
    until: datetime | None = None
    ends: str = "lifetime"

    @property
    def seconds(self) -> float:
        """Seconds that the budget pays for; without a budget or a price, infinity."""
        if self.budget_usd is None or not self.usd_per_hour:
            return float("inf")
        return self.budget_usd / self.usd_per_hour * 3600


def refuse_without_price(budget_usd: float | None, usd_per_hour: float | None, endpoint: str) -> None:
    """Refuse a budget that could not stop the sampling, since no price is known.

    Raises:
        PlanRefused: so it is; nothing was sent.
    """
    if budget_usd is not None and usd_per_hour is None:
        raise PlanRefused(
            f"data.budget_usd: found {budget_usd:,.2f} USD; the price of endpoint {endpoint} is unknown, so"
            " sampling could not stop there. Nothing was sent",
            next_step="Let AWS's price list answer (allow `pricing:GetProducts`), or leave the budget out.",
            details={"findings": []},
        )


MARGIN = timedelta(minutes=5)  #: before the endpoint is turned off, for requests in flight


@dataclass(frozen=True)
class TurnOff:
    """When the endpoint is turned off, and what ends then: its lifetime or its hours."""

    at: datetime
    ends: str

    @property
    def stops_at(self) -> datetime:
        """When sampling stops."""
        return self.at - MARGIN


def turn_off_of(summary: EndpointSummary, now: datetime) -> TurnOff | None:
    """Return what turns the endpoint off first, its lifetime or its hours; None if neither does."""
    ends = [] if summary.expires_at is None else [TurnOff(summary.expires_at, "lifetime")]
    try:
        table = None if summary.hours is None else parse_hours(summary.hours)
    except HoursError:  # a tag that the guard does not take either
        table = None
    closes = None if table is None else _closes_at(table, summary, now)
    if closes is not None:
        ends.append(TurnOff(closes, "hours"))
    return min(ends, key=lambda each: each.at, default=None)


def _closes_at(table: Hours, summary: EndpointSummary, now: datetime) -> datetime | None:
    """Return when the guard turns it off by its hours, as `peagle_guard.decide`; before ``now`` if it is due.

    An endpoint that was turned on by hand outside its hours stays on until the next closing. A lease
    postpones the closing.
    """
    passed, created, kept = closing(table, now), summary.created_at, summary.keep_until
    closes = next_closing(table, now) if passed is None else passed
    if passed is not None and created is not None and created > passed:
        opens = next_opening(table, now)
        closes = None if opens is None else next_closing(table, opens)
    return closes if closes is None or kept is None else max(closes, kept)


@dataclass
class Journal:
    """Answers on disk, one line for each prompt; a line that a kill cut is not an answer."""

    path: Path
    answers: dict[str, tuple[Sampled, ...]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  #: why a prompt has no answer, or was not written
    written: dict[str, str] = field(default_factory=dict)  #: prompts that the target wrote itself
    spent_s: float = 0.0

    @classmethod
    def open(cls, path: Path) -> Journal:
        """Read a journal, or begin one; a cut end is removed.

        Raises:
            SpecError: a whole line is damaged.
        """
        journal = cls(path)
        if not path.exists():
            return journal
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                journal._take(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise SpecError(  # a dry run reads a copy, so the message has no folder
                    f"line {number} of {path.name} in the folder .peagle-learn is damaged",
                    next_step="Delete that line. Only its prompt is sent again.",
                ) from error
        if len(whole) < len(content):
            with writing(path), path.open("r+b") as file:
                file.truncate(len(whole))
        return journal

    def _take(self, line: Mapping[str, Any]) -> None:
        if "spent_s" in line:
            self.spent_s += float(line["spent_s"])
        elif "why" in line:
            self.left_out[line["prompt"]] = line["why"]
        elif "written" in line:
            self.written[line["prompt"]] = line["written"]
        else:
            self.answers[line["prompt"]] = tuple(_sampled(turn) for turn in line["turns"])

    def add(self, line: Mapping[str, Any]) -> None:
        """Write one line whole; it survives a kill of this process and of the machine."""
        with writing(self.path), self.path.open("ab") as file:
            file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._take(line)


def unused_answers(journal: Journal) -> str | None:
    """Say that the answers beside a new journal are not used; None without any."""
    if journal.answers:
        return None
    counts: dict[str, int] = {}
    for path in sorted(journal.path.parent.glob("answers-*.jsonl")):
        with path.open("rb") as lines:
            counts[path.name] = sum(b'"turns":' in line for line in lines)
    counts = {name: count for name, count in counts.items() if count}
    if not counts:
        return None
    names = ", ".join(counts)
    return (
        f"{sum(counts.values()):,} answers of an earlier run are not used: they are of another target,"
        f" endpoint, max_tokens, account, region, local server or version of peagle-sm ({names})"
    )


def _sampled(turn: Mapping[str, Any]) -> Sampled:
    ids = {name: tuple(turn[name]) for name in ("prompt_ids", "answer_ids")}
    return Sampled(**{**turn, **ids})


@dataclass(frozen=True)
class SamplingEnd:
    """How sampling ended: prompts with an answer, refused ones, and those still without one."""

    answered: int
    left_out: int
    waiting: int
    spent_s: float
    stopped_by: str | None = None


@dataclass
class Sampling:
    """One run over prompts that have no answer yet.

    ``now`` is the time of the lifetime and the hours, ``clock`` counts the seconds that are paid for.
    """

    engine: Streams
    journal: Journal
    limits: SamplingLimits
    concurrency: int
    vocab_size: int | None
    progress: Progress
    now: Callable[[], datetime]
    clock: Callable[[], float] = time.monotonic
    every_s: float = 1.0
    _broken: StreamError | None = None

    def run(self, wanted: Sequence[WantedAnswer]) -> SamplingEnd:
        """Request every answer that the journal does not have.

        Raises:
            ServiceFault: the endpoint fails, or sends no token ids; what was answered is kept.
            StreamError: many streams broke one after the other, or all of them.
            SpecError: the endpoint refused every prompt.
        """
        journal = self.journal
        todo = [
            each for each in wanted if each.key not in journal.left_out and each.key not in journal.answers
        ]
        stopped = self.ask(todo, len(wanted), self._answer, "answered") if todo else None
        answered = sum(each.key in journal.answers for each in wanted)
        refused = sum(each.key in journal.left_out for each in wanted)
        if refused and not answered:
            raise SpecError(
                f"the endpoint answered none of {len(wanted):,} prompts; the first:"
                f" {next(journal.left_out[each.key] for each in wanted if each.key in journal.left_out)}",
                next_step="Send one with `peagle-sm invoke`, and correct the prompts.",
            )
        waiting = len(wanted) - answered - refused
        if self._broken is not None and not answered:
            raise self._broken
        return SamplingEnd(answered, refused, waiting, journal.spent_s, stopped)

    def ask(
        self,
        todo: Sequence[Wanted],
        of: int,
        make_line: Callable[[Wanted], Mapping[str, Any]],
        done_word: str,
    ) -> str | None:
        """Keep ``concurrency`` requests in flight until all are done; return what stopped it early.

        ``make_line`` sends one and returns its line of the journal. A broken stream leaves it for later.

        Raises:
            StreamError: many streams broke one after the other.
        """

        def line_or_break(wanted: Wanted) -> Mapping[str, Any] | StreamError:
            try:
                return make_line(wanted)
            except StreamError as error:
                return error

        began = written = self.clock()
        before, reported_at = self.journal.spent_s, float("-inf")
        flying: set[Future[Mapping[str, Any] | StreamError]] = set()
        queue, done, failures = list(reversed(todo)), 0, 0
        stopped: str | None = None
        pool = ThreadPoolExecutor(max_workers=self.concurrency)
        try:
            while queue or flying:
                stopped = stopped or self._limit(before + self.clock() - began)
                while queue and not stopped and len(flying) < self.concurrency:
                    flying.add(pool.submit(line_or_break, queue.pop()))
                if not flying:
                    break
                finished, flying = wait(flying, timeout=self.every_s, return_when=FIRST_COMPLETED)
                for each in finished:
                    line = each.result()
                    if isinstance(line, StreamError):
                        failures, self._broken = failures + 1, line
                        if failures >= _FAILURES:
                            raise line
                        continue
                    failures, done = 0, done + 1
                    self.journal.add(line)
                if self.clock() - reported_at >= self.every_s:
                    reported_at = self.clock()
                    self.journal.add({"spent_s": round(reported_at - written, 3)})
                    written = reported_at
                    seconds = reported_at - began
                    self.progress(self._event(of - len(todo) + done, of, done, len(todo), seconds, done_word))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            self.journal.add({"spent_s": round(self.clock() - written, 3)})
        pool.shutdown()
        return stopped

    def _limit(self, spent_s: float) -> str | None:
        if spent_s >= self.limits.seconds:
            return f"the budget of {self.limits.budget_usd:,.2f} USD"
        until = self.limits.until
        passed = until is not None and self.now() >= until
        return f"the end of the endpoint's {self.limits.ends}" if passed else None

    def _event(self, at: int, of: int, done: int, todo: int, seconds: float, done_word: str) -> Event:
        left = (todo - done) * seconds / done if done else None
        usd = None if self.limits.usd_per_hour is None else self.limits.usd_per_hour * seconds / 3600
        text = f"{at:,} of {of:,} prompts {done_word}"
        text += "" if left is None else f", about {elapsed(left)} left"
        return Event("waiting", text, None, seconds, usd, done=at, total=of, left_s=left)

    def _answer(self, wanted: WantedAnswer) -> Mapping[str, Any]:
        """Ask for one prompt's answer and those of its next turns; return the journal's line."""
        turns: list[Sampled] = []
        item: WorkItem | None = wanted.item
        while item is not None:
            try:
                events = self.stream({**item.body, "return_token_ids": True})
            except SpecError as error:  # the engine refuses this prompt; others may be fine
                return {"prompt": wanted.key, "why": error.message}
            text = answer_text(events)
            if Redactor().text(text) != text:
                # Its tokens cannot be changed: the answer would no longer be the target's own.
                return {"prompt": wanted.key, "why": "the answer contains a secret"}
            joined = join_stream(events)
            if not joined.ids and not text:
                return {"prompt": wanted.key, "why": "the answer is empty"}
            answer = Sampled(
                wanted.key,
                wanted.conversation,
                prompt_ids_of(events),
                joined.ids,
                joined.finish_reason,
                item.turn,
            )
            turns.append(checked(answer, self.vocab_size))
            item = item.then(joined.text) if item.then else None
        return {"prompt": wanted.key, "turns": [asdict(each) for each in turns]}

    def stream(self, body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return all events of a streamed answer; a broken stream is requested again, up to `ATTEMPTS` times.

        Raises:
            StreamError: the last one broke, too.
            SpecError: the engine refused the request, perhaps only in the stream.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self.engine.stream(body)
            except StreamError as error:
                refused = _late_refusal(error)
                if refused is not None:
                    raise refused from error
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError("unreachable")


#: Codes 4xx that a retry may pass (timeout, conflict, too early, too many, client left).
_AGAIN = (408, 409, 425, 429, 499)


def _late_refusal(error: StreamError) -> SpecError | None:
    """Return the refusal that the engine wrote into a stream; None if the stream is only broken.

    vLLM checks some parameters only when the stream has begun, such as ``min_p`` with speculation. The HTTP
    status is 200 then, and the error's own code is 4xx.
    """
    reported = error.details.get("engine_error") if isinstance(error, StreamReportedError) else None
    code = str((reported or {}).get("code"))
    if reported is None or not re.fullmatch(r"4\d\d", code) or int(code) in _AGAIN:
        return None
    return refused_by_engine(int(code), str(reported.get("message") or error.message), error.details)
