from __future__ import annotations

import io
import json

import click
import pytest
from rich.console import Console

from peagle_sm.cli.arguments import follower
from peagle_sm.cli.base import Settings, State
from peagle_sm.cli.progress import Follower, JsonLines, LiveLine, PlainLines
from peagle_sm.service import Event

WAITING = "endpoint demo"


def _waiting(elapsed_s: float, spent_usd: float | None = None) -> Event:
    return Event("waiting", WAITING, "Creating", elapsed_s, spent_usd)


def test_plain_lines_say_what_changes_and_that_they_still_wait() -> None:
    lines: list[str] = []
    follow = PlainLines(lines.append)
    follow(Event("lifetime", "deletion at 12:00 UTC is armed", elapsed_s=1))
    for second in range(2, 70):
        follow(_waiting(second, 0.01))
    follow(Event("ready", "in service", "InService", 70, 0.01))
    assert lines == [
        "     1s  deletion at 12:00 UTC is armed",
        "     2s  endpoint demo is Creating  0.01 USD so far",
        "    32s  endpoint demo is Creating  0.01 USD so far",
        "  1m02s  endpoint demo is Creating  0.01 USD so far",
        "  1m10s  in service  0.01 USD so far",
    ]


def test_json_lines_are_one_object_each_without_repeats(capsys: pytest.CaptureFixture[str]) -> None:
    follow = JsonLines()
    follow(_waiting(1))
    follow(_waiting(2))
    follow(Event("ready", "in service", "InService", 3.04, 0.5, "endpoint/a"))
    lines = [json.loads(line)["progress"] for line in capsys.readouterr().err.splitlines()]
    assert [each["phase"] for each in lines] == ["waiting", "ready"]
    assert lines[1] == {
        "phase": "ready",
        "status": "InService",
        "message": "in service",
        "elapsed_s": 3.0,
        "spent_usd": 0.5,
        "resource": "endpoint/a",
    }


@pytest.mark.parametrize(
    ("output_format", "terminal", "kind"),
    [
        (None, True, LiveLine),
        ("table", False, PlainLines),
        ("json", True, JsonLines),
        ("quiet", True, Follower),
    ],
)
def test_the_follower_fits_the_format_and_the_terminal(
    output_format: str | None, terminal: bool, kind: type
) -> None:
    state = State(settings=Settings(format=output_format), stderr_is_tty=lambda: terminal)
    assert type(follower(state)) is kind


def test_the_live_line_runs_between_polls_and_leaves_each_phase_as_a_line() -> None:
    seconds = [100.0]
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, _environ={})
    with LiveLine(lambda: seconds[0], console) as live:
        live(Event("model", "model made", elapsed_s=2))
        seconds[0] += 3
        live(_waiting(5, 0.25))
        seconds[0] += 60
        live.pause()
        live(Event("ready", "in service", "InService", 65, 0.5))
    text = screen.getvalue()
    for line in (
        "     5s  model made",
        f"  1m05s  {WAITING} is Creating  0.25 USD so far",
        "  1m05s  in service  0.50 USD so far",
    ):
        assert line in text


def test_a_line_that_is_wider_than_the_terminal_is_broken_between_words() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=60, _environ={})
    with LiveLine(lambda: 0.0, console) as live:
        live(Event("cleanup", "waiting for endpoint tiny-code-none to be deleted: refused", elapsed_s=5))
    lines = [line for line in click.unstyle(screen.getvalue()).splitlines() if line.strip()]
    assert lines[-2:] == [
        "     5s  waiting for endpoint tiny-code-none to be deleted:",
        "         refused",
    ]
