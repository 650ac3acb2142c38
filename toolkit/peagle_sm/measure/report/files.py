"""Results from what people have (results files, and pages that hold some), and pages put on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from peagle_sm.core.errors import SpecError
from peagle_sm.core.files import write_file
from peagle_sm.measure.report.embedded import extract
from peagle_sm.measure.result_file import Results, read

_PAGE = (".html", ".htm")


def read_files(paths: Sequence[Path]) -> list[Results]:
    """Read every file in turn, each under its own name; a page may hold several.

    Raises:
        SpecError: a file is missing or cannot be read as results; the message names it.
    """
    found: list[Results] = []
    for path in paths:
        found += _page(path) if path.suffix.lower() in _PAGE else [replace(read(path), source=str(path))]
    return found


def _page(path: Path) -> list[Results]:
    try:
        return extract(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError(f"there is no report {path}", next_step="check the path") from None
    except UnicodeDecodeError:
        raise SpecError(f"{path} is no report: it is not text", next_step="name a results file") from None
    except SpecError as error:
        raise SpecError(f"{path}: {error.message}", next_step=error.next_step) from error


def write_page(path: Path, page: str) -> None:
    """Write a page whole or not at all: a browser may have the old one open.

    Raises:
        CannotWrite: the place cannot be written to.
    """
    write_file(path, page, parents=True)
