"""Columns of the tables by slice: a short table for a terminal, and the complete one of the page. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from peagle_bench.report import formatting
from peagle_bench.results.records import Interval, SliceRecord

DASH = formatting.DASH
_MOST_POSITIONS = 7  #: of survival, in a row


def verdict(one: SliceRecord) -> str:
    """Return the result of a slice in a word or two; empty for one of `bench`, which compares nothing."""
    if one.wrong_outputs is not None:
        return "faults" if one.wrong_outputs else "differs" if one.differs else "alike"
    if one.speed_up is None:
        return "too few" if one.baseline else ""
    if one.doubt is not None:
        return "no verdict"
    if not one.speed_up.shown:
        return "undecided"
    return "faster" if one.speed_up.value > 1 else "slower"


def number(interval: Interval | None) -> str:
    """Format an interval's value; a dash for None."""
    return DASH if interval is None else formatting.number(interval.value)


def span(interval: Interval | None) -> str:
    """Format an interval's bounds; a dash for None."""
    return DASH if interval is None else formatting.span(interval)


def shares(interval: Interval | None) -> str:
    """Format the bounds of a share in percent; a dash for None."""
    if interval is None:
        return DASH
    return f"[{100 * interval.low:.0f}%, {100 * interval.high:.0f}%]"


def alike(one: SliceRecord) -> str:
    """Format ``39 of 40`` identical answers; a dash if none were compared."""
    return f"{one.identical_outputs} of {one.compared_outputs}" if one.compared_outputs else DASH


def survival(one: SliceRecord) -> str:
    """Format the survival at the first positions in a row; a dash without drafts."""
    if not one.survival:
        return DASH
    shown = " ".join(f"{100 * share:.0f}" for share in one.survival[:_MOST_POSITIONS])
    return f"{shown} …" if len(one.survival) > _MOST_POSITIONS else f"{shown} %"


def survival_at(one: SliceRecord, position: int) -> str:
    """Format ``96% [90%, 99%]``, the survival at a position; a dash if the slice has no such position."""
    if position > len(one.survival):
        return DASH
    share = formatting.share(one.survival[position - 1])
    return f"{share} {shares(one.survival_intervals[position - 1])}" if one.survival_intervals else share


@dataclass(frozen=True)
class Column:
    """Column of a table of slices; ``words`` are aligned to the left."""

    head: str
    cell: Callable[[SliceRecord], str]
    words: bool = False


PROMPTS = Column("prompts", lambda one: f"{one.prompts:,}")
ACCEPTED = Column("accepted", lambda one: number(one.acceptance_length))
ACCEPTED_SPAN = Column("interval", lambda one: span(one.acceptance_length), words=True)
IDENTICAL = Column("identical", alike)
_IDENTITY_SPAN = Column("interval", lambda one: shares(one.identity), words=True)
_SPEED_UP = Column("x", lambda one: DASH if one.speed_up is None else formatting.ratio(one.speed_up.value))
_SPEED_UP_SPAN = Column("interval", lambda one: span(one.speed_up), words=True)
_VERDICT = Column("", verdict, words=True)
_OF_PAIR = (PROMPTS, _SPEED_UP, _SPEED_UP_SPAN, ACCEPTED, IDENTICAL, _VERDICT)
_OF_ANSWERS = (PROMPTS, IDENTICAL, _IDENTITY_SPAN, ACCEPTED, ACCEPTED_SPAN, _VERDICT)
_OF_ARM = (PROMPTS, ACCEPTED, ACCEPTED_SPAN, Column("survival by position", survival, words=True))


def columns(records: Sequence[SliceRecord]) -> list[Column]:
    """Return the columns that fit a terminal, after the first one with the slices' names."""
    every = _OF_ANSWERS if is_verified(records) else _OF_PAIR if records[0].baseline else _OF_ARM
    return with_content(every, records)


def complete_columns(records: Sequence[SliceRecord]) -> list[Column]:
    """Return the columns of all figures with their intervals, and one for each position of survival."""
    positions = max(len(one.survival) for one in records)
    every = (
        PROMPTS,
        replace(_SPEED_UP, head="speed-up"),
        _SPEED_UP_SPAN,
        ACCEPTED,
        ACCEPTED_SPAN,
        IDENTICAL,
        _IDENTITY_SPAN,
        *(
            Column(f"position {at}", partial(survival_at, position=at), words=True)
            for at in range(1, positions + 1)
        ),
    )
    return with_content(every, records)


def with_content(every: Sequence[Column], records: Sequence[SliceRecord]) -> list[Column]:
    """Leave out the columns in which no slice has a figure."""
    return [column for column in every if any(column.cell(one) not in ("", DASH) for one in records)]


def is_verified(records: Sequence[SliceRecord]) -> bool:
    """Return whether a group of slices is of `verify`."""
    return records[0].wrong_outputs is not None
