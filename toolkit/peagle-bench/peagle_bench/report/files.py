"""Reading of results files and report pages, and writing of pages with embedded results.

Inside a page each results file is a ``<script type="application/x-ndjson">``, which browsers neither run nor
display.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path, PurePath
from typing import ClassVar

from peagle_bench.report.rendering import Rendered
from peagle_bench.results.records import Header, Record
from peagle_bench.results.result_file import Results, collect, from_line, read, to_line
from peagle_sm.aws.files import write_file
from peagle_sm.core.errors import SpecError

_BLOCK = re.compile(r'<script type="application/x-ndjson"([^>]*)>\n(.*?)</script>', re.DOTALL)
_NAME = re.compile(r'data-name="([^"]*)"')


def records_of(results: Results) -> Iterable[Record]:
    """Yield all records of a file, header first."""
    yield results.header
    for part in fields(Results):
        if part.name not in ("header", "warnings", "source"):
            yield from getattr(results, part.name)


@dataclass(frozen=True)
class Embedded(Rendered):
    """A results file as an element of a page."""

    id: str
    name: str | None
    lines: list[str]
    template: ClassVar[str] = "data.html"


def embed(files: Sequence[Results]) -> list[Embedded]:
    """Encode results files as elements of a page; ``<`` occurs only in strings, so it can be escaped."""
    return [
        Embedded(
            f"results-{number}",
            PurePath(results.source).name if results.source else None,
            [to_line(record).replace("<", "\\u003c") for record in records_of(results)],
        )
        for number, results in enumerate(files, start=1)
    ]


def extract(page: str) -> list[Results]:
    """Read the results files inside a page.

    Raises:
        SpecError: the page has no results, or they cannot be read.
    """
    blocks = _BLOCK.findall(page)
    if not blocks:
        raise SpecError(
            "this page has no results of peagle-sm",
            next_step="give a page that `peagle-sm report` wrote, or the results file itself",
        )
    return [_results(block.splitlines(), _name(attributes)) for attributes, block in blocks]


def _name(attributes: str) -> str | None:
    match = _NAME.search(attributes)
    return html.unescape(match[1]) if match else None


def _results(lines: Sequence[str], name: str | None) -> Results:
    try:
        records = [from_line(line) for line in lines if line]
    except ValueError as error:
        raise SpecError(
            f"the results inside the page cannot be read: {error}", next_step="create the report again"
        ) from error
    if not records or not isinstance(records[0], Header):
        raise SpecError("the results inside the page have no header", next_step="create the report again")
    return replace(collect(records), source=name)


_PAGE = (".html", ".htm")


def read_files(paths: Sequence[Path]) -> list[Results]:
    """Read results files and report pages; a page may contain several files.

    Raises:
        SpecError: a file is missing or cannot be read as results; the message names it.
    """
    files: list[Results] = []
    for path in paths:
        files += _page(path) if path.suffix.lower() in _PAGE else [replace(read(path), source=str(path))]
    return files


def _page(path: Path) -> list[Results]:
    try:
        return extract(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError(f"report {path} not found", next_step="check the path") from None
    except UnicodeDecodeError:
        raise SpecError(f"{path} is not a report: it is not text", next_step="give a results file") from None
    except SpecError as error:
        raise SpecError(f"{path}: {error.message}", next_step=error.next_step) from error


def write_page(path: Path, page: str) -> None:
    """Write a page atomically: a browser may have the old one open.

    Raises:
        CannotWrite: the file cannot be written.
    """
    write_file(path, page, parents=True)
