"""What a notebook shows of an endpoint, and of a checkup."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from peagle_sm.core.checks.preflight import STATUSES, Result, Status
from peagle_sm.core.display.card import Card, Note, Table, Tone
from peagle_sm.core.failure_words import cause_first
from peagle_sm.core.plan.resting import rest_costs
from peagle_sm.core.words import STAND_IN, advised, elapsed, speculation_text, usd

if TYPE_CHECKING:
    from peagle_sm.service.inventory.inspection import EndpointStatus
    from peagle_sm.service.inventory.listing import EndpointSummary

_STATUS: dict[str, Tone] = {"InService": "good", "Failed": "bad", "OutOfService": "bad", "Paused": "plain"}
_CHECKS: dict[Status, Tone] = {"error": "bad", "warning": "caution", "unknown": "caution", "ok": "good"}
_WORDS: dict[Status, str] = {
    "error": "in error",
    "warning": "with warnings",
    "unknown": "unknown",
    "skipped": "skipped",
}


def status_card(status: EndpointStatus) -> Card:
    """Status, price and end of life first; what is not as it should be last."""
    each = status.summary
    local = status.engine is not None
    fields = [
        ("speculation", speculation_text(each.mode, each.num_speculative_tokens)),
        ("weights", STAND_IN if local else ""),
        ("instance", _instance(each)),
        ("engine", _engine(status)),
        ("price", _price(each)),
        ("age", "" if each.age_s is None else elapsed(each.age_s)),
        ("lifetime", f"deleted at {_when(each.expires_at)} whatever happens" if each.expires_at else ""),
        ("kept", f"until {_when(each.keep_until)}, idle or not" if each.keep_until else ""),
        ("idle", _idle(each)),
        ("config", status.config_name or ""),
        ("why", cause_first(status.failure_reason or "", "whole: .failure_reason")),
    ]
    return Card(
        f"{each.name}: {each.status}",
        tone=_STATUS.get(each.status, "caution"),
        fields=tuple((name, value) for name, value in fields if value),
        notes=tuple(Note(f"warning: {line}", "caution") for line in status.warnings),
    )


def _when(moment: datetime | None) -> str:
    return "-" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _instance(each: EndpointSummary) -> str:
    if each.instance_type is None:
        return ""
    return f"{each.instance_count} x {each.instance_type}" if each.instance_count else each.instance_type


def _engine(status: EndpointStatus) -> str:
    if status.engine is None:
        return ""
    running = status.engine.get("engine_version") or "not running yet"
    asked = str(status.engine.get("image") or "unknown").rpartition(":")[2]
    return f"vLLM {running} on this machine (image: {asked})"


def _price(each: EndpointSummary) -> str:
    if each.off_why is not None:
        rest = rest_costs(each.stack, each.usd_per_hour)
        return f"{usd(each.usd_per_hour, 'hour')} when it is on; off: {rest}"
    return f"{usd(each.usd_per_hour, 'hour')}, {usd(each.spent_usd)} spent so far"


def _idle(each: EndpointSummary) -> str:
    if each.idle_minutes is None:
        return ""
    return f"counts as idle after {each.idle_minutes} min of proven quiet"


def checkup_card(results: tuple[Result, ...]) -> Card:
    """What is not well with what to do; what is well folded."""
    worst: dict[str, Status] = {}
    for each in sorted(results, key=lambda result: STATUSES.index(result.status)):
        worst.setdefault(each.check, each.status)
    counts = {status: sum(one == status for one in worst.values()) for status in STATUSES}
    told = [f"{counts[status]} {words}" for status, words in _WORDS.items() if counts[status]]
    good = tuple((each.check, each.message or each.what) for each in results if each.status == "ok")
    tone = next(
        _CHECKS[status]
        for status in ("error", "warning", "unknown", "ok")
        if counts[status] or status == "ok"
    )
    return Card(
        f"{len(worst)} checks",
        ", ".join([*told, f"{counts['ok']} in order"]),
        tone,
        tables=(Table(f"in order: {counts['ok']}", ("check", "what it looks at"), good, folded=True),)
        if good
        else (),
        notes=tuple(_verdict(each) for each in results if each.status != "ok"),
    )


def _verdict(each: Result) -> Note:
    said = advised(f"{each.status}: {each.check}: {each.message}", each.next_step)
    return Note(said, _CHECKS.get(each.status, "plain"))
