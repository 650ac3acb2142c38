"""`status --watch`: a terminal is redrawn, a pipe gets one line for each change."""

from __future__ import annotations

import contextlib
import json
import os
import pty
from collections.abc import Callable, Iterator

import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.cli.base import Settings, State
from peagle_sm.cli.commands.endpoints.status import watch_status
from peagle_sm.service import deploy, status
from tests.service.fakes import FakeAws, throttled
from tests.service.setting import make_spec, pacing_of, session_of


@pytest.fixture
def aws() -> FakeAws:
    return FakeAws()


@pytest.fixture
def creating(aws: FakeAws) -> Session:
    session = session_of(aws)
    deploy(make_spec(), session=session, pacing=pacing_of(aws), wait=False)
    aws.late.append((aws.clock.seconds + 120, lambda: aws.endpoints.pop("demo")))
    return session


def _watch(aws: FakeAws, session: Session, output_format: str, sleep: Callable[[float], None]) -> None:
    state = State(Settings(format=output_format), environ={"TERM": "xterm"}, sleep=sleep)
    watch_status(state, session, status("demo", session=session))


def test_a_pipe_gets_one_line_for_each_change(
    aws: FakeAws, creating: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    _watch(aws, creating, "table", aws.clock.sleep)
    shown = capsys.readouterr()
    first, second = shown.out.splitlines()
    assert "demo is Creating" in first
    assert "demo is InService" in second
    assert shown.err.startswith("note: endpoint 'demo' does not exist in us-east-1; remaining resources:")


def test_with_json_each_change_is_one_object(
    aws: FakeAws, creating: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    _watch(aws, creating, "json", aws.clock.sleep)
    changes = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["status"] for each in changes] == ["Creating", "InService"]


def test_a_poll_that_aws_throttles_does_not_end_the_watch(
    aws: FakeAws, creating: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    def sleep(seconds: float) -> None:
        aws.clock.sleep(seconds)
        busy = 30 < aws.clock.seconds < 50
        aws.before = lambda _, number, operation: throttled(operation) if busy else None

    _watch(aws, creating, "table", sleep)
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2
    assert "note: the status could not be read, retrying" in shown.err


@contextlib.contextmanager
def _terminal() -> Iterator[tuple[int, int]]:
    outside, inside = pty.openpty()
    try:
        yield outside, inside
    finally:
        os.close(outside)


def test_a_terminal_is_redrawn_until_ctrl_c(aws: FakeAws, creating: Session) -> None:
    drawn: list[str] = []

    def sleep(seconds: float) -> None:
        page = ""
        while "lifetime" not in page:
            page += os.read(outside, 65536).decode()
        drawn.append(page)
        aws.clock.sleep(seconds)
        if len(drawn) == 3:
            raise KeyboardInterrupt

    with (
        _terminal() as (outside, inside),
        os.fdopen(inside, "w") as screen,
        contextlib.redirect_stdout(screen),
        pytest.raises(KeyboardInterrupt),
    ):
        _watch(aws, creating, "table", sleep)
    assert all("\x1b[2J\x1b[1;1Hname" in page for page in drawn)
    assert all("demo" in page and "price" in page for page in drawn)
