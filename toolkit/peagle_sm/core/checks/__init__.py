"""Checks of known problems, each with its cause, source and fix."""

from __future__ import annotations

from peagle_sm.core.checks import (
    account,
    engine_settings,
    environment,
    image,
    jumpstart,
    lifecycle,
    machine,
    model,
    placement,
    resources,
)
from peagle_sm.core.checks.base import SPEC, Check, Fix, check, preflight_check
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.words import Finding, worst_first

__all__ = [
    "ALL_CHECKS",
    "SPEC_CHECKS",
    "Check",
    "Fix",
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
    *engine_settings.ENGINE_SETTING_CHECKS,
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
"""Checks that a plan runs: they need only the spec and the catalogue."""


def run_checks(draft: Draft) -> tuple[Finding, ...]:
    """Run all checks; errors come first, otherwise in the order of the checks."""
    return tuple(worst_first(finding for one in SPEC_CHECKS for finding in one.findings(draft)))
