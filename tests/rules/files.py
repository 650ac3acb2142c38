"""The project's own files, as the rules see them: what is committed or would be."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def project_files() -> tuple[Path, ...]:
    """Every file that git tracks, or would if it were added; relative to the root."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return tuple(sorted(Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file()))


def python_files(*folders: str) -> list[Path]:
    """The Python files, those under the given folders only when any are given."""
    chosen = [path for path in project_files() if path.suffix == ".py"]
    return [path for path in chosen if any(map(path.is_relative_to, folders))] if folders else chosen


def package_files() -> list[Path]:
    """The Python files of the packages in toolkit/, without their tests."""
    return [path for path in python_files("toolkit") if path.parts[2] != "tests"]


def texts() -> list[tuple[Path, str]]:
    """Every text file with its content; binary files are left out."""
    files = []
    for path in project_files():
        try:
            files.append((path, (ROOT / path).read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue
    return files
