"""Checks of scaling, updates, idle handling and cost."""

from __future__ import annotations

from peagle_sm.core.checks.base import Findings, check
from peagle_sm.core.plan.cost import cost_of
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.words import Finding

_PRICE_OFF = 0.005
_GIVE_THE_PRICE = (
    "Write the hosting price of one instance in USD per hour into lifecycle.usd_per_hour; AWS's SageMaker "
    "pricing page has it. With the permission pricing:GetProducts, peagle-sm reads it itself."
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
    "hours-scaling",
    why="The guard's timetable creates the endpoint alone: without its component it is billed and serves "
    "nothing, and without its autoscaling it does not scale.",
    source="this project",
    remedy="Leave hours out, or deploy as a stack (`cdk deploy`), which creates all of it again.",
)
def hours_scaling(draft: Draft) -> Findings:
    """A timetable for an endpoint that scales and has no stack."""
    spec = draft.spec
    if draft.context.stack is None and spec.hours and (draft.scales_to_zero or spec.autoscaling):
        field = "lifecycle.idle: scale-to-zero" if draft.scales_to_zero else "autoscaling"
        yield f"hours: found {spec.hours!r} with {field}; without a stack only one of the two is allowed"


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


def _why_not_listed(draft: Draft) -> str:
    """Return why AWS's price list has no price for the first instance type, in parentheses."""
    listed = draft.context.prices.get(draft.instance_types[0])
    return f" ({listed.why.rstrip('.')})" if listed is not None and not listed.fresh and listed.why else ""


@check(
    "price",
    why="An endpoint is billed from its first minute to its last, with or without traffic.",
    source="AWS Price List API, else the catalogue of peagle-sm, else lifecycle.usd_per_hour",
    remedy="Check AWS's SageMaker pricing page before you deploy.",
    severity="warning",
    url="https://aws.amazon.com/sagemaker/ai/pricing/",
)
def price(draft: Draft) -> Findings:
    """A price that is unknown, not SageMaker's, old, or not the spec's own figure."""
    cost = cost_of(draft)
    if cost.usd_per_hour is None:
        if draft.spec.lifecycle.budget_usd is None:  # else the budget cannot be checked, and says so
            yield Finding("warning", cost.source, _GIVE_THE_PRICE)
        return
    if cost.at_most:
        yield f"SageMaker's price is not known; an upper bound counts: {cost.source}{_why_not_listed(draft)}"
    for name in () if draft.context.local else draft.instance_types:
        counted, spec_price = draft.price(name), draft.spec.lifecycle.usd_per_hour
        if counted is None:
            continue
        listed = draft.listed_price(name)
        if name in draft.context.prices and not listed.fresh and counted.kind == "sagemaker":
            yield Finding("info", f"{listed.why.rstrip('.')}; counted: {counted}")
        if (
            spec_price is not None
            and counted.kind == "sagemaker"
            and abs(spec_price - counted.usd_per_hour) > _PRICE_OFF
        ):
            yield Finding(
                "warning",
                f"lifecycle.usd_per_hour: found {spec_price:g}; "
                f"counted: {counted.usd_per_hour:g} USD/hour, {counted}",
                "Correct lifecycle.usd_per_hour, or remove it.",
            )
        ec2 = draft.catalog.price(name, draft.region)
        if counted.kind == "spec" and ec2 is not None and counted.usd_per_hour < ec2.usd_per_hour:
            yield Finding(
                "warning",
                f"lifecycle.usd_per_hour: found {counted.usd_per_hour:g}; "
                f"EC2 alone costs {ec2.usd_per_hour:.7g} USD/hour for {name} ({ec2.source}, "
                f"{ec2.date}), and SageMaker costs more",
                "Correct lifecycle.usd_per_hour: budgets and alarms use it.",
            )


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
        yield Finding(
            "error", f"lifecycle.budget_usd: cannot check {limit:g} USD: {cost.source}", _GIVE_THE_PRICE
        )
    elif cost.max_usd > limit:
        yield (
            f"lifecycle: {draft.spec.lifecycle.max_lifetime_hours:g} h can cost {cost.max_usd:.2f} USD"
            f"{', an upper bound' if cost.at_most else ''}; "
            f"budget_usd allows {limit:.2f}"
        )
