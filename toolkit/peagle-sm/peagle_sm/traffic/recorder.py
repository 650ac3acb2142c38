"""Recorder: keeps the bytes of sampled requests, and hands them to a thread that writes them.

Nothing here can fail or delay a request: a record that finds no room, cannot be made or cannot be written is
lost and counted. The bytes of all requests in flight and in the queue are bounded together.
"""

from __future__ import annotations

import queue
import random
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, get_args

from peagle_sm.core.errors import PeagleError, SpecError
from peagle_sm.core.request_slices import MOST_VALUES, checked_labels
from peagle_sm.traffic.exchange import Exchange
from peagle_sm.traffic.records import Mode
from peagle_sm.traffic.worker import RecordLost, Worker

MAX_HELD_BYTES = 64 * 1024 * 1024  #: of all requests that are recorded, in flight and waiting
_FIRST_PARTS = 8  #: their times are kept, for the time to first token
_CLOSE_S = 10.0  #: for the last records, at the end
LABELS_NAME = "X-Peagle-Labels"
OTHER = "other"
_LONGEST_HEADER = 1000
_MOST_NAMES = 20  #: of labels, over all requests
_MOST_MESSAGES = 50
_PAUSE_S = 1.0  #: between two batches: waking the thread for each record costs the streams more
_BATCH_RECORDS, _BATCH_BYTES = 32, 1024 * 1024  #: limits of records that are redacted and written together
_TOO_LATE = "not finished and written before the end"


class RecordTarget(Protocol):
    """Destination of lines. Each call may raise OSError or PeagleError."""

    def write(self, lines: Sequence[bytes]) -> None:
        """Write whole lines, or none of them."""

    def tick(self) -> None:
        """Rotate, or delete what is too old, if it is due."""

    def close(self) -> None:
        """Release what it holds."""

    def describe(self) -> str:
        """Return where the lines are, for people."""


@dataclass(frozen=True)
class TrafficSource:
    """Endpoint whose traffic is recorded."""

    endpoint: str
    component: str | None = None
    target: str | None = None
    mode: Mode = "unknown"


@dataclass
class Summary:
    """What a recorder has done so far; ``lost`` counts records by reason."""

    requests: int = 0
    recorded: int = 0
    lost: Counter[str] = field(default_factory=Counter)

    def line(self) -> str:
        """Return one line: recorded, left out by the sample, lost by reason."""
        lost = self.lost.total()
        left_out = self.requests - self.recorded - lost
        text = f"recorded {self.recorded:,} of {self.requests:,} requests"
        text += f", {left_out:,} not in the sample" if left_out > 0 else ""
        if lost:
            reasons = "; ".join(f"{count:,}: {reason}" for reason, count in self.lost.most_common())
            text += f", LOST {lost:,} ({reasons})"
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"requests": self.requests, "recorded": self.recorded, "lost": dict(self.lost)}


class Recording:
    """One request in flight: `add` the parts of its answer, then `end` it once."""

    def __init__(
        self, recorder: Recorder, body: bytes, *, streamed: bool, framed: bool, labels: Mapping[str, str]
    ) -> None:
        """Use `Recorder.begin`."""
        self._recorder = recorder
        self._began = recorder.monotonic()
        self._ended = False
        self.body = body
        self.streamed = streamed
        self.framed = framed  #: in SageMaker's event stream
        self.labels = dict(labels)
        self.time = recorder.clock()
        self.answer = bytearray()
        self.times: list[tuple[int, float]] = []  #: bytes of a first part, and milliseconds until it came
        self.left = False
        self.problem: str | None = None
        self.status: int | None = None
        self.total_ms = 0.0
        self.held = 0  #: bytes that are reserved for it

    def add(self, part: bytes) -> None:
        """Keep the next bytes of the answer, as they arrived."""
        if self._ended or not part:
            return
        if not self._recorder.hold(self, len(part)):
            self._ended = True
            self.answer.clear()
            return
        if len(self.times) < _FIRST_PARTS:
            self.times.append((len(part), (self._recorder.monotonic() - self._began) * 1000))
        self.answer += part

    def end(self, *, left: bool = False, problem: str | None = None, status: int | None = None) -> None:
        """Queue the record; ``left``: the caller closed it, ``problem``: why it broke or failed."""
        if self._ended:
            return
        self._ended = True
        self.left, self.problem, self.status = left, problem, status
        self.total_ms = (self._recorder.monotonic() - self._began) * 1000
        self._recorder.take(self)


