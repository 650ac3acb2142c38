"""The errors of the local SageMaker become peagle-sm's own, with the same words."""

from __future__ import annotations

from pathlib import Path

import pytest

from peagle_sm.aws.files import CannotWrite
from peagle_sm.aws.session import local_server
from peagle_sm.core.errors import NotFound, SpecError
from sagemaker_local import errors


@pytest.fixture
def no_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_no_server_is_not_found_with_the_command_that_starts_one(no_servers: Path) -> None:
    with pytest.raises(NotFound, match="no local SageMaker is running on port 8123") as raised:
        local_server.find_server(8123)
    assert raised.value.next_step == "start it: peagle-sm local up --detach --port 8123"
    assert raised.value.exit_code == 4
    assert isinstance(raised.value.__cause__, errors.NotFound)


def test_a_fault_that_is_not_acceptable_is_a_spec_error_with_its_details() -> None:
    with pytest.raises(SpecError) as raised:
        local_server.fault_of({"kind": "cut", "where": "nowhere"})
    assert raised.value.details["found"] == "nowhere"
    assert "event" in raised.value.details["allowed"]


def test_a_state_folder_that_cannot_be_made_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(file))
    with pytest.raises(CannotWrite, match="cannot be written: Not a directory") as raised:
        local_server.status()
    assert "XDG_STATE_HOME" in str(raised.value.next_step)


def test_the_stand_in_weights_are_there() -> None:
    parts = local_server.stand_in_weights()
    assert all((parts / part / "config.json").is_file() for part in ("target", "eagle3", "p-eagle"))
