"""The loops in virtual time: who is sent when, what belongs to the window, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import statistics
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

import pytest

from peagle_bench.load import (
    Clock,
    HttpTarget,
    LoadOptions,
    LoadRun,
    LoadStopped,
    Target,
    Timeouts,
    WorkItem,
    drive_load,
)
from peagle_bench.load.answer import Answer
from peagle_bench.load.driver import arrivals
from peagle_bench.load.http_client import Sender
from peagle_bench.load.points import make_point
from peagle_bench.results.records import Load
from peagle_sm.core.errors import SpecError
from tests.bench.load.virtual import Connections, ScriptedSender, in_virtual_time

TARGET = HttpTarget("http://127.0.0.1:1", arm="a")


def items(seconds: float = 1.0, tokens: int = 10, count: int | None = None) -> Iterator[WorkItem]:
    numbers = itertools.count() if count is None else iter(range(count))
    return (WorkItem(f"p{n}", {"prompt": n, "seconds": seconds, "tokens": tokens}) for n in numbers)


def closed(concurrency: int) -> Load:
    return Load("closed", concurrency=concurrency)


def run(
    load: Load, work: Iterable[WorkItem], options: LoadOptions, connections: Connections | None = None
) -> LoadRun:
    opened = connections or Connections()
    return in_virtual_time(
        lambda clock: drive_load(TARGET, load, work, options=options, clock=clock, connect=opened)
    )


def phases(done: LoadRun) -> dict[str, int]:
    counted = [record.phase for record in done.records]
    return {phase: counted.count(phase) for phase in ("warm-up", "measured", "drain")}


def test_one_at_a_time_measures_all_but_the_warm_up() -> None:
    done = run(closed(1), items(seconds=2.0), LoadOptions(requests=5))
    assert phases(done) == {"warm-up": 1, "measured": 5, "drain": 0}
    assert (done.window.start_s, done.window.end_s) == pytest.approx((2.0, 12.0))
    assert make_point(done).otps == pytest.approx(5.0)


def test_the_concurrency_is_kept_and_the_window_ends_when_it_falls() -> None:
    opened = Connections()
    work = [WorkItem(f"p{n}", {"prompt": n, "seconds": 1.0 + n % 3, "tokens": 10}) for n in range(40)]
    done = run(closed(4), work, LoadOptions(requests=30), opened)
    assert opened.opened[0].most_in_flight == 4
    assert phases(done) == {"warm-up": 4, "measured": 30, "drain": 0}
    last_sent = max(record.sent_s for record in done.records)
    assert last_sent <= done.window.end_s < max(record.done_s for record in done.records)
    # Every place was busy all through the window, so its tokens are those of four places.
    busy = sum(
        max(min(record.done_s, done.window.end_s) - max(record.sent_s, done.window.start_s), 0.0)
        for record in done.records
    )
    assert busy == pytest.approx(4 * done.window.seconds)


def test_seconds_end_the_window_whatever_is_in_flight() -> None:
    done = run(closed(3), items(seconds=4.0, tokens=40), LoadOptions(seconds=10.0))
    assert done.window.seconds == pytest.approx(10.0)
    assert done.window.start_s == pytest.approx(4.0)  # the first request that begins after the warm-up
    assert make_point(done).otps == pytest.approx(30.0, rel=0.02)
    assert max(record.sent_s for record in done.records) < done.window.end_s


def test_the_drain_can_keep_the_load_up_until_the_measured_have_ended() -> None:
    done = run(closed(3), items(seconds=1.3), LoadOptions(seconds=5.0, drain="keep"))
    assert phases(done)["drain"] > 0
    last = max(record.done_s for record in done.records if record.phase == "measured")
    assert any(record.phase == "drain" and record.done_s >= last for record in done.records)
    assert {record.phase for record in done.records if record.sent_s >= done.window.end_s} == {"drain"}


def test_a_poisson_process_keeps_its_rate() -> None:
    times = list(itertools.takewhile(lambda at: at < 1000.0, arrivals(5.0, seed=3)))
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert statistics.fmean(gaps) == pytest.approx(0.2, rel=0.05)
    assert statistics.pstdev(gaps) == pytest.approx(0.2, rel=0.1)
    assert times[:50] == list(itertools.islice(arrivals(5.0, seed=3), 50))
    assert next(arrivals(5.0, seed=4)) != next(arrivals(5.0, seed=3))


def test_an_open_loop_sends_on_time_however_slow_the_answers() -> None:
    opened = Connections()
    options = LoadOptions(requests=200, seed=1, warm_up_requests=20)
    done = run(Load("open", rate_per_s=10.0), items(seconds=30.0), options, opened)
    due = list(itertools.islice(arrivals(10.0, seed=1), 221))
    assert [record.due_s for record in done.records] == pytest.approx(due[:220])
    assert all(record.client_lag_ms == pytest.approx(0.0, abs=1e-6) for record in done.records)
    assert opened.opened[0].most_in_flight > 150
    assert (done.window.start_s, done.window.end_s) == pytest.approx((due[20], due[220]))


def test_more_in_flight_than_connections_is_not_trusted() -> None:
    options = LoadOptions(requests=100, max_connections=10)
    done = run(Load("open", rate_per_s=10.0), items(seconds=30.0), options)
    health = make_point(done).client
    assert not health.trusted
    assert "free connection" in (health.reason or "")


def test_a_conversation_goes_on_in_its_place() -> None:
    def then(text: str) -> WorkItem | None:
        return WorkItem("talk", {"prompt": f"and then? ({text})", "seconds": 1.0}, turn=1)

    work = [WorkItem("talk", {"prompt": n, "seconds": 1.0}, then=then) for n in range(4)]
    done = run(closed(1), work, LoadOptions(requests=3))
    assert [record.turn for record in done.records] == [0, 1] * 4
    assert phases(done) == {"warm-up": 2, "measured": 6, "drain": 0}


def test_failures_are_counted_and_not_hammered() -> None:
    work = (
        WorkItem(f"p{n}", {"prompt": n, "error": "ThrottlingException" if n % 2 else None, "seconds": 0.1})
        for n in itertools.count()
    )
    done = run(closed(1), work, LoadOptions(requests=10, warm_up_requests=0))
    point = make_point(done)
    assert (point.requests, point.errors) == (10, {"ThrottlingException": 5})
    assert done.window.seconds == pytest.approx(10 * 0.1 + 5 * 0.5)


@pytest.mark.parametrize("load", [closed(2), Load("open", rate_per_s=50.0)])
def test_an_endpoint_that_only_fails_ends_the_load_and_keeps_the_records(load: Load) -> None:
    work = (
        WorkItem(f"p{n}", {"prompt": n, "error": "ConnectionFailed" if n >= 10 else None, "seconds": 0.1})
        for n in itertools.count()
    )
    opened = Connections()
    with pytest.raises(LoadStopped, match="as the script says") as stopped:
        run(load, work, LoadOptions(seconds=1e6), opened)
    assert sum(record.error is None for record in stopped.value.records) == 10
    assert opened.closed == 1


def test_overload_does_not_end_an_open_loop() -> None:
    work = (WorkItem(f"p{n}", {"prompt": n, "error": "ThrottlingException"}) for n in itertools.count())
    done = run(Load("open", rate_per_s=50.0), work, LoadOptions(requests=200))
    assert make_point(done).errors == {"ThrottlingException": 200}


@pytest.mark.parametrize(
    ("load", "count", "options", "words"),
    [
        (closed(0), 9, LoadOptions(requests=5), "concurrency: found 0"),
        (closed(8), 99, LoadOptions(requests=5), "this concurrency is never reached"),
        (closed(2), 0, LoadOptions(requests=5), "has 0 prompts"),
        (closed(2), 6, LoadOptions(requests=5), "has 6 prompts"),
        (Load("open", rate_per_s=0.0), 9, LoadOptions(requests=5), "rate: found 0"),
    ],
)
def test_a_load_that_cannot_be_run_is_refused(
    load: Load, count: int, options: LoadOptions, words: str
) -> None:
    with pytest.raises(SpecError, match=words):
        run(load, list(items(count=count)), options)


def test_an_empty_stream_of_items_is_refused() -> None:
    with pytest.raises(SpecError, match="has no prompts"):
        run(closed(2), iter(()), LoadOptions(seconds=5.0))


class Swallowing(ScriptedSender):
    """A sender that loses a cancellation, as a library's clean-up may."""

    async def send(self, target: Target, body: Mapping[str, Any]) -> Answer:
        try:
            return await super().send(target, body)
        except asyncio.CancelledError:
            return await super().send(target, body)


class SwallowingConnections(Connections):
    @contextlib.asynccontextmanager
    async def __call__(
        self, targets: list[Target], timeouts: Timeouts, connections: int, clock: Clock
    ) -> AsyncIterator[Sender]:
        yield Swallowing(clock)


def test_a_load_ends_also_when_a_cancellation_is_swallowed() -> None:
    async def cancelled(clock: Clock) -> float:
        options = LoadOptions(seconds=600)
        load = drive_load(
            TARGET, closed(4), items(), options=options, clock=clock, connect=SwallowingConnections()
        )
        task = asyncio.create_task(load)
        await asyncio.sleep(2.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return clock()

    assert in_virtual_time(cancelled) < 10
