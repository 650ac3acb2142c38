"""Which run a figure is of, where several files stand in one report. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from pathlib import PurePath

from peagle_sm.measure.result_file import Results


def names_of(files: Sequence[Results]) -> tuple[str, ...]:
    """What to call each file: its name, else its run's; the whole path where two names are alike."""
    short = [PurePath(each.source).name if each.source else each.header.run_id for each in files]
    long = [each.source or each.header.run_id for each in files]
    seen = Counter(short)
    named = [short[at] if seen[short[at]] == 1 else long[at] for at in range(len(files))]
    again = Counter(named)
    return tuple(
        name if again[name] == 1 else f"{name} ({number})" for number, name in enumerate(named, start=1)
    )


def are_alike(keys: Iterable[Hashable]) -> bool:
    """Whether two of the rows with these keys would read alike."""
    found = list(keys)
    return len(set(found)) < len(found)
