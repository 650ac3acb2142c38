"""Deployment packages: unpacked once, and only into their own folder."""

from __future__ import annotations

import io
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sagemaker_local.lambdas.unpack import unpacked


def package(**files: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


def test_the_same_package_is_unpacked_once_and_another_beside_it(tmp_path: Path) -> None:
    one, other = package(a="1"), package(a="2")
    first = unpacked(one, tmp_path)
    (first / "mark").write_text("kept")
    assert (unpacked(one, tmp_path) / "mark").read_text() == "kept"
    assert (unpacked(other, tmp_path) / "a").read_text() == "2"


def test_two_first_invocations_at_once_share_the_folder(tmp_path: Path) -> None:
    code = package(**{f"file{number}": "x" * 1000 for number in range(50)})
    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(lambda _: unpacked(code, tmp_path), range(16)))
    assert len(folders) == 1
    assert len(list(folders.pop().iterdir())) == 50
    assert len(list(tmp_path.iterdir())) == 1


def test_an_entry_outside_of_the_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"entry outside of its folder: \.\./escaped"):
        unpacked(package(**{"../escaped": "x"}), tmp_path / "code")
    assert not (tmp_path / "escaped").exists()


def test_what_is_no_zip_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a zip file"):
        unpacked(b"text", tmp_path)
