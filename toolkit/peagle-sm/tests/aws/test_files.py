"""Files are written whole or not at all, and a disk that refuses is an expected error."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.aws.files import CannotWrite, cannot_write, is_about_the_disk, write_file
from tests.disks import file_limit


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> pytest.TempPathFactory:
    return tmp_path_factory


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, old: bytes, new: bytes
) -> None:
    path = tmp_path_factory.mktemp("files") / "a"
    for content in (old, new):
        write_file(path, content)
        assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def test_a_disk_that_is_full_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "peagle.yaml"
    path.write_text("before")
    with (
        file_limit(100),
        pytest.raises(CannotWrite, match=r"cannot be written: File too large") as no,
    ):
        write_file(path, "x" * 1000)
    assert "Free space" in (no.value.next_step or "")
    assert no.value.exit_code == 2
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_an_existing_file_is_kept_unless_overwriting_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_file(path, "one", overwrite=False)
    with pytest.raises(FileExistsError):
        write_file(path, "two", overwrite=False)
    assert path.read_text() == "one"


def test_permissions_and_links_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("before")
    real.chmod(0o640)
    link.symlink_to(real)
    write_file(link, "after")
    assert link.is_symlink()
    assert (real.read_text(), stat.S_IMODE(real.stat().st_mode)) == ("after", 0o640)


def test_a_folder_that_is_missing_is_named_or_created(tmp_path: Path) -> None:
    path = tmp_path / "no" / "a"
    with pytest.raises(CannotWrite, match="No such file or directory") as no:
        write_file(path, "x")
    assert no.value.next_step == "Give a file in an existing folder."
    write_file(path, "x", parents=True)
    assert path.read_text() == "x"


def test_a_device_is_written_as_it_is() -> None:
    write_file(Path(os.devnull), "x")
    assert Path(os.devnull).is_char_device()
    with pytest.raises(CannotWrite, match="/dev/full: cannot be written: No space left on device"):
        write_file(Path("/dev/full"), "x")


@pytest.mark.parametrize(
    ("code", "step", "expected"),
    [
        (errno.ENOSPC, "Free space", True),
        (errno.EDQUOT, "Free space", True),
        (errno.EACCES, "write permission", True),
        (errno.EROFS, "write permission", True),
        (errno.EISDIR, "an existing folder", False),
        (errno.EIO, "another path", False),
    ],
)
def test_each_refusal_has_its_next_step(code: int, step: str, expected: bool) -> None:
    error = OSError(code, os.strerror(code), "a")
    assert step in (cannot_write(error, "a").next_step or "")
    assert is_about_the_disk(error) is expected
