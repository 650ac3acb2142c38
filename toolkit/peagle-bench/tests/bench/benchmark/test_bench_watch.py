"""Progress of a measurement: requests, rate and the time left, for `bench` and for the windows of `tune`."""

from __future__ import annotations

import json

import pytest

from peagle_bench.benchmark.progress import LoadWatch, Spending
from peagle_bench.results.records import Load
from peagle_bench.tune.windows import WindowProgress
from peagle_sm.cli.progress import JsonLines, PlainLines
from peagle_sm.service.progress import Event, Progress
from tests.bench.compare.simulating import request

C8 = Load("closed", concurrency=8)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def play(clock: Clock, watch: LoadWatch, requests: int, each_s: float) -> None:
    """A warm-up of 10 s, then requests that end at a steady rate."""
    watch.phase("warm-up")
    clock.now_s += 10
    watch.phase("measured")
    for _ in range(requests):
        clock.now_s += each_s
        watch.request(request("demo", "p", load=C8, sent=clock.now_s, seconds=0.0))


def watched(progress: Progress, clock: Clock, **options: float | None) -> LoadWatch:
    by_name: dict[str, float | None] = {"total": 100, "every_s": 0.0, **options}
    return LoadWatch(C8, lambda one: None, progress, Spending(None, clock), **by_name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "line", "left_s"),
    [
        ({}, "c=8: 25 of 100 requests, 50 tokens/s, about 2m30s left", 150.0),
        (
            {"loads_after": 1},
            "c=8: 25 of 100 requests, 50 tokens/s, about 2m30s left, then 1 more load",
            150.0,
        ),
        ({"total": None, "seconds": 60.0}, "c=8: 25 requests, 50 tokens/s, about 10s left", 10.0),
        ({"windows_after": 2}, "c=8: 25 of 100 requests, 50 tokens/s, about 9m10s left", 550.0),
        ({"total": None}, "c=8: 25 requests, 50 tokens/s", None),
    ],
)
def test_the_line_gives_requests_rate_and_time_left(
    options: dict[str, float | None], line: str, left_s: float | None
) -> None:
    events: list[Event] = []
    clock = Clock()
    watch = watched(events.append, clock, **options)
    play(clock, watch, requests=25, each_s=2.0)
    assert (events[0].message, events[0].left_s) == ("c=8: warm-up", None)
    assert events[1].message == f"c=8: 0{' of 100' if options.get('total', 100) else ''} requests"
    last = events[-1]
    assert (last.message, last.left_s, last.done) == (line, left_s, 25)


def test_the_time_left_is_never_negative() -> None:
    events: list[Event] = []
    clock = Clock()
    play(clock, watched(events.append, clock), requests=103, each_s=1.0)
    assert events[-1].left_s == 0.0


def test_a_log_gets_a_line_every_30_seconds_across_all_windows_of_a_tuning() -> None:
    lines: list[str] = []
    clock = Clock()
    window_progress = WindowProgress(PlainLines(lines.append), 4, every_s=0.5, monotonic=clock)
    for _ in range(4):
        play(clock, window_progress.window("p-eagle K=3", C8, 10), requests=10, each_s=1.0)
    assert lines == [
        "     0s  window 1 of about 4: p-eagle K=3 c=8: warm-up",
        "    30s  window 2 of about 4: p-eagle K=3 c=8: 0 of 10 requests",
        "  1m00s  window 3 of about 4: p-eagle K=3 c=8: 10 of 10 requests, 100 tokens/s, about 10s left",
    ]


def test_more_windows_than_expected_are_counted_on() -> None:
    lines: list[str] = []
    window_progress = WindowProgress(lambda event: lines.append(event.message), 1, monotonic=Clock())
    for _ in range(2):
        window_progress.window("none", C8, 10).phase("warm-up")
    assert lines == ["window 1 of about 1: none c=8: warm-up", "window 2 of about 2: none c=8: warm-up"]


def test_json_lines_carry_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    play(clock, watched(JsonLines(), clock), requests=25, each_s=2.0)
    last = json.loads(capsys.readouterr().err.splitlines()[-1])["progress"]
    assert (last["phase"], last["status"], last["elapsed_s"]) == ("waiting", "c=8", 60.0)
    assert (last["done"], last["total"], last["left_s"]) == (25, 100, 150.0)
