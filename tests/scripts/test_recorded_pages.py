"""Pages of figures whose script is gone: each decimal figure in their tables is in the record."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NUMBER = re.compile(r"(?<![\w.])\d+\.\d+(?!\.?\d)")
#: Page, its record, and figures of the page that are sums or medians of what is recorded.
PAGES = (
    ("docs/reference/trainers.md", "docs/reference/trainers.json", ()),
    ("docs/reference/learn-safety.md", "docs/reference/learn-safety", ()),
)


def numbers_in(value: Any) -> Iterator[float]:
    match value:
        case dict():
            yield from (number for each in value.values() for number in numbers_in(each))
        case list():
            yield from (number for each in value for number in numbers_in(each))
        case str():
            yield from map(float, NUMBER.findall(value))
        case int() | float():
            yield abs(value)


def recorded(path: Path) -> set[float]:
    """The numbers of a JSON file, or of all files of a folder."""
    numbers: set[float] = set()
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        text = file.read_text(encoding="utf-8")
        for document in text.splitlines() if file.suffix == ".jsonl" else [text]:
            numbers |= set(numbers_in(json.loads(document)))
    return numbers


@pytest.mark.parametrize(("page", "record", "derived"), PAGES)
def test_the_figures_of_a_page_are_in_its_record(
    page: str, record: str, derived: tuple[str, ...], root: Path
) -> None:
    text = (root / page).read_text(encoding="utf-8")
    assert "last in: e9c3ece5" in text
    rounded = {f"{number:.{digits}f}" for number in recorded(root / record) for digits in range(1, 7)}
    figures = [each for line in text.splitlines() if line.startswith("|") for each in NUMBER.findall(line)]
    assert len(figures) > 15
    assert {each for each in figures if each not in rounded} <= set(derived)
