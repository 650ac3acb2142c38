"""Each known trap is one check: what it looks for, why it hurts, who says so, how to mend it."""

from __future__ import annotations

from peagle_sm.core.checks import (
    engine,
    environment,
    facts,
    lifecycle,
    local,
    money,
    placement,
    roles,
    speculation,
)
from peagle_sm.core.checks.base import Check, Note

__all__ = ["ALL_CHECKS", "Check", "Note", "run_checks"]

from peagle_sm.core.records import Finding
from peagle_sm.core.resolve import Draft

ALL_CHECKS: tuple[Check, ...] = (
    *facts.CHECKS,
    *local.CHECKS,
    *speculation.CHECKS,
    *engine.CHECKS,
    *environment.CHECKS,
    *placement.CHECKS,
    *roles.CHECKS,
    *lifecycle.CHECKS,
    *money.CHECKS,
)

_ORDER = {"error": 0, "warning": 1, "info": 2}


def run_checks(draft: Draft) -> tuple[Finding, ...]:
    """Run every check; errors come first, otherwise in the order of the checks."""
    findings = [
        Finding(check.name, note.severity, note.message, note.next_step or check.remedy, check.source)
        for check in ALL_CHECKS
        for note in check.look(draft)
    ]
    return tuple(sorted(findings, key=lambda finding: _ORDER[finding.severity]))
