"""Largest K that a tuning tries: its default, and what a head's training allows. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from peagle_bench.tune.arms import arm_spec
from peagle_sm.core.plan.resolve import DEFAULT_REGION, PLACEHOLDER_ACCOUNT, Context
from peagle_sm.core.planning import Plan, make_plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.spec.modes import Mode

MAX_K = 11


def largest_k(base: EndpointSpec, modes: Sequence[Mode]) -> int:
    """Return the largest K to try by default: `MAX_K`, or less if a head was trained for less.

    Only heads that draft in one pass are limited to the depth of their training.

    Raises:
        SpecError: no head for a mode, or the name is too long for SageMaker.
    """
    if base.own_model is not None:  # the catalogue does not have its heads
        return MAX_K
    context = Context(PLACEHOLDER_ACCOUNT, DEFAULT_REGION)
    drafts = [make_plan(arm_spec(base, mode, 2), context).draft for mode in modes]
    depths = [draft.head.trained_depth for draft in drafts if draft.head and draft.mode_facts.one_pass]
    return max(2, min([MAX_K, *(depth for depth in depths if depth is not None)]))


def too_deep(plan: Plan) -> str | None:
    """Return why the plan's K is beyond the depth that its head was trained for; None if it is not."""
    findings = (f for f in plan.findings if f.check == "trained-depth" and f.severity == "error")
    return next((finding.message for finding in findings), None)
