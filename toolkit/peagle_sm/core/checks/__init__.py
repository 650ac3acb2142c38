"""Each known trap is one check: what it looks for, why it hurts, who says so, how to mend it."""

from __future__ import annotations

from peagle_sm.core.checks import (
    account,
    advisories,
    engine,
    environment,
    exposure,
    facts,
    heads,
    image,
    jumpstart,
    lifecycle,
    local,
    machine,
    money,
    placement,
    roles,
    settings,
    speculation,
    supplies,
    vocabulary,
)
from peagle_sm.core.checks.base import SPEC, Check, Fix, Note, check, preflight_check
from peagle_sm.core.plan.records import Finding
from peagle_sm.core.plan.resolve import Draft

__all__ = [
    "ALL_CHECKS",
    "SPEC_CHECKS",
    "Check",
    "Fix",
    "Note",
    "check",
    "preflight_check",
    "run_checks",
]

ALL_CHECKS: tuple[Check, ...] = (
    *facts.CHECKS,
    *local.CHECKS,
    *speculation.CHECKS,
    *engine.CHECKS,
    *advisories.CHECKS,
    *image.CHECKS,
    *jumpstart.CHECKS,
    *environment.CHECKS,
    *settings.CHECKS,
    *exposure.CHECKS,
    *placement.CHECKS,
    *roles.CHECKS,
    *lifecycle.CHECKS,
    *money.CHECKS,
    *account.CHECKS,
    *supplies.CHECKS,
    *heads.CHECKS,
    *vocabulary.CHECKS,
    *machine.CHECKS,
)

SPEC_CHECKS = tuple(one for one in ALL_CHECKS if one.reads == SPEC)
"""Those that a plan runs: they need the spec and the catalogue alone."""

_ORDER = {"error": 0, "warning": 1, "info": 2}


def run_checks(draft: Draft) -> tuple[Finding, ...]:
    """Run every check; errors come first, otherwise in the order of the checks."""
    findings = [
        Finding(
            one.id,
            note.severity,
            note.message,
            note.next_step or one.remedy,
            one.source,
            one.url,
            note.expires.isoformat() if note.expires else None,
        )
        for one in SPEC_CHECKS
        for note in one.look(draft)
    ]
    return tuple(sorted(findings, key=lambda finding: _ORDER[finding.severity]))
