"""What a script that imports peagle_sm gives and sees."""

from __future__ import annotations

from pathlib import Path

import pytest

import peagle_sm
from peagle_sm.core.spec.endpoint_spec import dump_spec
from peagle_sm.service import Event
from peagle_sm.service.progress import Lines
from tests.service.setting import make_spec


def test_a_spec_is_read_from_a_path_or_its_text(tmp_path: Path) -> None:
    path = tmp_path / "peagle.yaml"
    path.write_text(dump_spec(make_spec()))
    assert peagle_sm.load_spec(str(path)) == peagle_sm.load_spec(path) == make_spec()


def test_progress_is_told_once_until_it_changes(capsys: pytest.CaptureFixture[str]) -> None:
    tell = Lines()
    looks = [
        Event("endpoint", "endpoint demo created", "Creating", 1.0),
        *(Event("waiting", "endpoint demo", "Creating", 1.0 + look / 2, 0.01 * look) for look in range(9)),
        Event("waiting", "endpoint demo", "InService", 6.0),
    ]
    for event in looks:
        tell(event)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("s  ")[1] for line in lines] == [
        "endpoint demo created",
        "endpoint demo is Creating  0.00 USD so far",
        "endpoint demo is InService",
    ]
