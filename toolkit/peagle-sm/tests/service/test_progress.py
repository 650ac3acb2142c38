"""Progress that nobody receives goes to stderr."""

from __future__ import annotations

import pytest

from peagle_sm.service import Event
from peagle_sm.service.progress import Lines, followed


def test_lines_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with followed(None) as follow:
        assert isinstance(follow, Lines)
        follow(Event("model", "model demo created", elapsed_s=0.4))
    assert capsys.readouterr().err == "     0s  model demo created\n"


def test_progress_of_ones_own_is_left_alone() -> None:
    heard: list[Event] = []
    with followed(heard.append) as follow:
        assert follow == heard.append
