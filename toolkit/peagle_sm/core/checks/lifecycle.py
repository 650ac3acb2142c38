"""Checks of scaling, updates, idle handling and cost."""

from __future__ import annotations

from peagle_sm.core.checks.base import Findings, check
from peagle_sm.core.plan.cost import cost_of
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.words import Finding

_DEPLOY_THE_STACK = "Deploy it as a stack: `cdk deploy -c spec=<this file>`; or remove the field."


@check(
    "needs-a-stack",
    why="Scaling policies and components must be deleted before the endpoint; a stack does that.",
    source="SageMaker API: DeleteEndpoint is refused while inference components exist",
    remedy=_DEPLOY_THE_STACK,
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DeleteEndpoint.html",
)
def needs_a_stack(draft: Draft) -> Findings:
    """Scaling in a spec that is deployed without a stack."""
    if draft.context.stack is not None:
        return
    if draft.spec.autoscaling is not None:
        yield "autoscaling: requires a stack; run `peagle-sm plan --stack` to plan for one"
    if draft.scales_to_zero:
        yield (
            "lifecycle.idle: found 'scale-to-zero', which requires a stack "
            "(run `peagle-sm plan --stack` to plan for one); allowed without a stack: turn-off"
        )


@check(
    "scale-to-zero",
    why="At zero instances requests fail, and a new instance takes minutes.",
    source="SageMaker: scaling an endpoint to zero instances (inference components, MinInstanceCount 0)",
    remedy="Let clients retry requests that fail for lack of capacity, or use turn-off with a timetable.",
    url="https://docs.aws.amazon.com/sagemaker/latest/dg/endpoint-auto-scaling-zero-instances.html",
)
def scale_to_zero(draft: Draft) -> Findings:
    """Limits of scaling to zero."""
    if not draft.scales_to_zero:
        return
    yield Finding(
        "warning",
        "at zero instances requests fail until an instance runs: the first failure requests an instance, "
        "which takes minutes to boot and to load the model, and AWS may have no capacity",
    )
    if len(draft.instance_types) > 1:
        yield Finding(
            "error",
            "placement.instance_types: found several types; allowed with scale-to-zero: one",
            "List one instance type.",
        )
    unknown = [name for name in draft.instance_types if draft.instance(name) is None]
    if unknown:
        yield Finding(
            "error",
            f"placement.instance_types: the number of GPUs of {', '.join(unknown)} is not known, "
            "but a component needs it",
            f"Choose another type, for example {draft.model.default_instance_types[0]}.",
        )
    if draft.spec.placement.capacity_reservation_arn is not None:
        yield Finding(
            "warning",
            "placement.capacity_reservation_arn: reserved capacity is billed at zero instances, too",
            "Leave scale-to-zero out: it saves nothing here.",
        )


@check(
    "second-fleet",
    why="UpdateEndpoint starts the new fleet beside the old one: quota, capacity and price count twice.",
    source="SageMaker API: UpdateEndpoint (blue/green)",
    remedy="Set update: off-update-on to avoid the second fleet; the endpoint is off meanwhile.",
    severity="warning",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_UpdateEndpoint.html",
)
def second_fleet(draft: Draft) -> Findings:
    """In place updates of a stack, and the cost of their second fleet."""
    if draft.context.stack is None or draft.spec.update != "in-place":
        return
    hourly = cost_of(draft).usd_per_hour
    price = "at an unknown price" if hourly is None else f"for {hourly:,.2f} USD/hour more"
    count = draft.spec.placement.instance_count
    yield Finding(
        "warning" if draft.spec.placement.capacity_reservation_arn else "info",
        f"each in place update runs a second fleet of {count} x {' or '.join(draft.instance_types)} "
        f"beside the first, {price} until the first is gone",
    )


@check(
    "price",
    why="An endpoint is billed from its first minute to its last, with or without traffic.",
    source="the catalogue of peagle-sm; the AWS Price List API has the current figure",
    remedy="Check AWS's SageMaker pricing page before you deploy.",
    severity="warning",
    url="https://aws.amazon.com/sagemaker/ai/pricing/",
)
def price(draft: Draft) -> Findings:
    """A price that is unknown, or not SageMaker's."""
    cost = cost_of(draft)
    if cost.usd_per_hour is None:
        yield cost.source
    elif "NOT SageMaker" in cost.source:
        yield f"the price is EC2's, and SageMaker's may be higher: {cost.source}"


@check(
    "budget",
    why="max_lifetime_hours times the price is the most that an unattended endpoint costs.",
    source="this project",
    remedy="Shorten lifecycle.max_lifetime_hours, or raise lifecycle.budget_usd.",
)
def budget(draft: Draft) -> Findings:
    """A lifetime that could cost more than the budget."""
    limit, cost = draft.spec.lifecycle.budget_usd, cost_of(draft)
    if limit is None:
        return
    if cost.max_usd is None:
        yield f"lifecycle.budget_usd: cannot check {limit:g} USD: {cost.source}"
    elif cost.max_usd > limit:
        yield (
            f"lifecycle: {draft.spec.lifecycle.max_lifetime_hours:g} h can cost {cost.max_usd:.2f} USD; "
            f"budget_usd allows {limit:.2f}"
        )
