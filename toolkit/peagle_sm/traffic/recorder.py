"""Recorder: keeps the bytes of sampled requests, and hands them to a thread that writes them.

Nothing here can fail or delay a request: a record that finds no room, cannot be made or cannot be written is
lost and counted. The bytes of all requests in flight and in the queue are bounded together.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter, deque
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
_BLOCK_BYTES = 16 * 1024  #: that a stream reserves at a time
_FIRST_PARTS = 8  #: whose times are kept, for the time to first token
_LAST_WORDS_S = 10.0  #: for the last records, at the end
LABELS_NAME = "X-Peagle-Labels"
OTHER = "other"
_LONGEST_HEADER = 1000
_MOST_NAMES = 20  #: of labels, over all requests
_MOST_MESSAGES = 50
#: The thread sleeps so long between two batches: to wake it for each record costs the streams more.
_PAUSE_S = 1.0
_ENOUGH_BYTES = 4 * 1024 * 1024  #: that wait in the queue wake it earlier
_MOST_TOGETHER = 32  #: records that are redacted and written together


class RecordTarget(Protocol):
    """Where lines go. Each call may raise OSError or PeagleError."""

    def write(self, lines: Sequence[bytes]) -> Lost | None:
        """Write, or keep until `flush`, whole lines; return what was lost."""

    def tick(self) -> Lost | None:
        """Do what is due by time: upload, rotate, delete what is too old."""

    def close(self) -> Lost | None:
        """Write what was kept."""

    def describe(self) -> str:
        """Return where the lines are, for people."""


@dataclass(frozen=True)
class Lost:
    """Records that a target lost, and why."""

    records: int
    reason: str


@dataclass(frozen=True)
class TrafficSource:
    """Endpoint whose traffic is recorded; ``labels`` are added to the slices of each request."""

    endpoint: str
    component: str | None = None
    target: str | None = None
    mode: Mode = "unknown"
    labels: Mapping[str, str] = field(default_factory=dict)


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
    """One request in flight: `add` its bytes, then `end` it once."""

    def __init__(
        self, recorder: Recorder, body: bytes, *, streamed: bool, framed: bool, labels: Mapping[str, str]
    ) -> None:
        """Use `Recorder.begin`."""
        self._recorder = recorder
        self._ended = False
        self._free = 0  #: reserved bytes without content; below 0 once it has ended
        self._began = recorder.monotonic()
        self.body = body
        self.streamed = streamed
        self.framed = framed  #: in SageMaker's event stream; set before `end`
        self.labels = labels
        self.time = recorder.clock()
        self.parts: list[bytes] = []
        self.times: list[tuple[int, float]] = []  #: bytes of a part, and the milliseconds until it came
        self.left = False
        self.problem: str | None = None
        self.status: int | None = None
        self.total_ms = 0.0
        self.held = 0

    def add(self, part: bytes) -> None:
        """Keep the next bytes of the answer, as they arrived."""
        self._free -= len(part)
        if self._free < 0 and not self._makes_room(part):
            return
        self.parts.append(part)

    def _makes_room(self, part: bytes) -> bool:
        """Reserve memory in blocks: a lock for each part would cost more than keeping it.

        The first parts are reserved one by one, since their times are kept.
        """
        if self._ended:
            return False
        first = len(self.times) < _FIRST_PARTS
        block = -self._free if first else max(_BLOCK_BYTES, -self._free)
        if not self._recorder.hold(self, block):
            self._ended = True
            self.parts.clear()
            return False
        self._free += block
        if first:
            self.times.append((len(part), (self._recorder.monotonic() - self._began) * 1000))
        return True

    def end(self, *, left: bool = False, problem: str | None = None, status: int | None = None) -> None:
        """Queue the record; ``left``: the caller closed it, ``problem``: why it broke or failed."""
        if self._ended:
            return
        self._ended, self._free = True, 0
        self.left, self.problem, self.status = left, problem, status
        self.total_ms = (self._recorder.monotonic() - self._began) * 1000
        self._recorder.queue(self)


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
        self._lock = threading.Lock()
        self._queue: deque[Recording] = deque()
        self._waiting = threading.Condition(self._lock)
        self._queued_bytes = 0
        self._in_hand = 0  #: records that the thread took and has not handled yet
        self._values: dict[str, set[str]] = {}
        self._told: set[str] = set()
        self._closing = False
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
        with self._lock:
            self.summary.requests += 1
            if self._closing or (self._sample < 1 and self._chance.random() >= self._sample):
                return None
        recording = Recording(self, body, streamed=streamed, framed=framed, labels=labels or {})
        return recording if self.hold(recording, len(body)) else None

    @property
    def held(self) -> int:
        """Bytes that are kept now, of requests in flight and waiting."""
        return self._held

    def labels_of(self, header: str | None) -> dict[str, str]:
        """Return the labels in ``team=search,tier=free``; invalid ones are left out, with a message.

        A label with more values than a slice can use is recorded as `OTHER` from then on.
        """
        if not header:
            return {}
        pairs = (part.partition("=") for part in header[:_LONGEST_HEADER].split(",") if part.strip())
        given = {name.strip(): value.strip() for name, _, value in pairs}
        try:
            labels = checked_labels(given, LABELS_NAME)
        except SpecError as error:
            self._tell(f"{error.message}; the request is recorded without labels")
            return {}
        return {name: self._bounded(name, value) for name, value in labels.items()}

    def _bounded(self, name: str, value: str) -> str:
        with self._lock:
            known = self._values.get(name)
            if known is None and len(self._values) < _MOST_NAMES:
                known = self._values[name] = set()
            if known is not None and (value in known or len(known) < MOST_VALUES):
                known.add(value)
                return value
        self._tell(
            f"the label {name!r} has more than {MOST_VALUES} values; further ones are recorded as {OTHER!r}. "
            "Use a coarser label, for example a team in place of a user"
        )
        return OTHER

    def _tell(self, message: str) -> None:
        """Report a problem once."""
        with self._lock:
            if message in self._told or len(self._told) >= _MOST_MESSAGES:
                return
            self._told.add(message)
        with suppress(Exception):
            self._on_problem(f"recording: {message}")

    def hold(self, recording: Recording, size: int) -> bool:
        """Reserve memory; without room the record is lost."""
        with self._lock:
            if self._held + size <= self._room:
                self._held += size
                recording.held += size
                return True
            self._held -= recording.held
            recording.held = 0
        self._lose(1, "more traffic than could be written: the memory for it is full")
        return False

    def queue(self, recording: Recording) -> None:
        """Queue a whole request for the thread."""
        with self._waiting:
            self._queue.append(recording)
            self._queued_bytes += recording.held
            if self._queued_bytes >= _ENOUGH_BYTES:
                self._waiting.notify()

    def close(self, timeout_s: float = _LAST_WORDS_S) -> Summary:
        """Write what waits, for a limited time; count the rest as lost."""
        with self._waiting:
            already, self._closing = self._closing, True
            self._until = min(self._until, self.monotonic() + timeout_s)
            self._waiting.notify()
        self._thread.join(timeout_s + 1)
        if self._thread.is_alive():
            self._worker.close()
            with self._waiting:
                self._given_up = True  # what the thread still does is not counted any more
                rest = len(self._queue) + self._in_hand
                self._queue.clear()
            if rest and not already:
                self._lose(rest, "not written before the end")
        return self.summary

    def _run(self) -> None:
        looked = float("-inf")
        while True:
            with self._waiting:
                if self._queued_bytes < _ENOUGH_BYTES and not self._closing:
                    self._waiting.wait(_PAUSE_S)
                waiting = list(self._queue)
                self._in_hand = len(waiting)
                self._queue.clear()
                self._queued_bytes = 0
                closing = self._closing
            for at in range(0, len(waiting), _MOST_TOGETHER):
                self._write(waiting[at : at + _MOST_TOGETHER])
            if closing and not waiting:
                break
            now = self.monotonic()
            if now - looked >= _PAUSE_S:
                looked = now
                self._safely(self.target.tick, 0)
        self._safely(self.target.close, 0)
        self._worker.close()

    def _write(self, batch: Sequence[Recording]) -> None:
        if self._given_up:
            return
        if self.monotonic() > self._until:
            self._lose(len(batch), "not written before the end")
        else:
            try:
                replies = self._worker.lines(
                    [(self._exchange(each), each.body, each.parts) for each in batch]
                )
            except RecordLost as error:
                if len(batch) > 1:  # one of them is at fault: only that one shall be lost
                    for each in batch:
                        self._write([each])
                    return
                self._lose(1, error.message)
            except Exception as error:
                self._lose(len(batch), type(error).__name__)
            else:
                self._write_lines(replies)
        with self._lock:
            self._held -= sum(each.held for each in batch)
            self._in_hand -= len(batch)

    def _write_lines(self, replies: Sequence[bytes | RecordLost]) -> None:
        lines = [reply + b"\n" for reply in replies if isinstance(reply, bytes)]
        for reply in replies:
            if isinstance(reply, RecordLost):
                self._lose(1, reply.message)
        if lines:
            self._safely(lambda: self.target.write(lines), len(lines))

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
            labels={**source.labels, **recording.labels},
            sample=self._sample,
        )

    def _safely(self, action: Callable[[], Lost | None], records: int) -> None:
        """Run an action of the target that takes ``records``; they are lost if it raises."""
        try:
            lost = action()
        except (OSError, PeagleError) as error:
            lost = Lost(records, f"{self.target.describe()}: {error}")
        except Exception as error:  # a fault of the recording must not end it
            lost = Lost(records, f"{self.target.describe()}: {type(error).__name__}")
        with self._lock:
            if self._given_up:
                return
            self.summary.recorded += records - (lost.records if lost is not None else 0)
        if lost is not None:
            self._lose(lost.records, lost.reason)

    def _lose(self, records: int, reason: str) -> None:
        with self._lock:
            if reason not in self.summary.lost and len(self.summary.lost) >= _MOST_MESSAGES:
                reason = "other reasons"
            self.summary.lost[reason] += records
        self._tell(f"{reason}; such records are lost, answers are not affected")


def mode_of(name: str | None) -> Mode:
    """Return the mode of a tag's text; "unknown" for any other."""
    found: Mode = "unknown"
    for mode in get_args(Mode):
        found = mode if mode == name else found
    return found
