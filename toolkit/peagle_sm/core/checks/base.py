"""What a check is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from peagle_sm.core.records import Severity
from peagle_sm.core.resolve import Draft


@dataclass(frozen=True)
class Note:
    """What a check found; without a ``next_step`` the check's remedy stands."""

    severity: Severity
    message: str
    next_step: str = ""


Look = Callable[[Draft], Iterator[Note]]


@dataclass(frozen=True)
class Check:
    """One trap: ``what`` is looked for, ``why`` it hurts, the ``source`` that says so, the ``remedy``."""

    name: str
    what: str
    why: str
    source: str
    remedy: str
    look: Look


def check(name: str, *, why: str, source: str, remedy: str) -> Callable[[Look], Check]:
    """Make a check of a function; its docstring is the ``what``."""

    def wrap(look: Look) -> Check:
        return Check(name, (look.__doc__ or "").strip(), why, source, remedy, look)

    return wrap
