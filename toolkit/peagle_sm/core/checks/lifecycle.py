"""Checks on how an endpoint scales, updates and turns off, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator

from peagle_sm.core.checks.base import Check, Note, check
from peagle_sm.core.plan.cost import cost_of
from peagle_sm.core.plan.resolve import Draft

_DEPLOY_THE_STACK = "Deploy it as a stack: `cdk deploy -c spec=<this file>`; or remove the field."


@check(
    "needs-a-stack",
    why="Scaling policies and components must be removed before an endpoint can go; a stack does that.",
    source="SageMaker API: DeleteEndpoint is refused while inference components exist",
    remedy=_DEPLOY_THE_STACK,
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DeleteEndpoint.html",
)
def needs_a_stack(draft: Draft) -> Iterator[Note]:
    """Scaling in a spec that is deployed without a stack."""
    if draft.context.stack is not None:
        return
    if draft.spec.autoscaling is not None:
        yield Note("error", "autoscaling: only a stack carries it (`peagle-sm plan --stack` plans for one)")
    if draft.scales_to_zero:
        yield Note(
            "error",
            "lifecycle.idle: found 'scale-to-zero'; only a stack carries it "
            "(`peagle-sm plan --stack` plans for one); allowed here: turn-off",
        )


@check(
    "scale-to-zero",
    why="Without an instance nothing answers, and an instance takes minutes to come.",
    source="SageMaker: scaling an endpoint to zero instances (inference components, MinInstanceCount 0)",
    remedy="Let clients repeat a request that fails for want of capacity, or use turn-off with a timetable.",
    url="https://docs.aws.amazon.com/sagemaker/latest/dg/endpoint-auto-scaling-zero-instances.html",
)
def scale_to_zero(draft: Draft) -> Iterator[Note]:
    """What scaling to zero cannot do."""
    if not draft.scales_to_zero:
        return
    yield Note(
        "warning",
        "at zero instances requests fail until capacity is back: the first failure asks for an instance, "
        "which takes minutes to boot and to load the model, and there may be none to have",
    )
    if len(draft.instance_types) > 1:
        yield Note(
            "error",
            "placement.instance_types: a component asks for the GPUs of one type; several are listed",
            "List one instance type.",
        )
    unknown = [name for name in draft.instance_types if draft.instance(name) is None]
    if unknown:
        yield Note(
            "error",
            f"placement.instance_types: how many GPUs {', '.join(unknown)} has is not known, "
            "so what a component takes of it cannot be said",
            f"Choose another type, for example {draft.model.default_instance_types[0]}.",
        )
    if draft.spec.placement.capacity_reservation_arn is not None:
        yield Note(
            "warning",
            "placement.capacity_reservation_arn: reserved capacity is paid for at zero instances too",
            "Leave scale-to-zero out: it saves nothing here.",
        )


@check(
    "second-fleet",
    why="UpdateEndpoint starts the new fleet beside the old one: quota, capacity and price count twice.",
    source="SageMaker API: UpdateEndpoint (blue/green)",
    remedy="Set update: off-update-on to do without the second fleet; the endpoint is off meanwhile.",
    severity="warning",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_UpdateEndpoint.html",
)
def second_fleet(draft: Draft) -> Iterator[Note]:
    """A stack's update in place, with what its second fleet costs."""
    if draft.context.stack is None or draft.spec.update != "in-place":
        return
    hourly = cost_of(draft).usd_per_hour
    price = "at a price that is not known" if hourly is None else f"for {hourly:,.2f} USD/hour more"
    count = draft.spec.placement.instance_count
    yield Note(
        "warning" if draft.spec.placement.capacity_reservation_arn else "info",
        f"each update in place runs a second fleet of {count} x {' or '.join(draft.instance_types)} "
        f"beside the first, {price} until the first is gone",
    )


LIFECYCLE_CHECKS: tuple[Check, ...] = (needs_a_stack, scale_to_zero, second_fleet)


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


COST_CHECKS: tuple[Check, ...] = (price, budget)
