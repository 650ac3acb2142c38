"""Plan of a spec: requests in order, price, memory fit and findings."""

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
from peagle_sm.core.plan.environment import as_text
from peagle_sm.core.plan.memory import memory_fit
from peagle_sm.core.plan.payloads import names_for, requests_for, schedule_name, spec_hash
from peagle_sm.core.plan.records import Context, MemoryFit, Names, Request
from peagle_sm.core.plan.resolve import Draft, resolve
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, table_text
from peagle_sm.core.words import (
    STAND_IN,
    Finding,
    advised,
    speculation_text,
    usd,
    worst_first,
)

__all__ = [
    "Bodies",
    "Context",
    "MemoryFit",
    "Names",
    "Plan",
    "Request",
    "at_most",
    "bodies",
    "draft_tokens",
    "engine_settings",
    "instance_types",
    "instances",
    "is_stand_in",
    "make_plan",
    "price",
    "prolonged_plan",
    "request_name",
    "schedule_name",
    "where",
]

_NAME_KEYS = ("EndpointName", "EndpointConfigName", "ModelName", "Name")
_OWN_NAME = {
    "create_model": "ModelName",
    "create_endpoint_config": "EndpointConfigName",
    "create_endpoint": "EndpointName",
    "create_inference_component": "InferenceComponentName",
}
_TONES: dict[str, Tone] = {"error": "bad", "warning": "caution", "info": "plain"}


@dataclass(frozen=True)
class Plan(Shown):
    """Requests, price, memory fit and findings of a deploy.

    ``most_usd_per_hour`` is the price with autoscaling's maximum of instances; ``update_usd_per_hour`` is the
    extra price during an in place update with its second fleet (None without one, or if unknown).

    ``draft`` is the spec with all defaults resolved. ``requests`` are sent in this order; they are empty if a
    fact that a payload needs is missing, and a finding names it. Amounts are None if no price is known;
    ``price_source`` then gives the reason. ``unused_gpus`` counts the GPUs of one instance that no replica
    uses. ``max_usd`` is the price of the whole lifetime, or until ``kept_until``, the end of a later lease by
    `keep`.
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
        """Spec of the user."""
        return self.draft.spec

    @property
    def context(self) -> Context:
        """Place and time of the deploy."""
        return self.draft.context

    @property
    def refused(self) -> bool:
        """True when a finding of severity "error" forbids the deploy."""
        return any(finding.severity == "error" for finding in self.findings)

    def card(self) -> Card:
        """Return the summary that a notebook shows."""
        return _card(self)


def make_plan(spec: EndpointSpec, context: Context, catalog: Catalog | None = None) -> Plan:
    """Plan a deploy; uses no clock and no AWS.

    The requests are in the order of sending, the lifetime schedule first. A plan that is ``refused`` must not
    be sent.

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
    """Price a plan until the end of a lease, if that is after the lifetime."""
    begins, lifetime = plan.context.now, timedelta(hours=plan.spec.lifecycle.max_lifetime_hours)
    if lease is None or begins is None or lease <= begins + lifetime:
        return plan
    hours, most = (lease - begins) / timedelta(hours=1), plan.most_usd_per_hour
    return replace(plan, kept_until=lease, max_usd=None if most is None else round(most * hours, 2))


@dataclass(frozen=True)
class Bodies:
    """Exact parameters of a plan's Create calls to SageMaker.

    They include names and tags; ``component`` is None if the endpoint runs the model directly.
    """

    model: dict[str, Any]
    config: dict[str, Any]
    endpoint: dict[str, Any]
    component: dict[str, Any] | None = None


