"""The recorder: bounded memory, records that are lost and counted, requests that never notice."""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.workloads import conversations_in, load_workload
from peagle_sm.core.errors import SpecError
from peagle_sm.traffic.exchange import Exchange
from peagle_sm.traffic.plan import planned
from peagle_sm.traffic.recorder import OTHER, Recorder, RecordTarget, TrafficSource
from peagle_sm.traffic.worker import RecordLost, Request, Worker
from tests.traffic.samples import ANSWER, CHAT, Kept

BODY = json.dumps(CHAT).encode()


def feed(recorder: Recorder, count: int, body: bytes = BODY, answer: bytes = ANSWER) -> None:
    for _ in range(count):
        recording = recorder.begin(body, streamed=True)
        if recording is not None:
            recording.add(answer)
            recording.end()


class Quick(Worker):
    """A worker without a process: it repeats the body."""

    def lines(self, requests: Sequence[Request]) -> list[bytes | RecordLost]:
        return [body for _, body, _ in requests]


def test_every_request_is_recorded_with_its_figures() -> None:
    target = Kept()
    recorder = Recorder(target, TrafficSource("e", "c", "m", "p-eagle"))
    feed(recorder, 3)
    assert recorder.close().line() == "recorded 3 of 3 requests"
    first = target.documents()[0]
    assert (first["endpoint"], first["component"], first["target"], first["mode"]) == (
        "e",
        "c",
        "m",
        "p-eagle",
    )
    assert first["total_ms"] >= first["ttft_ms"] >= 0


@given(sizes=st.lists(st.sampled_from([0, 1, 300, 32_768, 100_000]) | st.integers(0, 50_000), max_size=40))
def test_an_answer_in_parts_is_recorded_as_it_came(sizes: list[int]) -> None:
    request: list[Request] = []

    class Keeps(Quick):
        def lines(self, requests: Sequence[Request]) -> list[bytes | RecordLost]:
            request.extend(requests)
            return super().lines(requests)

    recorder = Recorder(Kept(), TrafficSource("e"), worker=Keeps())
    parts = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    recording = recorder.begin(b"body", streamed=True)
    assert recording is not None
    for part in parts:
        recording.add(part)
        assert recorder.held >= len(b"body") + len(recording.answer)
    recording.end()
    recording.add(b"too late")
    assert recorder.close().recorded == 1
    ((exchange, body, answer),) = request
    assert (body, answer) == (b"body", b"".join(parts))
    assert [size for size, _ in exchange.parts] == [size for size in sizes if size][:8]
    assert recorder.held == 0


def test_a_sample_is_the_same_for_the_same_seed_and_near_its_share() -> None:
    shares = []
    for _ in range(2):
        recorder = Recorder(Kept(), TrafficSource("e"), sample=0.2, seed=7, worker=Quick())
        feed(recorder, 1000)
        shares.append(recorder.close().recorded)
    assert shares[0] == shares[1]
    assert 150 < shares[0] < 250
    assert f"{1000 - shares[0]} not in the sample" in recorder.summary.line()