class Recorder:
    """Records sampled requests of one endpoint to a target, until it is closed."""

    def __init__(
        self,
        target: RecordTarget,
        source: TrafficSource,
        *,
        sample: float = 1.0,
        seed: int | None = None,
        max_held_bytes: int = MAX_HELD_BYTES,
        worker: Worker | None = None,
        on_problem: Callable[[str], object] = lambda message: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the target; ``on_problem`` gets a message when records are lost for a new reason."""
        self.target = target
        self.summary = Summary()
        self.monotonic = monotonic
        self._source = source
        self._sample = sample
        self._chance = random.Random(seed)
        self._room = max_held_bytes
        self._held = 0
        self._worker = worker or Worker()
        self._on_problem = on_problem
        self.clock = clock
        self.lock = threading.Lock()
        # A finalizer may end a recording while its thread holds the lock; `SimpleQueue.put` allows that.
        self._ended: queue.SimpleQueue[Recording] = queue.SimpleQueue()
        self._unsettled = 0  #: records that were begun, and are neither recorded nor lost yet
        self._values: dict[str, set[str]] = {}
        self._warned: set[str] = set()
        self._closing = threading.Event()
        self._given_up = False
        self._until = float("inf")
        self._thread = threading.Thread(target=self._run, name="peagle-sm recording", daemon=True)
        self._thread.start()

    def begin(
        self,
        body: bytes,
        *,
        streamed: bool,
        framed: bool = False,
        labels: Mapping[str, str] | None = None,
    ) -> Recording | None:
        """Start recording a request; None if it is not in the sample, or there is no room."""
        with self.lock:
            if self._closing.is_set():
                return None
            self.summary.requests += 1
            if self._sample < 1 and self._chance.random() >= self._sample:
                return None
            self._unsettled += 1
        recording = Recording(self, body, streamed=streamed, framed=framed, labels=labels or {})
        return recording if self.hold(recording, len(body)) else None

    @property
    def held(self) -> int:
        """Bytes that are kept now, of requests in flight and waiting."""
        return self._held

    def labels_of(self, header: str | None) -> dict[str, str]:
        """Return the labels in ``team=search,tier=free`` (or ``;`` between them, as the gate takes them).

        Invalid ones are left out, with a message.

        A label with more values than a slice can use is recorded as `OTHER` from then on.
        """
        if not header:
            return {}
        pairs = (part.partition("=") for part in re.split("[;,]", header[:_LONGEST_HEADER]) if part.strip())
        given = {name.strip(): value.strip() for name, _, value in pairs}
        try:
            labels = checked_labels(given, LABELS_NAME)
        except SpecError as error:
            self._warn(f"{error.message}; the request is recorded without labels")
            return {}
        return {name: self._bounded(name, value) for name, value in labels.items()}

    def _bounded(self, name: str, value: str) -> str:
        with self.lock:
            known = self._values.get(name)
            if known is None and len(self._values) < _MOST_NAMES:
                known = self._values[name] = set()
            if known is not None and (value in known or len(known) < MOST_VALUES):
                known.add(value)
                return value
        self._warn(
            f"the label {name!r} has more than {MOST_VALUES} values; further ones are recorded as {OTHER!r}. "
            "Use a coarser label, for example a team in place of a user"
        )
        return OTHER

    def _warn(self, message: str) -> None:
        """Report a problem once."""
        with self.lock:
            if message in self._warned or len(self._warned) >= _MOST_MESSAGES:
                return
            self._warned.add(message)
        with suppress(Exception):
            self._on_problem(f"recording: {message}")

    def hold(self, recording: Recording, size: int) -> bool:
        """Reserve memory; without room the record is lost."""
        with self.lock:
            if self._given_up:
                return False
            if self._held + size <= self._room:
                self._held += size
                recording.held += size
                return True
        self._settle([recording], "more traffic than could be written: the memory for it is full")
        return False

    def take(self, recording: Recording) -> None:
        """Take a record whose request has ended."""
        self._ended.put(recording)

    def close(self, timeout_s: float = _CLOSE_S) -> Summary:
        """Write what waits, for a limited time; count the rest as lost."""
        with self.lock:
            self._until = min(self._until, self.monotonic() + timeout_s)
        self._closing.set()
        self._thread.join(timeout_s + 1)
        with self.lock:
            self._given_up = True  # what the thread still does is not counted any more
            rest, self._unsettled, self._held = self._unsettled, 0, 0
            self._count_lost(rest, _TOO_LATE)
        if rest:
            self._warn_of_loss(_TOO_LATE)
        if self._thread.is_alive():
            self._worker.kill()
        return self.summary

    def _run(self) -> None:
        ticked = self.monotonic()
        while True:
            closing = self._closing.is_set()  # read before the queue, so that the queue is complete
            batch = self._batch()
            if batch:
                self._write(batch)
            elif closing:
                break
            else:
                self._closing.wait(_PAUSE_S)
            if self.monotonic() - ticked >= _PAUSE_S:
                ticked = self.monotonic()
                self._guarded(self.target.tick)
        self._guarded(self.target.close)
        self._worker.close()

    def _batch(self) -> list[Recording]:
        batch: list[Recording] = []
        size = 0
        with suppress(queue.Empty):
            while len(batch) < _BATCH_RECORDS and size < _BATCH_BYTES:
                batch.append(self._ended.get_nowait())
                size += batch[-1].held
        return batch

    def _write(self, batch: Sequence[Recording]) -> None:
        if self._given_up:
            return
        if self.monotonic() > self._until:
            self._settle(batch, _TOO_LATE)
            return
        try:
            requests = [(self._exchange(each), each.body, each.answer) for each in batch]
            replies = self._worker.lines(requests)
        except Exception as error:
            if len(batch) > 1:  # retry one by one, so that only the record at fault is lost
                for each in batch:
                    self._write([each])
                return
            self._settle(batch, error.message if isinstance(error, RecordLost) else type(error).__name__)
            return
        self._write_lines(batch, replies)

    def _write_lines(self, batch: Sequence[Recording], replies: Sequence[bytes | RecordLost]) -> None:
        records, lines = [], []
        for record, reply in zip(batch, replies, strict=True):
            if isinstance(reply, RecordLost):
                self._settle([record], reply.message)
            else:
                records.append(record)
                lines.append(reply + b"\n")
        if not lines:
            return
        try:
            self.target.write(lines)
        except Exception as error:
            self._settle(records, self._reason(error))
            return
        self._settle(records)

    def _guarded(self, action: Callable[[], None]) -> None:
        """Run an action of the target; a fault of the recording must not end it."""
        try:
            action()
        except Exception as error:
            if not self._given_up:
                self._warn_of_loss(self._reason(error))

    def _reason(self, error: Exception) -> str:
        message = str(error) if isinstance(error, OSError | PeagleError) else type(error).__name__
        return f"{self.target.describe()}: {message}"

    def _settle(self, records: Sequence[Recording], lost: str | None = None) -> None:
        """Count records once and for all: as recorded, or as lost for a reason."""
        with self.lock:
            if self._given_up:
                return
            self._unsettled -= len(records)
            self._held -= sum(each.held for each in records)
            if lost is None:
                self.summary.recorded += len(records)
            else:
                self._count_lost(len(records), lost)
        if lost is not None:
            self._warn_of_loss(lost)

    def _count_lost(self, records: int, reason: str) -> None:
        counts = self.summary.lost
        if not records:
            return
        if reason not in counts and len(counts) >= _MOST_MESSAGES:
            reason = "other reasons"
        counts[reason] += records

    def _warn_of_loss(self, reason: str) -> None:
        self._warn(f"{reason}; such records are lost, answers are not affected")

    def _exchange(self, recording: Recording) -> Exchange:
        source = self._source
        return Exchange(
            id=uuid.uuid4().hex,
            time=recording.time,
            endpoint=source.endpoint,
            component=source.component,
            target=source.target,
            mode=source.mode,
            streamed=recording.streamed,
            framed=recording.framed,
            left=recording.left,
            problem=recording.problem,
            status=recording.status,
            total_ms=recording.total_ms,
            parts=tuple(recording.times),
            labels=recording.labels,
            sample=self._sample,
        )


def mode_of(name: str | None) -> Mode:
    """Return the mode of a tag's text; "unknown" for any other."""
    modes: tuple[Mode, ...] = get_args(Mode)
    return next((mode for mode in modes if mode == name), "unknown")
