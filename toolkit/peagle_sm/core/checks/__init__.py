"""Each known trap is one check: what it looks for, why it hurts, who says so, how to mend it."""

from __future__ import annotations

from peagle_sm.core.checks import (
    account,
    environment,
    image,
    jumpstart,
    lifecycle,
    machine,
    model,
    placement,
    resources,
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
    *model.MODEL_CHECKS,
    *placement.REGION_CHECKS,
    *model.DRAFT_HEAD_CHECKS,
    *image.ENGINE_CHECKS,
    *image.ADVISORY_CHECKS,
    *image.REGISTRY_CHECKS,
    *jumpstart.CHECKS,
    *environment.LIMIT_CHECKS,
    *environment.SETTING_CHECKS,
    *environment.EXPOSURE_CHECKS,
    *placement.INSTANCE_CHECKS,
    *account.SPEC_ROLE_CHECKS,
    *lifecycle.LIFECYCLE_CHECKS,
    *lifecycle.COST_CHECKS,
    *account.ACCOUNT_CHECKS,
    *resources.CHECKS,
    *model.HEAD_FILE_CHECKS,
    *model.VOCABULARY_CHECKS,
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
