"""What `doctor --fix` would do: fields to write into the spec, and commands to run; nothing is done here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from peagle_sm.aws.storage.objects import split_uri
from peagle_sm.core.checks import ALL_CHECKS
from peagle_sm.core.checks.preflight import Result
from peagle_sm.core.plan.resolve import Draft

_OF_OTHERS = ("jumpstart-cache-prod-", "jumpstart-private-cache-prod-")


@dataclass(frozen=True)
class Mending:
    """``fields``: dotted name -> value; ``reasons``: the same names -> what is mended by it.

    ``commands``: this program's own, each once; they ask for themselves and show what they cost.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    commands: tuple[tuple[str, ...], ...] = ()


def mending(results: Iterable[Result], draft: Draft | None) -> Mending:
    """Collect the fixes of what is in error or warned of."""
    fixes = {each.id: each.fix for each in ALL_CHECKS}
    fields: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    commands: list[tuple[str, ...]] = []
    for result in results:
        fix = fixes.get(result.check)
        if fix is None or result.status not in ("error", "warning"):
            continue
        if fix.edits is not None and draft is not None:
            for name, value in fix.edits(draft).items():
                fields[name] = value
                reasons.setdefault(name, f"{result.check}: {fix.what}")
        if fix.command and fix.command not in commands:
            commands.append(fix.command)
    return Mending(fields, reasons, tuple(commands))


def own_buckets(draft: Draft | None) -> tuple[str, ...]:
    """Return the artifacts' buckets that are not JumpStart's: the guard's role must read them."""
    if draft is None:
        return ()
    uris = [uri for uri in (draft.model_uri, draft.head_uri) if uri]
    buckets = dict.fromkeys(split_uri(uri)[0] for uri in uris)
    return tuple(each for each in buckets if not each.startswith(_OF_OTHERS))
