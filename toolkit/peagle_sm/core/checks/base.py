"""What a check is: one trap, explained; of a spec, of the account, or of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeVar

from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.words import Severity

SPEC = "spec"
"""What a check of the spec alone reads: nothing."""

Edits = Mapping[str, Any]
"""Fields of a spec by their dotted names, and what to write there."""


@dataclass(frozen=True)
class Note:
    """What a check found; without a ``next_step`` the check's remedy stands.

    An advisory ``expires``: from that day on it may no longer hold, and says so.
    """

    severity: Severity
    message: str
    next_step: str = ""
    expires: date | None = None


@dataclass(frozen=True)
class Fix:
    """How `doctor --fix` mends it: by ``edits`` to the spec, or by a ``command`` that asks for itself.

    ``edits`` are pure and may be empty where nothing can be written. ``command`` is one of this program's,
    without its name, such as ("guard", "install").
    """

    what: str
    edits: Callable[[Draft], Edits] | None = None
    command: tuple[str, ...] = ()


Look = Callable[[Draft], Iterator[Note]]
Judge = Callable[[Any, "Draft | None"], Iterator[Note]]
AnyFact = TypeVar("AnyFact")


@dataclass(frozen=True)
class Check:
    """One trap: ``what`` is looked for, ``why`` it hurts, the ``source`` that says so, the ``remedy``.

    ``url`` is the public page behind ``source``, empty where the rule is this project's own. ``severity``
    is the worst that it reports. ``reads`` names the reader whose fact it judges, "spec" for none. ``look``
    takes the draft, or the fact and the draft. ``needs_spec`` is False where it says something without one.
    """

    id: str
    what: str
    why: str
    source: str
    remedy: str
    look: Callable[..., Iterator[Note]]
    severity: Severity = "error"
    url: str = ""
    reads: str = SPEC
    needs_spec: bool = True
    fix: Fix | None = None


def check(
    check_id: str,
    *,
    why: str,
    source: str,
    remedy: str,
    severity: Severity = "error",
    url: str = "",
    fix: Fix | None = None,
) -> Callable[[Look], Check]:
    """Make a check of a function over a draft; its docstring is the ``what``."""

    def wrap(look: Look) -> Check:
        what = (look.__doc__ or "").strip()
        return Check(check_id, what, why, source, remedy, look, severity, url, fix=fix)

    return wrap


def preflight_check(
    check_id: str,
    *,
    reads: str,
    why: str,
    source: str,
    remedy: str,
    severity: Severity = "error",
    url: str = "",
    needs_spec: bool = True,
    fix: Fix | None = None,
) -> Callable[[Callable[[AnyFact, Draft | None], Iterator[Note]]], Check]:
    """Make a check of a pure function over a fact that was read (``reads`` names it) and the draft, if any.

    The docstring is the ``what``. It is only called where the fact could be read.
    """

    def wrap(judge: Callable[[AnyFact, Draft | None], Iterator[Note]]) -> Check:
        what = (judge.__doc__ or "").strip()
        return Check(check_id, what, why, source, remedy, judge, severity, url, reads, needs_spec, fix)

    return wrap
