"""When AWS has no instances left: try again within bounds, then say where else the type is to be had."""

from __future__ import annotations

from peagle_sm.aws.control import prices
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import EndpointFailed, PeagleError
from peagle_sm.core.plan.plan import Plan, instance_types

ATTEMPTS = 3
"""How often an endpoint is created in all. Shortages come and go: the release tests of AWS's own images try
three times, five minutes apart (aws/deep-learning-containers#6411)."""
_OFFERS = 5
# The words of FailureReason: aws/deep-learning-containers#6673, DIAGNijmegen/rse-grand-challenge#2631.
_SHORT = (
    "insufficientinstancecapacity",
    "unable to provision requested ml compute capacity",
    "capacityerror",
)


class NoCapacity(EndpointFailed):
    """Every instance type asked for is short, several times in a row; nothing is left.

    ``details["offers"]`` has the regions that list one of the types, each with its price.
    """


def is_short(error: PeagleError) -> bool:
    """Whether an endpoint failed because AWS had no such instance left."""
    reason = str(error.details.get("failure_reason", "")).lower()
    return isinstance(error, EndpointFailed) and any(words in reason for words in _SHORT)


def no_capacity(session: Session, plan: Plan, error: EndpointFailed, waited_s: float) -> NoCapacity:
    """Return what is told when every attempt, ``waited_s`` apart, was in vain; asks the price list."""
    types = instance_types(plan)
    offers = [offer for name in types for offer in prices.find_elsewhere(session, name)]
    offers.sort(key=lambda one: (one.usd_per_hour, types.index(one.instance)))
    told = "; ".join(
        f"{one.region}: {one.instance} at {one.usd_per_hour:.2f} USD/hour ({one.source}, {one.date})"
        for one in offers[:_OFFERS]
    )
    elsewhere = (
        f"Or deploy elsewhere, where your quota and your artifacts are: {told}."
        if told
        else "No price of another region is known: look at the Price List, or ask for a capacity reservation."
    )
    return NoCapacity(
        f"AWS has no {' or '.join(types)} left in {session.region}: endpoint {plan.names.endpoint} was tried "
        f"{ATTEMPTS} times, {waited_s / 60:.0f} minutes apart.",
        next_step=f"Add further placement.instance_types, in order of preference (at most 5). {elsewhere}",
        details={
            **error.details,
            "instance_types": types,
            "offers": [one.model_dump(mode="json") for one in offers[:_OFFERS]],
        },
    )