class Stuck(Kept):
    """A target that waits until it is let go, as a slow bucket does."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def write(self, lines: Sequence[bytes]) -> None:
        self.go.wait(30)
        return super().write(lines)


def test_a_slow_target_loses_records_and_holds_bounded_memory() -> None:
    target, problems = Stuck(), list[str]()
    recorder = Recorder(
        target, TrafficSource("e"), max_held_bytes=200_000, worker=Quick(), on_problem=problems.append
    )
    feed(recorder, 500, answer=b"x" * 1000)
    assert recorder.held <= 200_000
    target.go.set()
    summary = recorder.close()
    assert summary.requests == 500
    assert summary.recorded + summary.lost.total() == 500
    assert 0 < summary.recorded <= 200_000 // (len(BODY) + 1000) + 1  # and the one in the target's hands
    assert problems == [
        "recording: more traffic than could be written: the memory for it is full; such records are lost, "
        "answers are not affected"
    ]
    assert recorder.held == 0


def test_a_stream_that_outgrows_the_memory_is_lost_alone() -> None:
    recorder = Recorder(Kept(), TrafficSource("e"), max_held_bytes=40_000, worker=Quick())
    large = recorder.begin(BODY, streamed=True)
    assert large is not None
    for _ in range(100):
        large.add(b"x" * 1000)
    large.end()
    feed(recorder, 1)
    summary = recorder.close()
    assert (summary.recorded, summary.lost.total()) == (1, 1)
    assert recorder.held == 0


@pytest.mark.parametrize("refusal", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), RuntimeError("bug")])
def test_a_target_that_fails_loses_records_and_says_how_many(refusal: Exception) -> None:
    target, problems = Kept(), list[str]()
    target.refusal = refusal
    recorder = Recorder(target, TrafficSource("e"), worker=Quick(), on_problem=problems.append)
    feed(recorder, 5)
    summary = recorder.close()
    assert (summary.recorded, summary.lost.total(), len(problems)) == (0, 5, 1)
    assert "LOST 5" in summary.line()


def test_a_process_that_ends_or_hangs_loses_one_record() -> None:
    large: Request = (Exchange("1", 1.0, "e"), BODY, b"x" * 300_000)
    dying = Worker((sys.executable, "-c", "import sys; sys.stdin.buffer.read(10)"))
    with pytest.raises(RecordLost, match="the process that searches for secrets ended"):
        dying.lines([large])
    hanging = Worker((sys.executable, "-c", "import time; time.sleep(60)"), timeout_s=0.3, together_s=0.3)
    with pytest.raises(RecordLost, match=r"took longer than 0.3 s"):
        hanging.lines([large])
    recorder = Recorder(Kept(), TrafficSource("e"), worker=hanging)
    feed(recorder, 2)
    assert recorder.close().lost == {"the search for secrets took longer than 0.3 s": 2}


def test_of_records_that_are_handled_together_only_the_one_at_fault_is_lost() -> None:
    class Choosy(Quick):
        def lines(self, requests: Sequence[Request]) -> list[bytes | RecordLost]:
            if any(answer == b"fatal" for _, _, answer in requests):
                raise RecordLost("the process that searches for secrets ended")
            return super().lines(requests)

    target = Kept()
    recorder = Recorder(target, TrafficSource("e"), worker=Choosy())
    for number in range(70):
        feed(recorder, 1, body=b"%d" % number, answer=b"fatal" if number == 40 else b"fine")
    summary = recorder.close()
    assert (summary.recorded, summary.lost) == (69, {"the process that searches for secrets ended": 1})
    assert b"".join(target.lines).split() == [b"%d" % number for number in range(70) if number != 40]
    assert recorder.held == 0


def test_several_records_that_hang_give_way_soon_so_that_the_others_are_not_lost_at_the_end() -> None:
    hanging = Worker((sys.executable, "-c", "import time; time.sleep(60)"), together_s=0.3)
    request: Request = (Exchange("1", 1.0, "e"), BODY, b"x")
    with pytest.raises(RecordLost, match=r"took longer than 0.3 s"):
        hanging.lines([request, request])


def test_each_request_is_counted_once_whatever_is_unfinished_at_the_end() -> None:
    recorder = Recorder(Kept(), TrafficSource("e"), worker=Quick())
    unfinished = recorder.begin(BODY, streamed=True)
    assert unfinished is not None
    feed(recorder, 2)
    closing = [threading.Thread(target=recorder.close) for _ in range(3)]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join()
    unfinished.add(b"late" * 10_000)
    unfinished.end()
    assert recorder.begin(BODY, streamed=True) is None
    summary = recorder.close()
    assert (summary.requests, summary.recorded) == (3, 2)
    assert summary.lost == {"not finished and written before the end": 1}
    assert recorder.held == 0


def test_a_recording_that_ends_in_a_finalizer_does_not_wait_for_a_lock() -> None:
    recorder = Recorder(Kept(), TrafficSource("e"), worker=Quick())
    recording = recorder.begin(BODY, streamed=True)
    assert recording is not None
    with recorder.lock:  # as if garbage were collected while this thread holds it
        recording.end(left=True)
    assert recorder.close().recorded == 1


def test_a_message_larger_than_the_pipe_comes_back_whole_and_in_order() -> None:
    worker = Worker(together_s=60)
    answer = b'data: {"choices":[{"delta":{"content":"word "}}]}\n\n' * 3000
    requests: list[Request] = [
        (Exchange(str(number), 1.0, "e", streamed=True), BODY, answer) for number in range(20)
    ]
    lines = worker.lines(requests)
    worker.close()
    assert [json.loads(line)["id"] for line in lines if isinstance(line, bytes)] == [
        str(number) for number in range(20)
    ]


def test_what_is_no_request_is_lost_without_its_content() -> None:
    problems: list[str] = []
    recorder = Recorder(Kept(), TrafficSource("e"), on_problem=problems.append)
    feed(recorder, 1, body=b"AKIA" + b"Q" * 16 + b" is not JSON")
    feed(recorder, 1)
    assert recorder.close().line() == (
        "recorded 1 of 2 requests, LOST 1 (1: the request cannot be recorded: JSONDecodeError)"
    )
    assert "AKIA" not in problems[0]


def test_the_end_does_not_wait_for_ever() -> None:
    target = Stuck()
    recorder = Recorder(target, TrafficSource("e"), worker=Quick())
    feed(recorder, 3)
    summary = recorder.close(timeout_s=0.1)
    assert summary.recorded <= 1
    target.go.set()


def test_labels_are_bounded_and_never_refuse_a_request() -> None:
    problems: list[str] = []
    recorder = Recorder(Kept(), TrafficSource("e"), worker=Quick(), on_problem=problems.append)
    assert recorder.labels_of("team=search, tier=free") == {"team": "search", "tier": "free"}
    assert recorder.labels_of("team=search;tier=gold") == {"team": "search", "tier": "gold"}  # as the gate
    assert recorder.labels_of(None) == recorder.labels_of("") == {}
    assert recorder.labels_of("no pairs") == {}
    assert recorder.labels_of("a=1,b=2,c=3,d=4,e=5") == {}
    values = {recorder.labels_of(f"user=u{number}")["user"] for number in range(1000)}
    assert len(values) == 21
    assert OTHER in values
    recorder.close()
    assert len(problems) == 3
    assert "the label 'user' has more than 20 values" in problems[-1]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"target": "t", "sample": 0}, "sample: found 0; allowed: above 0, at most 1"),
        ({"target": "t", "sample": 1.5}, "sample: found 1.5"),
        ({"target": "t", "keep_days": 0}, "keep days: found 0; allowed: 1 to 3650, or forever"),
        ({"target": "t", "keep_days": "soon"}, "keep days: found 'soon'"),
        ({"target": "s3://bucket/x"}, "allowed: a file"),
    ],
)
def test_a_wrong_setting_is_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(SpecError) as raised:
        planned(**settings)  # type: ignore[arg-type]
    assert says in raised.value.message
    assert raised.value.next_step


def test_targets_have_the_protocol() -> None:
    target: RecordTarget = Kept()
    assert target.describe() == "memory"


def test_turns_of_one_chat_are_recorded_as_one_conversation(tmp_path: Path) -> None:
    """A regenerated answer or edited history too: then no recorded chat begins another."""
    ask = [{"role": "user", "content": "hello"}]
    later = [*ask, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "and then?"}]
    edited = [*ask, {"role": "assistant", "content": "other"}, {"role": "user", "content": "why?"}]
    other = [{"role": "user", "content": "good morning"}]
    target = Kept()
    recorder = Recorder(target, TrafficSource("e"))
    for messages in (ask, later, edited, other):
        feed(recorder, 1, json.dumps({"messages": messages}).encode())
    recorder.close()
    ids = [document["conversation"] for document in target.documents()]
    assert (len(set(ids[:3])), len(set(ids))) == (1, 2)
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"".join(each.rstrip(b"\n") + b"\n" for each in target.lines))
    items = load_workload(str(path)).items
    assert (len(items), conversations_in(items)) == (4, 2)
