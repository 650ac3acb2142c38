"""Checks on what the endpoint can cost."""

from __future__ import annotations

from collections.abc import Iterator

from peagle_sm.core.checks.base import Check, Note, check
from peagle_sm.core.plan.cost import cost_of
from peagle_sm.core.plan.resolve import Draft


@check(
    "price",
    why="An endpoint bills from its first minute to its last, with or without traffic.",
    source="the catalogue of peagle-sm; the AWS Price List API has the current figure",
    remedy="Look the price up on AWS's SageMaker pricing page before deploying.",
    severity="warning",
    url="https://aws.amazon.com/sagemaker/ai/pricing/",
)
def price(draft: Draft) -> Iterator[Note]:
    """A price that is not known, or is not SageMaker's own."""
    cost = cost_of(draft)
    if cost.usd_per_hour is None:
        yield Note("warning", cost.source)
    elif "NOT SageMaker" in cost.source:
        yield Note("warning", f"the price is EC2's, and SageMaker's own may be higher: {cost.source}")


@check(
    "budget",
    why="max_lifetime_hours times the price is what may be spent if nobody looks.",
    source="this project",
    remedy="Shorten lifecycle.max_lifetime_hours, or raise lifecycle.budget_usd.",
)
def budget(draft: Draft) -> Iterator[Note]:
    """A lifetime that could cost more than the budget."""
    limit, cost = draft.spec.lifecycle.budget_usd, cost_of(draft)
    if limit is None:
        return
    if cost.max_usd is None:
        yield Note("error", f"lifecycle.budget_usd: cannot be held to {limit:g} USD: {cost.source}")
    elif cost.max_usd > limit:
        yield Note(
            "error",
            f"lifecycle: {draft.spec.lifecycle.max_lifetime_hours:g} h can cost {cost.max_usd:.2f} USD; "
            f"budget_usd allows {limit:.2f}",
        )


CHECKS: tuple[Check, ...] = (price, budget)
