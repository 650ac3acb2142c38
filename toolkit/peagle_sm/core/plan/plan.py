"""EndpointSpec -> Plan: the exact requests in order, their price, the memory fit and the findings."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from peagle_sm.core.catalog.catalog import Catalog, load_catalog
from peagle_sm.core.checks import run_checks
from peagle_sm.core.checks.placement import unused_gpus
from peagle_sm.core.plan.cost import cost_of
from peagle_sm.core.plan.memory import memory_fit
from peagle_sm.core.plan.payloads import names_for, requests_for, schedule_name, spec_hash
from peagle_sm.core.plan.records import Context, Finding, MemoryFit, Names, Plan, Request, Severity
from peagle_sm.core.plan.resolve import resolve
from peagle_sm.core.spec.endpoint_spec import EndpointSpec

__all__ = [
    "Context",
    "Finding",
    "MemoryFit",
    "Names",
    "Plan",
    "Request",
    "Severity",
    "make_plan",
    "schedule_name",
]


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
        spec=spec,
        context=context,
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
