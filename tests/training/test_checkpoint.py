"""Checkpoints: complete or not there, however they were copied, and of one run only."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from peagle_train import Mistake, checkpoint

RUN = {"seed": 42, "training data": "a"}


def save(folder: Path, step: int, content: bytes = b"state") -> Path:
    checkpoint.save(folder, step, RUN, {"steps": []}, lambda file: _write(file, content))
    return folder / f"step-{step:08}"


def _write(file: Path, content: bytes) -> None:
    file.write_bytes(content)


def found(folder: Path) -> int | None:
    newest = checkpoint.newest(folder)
    return newest.step if newest else None


def test_the_newest_is_found_and_two_are_kept(tmp_path: Path) -> None:
    assert found(tmp_path / "none") is None
    for step in (5, 10, 100):
        save(tmp_path, step)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000010", "step-00000100"]
    assert found(tmp_path) == 100


BREAKS: dict[str, Callable[[Path], object]] = {
    "the state is short": lambda newer: (newer / checkpoint.STATE).write_bytes(b"sta"),
    "the state is missing": lambda newer: (newer / checkpoint.STATE).unlink(),
    "the manifest is missing": lambda newer: (newer / checkpoint.MANIFEST).unlink(),
    "the manifest is short": lambda newer: (newer / checkpoint.MANIFEST).write_text('{"schema": "peagle'),
    "the manifest is another": lambda newer: (newer / checkpoint.MANIFEST).write_text("[]"),
    "the name is another": lambda newer: newer.rename(newer.with_name("step-00000012")),
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_was_copied_in_part_is_no_checkpoint(name: str, tmp_path: Path) -> None:
    save(tmp_path, 5)
    BREAKS[name](save(tmp_path, 10))
    assert found(tmp_path) == 5
    save(tmp_path, 10)
    assert found(tmp_path) == 10


def test_each_prefix_of_a_copied_manifest_is_refused(tmp_path: Path) -> None:
    manifest = save(tmp_path, 5) / checkpoint.MANIFEST
    text = manifest.read_text().rstrip("\n")
    for cut in range(len(text)):
        manifest.write_text(text[:cut])
        assert found(tmp_path) is None


def test_a_save_that_was_killed_leaves_the_one_before(tmp_path: Path) -> None:
    save(tmp_path, 5)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(tmp_path, 10, RUN, {}, _killed)
    assert found(tmp_path) == 5
    save(tmp_path, 10)
    assert not list(tmp_path.glob(".*")), "what the killed one left is gone"


def _killed(file: Path) -> None:
    file.write_bytes(b"half")
    raise KeyboardInterrupt


def test_another_run_is_not_gone_on_with(tmp_path: Path) -> None:
    save(tmp_path, 5)
    saved = checkpoint.newest(tmp_path)
    assert saved is not None
    checkpoint.check_same_run(saved, RUN)
    with pytest.raises(Mistake, match="step 5 is of another run: training data was 'a', now it is 'b'"):
        checkpoint.check_same_run(saved, {**RUN, "training data": "b"})
    with pytest.raises(Mistake, match="now it is None"):
        checkpoint.check_same_run(saved, {"seed": 42})


def test_a_manifest_is_json_that_others_can_read(tmp_path: Path) -> None:
    document = json.loads((save(tmp_path, 5) / checkpoint.MANIFEST).read_text())
    assert document["files"] == {"state.pt": 5}
    assert (document["schema"], document["step"]) == ("peagle-train-checkpoint/1", 5)
