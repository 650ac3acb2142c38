"""From the spec to the plan: requests in order, price, memory fit and findings; and how a plan reads."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from peagle_sm.core.catalog import Catalog, load_catalog
from peagle_sm.core.checks import run_checks
from peagle_sm.core.checks.placement import unused_gpus
from peagle_sm.core.display import Card, Note, Shown, Table, Tone
from peagle_sm.core.errors import PlanRefused
from peagle_sm.core.plan.cost import cost_of
from peagle_sm.core.plan.memory import memory_fit
from peagle_sm.core.plan.payloads import names_for, requests_for, schedule_name, spec_hash
from peagle_sm.core.plan.records import Context, Finding, MemoryFit, Names, Request
from peagle_sm.core.plan.resolve import Draft, resolve
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.words import STAND_IN, Severity, advised, speculation_text, usd

__all__ = [
    "Bodies",
    "Context",
    "Finding",
    "MemoryFit",
    "Names",
    "Plan",
    "Request",
    "Severity",
    "at_most",
    "bodies",
    "draft_tokens",
    "instance_types",
    "instances",
    "is_stand_in",
    "make_plan",
    "price",
    "prolonged_plan",
    "request_name",
    "schedule_name",
    "where",
    "worst_first",
]

_NAME_KEYS = ("EndpointName", "EndpointConfigName", "ModelName", "Name")
_OWN_NAME = {
    "create_model": "ModelName",
    "create_endpoint_config": "EndpointConfigName",
    "create_endpoint": "EndpointName",
    "create_inference_component": "InferenceComponentName",
}
_ORDER = {"error": 0, "warning": 1, "info": 2}
_TONES: dict[str, Tone] = {"error": "bad", "warning": "caution", "info": "plain"}


@dataclass(frozen=True)
class Plan(Shown):
    """What a deploy would do, what it would cost, and what there is to say about it.

    ``most_usd_per_hour`` is the price with as many instances as scaling may come to; ``update_usd_per_hour``
    what is paid on top while an update in place runs its second fleet (None where there is none, or its
    price is not known).

    ``draft`` is the spec with every choice made. ``requests`` are what a deploy sends, in this order; they
    are empty when a fact is missing that a payload cannot do without, and a finding names it.
    Money is None where no price is known; ``price_source`` then says so. ``unused_gpus`` counts the
    accelerators of one instance that no replica uses. ``max_usd`` is the price of the whole lifetime, or
    until ``kept_until``: the end of a lease of `keep` that outlasts it.
    """

    draft: Draft = field(repr=False)
    names: Names
    spec_hash: str
    requests: tuple[Request, ...]
    usd_per_hour: float | None
    price_source: str
    usd_per_day: float | None
    max_usd: float | None
    memory: MemoryFit | None
    unused_gpus: int
    findings: tuple[Finding, ...]
    most_usd_per_hour: float | None = None
    update_usd_per_hour: float | None = None
    kept_until: datetime | None = None

    @property
    def spec(self) -> EndpointSpec:
        """What the user asked for."""
        return self.draft.spec

    @property
    def context(self) -> Context:
        """Where and when it would be deployed."""
        return self.draft.context

    @property
    def refused(self) -> bool:
        """True when a finding of severity "error" forbids the deploy."""
        return any(finding.severity == "error" for finding in self.findings)

    def card(self) -> Card:
        """What a notebook shows of it."""
        return _card(self)


def make_plan(spec: EndpointSpec, context: Context, catalog: Catalog | None = None) -> Plan:
    """Plan a deploy without doing anything; no clock, no AWS.

    The requests come in the order in which they must be sent: the schedule that ends the endpoint's life
    first. A plan that is ``refused`` must not be sent.

    Raises:
        SpecError: the model is not in the catalogue.
    """
    draft = resolve(spec, context, catalog or load_catalog())
    digest = spec_hash(draft)
    names = names_for(spec.name, digest, component=draft.scales_to_zero)
    cost = cost_of(draft)
    return Plan(
        draft=draft,
        names=names,
        spec_hash=digest,
        requests=requests_for(draft, names, digest),
        usd_per_hour=cost.usd_per_hour,
        price_source=cost.source,
        usd_per_day=cost.usd_per_day,
        max_usd=cost.max_usd,
        memory=memory_fit(draft),
        unused_gpus=unused_gpus(draft),
        findings=run_checks(draft),
        most_usd_per_hour=cost.most_usd_per_hour,
        update_usd_per_hour=cost.usd_per_hour if context.stack and spec.update == "in-place" else None,
    )


def prolonged_plan(plan: Plan, lease: datetime | None) -> Plan:
    """Price a plan until the end of a lease, where that comes after the lifetime."""
    begins, lifetime = plan.context.now, timedelta(hours=plan.spec.lifecycle.max_lifetime_hours)
    if lease is None or begins is None or lease <= begins + lifetime:
        return plan
    hours, most = (lease - begins) / timedelta(hours=1), plan.most_usd_per_hour
    return replace(plan, kept_until=lease, max_usd=None if most is None else round(most * hours, 2))


@dataclass(frozen=True)
class Bodies:
    """The exact parameters of CreateModel, CreateEndpointConfig, CreateEndpoint, CreateInferenceComponent.

    Names and tags are in them; ``component`` is None where the endpoint runs the model directly.
    """

    model: dict[str, Any]
    config: dict[str, Any]
    endpoint: dict[str, Any]
    component: dict[str, Any] | None = None


def bodies(plan: Plan) -> Bodies:
    """Return what a plan sends to SageMaker, call by call.

    Raises:
        PlanRefused: the plan has no requests, because a fact is missing; the message names it.
    """
    sent = {request.operation: request.parameters for request in plan.requests}
    if not sent:
        errors = [finding for finding in plan.findings if finding.severity == "error"]
        raise PlanRefused(
            "The plan is refused: " + " ".join(finding.message for finding in errors),
            next_step=" ".join(finding.next_step for finding in errors) or None,
            details={"findings": [finding.check for finding in errors]},
        )
    return Bodies(
        model=sent["create_model"],
        config=sent["create_endpoint_config"],
        endpoint=sent["create_endpoint"],
        component=sent.get("create_inference_component"),
    )


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
    """The types asked for, in order of preference."""
    return list(plan.draft.instance_types)


def draft_tokens(plan: Plan) -> int | None:
    """K as the engine will be given it; None without speculation."""
    return plan.draft.num_speculative_tokens if plan.draft.speculating else None


def request_name(request: Request) -> str:
    """The name of what a request creates."""
    own = _OWN_NAME.get(request.operation)
    keys = (own,) if own else _NAME_KEYS
    return next((str(request.parameters[key]) for key in keys if key in request.parameters), "")


def worst_first(findings: tuple[Finding, ...]) -> list[Finding]:
    """Errors, warnings, then what is good to know."""
    return sorted(findings, key=lambda each: _ORDER[each.severity])


def _card(plan: Plan) -> Card:
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
