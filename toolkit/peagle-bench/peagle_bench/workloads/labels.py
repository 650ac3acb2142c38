"""Labels of a whole workload: too many values of one are refused, or cut in recorded traffic. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from peagle_sm.core.errors import SpecError
from peagle_sm.core.request_slices import MOST_VALUES, frequent_values
from peagle_sm.core.slice_values import OTHER


def refuse_many_values(labels: Iterable[Mapping[str, str]], origin: str) -> None:
    """Refuse a label with so many values that no slice has enough prompts.

    Raises:
        SpecError: a label has more than `MOST_VALUES` values.
    """
    values: dict[str, set[str]] = {}
    for line_labels in labels:
        for name, value in line_labels.items():
            values.setdefault(name, set()).add(value)
    for name, used in values.items():
        if len(used) > MOST_VALUES:
            raise SpecError(
                f"{origin}: the label {name!r} has {len(used):,} values; allowed: {MOST_VALUES}, since each"
                " value is a slice and needs several prompts",
                next_step="use a coarser label, for example a team in place of a user",
            )


def bounded_labels(
    labels: Sequence[Mapping[str, str]],
) -> tuple[list[dict[str, str]], tuple[str, ...]]:
    """Return labels of recorded traffic with at most `MOST_VALUES` values each, and notes on those cut.

    Each writer bounds its own values, but several writers together can exceed the bound, and the user cannot
    change what is recorded. So the most frequent values stay, and the others count as `OTHER`.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in labels:
        for name, value in row.items():
            counts[name][value] += 1
    kept: dict[str, set[str]] = {}
    notes = []
    for name, count in counts.items():
        kept[name] = frequent_values(count) | {OTHER}
        distinct = len(count.keys() - {OTHER})
        if distinct > MOST_VALUES:
            notes.append(
                f"the label {name!r} has {distinct:,} values; the {MOST_VALUES} most frequent are kept,"
                f" the others count as {OTHER!r}. Record with a coarser label, for example a team in place of"
                " a user"
            )
    bounded = [
        {name: value if value in kept[name] else OTHER for name, value in row.items()} for row in labels
    ]
    return bounded, tuple(notes)
