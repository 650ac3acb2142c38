"""Slices of a request: properties that are known without extra work, by which figures are split. Pure.

A slice is a dimension and a value: ``script: han``, ``prompt tokens: 1k to 4k``. Most come from the request's
body, some from the answer (its length, its cached tokens), and labels come from the user's workload. A
dimension that does not apply to a request is left out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from peagle_sm.core.errors import SpecError
from peagle_sm.core.slice_values import (
    BUCKETS,
    LABEL,
    LONGEST_VALUE,
    OTHER,
    SERVED,
    cached_share,
    slices_of_body,
    token_bucket,
)

__all__ = [
    "BUCKETS",
    "DIMENSIONS",
    "LABEL",
    "Answered",
    "bounded_labels",
    "checked_labels",
    "frequent_values",
    "refuse_many_values",
    "slices_of",
    "slices_of_body",
    "token_bucket",
]

#: Dimensions of every request; labels are added to them as ``label:NAME``.
DIMENSIONS = (
    "category",
    "api",
    "turn",
    *(name for name in SERVED if name != "api"),
)
MOST_LABELS = 4
MOST_VALUES = 20  #: of one label: a slice needs several prompts, and each costs the others some certainty


class Answered(Protocol):
    """A request with its answer's token counts, None where unknown: a `RequestRecord`, for example."""

    @property
    def slices(self) -> Mapping[str, str]:
        """Slices of its body."""

    @property
    def category(self) -> str | None:
        """Category of its prompt."""

    @property
    def turn(self) -> int:
        """Index in a conversation of several turns."""

    @property
    def input_tokens(self) -> int | None:
        """Tokens of the prompt."""

    @property
    def cached_tokens(self) -> int | None:
        """Prompt tokens found in the prefix cache."""

    @property
    def output_tokens(self) -> int | None:
        """Tokens of the answer."""


def slices_of(record: Answered) -> dict[str, str]:
    """Return all slices of a measured request: those of its body, and those of its answer."""
    slices = dict(record.slices)
    if record.category is not None:
        slices["category"] = record.category
    if record.slices:  # files of earlier versions have none: then nothing is split by lengths either
        slices["turn"] = str(record.turn + 1) if record.turn < 3 else "4 or later"
        if record.input_tokens is not None:
            slices["prompt tokens"] = token_bucket(record.input_tokens)
            if record.cached_tokens is not None:
                slices["cached prompt"] = cached_share(record.cached_tokens, record.input_tokens)
        if record.output_tokens is not None:
            slices["output tokens"] = token_bucket(record.output_tokens)
    return slices


def checked_labels(value: Any, where: str = "") -> dict[str, str]:
    """Check the labels of a line of a workload; ``where`` names the line.

    Raises:
        SpecError: not an object of a few short names and texts.
    """
    at = f"{where}: " if where else ""
    if not isinstance(value, Mapping) or len(value) > MOST_LABELS:
        shown = f"{len(value)} labels" if isinstance(value, Mapping) else _quoted(value)
        raise SpecError(
            f"{at}labels: found {shown}; allowed: an object with at most {MOST_LABELS} names",
            next_step='write {"labels": {"team": "search"}}',
        )
    for name, label in value.items():
        if not name or not name.replace("-", "").replace("_", "").isalnum() or len(name) > 32:
            raise SpecError(
                f"{at}labels: found the name {_quoted(name)}; allowed: up to 32 letters, digits, - and _",
                next_step='write {"labels": {"team": "search"}}',
            )
        if not isinstance(label, str) or not 0 < len(label) <= LONGEST_VALUE or not label.isprintable():
            raise SpecError(
                f"{at}labels.{name}: found {_quoted(label)}; allowed: a text of 1 to {LONGEST_VALUE}"
                " characters, all printable",
                next_step='write {"labels": {"team": "search"}}',
            )
    return dict(value)


def _quoted(value: Any) -> str:
    """Return what was found in quotes; of a long text its beginning and its length."""
    if isinstance(value, str) and len(value) > LONGEST_VALUE:
        return f"{value[:40]!r}… ({len(value):,} characters)"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


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


def frequent_values(counts: Mapping[str, int], most: int = MOST_VALUES) -> set[str]:
    """Return the ``most`` values that are counted most often, without `OTHER`."""
    values = sorted(counts.keys() - {OTHER}, key=lambda value: (-counts[value], value))
    return set(values[:most])
