"""uv in pip's place: it is told what pip is told, and pip installs where it fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sagemaker_local.engine import installer
from tests.local.tiny_wheel import tiny_wheel

FAILING = "#!/bin/sh\necho 'error: no such luck' >&2\nexit 2\n"


def options(listing: str) -> list[str]:
    """What uv is told, without the strategy that it is always told."""
    rows = list(installer.settings(listing, {}).options)
    assert rows[-2:] == ["--index-strategy", "unsafe-best-match"]
    return rows[:-2]


def test_without_settings_uv_decides_itself() -> None:
    settings = installer.settings("", {})
    assert options("") == []
    assert settings.environ == {}
    assert not settings.constrained


def test_the_indexes_of_pip_are_uvs() -> None:
    listing = (
        "global.extra-index-url='file:///one file:///two'\n"
        "global.index-url='https://mirror.example/simple'\n"
        "global.trusted-host='mirror.example'\n"
    )
    assert options(listing) == [
        *("--default-index", "https://mirror.example/simple"),
        *("--index", "file:///one", "--index", "file:///two"),
        *("--allow-insecure-host", "mirror.example"),
    ]


def test_a_variable_counts_more_than_a_file() -> None:
    listing = (
        ":env:.index-url='https://variable.example'\n"
        "global.index-url='https://file.example'\n"
        "install.index-url='https://section.example'\n"
    )
    assert options(listing) == ["--default-index", "https://variable.example"]
    assert options(":env:.no-index='1'\n") == ["--no-index"]
    assert options(":env:.no-index='0'\n") == []


def test_a_folder_of_wheels_and_a_constraint_keep_their_place(tmp_path: Path, in_empty_folder: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "limits.txt").write_text("click<9\n")
    listing = "global.find-links='wheels https://example.com/wheels'\nglobal.constraint='limits.txt'\n"
    assert options(listing) == [
        *("--find-links", str(tmp_path / "wheels"), "--find-links", "https://example.com/wheels"),
        *("--constraints", str(tmp_path / "limits.txt")),
    ]
    assert installer.settings(listing, {}).constrained


def test_certificates_proxy_and_patience_are_pips(tmp_path: Path) -> None:
    listing = "global.cert='/ca.pem'\nglobal.proxy='http://proxy:1'\n:env:.default-timeout='180'\n"
    assert installer.settings(listing, {"REQUESTS_CA_BUNDLE": "/other.pem"}).environ == {
        "SSL_CERT_FILE": "/ca.pem",
        "ALL_PROXY": "http://proxy:1",
        "HTTP_PROXY": "http://proxy:1",
        "HTTPS_PROXY": "http://proxy:1",
        "UV_HTTP_TIMEOUT": "180",
    }
    assert installer.settings("", {"REQUESTS_CA_BUNDLE": str(tmp_path)}).environ == {
        "SSL_CERT_DIR": str(tmp_path)
    }


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache whose uv always fails."""
    uv = tmp_path / "cache" / "uv" / installer.key() / "bin" / "uv"
    uv.parent.mkdir(parents=True)
    uv.write_text(FAILING)
    uv.chmod(0o755)
    return tmp_path / "cache"


def lock_of(folder: Path, *lines: str) -> Path:
    lock = folder / "some.lock"
    lock.write_text("".join(f"{line}\n" for line in lines))
    return lock


def test_where_uv_fails_its_words_are_told(tmp_path: Path, cache: Path) -> None:
    lines: list[str] = []
    lock = lock_of(tmp_path, f"click==8.5.1 --hash=sha256:{'0' * 64}")
    assert not installer.install(Path(sys.executable), lock, lines.append, cache=cache)
    assert lines == ["uv could not install (error: no such luck): pip installs instead"]


def test_a_pin_without_a_hash_is_left_to_pip(tmp_path: Path, cache: Path) -> None:
    lines: list[str] = []
    lock = lock_of(tmp_path, "click==8.5.1")
    assert not installer.install(Path(sys.executable), lock, lines.append, cache=cache)
    assert lines == []


def test_a_uv_that_cannot_be_fetched_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    lines: list[str] = []
    assert installer.ensure_uv(Path(sys.executable), tmp_path / "cache", lines.append) is None
    assert [line.startswith("uv cannot be fetched (ERROR: ") for line in lines] == [True]
    assert "No matching distribution found for uv" in lines[0]


def test_a_package_comes_by_its_hash_and_no_other(tmp_path: Path) -> None:
    """With the real uv, which built this environment; the index is a folder."""
    digest = tiny_wheel(tmp_path)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    lines: list[str] = []
    source = ("--no-index", f"--find-links {tmp_path}")
    wrong = lock_of(tmp_path, *source, f"tiny-thing==1.0 --hash=sha256:{'0' * 64}")
    assert not installer.install(python, wrong, lines.append)
    assert "Hash mismatch" in lines[-1], lines
    right = lock_of(tmp_path, *source, f"tiny-thing==1.0 --hash=sha256:{digest}", "absent==1 --hash=sha256:0")
    assert installer.install(python, right, lines.append, without=("absent",))
    subprocess.run([python, "-c", "import tiny_thing"], check=True)
    assert lines[-1].startswith("installed 1 package in ")


def test_what_is_never_imported_is_not_compiled(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "tests" / "venv"], check=True)
    python = tmp_path / "tests" / "venv" / "bin" / "python"
    packages = next((tmp_path / "tests" / "venv" / "lib").glob("python3*/site-packages"))
    for folder in ("used", "used/tests", "aws_cdk"):
        (packages / folder).mkdir()
        (packages / folder / "module.py").write_text("")
    installer.compile_packages(python)
    compiled = {path.parent.parent.relative_to(packages).as_posix() for path in packages.rglob("*.pyc")}
    assert compiled == {"used"}
