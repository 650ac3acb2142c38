"""Pages of which a program writes a part, between two marks. Pure."""

from __future__ import annotations


def insert(page: str, begin: str, end: str, written: str) -> str:
    """Replace what stands between the two marks.

    Raises:
        ValueError: the page lacks one of them.
    """
    before, marker, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not marker or not closed:
        raise ValueError(f"the page lacks {begin} or {end}")
    return f"{before}{begin}\n{written}\n{end}{after}"
