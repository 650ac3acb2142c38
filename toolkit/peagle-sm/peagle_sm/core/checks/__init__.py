"""Checks of known problems, each with its cause, source and fix."""

from __future__ import annotations

from peagle_sm.core.checks import (
    account,
    drafters,
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
from peagle_sm.core.checks.base import SPEC, Check, check
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.words import Finding, worst_first

__all__ = ["ALL_CHECKS", "SPEC_CHECKS", "Check", "check", "run_checks"]

_MODULES = (
    model,
    drafters,
    placement,
    image,
    jumpstart,
    environment,
    engine_settings,
    lifecycle,
    account,
    resources,
    machine,
)

ALL_CHECKS = tuple(
    member for module in _MODULES for member in vars(module).values() if isinstance(member, Check)
)
"""Every check, in the order of the modules and of the functions in them."""

SPEC_CHECKS = tuple(member for member in ALL_CHECKS if member.reads == SPEC)
"""Checks that a plan runs: they need only the spec and the catalogue."""


def run_checks(draft: Draft) -> tuple[Finding, ...]:
    """Run all checks; errors come first, otherwise in the order of the checks."""
    return tuple(worst_first(finding for member in SPEC_CHECKS for finding in member.findings(draft)))
