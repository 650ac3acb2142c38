"""Progress in a notebook's cell: one output that is updated."""

from __future__ import annotations

from typing import Any

import pytest

from peagle_sm.service import Event
from peagle_sm.service.progress import Lines, NotebookCell, followed


class Screen:
    """Stand-in for IPython's display() and its handle."""

    def __init__(self) -> None:
        self.made = 0
        self.drawn: list[dict[str, str]] = []

    def __call__(self, bundle: dict[str, str], **options: Any) -> Screen:
        assert options == {"raw": True, "display_id": True}
        self.made += 1
        self.drawn.append(bundle)
        return self

    def update(self, bundle: dict[str, str], **options: Any) -> None:
        assert options == {"raw": True}
        self.drawn.append(bundle)


def waiting(at_s: float) -> Event:
    return Event("waiting", "endpoint <demo>", "Creating", at_s, at_s / 100)


def test_a_cell_has_one_output_with_a_line_a_phase() -> None:
    screen = Screen()
    cell = NotebookCell(screen, lambda: 0.0)
    for event in (
        Event("model", "model demo created", elapsed_s=0.4),
        *(waiting(2.0 + look) for look in range(60)),
        Event("ready", "endpoint <demo> is in service", elapsed_s=61.0),
    ):
        cell(event)
    cell.settle()
    assert screen.made == 1
    assert len(screen.drawn) <= 5, "a line that only counts on is not drawn each time"
    assert screen.drawn[-1]["text/plain"].splitlines() == [
        "     0s  model demo created",
        "   1m01s  endpoint <demo> is Creating  0.61 USD so far".removeprefix(" "),
        "  1m01s  endpoint <demo> is in service",
    ]
    assert "endpoint &lt;demo&gt; is in service</div>" in screen.drawn[-1]["text/html"]


def test_a_cell_that_heard_nothing_shows_nothing() -> None:
    screen = Screen()
    NotebookCell(screen).settle()
    assert screen.drawn == []


def test_outside_a_notebook_lines_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with followed(None) as follow:
        assert isinstance(follow, Lines)
        follow(Event("model", "model demo created", elapsed_s=0.4))
    assert capsys.readouterr().err == "     0s  model demo created\n"


def test_progress_of_ones_own_is_left_alone() -> None:
    heard: list[Event] = []
    with followed(heard.append) as follow:
        assert follow == heard.append
