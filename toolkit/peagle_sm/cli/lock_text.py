"""A lock and its changes as people read them, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from peagle_sm.cli.plan_text import render_findings
from peagle_sm.cli.table import render_fields

if TYPE_CHECKING:
    from peagle_sm.core.jumpstart.changes import Change
    from peagle_sm.service.planning.locking import Locking

_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


def render_lock(made: Locking, *, written: bool) -> str:
    """What is locked; what changed, where there was a lock before; what there is to say about it."""
    blocks = [_heading(made, written), render_fields(_facts(made), "  ")]
    if made.before is not None and made.changes:
        blocks.append(f"Changes\n{render_changes(made.changes)}")
    if made.findings:
        blocks.append("Findings\n" + render_findings(made.findings))
    return "\n\n".join(blocks)


def render_changes(changes: Sequence[Change]) -> str:
    """One field a line, with what it was and what it is; long values below each other."""
    lines = []
    for one in changes:
        lines.append(f"  {_SIGNS[one.kind]} {one.field}")
        if one.before is not None:
            lines.append(f"      was  {one.before}")
        if one.after is not None:
            lines.append(f"      now  {one.after}")
    return "\n".join(lines)


def lock_data(made: Locking, *, written: bool) -> dict[str, Any]:
    """The lock, its changes and the findings as JSON-able data."""
    return {
        "path": str(made.path),
        "written": written,
        "stale": made.stale and not written,
        "newest_version": made.newest,
        "changes": [asdict(one) for one in made.changes] if made.before is not None else [],
        "findings": [asdict(one) for one in made.findings],
        "lock": made.lock.model_dump(mode="json"),
    }


def _heading(made: Locking, written: bool) -> str:
    if not made.stale:
        return f"{made.path} is up to date"
    if written:
        return f"{made.path} written"
    return f"{made.path} would change" if made.before is not None else f"{made.path} would be written"


def _facts(made: Locking) -> list[tuple[str, str]]:
    lock = made.lock
    model, source = lock.jumpstart, lock.source
    others = [name for name in model.ranking if name != model.config]
    facts = [
        ("model", f"{model.model_id} {model.version}"),
        ("found by", "its id" if source.found_by == "id" else f"its Hugging Face URL, {model.url}"),
        ("config", model.config + (f" (also: {', '.join(others)})" if others else "")),
        ("read from", f"s3://{source.bucket}/{source.spec_key}\nsha256 {source.sha256}"),
    ]
    for name, one in lock.instances.items():
        facts.append((name, f"{one.image}\n{one.target_uri}"))
    facts.append(("draft head", f"{lock.head.uri}\nchannel {lock.head.channel}" if lock.head else "none"))
    licence = lock.licence
    terms = "must be accepted" if licence.gated else "nothing to accept"
    if licence.gated and licence.accepted:
        terms = "accepted in the spec"
    facts.append(("licence", f"{licence.name or 'not named'}: {terms}"))
    return facts