def bodies(plan: Plan) -> Bodies:
    """Return the parameters of a plan's calls to SageMaker.

    Raises:
        PlanRefused: a fact is missing, so the plan has no requests; the message names it.
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
    """Return whether the endpoint uses small stand-in weights."""
    if plan.context.local:
        return True
    entry = load_catalog().models.get(plan.spec.model)
    return entry is not None and entry.stand_in


def where(plan: Plan) -> str:
    """Format the place: `us-east-1, account 123456789012`."""
    place = "the local SageMaker" if plan.context.local else f"account {plan.context.account}"
    return f"{plan.context.region}, {place}"


def price(plan: Plan) -> str:
    """Format the price per hour and day, with extra lines for scaling and updates."""
    said = f"{usd(plan.usd_per_hour, 'hour')}, {usd(plan.usd_per_day, 'day')}"
    if plan.most_usd_per_hour not in (None, plan.usd_per_hour):
        most = plan.spec.instance_bounds[1]
        said += f"\nup to {usd(plan.most_usd_per_hour, 'hour')} with {most} instances"
    if plan.update_usd_per_hour:
        said += f"\n{usd(plan.update_usd_per_hour, 'hour')} more while an update runs its second fleet"
    return said


def at_most(plan: Plan) -> str:
    """Format the maximum cost: `33.60 USD in its lifetime of 8 h`, or of a lease."""
    if plan.kept_until is not None:
        return f"{usd(plan.max_usd)} until {plan.kept_until:%Y-%m-%d %H:%M} UTC, the end of its lease"
    return f"{usd(plan.max_usd)} in its lifetime of {plan.spec.lifecycle.max_lifetime_hours:g} h"


def instances(plan: Plan) -> str:
    """Format the instances: `1 x ml.g7e.2xlarge`."""
    return f"{plan.spec.placement.instance_count} x {' or '.join(instance_types(plan)) or 'unknown'}"


def instance_types(plan: Plan) -> list[str]:
    """Return the requested types, in order of preference."""
    return list(plan.draft.instance_types)


def draft_tokens(plan: Plan) -> int | None:
    """Return K for the engine; None without speculation."""
    return plan.draft.num_speculative_tokens if plan.draft.speculating else None


def engine_settings(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return name and text of the optional draft and engine settings that the spec has."""
    speculation, serving = plan.spec.speculation, plan.spec.serving
    found: list[tuple[str, str]] = []
    if plan.draft.speculating:
        if speculation.num_speculative_tokens_per_batch_size is not None:
            rows = speculation.num_speculative_tokens_per_batch_size
            found.append(("K by requests", table_text(rows)))
        if speculation.adaptive_num_speculative_tokens:
            found.append(("K by goodput", "on: K follows the load, up to the figure above"))
        if speculation.draft_tensor_parallel_size is not None:
            found.append(("draft GPUs", str(speculation.draft_tensor_parallel_size)))
        if speculation.draft_sample_method is not None:
            found.append(("draft sampling", speculation.draft_sample_method))
    named = {
        "KV cache": serving.kv_cache_dtype,
        "stream interval": serving.stream_interval,
        "CUDA graphs": serving.cudagraph_mode,
    }
    found += [(name, str(value)) for name, value in named.items() if value is not None]
    if serving.extra_args:
        told = (f"{name}: {as_text(value)}" for name, value in serving.extra_args.items())
        found.append(("more arguments", ", ".join(told)))
    return tuple(found)


def request_name(request: Request) -> str:
    """Return the name of the resource that a request creates."""
    own = _OWN_NAME.get(request.operation)
    keys = (own,) if own else _NAME_KEYS
    return next((str(request.parameters[key]) for key in keys if key in request.parameters), "")


def _card(plan: Plan) -> Card:
    """Return the summary that a notebook shows."""
    errors = sum(finding.severity == "error" for finding in plan.findings)
    headline = (
        f"The plan is refused: {errors} error{'s' if errors > 1 else ''} below"
        if errors
        else f"{usd(plan.usd_per_hour, 'hour')}, at most {at_most(plan)}; nothing is created yet"
    )
    requests = tuple((f"{one.service}.{one.operation}", request_name(one)) for one in plan.requests)
    return Card(
        f"Plan for {plan.spec.name} in {where(plan)}",
        headline,
        "bad" if errors else "plain",
        _fields(plan),
        (Table(f"{len(requests)} requests, in this order", ("call", "creates"), requests, folded=True),)
        if requests
        else (),
        tuple(_finding(one) for one in worst_first(plan.findings)),
    )


def _fields(plan: Plan) -> tuple[tuple[str, str], ...]:
    spec = plan.spec
    found = [
        ("model", f"{spec.model}\n({STAND_IN})" if is_stand_in(plan) else spec.model),
        ("speculation", speculation_text(spec.speculation.mode, draft_tokens(plan))),
        *engine_settings(plan),
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
