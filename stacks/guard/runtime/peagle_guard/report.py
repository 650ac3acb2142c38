"""What a sweep tells about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from peagle_guard.records import Decision, Evidence, Lifecycle


@dataclass(frozen=True)
class Entry:
    """One endpoint in the report."""

    name: str
    arn: str
    status: str
    evidence: str
    action: str
    reason: str
    owner: str
    expires_at: datetime | None = None
    quiet_since: datetime | None = None
    faults: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it in JSON's types; times are ISO."""
        told: dict[str, Any] = {
            "name": self.name,
            "arn": self.arn,
            "status": self.status,
            "evidence": self.evidence,
            "action": self.action,
            "reason": self.reason,
            "expires_at": _iso(self.expires_at),
            "quiet_since": _iso(self.quiet_since),
            "owner": self.owner,
        }
        return {**told, "faults": list(self.faults)} if self.faults else told


@dataclass(frozen=True)
class Report:
    """One sweep; ``skipped`` says why nothing was looked at, where that is so."""

    time: datetime
    endpoints: tuple[Entry, ...]
    calls: Mapping[str, int]
    faults: tuple[str, ...] = ()
    skipped: str | None = None

    @property
    def failures(self) -> tuple[str, ...]:
        """Everything that failed, in words."""
        return (*self.faults, *(f"{each.name}: {fault}" for each in self.endpoints for fault in each.faults))

    def as_json(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        told: dict[str, Any] = {
            "time": _iso(self.time),
            "endpoints": [each.as_json() for each in self.endpoints],
            "calls": dict(self.calls),
        }
        if self.faults:
            told["faults"] = list(self.faults)
        return {**told, "skipped": self.skipped} if self.skipped else told


def entry(
    decision: Decision,
    lifecycle: Lifecycle,
    status: str,
    evidence: Evidence | None,
    faults: tuple[str, ...] = (),
) -> Entry:
    """Return the report's entry about one decision."""
    return Entry(
        name=decision.record.name,
        arn=decision.record.arn,
        status=status,
        evidence=str(evidence.kind) if evidence else "",
        action=str(decision.action),
        reason=decision.reason,
        owner=lifecycle.owner,
        expires_at=decision.expires_at,
        quiet_since=decision.record.quiet_since,
        faults=faults,
    )


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
