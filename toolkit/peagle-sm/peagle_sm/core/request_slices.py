"""Slices of a request: properties that are known without extra work, by which figures are split. Pure.

A slice is a dimension and a value: ``script: han``, ``prompt tokens: 1k to 4k``. Most come from the request's
body, some from the answer (its length, its cached tokens), and labels come from the user's workload. A
dimension that does not apply to a request is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peagle_sm.core.errors import SpecError
from peagle_sm.core.slice_values import LONGEST_VALUE, OTHER, cached_share, token_bucket

MOST_LABELS = 4
MOST_VALUES = 20  #: of one label: a slice needs several prompts, and each costs the others some certainty


def request_slices(
    slices: Mapping[str, str],
    turn: int,
    category: str | None = None,
    *,
    input_tokens: int | None,
    cached_tokens: int | None,
    output_tokens: int | None,
) -> dict[str, str]:
    """Return all slices of a request: those of its body, ``slices``, and those of its answer.

    ``turn`` is its index in a conversation. Token counts are None where unknown.
    """
    result = dict(slices)
    if category is not None:
        result["category"] = category
    if slices:  # files of earlier versions have none: then nothing is split by lengths either
        result["turn"] = str(turn + 1) if turn < 3 else "4 or later"
        if input_tokens is not None:
            result["prompt tokens"] = token_bucket(input_tokens)
            if cached_tokens is not None:
                result["cached prompt"] = cached_share(cached_tokens, input_tokens)
        if output_tokens is not None:
            result["output tokens"] = token_bucket(output_tokens)
    return result


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


def frequent_values(counts: Mapping[str, int], most: int = MOST_VALUES) -> set[str]:
    """Return the ``most`` values that are counted most often, without `OTHER`."""
    values = sorted(counts.keys() - {OTHER}, key=lambda value: (-counts[value], value))
    return set(values[:most])
