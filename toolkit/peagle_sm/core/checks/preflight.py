"""What a preflight finds out: facts that readers bring, or why they could not, and the verdict of each check.

Pure: `judge` turns facts into results; nothing here looks anything up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from peagle_sm.core.checks.base import SPEC, Check, Note
from peagle_sm.core.plan.resolve import Draft

Status = Literal["ok", "warning", "error", "unknown", "skipped"]
STATUSES: tuple[Status, ...] = ("error", "warning", "unknown", "skipped", "ok")
"""Worst first, as they are shown."""


@dataclass(frozen=True)
class Unknown:
    """A fact that could not be read; ``permission`` is the action that was denied, where it was that."""

    reason: str
    permission: str | None = None


@dataclass(frozen=True)
class Result:
    """One verdict; a check that found several things has several.

    ``permission`` is what is missing for a check that is unknown, ``fix`` what `doctor --fix` would do.
    """

    check: str
    status: Status
    message: str
    what: str
    why: str
    next_step: str = ""
    source: str = ""
    url: str = ""
    permission: str | None = None
    fix: str | None = None
    expires: str | None = None


def judge(
    checks: Iterable[Check],
    facts: Mapping[str, Any],
    draft: Draft | None,
    skip: Collection[str] = (),
) -> tuple[Result, ...]:
    """Let each check judge its fact; the worst come first, otherwise in the order of the checks.

    Args:
        checks: those to run; one whose reader is not in ``facts`` was not asked for and is left out.
        facts: what each reader brought, or an `Unknown`.
        draft: the resolved spec, None where there is none.
        skip: ids that are told as skipped, with what they would have looked for.
    """
    found = [result for check in checks for result in _results(check, facts, draft, skip)]
    return tuple(sorted(found, key=lambda result: STATUSES.index(result.status)))


def _results(
    check: Check, facts: Mapping[str, Any], draft: Draft | None, skip: Collection[str]
) -> Iterator[Result]:
    if check.reads == SPEC:
        if draft is None:
            return
    elif check.reads not in facts or (check.needs_spec and draft is None):
        return
    if check.id in skip:
        yield _skipped(check)
        return
    fact = facts.get(check.reads)
    if isinstance(fact, Unknown):
        yield _unknown(check, fact)
        return
    notes = list(check.look(draft) if check.reads == SPEC else check.look(fact, draft))
    yield from (_told(check, note, draft) for note in notes)
    if not notes:
        yield Result(check.id, "ok", "", check.what, check.why, source=check.source, url=check.url)


def _told(check: Check, note: Note, draft: Draft | None) -> Result:
    status: Status = "ok" if note.severity == "info" else note.severity
    return Result(
        check.id,
        status,
        note.message,
        check.what,
        check.why,
        note.next_step or check.remedy,
        check.source,
        check.url,
        fix=_fix(check, draft) if status != "ok" else None,
        expires=note.expires.isoformat() if note.expires else None,
    )


def _fix(check: Check, draft: Draft | None) -> str | None:
    if check.fix is None:
        return None
    if check.fix.edits is not None and (draft is None or not check.fix.edits(draft)):
        return None
    return check.fix.what


def _skipped(check: Check) -> Result:
    message = f"skipped; it looks for this: {check.what} {check.why}"
    return Result(check.id, "skipped", message, check.what, check.why, source=check.source, url=check.url)


def _unknown(check: Check, fact: Unknown) -> Result:
    step = (
        f"Ask for the permission {fact.permission}, or look yourself: {check.remedy}"
        if fact.permission
        else f"Look yourself: {check.remedy}"
    )
    return Result(
        check.id,
        "unknown",
        fact.reason,
        check.what,
        check.why,
        step,
        check.source,
        check.url,
        permission=fact.permission,
    )
