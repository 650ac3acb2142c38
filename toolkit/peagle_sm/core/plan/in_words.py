"""What a plan says, in words: for the command line and for notebooks. Pure."""

from __future__ import annotations

import json

from peagle_sm.core.catalog.catalog import load_catalog
from peagle_sm.core.display.card import Card, Note, Table, Tone
from peagle_sm.core.plan.environment import SPECULATIVE_CONFIG
from peagle_sm.core.plan.records import Finding, Plan, Request
from peagle_sm.core.words import STAND_IN, advised, speculation_text, usd

_NAME_KEYS = ("EndpointName", "EndpointConfigName", "ModelName", "Name")
_OWN_NAME = {
    "create_model": "ModelName",
    "create_endpoint_config": "EndpointConfigName",
    "create_endpoint": "EndpointName",
    "create_inference_component": "InferenceComponentName",
}
_ORDER = {"error": 0, "warning": 1, "info": 2}
_TONES: dict[str, Tone] = {"error": "bad", "warning": "caution", "info": "plain"}


def is_stand_in(plan: Plan) -> bool:
    """Whether small weights stand in: in every local endpoint, and in models that are nothing else."""
    if plan.context.local:
        return True
    entry = load_catalog().models.get(plan.spec.model)
    return entry is not None and entry.stand_in


def where(plan: Plan) -> str:
    """`us-east-1, account 123456789012`."""
    place = "the local SageMaker" if plan.context.local else f"account {plan.context.account}"
    return f"{plan.context.region}, {place}"


def price(plan: Plan) -> str:
    """By hour and day; what scaling and an update may add on lines of their own."""
    said = f"{usd(plan.usd_per_hour, 'hour')}, {usd(plan.usd_per_day, 'day')}"
    if plan.most_usd_per_hour not in (None, plan.usd_per_hour):
        most = plan.spec.instance_bounds[1]
        said += f"\nup to {usd(plan.most_usd_per_hour, 'hour')} with {most} instances"
    if plan.update_usd_per_hour:
        said += f"\n{usd(plan.update_usd_per_hour, 'hour')} more while an update runs its second fleet"
    return said


def at_most(plan: Plan) -> str:
    """`33.60 USD in its lifetime of 8 h`, or until the end of a lease that outlasts it."""
    if plan.kept_until is not None:
        return f"{usd(plan.max_usd)} until {plan.kept_until:%Y-%m-%d %H:%M} UTC, as `keep` promised"
    return f"{usd(plan.max_usd)} in its lifetime of {plan.spec.lifecycle.max_lifetime_hours:g} h"


def instances(plan: Plan) -> str:
    """`1 x ml.g7e.2xlarge`."""
    return f"{plan.spec.placement.instance_count} x {' or '.join(instance_types(plan)) or 'unknown'}"


def instance_types(plan: Plan) -> list[str]:
    """The types asked for, in order of preference; the spec's own where nothing is requested."""
    for request in plan.requests:
        for variant in request.parameters.get("ProductionVariants", ()):
            pools = [pool["InstanceType"] for pool in variant.get("InstancePools", ())]
            return [variant["InstanceType"]] if "InstanceType" in variant else pools
    return list(plan.spec.placement.instance_types)


def draft_tokens(plan: Plan) -> int | None:
    """K as the engine will be given it, else as the spec has it."""
    for request in plan.requests:
        text = request.parameters.get("PrimaryContainer", {}).get("Environment", {}).get(SPECULATIVE_CONFIG)
        if text:
            tokens = json.loads(text).get("num_speculative_tokens")
            return tokens if isinstance(tokens, int) else None
    return plan.spec.speculation.num_speculative_tokens


def request_name(request: Request) -> str:
    """The name of what a request creates."""
    own = _OWN_NAME.get(request.operation)
    keys = (own,) if own else _NAME_KEYS
    return next((str(request.parameters[key]) for key in keys if key in request.parameters), "")


def worst_first(findings: tuple[Finding, ...]) -> list[Finding]:
    """Errors, warnings, then what is good to know."""
    return sorted(findings, key=lambda each: _ORDER[each.severity])


def plan_card(plan: Plan) -> Card:
    """What a notebook shows of a plan."""
    errors = sum(finding.severity == "error" for finding in plan.findings)
    headline = (
        f"It would be refused: {errors} error{'s' if errors > 1 else ''} below"
        if errors
        else f"{usd(plan.usd_per_hour, 'hour')}, at most {at_most(plan)}; nothing is created yet"
    )
    requests = tuple((f"{one.service}.{one.operation}", request_name(one)) for one in plan.requests)
    return Card(
        f"Plan for {plan.spec.name} in {where(plan)}",
        headline,
        "bad" if errors else "plain",
        _fields(plan),
        (Table(f"{len(requests)} requests, in this order", ("call", "makes"), requests, folded=True),)
        if requests
        else (),
        tuple(_finding(one) for one in worst_first(plan.findings)),
    )


def _fields(plan: Plan) -> tuple[tuple[str, str], ...]:
    spec = plan.spec
    found = [
        ("model", f"{spec.model}\n({STAND_IN})" if is_stand_in(plan) else spec.model),
        ("speculation", speculation_text(spec.speculation.mode, draft_tokens(plan))),
        ("instance", instances(plan)),
        ("price", price(plan)),
        ("price from", plan.price_source),
        ("unused GPUs", f"{plan.unused_gpus} on each instance" if plan.unused_gpus else ""),
        ("memory", "" if plan.memory is None else "fits" if plan.memory.fits else "DOES NOT FIT"),
        ("hours", spec.hours or ""),
    ]
    return tuple((name, value) for name, value in found if value)


def _finding(one: Finding) -> Note:
    then = one.next_step if one.severity != "info" else ""
    return Note(advised(f"{one.severity}: {one.check}: {one.message}", then), _TONES[one.severity])
