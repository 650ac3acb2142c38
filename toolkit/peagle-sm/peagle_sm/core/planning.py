"""Plan of a spec: resources in order, price, memory fit and findings; as text, HTML and JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from peagle_sm.core.catalog import Catalog, load_catalog
from peagle_sm.core.checks import run_checks
from peagle_sm.core.checks.placement import unused_gpus
from peagle_sm.core.display import Card, Shown, Table
from peagle_sm.core.errors import PlanRefused
from peagle_sm.core.plan.cost import cost_of
from peagle_sm.core.plan.environment import as_text
from peagle_sm.core.plan.memory import MemoryFit, memory_fit
from peagle_sm.core.plan.resolve import Context, Draft, resolve
from peagle_sm.core.resources.naming import Names, names_for
from peagle_sm.core.resources.ordered import planned, spec_hash
from peagle_sm.core.resources.resource import Request, Resource
from peagle_sm.core.served_target import ServedTarget, served_target
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, table_text
from peagle_sm.core.spec.lock import Lock, Place
from peagle_sm.core.spec.modes import DRAFT_TOKENS, HEAD, TABLE
from peagle_sm.core.words import Finding, speculation_text, usd, worst_first


@dataclass(frozen=True)
class Plan(Shown):
    """Resources, price, memory fit and findings of a deploy.

    ``most_usd_per_hour`` is the price with autoscaling's maximum of instances; ``update_usd_per_hour`` is the
    extra price during an in place update with its second fleet (None without one, or if unknown).

    ``draft`` is the spec with all defaults resolved. ``resources`` are created in this order; they are
    empty if a fact that a request needs is missing, and a finding names it. Amounts are None if no price is
    known; ``price_source`` then gives the reason. ``price_at_most``: SageMaker's price is not known, and the
    amounts are upper bounds. ``unused_gpus`` counts the GPUs of one instance that no replica uses.
    ``max_usd`` is the price of the whole lifetime, or until ``kept_until``, the end of a later lease by
    `keep`.
    """

    draft: Draft = field(repr=False)
    names: Names
    spec_hash: str
    resources: tuple[Resource, ...]
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
    price_at_most: bool = False

    @property
    def spec(self) -> EndpointSpec:
        """Spec of the user."""
        return self.draft.spec

    @property
    def context(self) -> Context:
        """Place and time of the deploy."""
        return self.draft.context

    @property
    def requests(self) -> tuple[Request, ...]:
        """Requests that create the resources, in the order of sending."""
        return tuple(request for resource in self.resources for request in resource.create())

    @property
    def refused(self) -> bool:
        """True when a finding of severity "error" forbids the deploy."""
        return bool(self.errors())

    def errors(self, skip: Collection[str] = ()) -> list[Finding]:
        """Return the findings that refuse the plan; missing facts cannot be skipped."""
        return [
            finding
            for finding in self.findings
            if finding.severity == "error" and (finding.check not in skip or not self.resources)
        ]

    def refuse_errors(self, skip: Collection[str] = (), *, shown: bool = False) -> None:
        """Refuse a plan with errors, except those of the checks in ``skip``; see `refuse_errors`."""
        refuse_errors("plan", self.errors(skip), self.findings, shown=shown)

    @property
    def target(self) -> ServedTarget:
        """The model that the endpoint serves."""
        draft = self.draft
        return served_target(
            draft.model_uri,
            self.spec.model_name,
            draft.catalog,
            image=draft.image.uri if draft.image else None,
            local=self.context.local,
            artifacts=self.context.artifacts,
        )

    @property
    def lock(self) -> Lock | None:
        """The spec's lock for this place; None if there is none, or the source is not JumpStart."""
        place: Place = "local" if self.context.local else "aws"
        return self.spec.lock(place) if self.draft.source == "jumpstart" else None

    def parameters(self, operation: str) -> dict[str, Any]:
        """Return the exact parameters of one request, such as ``create_model``.

        Raises:
            PlanRefused: a fact is missing, so the plan has no requests; the message names it.
            KeyError: the plan has requests, but none of this operation.
        """
        if not self.resources:
            self.refuse_errors()
        return {request.operation: request.parameters for request in self.requests}[operation]

    def tags(self) -> dict[str, str]:
        """Return the endpoint's tags."""
        return {tag["Key"]: tag["Value"] for tag in self.parameters("create_endpoint")["Tags"]}

    def card(self) -> Card:
        """Return the view that terminals and notebooks show: facts, requests, findings."""
        errors = len(self.errors())
        place = "the local SageMaker" if self.context.local else f"account {self.context.account}"
        requests = tuple(
            (f"{request.service}.{request.operation}", request.name) for request in self.requests
        )
        memory = tuple((line,) for line in self.memory.lines) if self.memory else ()
        blocks = (
            Table(f"Memory: {'fits' if self.memory and self.memory.fits else 'DOES NOT FIT'}", (), memory),
            Table("Requests, in this order", (), requests, folded=True),
            Table("Findings", (), finding_rows(self.findings)),
        )
        return Card(
            f"Plan for {self.spec.name} in {self.context.region}, {place}",
            f"The plan is refused: {errors} error{'s' if errors > 1 else ''} below" if errors else "",
            "bad" if errors else "plain",
            _fields(self),
            tuple(block for block in blocks if block.rows),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; costs are None if the price is unknown."""
        return {
            "name": self.spec.name,
            "model": self.spec.model_name,
            "model_parameters_b": self.draft.model.parameters_b,
            "mode": self.spec.speculation.mode,
            "num_speculative_tokens": _draft_tokens(self),
            "engine_settings": dict(engine_settings(self)),
            "account": self.context.account,
            "region": self.context.region,
            "local": self.context.local,
            "assumed": list(self.context.assumed),
            **self.target.to_dict(),
            "names": asdict(self.names),
            "spec_hash": self.spec_hash,
            "lock": None if self.lock is None else self.lock.jumpstart.model_dump(mode="json"),
            "usd_per_hour": self.usd_per_hour,
            "most_usd_per_hour": self.most_usd_per_hour,
            "update_usd_per_hour": self.update_usd_per_hour,
            "usd_per_day": self.usd_per_day,
            "max_usd": self.max_usd,
            "kept_until": None if self.kept_until is None else self.kept_until.isoformat(timespec="seconds"),
            "price_source": self.price_source,
            "price_at_most": self.price_at_most,
            "memory": None if self.memory is None else asdict(self.memory),
            "unused_gpus": self.unused_gpus,
            "refused": self.refused,
            "findings": [finding.to_dict() for finding in self.findings],
            "requests": [asdict(request) for request in self.requests],
        }


def make_plan(spec: EndpointSpec, context: Context, catalog: Catalog | None = None) -> Plan:
    """Plan a deploy; uses no clock and no AWS.

    The requests are in the order of sending, the lifetime schedule first. A plan that is ``refused`` must not
    be sent.

    Raises:
        SpecError: the model is not in the catalogue.
    """
    return plan_of(resolve(spec, context, catalog or load_catalog()))


def plan_of(draft: Draft) -> Plan:
    """Make the plan of a resolved spec."""
    spec, context = draft.spec, draft.context
    digest = spec_hash(draft)
    names = names_for(spec.name, digest, component=draft.scales_to_zero)
    cost = cost_of(draft)
    return Plan(
        draft=draft,
        names=names,
        spec_hash=digest,
        resources=planned(draft, names, digest),
        usd_per_hour=cost.usd_per_hour,
        price_source=cost.source,
        usd_per_day=cost.usd_per_day,
        max_usd=cost.max_usd,
        memory=memory_fit(draft),
        unused_gpus=unused_gpus(draft),
        findings=run_checks(draft),
        most_usd_per_hour=cost.most_usd_per_hour,
        update_usd_per_hour=cost.usd_per_hour if context.stack and spec.update == "in-place" else None,
        price_at_most=cost.at_most,
    )


def prolonged_plan(plan: Plan, lease: datetime | None) -> Plan:
    """Price a plan until the end of a lease, if that is after the lifetime."""
    begins, lifetime = plan.context.now, timedelta(hours=plan.spec.lifecycle.max_lifetime_hours)
    if lease is None or begins is None or lease <= begins + lifetime:
        return plan
    hours, most = (lease - begins) / timedelta(hours=1), plan.most_usd_per_hour
    return replace(plan, kept_until=lease, max_usd=None if most is None else round(most * hours, 2))


def _fields(plan: Plan) -> tuple[tuple[str, str], ...]:
    spec, lock = plan.spec, plan.lock
    locked = None if lock is None else lock.jumpstart
    fields = [
        ("model", spec.model_name + (f"\n({plan.target.note})" if plan.target.note else "")),
        ("sizes from", plan.draft.model.config_place or ""),
        ("speculation", speculation_text(spec.speculation.mode, _draft_tokens(plan))),
        *engine_settings(plan),
        (
            "instance",
            f"{spec.placement.instance_count} x {' or '.join(plan.draft.instance_types) or 'unknown'}",
        ),
        (
            "GPUs per replica",
            str(plan.draft.gpus_per_replica) if plan.draft.gpus_per_replica > 1 else "",
        ),
        ("unused GPUs", f"{plan.unused_gpus} on each instance: billed but not used" * bool(plan.unused_gpus)),
        ("price", _price(plan)),
        ("at most", at_most(plan)),
        ("price from", plan.price_source),
        ("hours", spec.hours or ""),
        ("assumed", "\n".join(plan.context.assumed)),
        (
            "locked",
            f"{locked.model_id} {locked.version}, config {locked.config}, on {lock.written_at[:10]}"
            if lock and locked
            else "",
        ),
    ]
    return tuple((name, value) for name, value in fields if value)


def _price(plan: Plan) -> str:
    if plan.usd_per_hour is None:
        return "unknown"
    bound = "at most " if plan.price_at_most else ""
    price = f"{bound}{usd(plan.usd_per_hour, 'hour')}, {usd(plan.usd_per_day, 'day')}"
    if plan.most_usd_per_hour not in (None, plan.usd_per_hour):
        most = plan.spec.instance_bounds[1]
        price += f"\nup to {usd(plan.most_usd_per_hour, 'hour')} with {most} instances"
    if plan.update_usd_per_hour:
        price += f"\n{usd(plan.update_usd_per_hour, 'hour')} more while an update runs its second fleet"
    return price


def at_most(plan: Plan) -> str:
    """Format the maximum cost: `33.60 USD in its lifetime of 8 h`, or of a lease."""
    if plan.max_usd is None:
        return "unknown"
    if plan.kept_until is not None:
        return f"{usd(plan.max_usd)} until {plan.kept_until:%Y-%m-%d %H:%M} UTC, the end of its lease"
    return f"{usd(plan.max_usd)} in its lifetime of {plan.spec.lifecycle.max_lifetime_hours:g} h"


def _draft_tokens(plan: Plan) -> int | None:
    """Return K for the engine; None without speculation."""
    return plan.draft.num_speculative_tokens if plan.draft.speculating else None


# What the plan shows in a place or with a name of its own.
_SHOWN = (DRAFT_TOKENS, HEAD, TABLE, "draft_sample_method")


def engine_settings(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return name and text of the optional draft and engine settings that the spec has."""
    speculation, serving = plan.spec.speculation, plan.spec.serving
    rows = speculation.num_speculative_tokens_per_batch_size
    drafting = {
        "K by requests": None if rows is None else table_text(rows),
        "draft sampling": speculation.draft_sample_method,
        **{name: getattr(speculation, name) for name in plan.draft.mode_facts.fields if name not in _SHOWN},
    }
    serves = {
        "KV cache": serving.kv_cache_dtype,
        "more arguments": ", ".join(f"{name}: {as_text(value)}" for name, value in serving.extra_args.items())
        or None,
    }
    named = {**(drafting if plan.draft.speculating else {}), **serves}
    return tuple((name, str(value)) for name, value in named.items() if value is not None)


def refuse_errors(
    what: str, errors: Collection[Finding], findings: Collection[Finding], *, shown: bool = False
) -> None:
    """Refuse a plan, or that of a job, with errors; ``what`` is its name: `training`.

    Raises:
        PlanRefused: there are errors; the message has them, or only their names if they were ``shown``.
            ``details["findings"]`` has all findings.
    """
    if not errors:
        return
    details = {"findings": [finding.to_dict() for finding in findings]}
    if shown:
        names = ", ".join(dict.fromkeys(finding.check for finding in errors))
        step = "Fix the findings above, then run the command again."
        raise PlanRefused(f"The {what} is refused: {names}", next_step=step, details=details)
    lines = "\n".join(f"{finding.check}: {finding.message}" for finding in errors)
    raise PlanRefused(
        f"The {what} is refused; nothing was created:\n{lines}",
        next_step=" ".join(dict.fromkeys(finding.next_step for finding in errors if finding.next_step)),
        details=details,
    )


def finding_rows(findings: Iterable[Finding]) -> tuple[tuple[str, str], ...]:
    """Return a row for each finding, errors first: severity, and message with next step and source."""
    return tuple(
        (
            finding.severity.ljust(7),
            f"{finding.check}: {finding.message}"
            + (f"\nnext: {finding.next_step}" if finding.next_step else "")
            + (f"\nsource: {finding.source}" if finding.source else ""),
        )
        for finding in worst_first(findings)
    )
