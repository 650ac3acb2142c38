"""A plan as people read it, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from peagle_sm.cli.table import render_fields
from peagle_sm.core.plan.plan import (
    at_most,
    draft_tokens,
    instances,
    is_stand_in,
    price,
    request_name,
    where,
    worst_first,
)
from peagle_sm.core.words import STAND_IN, speculation_text

if TYPE_CHECKING:
    from peagle_sm.core.jumpstart.lock import Lock
    from peagle_sm.core.plan.plan import Plan
    from peagle_sm.core.plan.records import Finding


def render_plan(plan: Plan) -> str:
    """The whole plan: what, where, price, memory, requests, findings."""
    blocks = [_heading(plan), render_fields(_facts(plan), "  ")]
    if plan.memory is not None:
        verdict = "fits" if plan.memory.fits else "DOES NOT FIT"
        blocks.append("\n".join([f"Memory: {verdict}", *(f"  {line}" for line in plan.memory.lines)]))
    if plan.requests:
        rows = [(f"{r.service}.{r.operation}", request_name(r)) for r in plan.requests]
        blocks.append("Requests, in this order\n" + render_fields(rows, "  "))
    if plan.findings:
        blocks.append("Findings\n" + render_findings(plan.findings))
    return "\n\n".join(blocks)


def _heading(plan: Plan) -> str:
    return f"Plan for {plan.spec.name} in {where(plan)}"


def _facts(plan: Plan) -> list[tuple[str, str]]:
    spec = plan.spec
    model = spec.model
    if is_stand_in(plan):
        model += f"\n({STAND_IN})"
    facts = [
        ("model", model),
        ("speculation", speculation_text(spec.speculation.mode, draft_tokens(plan))),
        ("instance", instances(plan)),
    ]
    if plan.unused_gpus:
        facts.append(("unused GPUs", f"{plan.unused_gpus} on each instance: paid for, and doing nothing"))
    return [
        *facts,
        ("price", price(plan)),
        ("at most", at_most(plan)),
        ("price from", plan.price_source),
        *([("hours", spec.hours)] if spec.hours else []),
        *_lock(plan),
    ]


def used_lock(plan: Plan) -> Lock | None:
    """The lock that the plan was made from; None where there is none, or JumpStart is not the source."""
    from peagle_sm.core.catalog.catalog import load_catalog

    source = plan.spec.source or load_catalog().model(plan.spec.model).sources[0]
    return plan.spec.lock("local" if plan.context.local else "aws") if source == "jumpstart" else None


def _lock(plan: Plan) -> list[tuple[str, str]]:
    lock = used_lock(plan)
    if lock is None:
        return []
    found = lock.jumpstart
    return [("locked", f"{found.model_id} {found.version}, config {found.config}, on {lock.written_at[:10]}")]


def render_findings(findings: Sequence[Finding]) -> str:
    """Each finding with its severity, what to do, and where the rule comes from; errors first."""
    lines = []
    for finding in worst_first(tuple(findings)):
        lines.append(f"  {finding.severity.ljust(7)}  {finding.check}: {finding.message}")
        if finding.next_step:
            lines.append(f"           next: {finding.next_step}")
        if finding.source:
            lines.append(f"           source: {finding.source}")
    return "\n".join(lines)


def requests_data(plan: Plan) -> list[dict[str, Any]]:
    """The exact requests in boto3's names, in order."""
    return [asdict(request) for request in plan.requests]


def plan_data(plan: Plan) -> dict[str, Any]:
    """The plan as JSON-able data; money is null where no price is known."""
    return {
        "name": plan.spec.name,
        "model": plan.spec.model,
        "mode": plan.spec.speculation.mode,
        "num_speculative_tokens": draft_tokens(plan),
        "account": plan.context.account,
        "region": plan.context.region,
        "local": plan.context.local,
        "stand_in_weights": is_stand_in(plan),
        "names": asdict(plan.names),
        "spec_hash": plan.spec_hash,
        "lock": None if (lock := used_lock(plan)) is None else lock.jumpstart.model_dump(mode="json"),
        "usd_per_hour": plan.usd_per_hour,
        "most_usd_per_hour": plan.most_usd_per_hour,
        "update_usd_per_hour": plan.update_usd_per_hour,
        "usd_per_day": plan.usd_per_day,
        "max_usd": plan.max_usd,
        "kept_until": None if plan.kept_until is None else plan.kept_until.isoformat(timespec="seconds"),
        "price_source": plan.price_source,
        "memory": None if plan.memory is None else asdict(plan.memory),
        "unused_gpus": plan.unused_gpus,
        "refused": plan.refused,
        "findings": [asdict(finding) for finding in plan.findings],
        "requests": requests_data(plan),
    }
