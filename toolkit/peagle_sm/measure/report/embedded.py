"""The results inside the page: put in as JSON lines, and read back. Pure.

Each file is a ``<script type="application/x-ndjson">``, which browsers neither run nor show.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

from peagle_sm.core.display.markup import Safe, join, tag
from peagle_sm.core.errors import SpecError
from peagle_sm.measure.records import (
    ArmRecord,
    CheckRecord,
    ComparisonRecord,
    FitRecord,
    Header,
    PointRecord,
    Record,
    RequestRecord,
)
from peagle_sm.measure.result_file import Results, from_line, to_line

TYPE = "application/x-ndjson"
_BLOCK = re.compile(rf'<script type="{TYPE}"([^>]*)>\n(.*?)</script>', re.DOTALL)
_NAME = re.compile(r'data-name="([^"]*)"')


def records_of(results: Results) -> Iterable[Record]:
    """All records of a file, header first."""
    yield results.header
    for part in (results.arms, results.requests, results.points, results.comparisons, results.fits):
        yield from part
    yield from results.checks


def embed(files: Sequence[Results]) -> Safe:
    """The files as elements of a page. ``<`` stands in strings alone, so its escape is the same JSON."""
    blocks = []
    for number, results in enumerate(files, start=1):
        lines = "\n".join(to_line(record).replace("<", "\\u003c") for record in records_of(results))
        name = {"data_name": PurePath(results.source).name} if results.source else {}
        blocks.append(tag("script", Safe(f"\n{lines}\n"), type=TYPE, id=f"results-{number}", **name))
    return join(*blocks, by="\n")


def extract(page: str) -> list[Results]:
    """The files inside a page.

    Raises:
        SpecError: there are none, or one cannot be read.
    """
    blocks = _BLOCK.findall(page)
    if not blocks:
        raise SpecError(
            "this page holds no results of peagle-sm",
            next_step="name a page that `peagle-sm report` wrote, or the results file itself",
        )
    return [_results(block.splitlines(), _name(attributes)) for attributes, block in blocks]


def _name(attributes: str) -> str | None:
    found = _NAME.search(attributes)
    return html.unescape(found[1]) if found else None


def _results(lines: Sequence[str], name: str | None) -> Results:
    try:
        found = [from_line(line) for line in lines if line]
    except ValueError as error:
        raise SpecError(
            f"the results inside the page cannot be read: {error}", next_step="make the report again"
        ) from error
    header = found[0] if found else None
    if not isinstance(header, Header):
        raise SpecError("the results inside the page have no header", next_step="make the report again")

    def of(kind: type[Any]) -> tuple[Any, ...]:
        return tuple(record for record in found if isinstance(record, kind))

    return Results(
        header,
        of(ArmRecord),
        of(RequestRecord),
        of(PointRecord),
        of(ComparisonRecord),
        of(FitRecord),
        of(CheckRecord),
        source=name,
    )
