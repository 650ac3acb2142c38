"""First half of a sweep: which endpoints peagle-sm created, their state, and what the metrics show.

`take` reads endpoints, components, tags and the register, one call per page. `Report` is what a sweep logs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from peagle_guard.aws import Aws, all_pages, arn_key, same_arn, same_time
from peagle_guard.decide import repriced, track
from peagle_guard.evidence import Look, look, window
from peagle_guard.records import (
    BUSY,
    SERVING,
    Decision,
    Endpoint,
    Evidence,
    Kind,
    Lifecycle,
    Record,
    is_ours,
    lifecycle_from_tags,
)
from peagle_guard.training import TrainingEntry
from peagle_sm.core.plan.tags_and_schedules import IDLE, MANAGED_BY


@dataclass(frozen=True)
class ReportEntry:
    """One endpoint in the report."""

    name: str
    arn: str
    status: str
    evidence: str
    action: str
    reason: str
    owner: str
    expires_at: datetime | None = None
    quiet_since: datetime | None = None
    faults: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the entry as JSON types; times are in ISO format."""
        row = asdict(self) | {
            "expires_at": _iso(self.expires_at),
            "quiet_since": _iso(self.quiet_since),
            "faults": list(self.faults),
        }
        return row if self.faults else {key: value for key, value in row.items() if key != "faults"}


@dataclass(frozen=True)
class Report:
    """Report of one sweep; ``skipped`` gives the reason if nothing was checked."""

    time: datetime
    endpoints: tuple[ReportEntry, ...]
    calls: Mapping[str, int]
    faults: tuple[str, ...] = ()
    skipped: str | None = None
    training: tuple[TrainingEntry, ...] = ()

    @property
    def failures(self) -> tuple[str, ...]:
        """Everything that failed, in words."""
        return (*self.faults, *(f"{each.name}: {fault}" for each in self.endpoints for fault in each.faults))

    def as_json(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        row: dict[str, Any] = {
            "time": _iso(self.time),
            "endpoints": [each.as_json() for each in self.endpoints],
            "calls": dict(self.calls),
        }
        if self.training:
            row["training"] = [each.as_json() for each in self.training]
        if self.faults:
            row["faults"] = list(self.faults)
        return {**row, "skipped": self.skipped} if self.skipped else row


def entry(
    decision: Decision,
    lifecycle: Lifecycle,
    status: str,
    evidence: Evidence | None,
    faults: tuple[str, ...] = (),
) -> ReportEntry:
    """Return the report's entry about one decision."""
    return ReportEntry(
        name=decision.record.name,
        arn=decision.record.arn,
        status=status,
        evidence=str(evidence.kind) if evidence else "",
        action=str(decision.action),
        reason=decision.reason,
        owner=lifecycle.owner,
        expires_at=decision.expires_at,
        quiet_since=decision.record.quiet_since,
        faults=faults,
    )


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


T = TypeVar("T")


@dataclass(frozen=True)
class Inventory:
    """State of the account; ``components`` and ``tags`` are None if they could not be listed."""

    endpoints: Mapping[str, Endpoint]
    components: Mapping[str, tuple[str, ...]] | None
    tags: Mapping[str, Mapping[str, str]] | None
    records: Mapping[str, Record]
    faults: tuple[str, ...] = ()

    def with_components(self, endpoint: Endpoint) -> Endpoint:
        """Return the endpoint with its components."""
        return replace(endpoint, components=(self.components or {}).get(endpoint.name, ()))


def take(aws: Aws) -> Inventory:
    """Read endpoints, components, tags and the register once.

    Without the list of endpoints or the register nothing can be decided, so their errors are raised. Without
    the tagging API the register's tags serve; without the components no quiet is proven.
    """
    faults: list[str] = []
    endpoints = {each.name: each for each in all_pages(aws.list_endpoints)}
    records = {each.name: each for each in all_pages(aws.register.scan)}
    tagged = _attempt("GetResources", lambda: list(all_pages(aws.tagged_endpoints)), faults)
    listed = _attempt("ListInferenceComponents", lambda: list(all_pages(aws.list_components)), faults)
    components: dict[str, tuple[str, ...]] | None = None
    if listed is not None:
        components = {}
        for each in listed:
            components[each.endpoint] = (*components.get(each.endpoint, ()), each.name)
    return Inventory(
        endpoints=endpoints,
        components=components,
        tags=None if tagged is None else {arn_key(each.arn): each.tags for each in tagged},
        records=records,
        faults=tuple(faults),
    )


def is_foreign(endpoint: Endpoint, tags: Mapping[str, str], record: Record | None) -> str | None:
    """Return why a tagged or registered endpoint was not created by peagle-sm; None if it was."""
    if not is_ours(endpoint.name, tags):
        return "its tags do not mark it as created by peagle-sm"
    if record is not None and record.arn and not same_arn(record.arn, endpoint.arn):
        return f"the register knows this name under another ARN ({record.arn})"
    return None


def _attempt(operation: str, call: Callable[[], list[T]], faults: list[str]) -> list[T] | None:
    try:
        return call()
    except Exception as error:
        faults.append(f"{operation}: {type(error).__name__}: {error}")
        return None


_UNSEEN = Evidence(Kind.UNKNOWN, detail="not checked in this status")


@dataclass(frozen=True)
class Ours:
    """An endpoint of peagle-sm with its description, tags' settings and record; ``read`` is as stored."""

    endpoint: Endpoint
    lifecycle: Lifecycle
    read: Record
    faults: tuple[str, ...] = ()


def find_ours(aws: Aws, inventory: Inventory, now: datetime) -> tuple[list[Ours], list[ReportEntry]]:
    """Return the endpoints that peagle-sm created, and report entries on those that only look so."""
    ours: list[Ours] = []
    others: list[ReportEntry] = []
    for endpoint in inventory.endpoints.values():
        record = inventory.records.get(endpoint.name)
        faults: list[str] = []
        tags = _tags(aws, inventory, endpoint, record, faults)
        if not tags.get(MANAGED_BY) and record is None:
            continue
        why = is_foreign(endpoint, tags, record)
        if why is not None:
            foreign = (endpoint.name, endpoint.arn, endpoint.status, "", "foreign", why, "foreign")
            others.append(ReportEntry(*foreign, faults=tuple(faults)))
            continue
        # Without AWS's own tags, which CreateEndpoint refuses.
        kept = {key: value for key, value in tags.items() if not key.startswith("aws:")}
        read = repriced(record or Record(name=endpoint.name), kept, now)
        described = _described(aws, endpoint, read, faults)
        if described is not None:
            lifecycle = lifecycle_from_tags(tags)
            ours.append(
                Ours(inventory.with_components(described), lifecycle, read, (*faults, *lifecycle.faults))
            )
    return ours, others


def evidence_of(
    aws: Aws, inventory: Inventory, ours: list[Ours], now: datetime
) -> tuple[dict[str, Evidence], list[str]]:
    """Return the evidence on each endpoint by name, and what failed."""
    looks = [
        Look(
            each.endpoint,
            window(each.lifecycle, track(each.endpoint, each.lifecycle, each.read, now), now),
            each.read.streams_hidden,
        )
        for each in ours
        if each.endpoint.status in (SERVING | BUSY) - {"Creating"} and each.endpoint.variants
    ]
    by_name, faults = look(aws, looks)
    if inventory.components is None:
        unknown = Evidence(Kind.UNKNOWN, detail="the inference components could not be listed")
        by_name = {name: unknown if each.kind is Kind.QUIET else each for name, each in by_name.items()}
    return {each.endpoint.name: by_name.get(each.endpoint.name, _UNSEEN) for each in ours}, faults


def _tags(
    aws: Aws, inventory: Inventory, endpoint: Endpoint, record: Record | None, faults: list[str]
) -> Mapping[str, str]:
    """Return the endpoint's tags.

    The tagging API lags behind. If it lacks an endpoint that the register has, or the name was created again,
    the endpoint's tags are read directly.
    """
    shown = None if inventory.tags is None else inventory.tags.get(arn_key(endpoint.arn))
    same = record is not None and same_time(record.created_at, endpoint.created_at)
    if record is None or record.created_at is None or (same and shown is not None):
        return shown or {}
    if same and inventory.tags is None:
        return record.tags
    try:
        return aws.endpoint_tags(endpoint.arn)
    except Exception as error:
        faults.append(f"ListTags: {type(error).__name__}: {error}")
        return record.tags if same else {}


def _described(aws: Aws, endpoint: Endpoint, record: Record, faults: list[str]) -> Endpoint | None:
    """Return the endpoint's description, from the register if unchanged; None if it was just deleted.

    AWS does not say whether the number of instances changes LastModifiedTime where SageMaker itself scales
    them, for components. The cost depends on it, so these endpoints are described in each sweep.
    """
    managed = record.tags.get(IDLE) == "scale-to-zero"
    same = (
        not managed
        and same_time(record.created_at, endpoint.created_at)
        and same_time(record.described_at, endpoint.modified_at)
    )
    if same and record.variants:
        return replace(
            endpoint,
            config_name=record.config_name,
            variants=record.variants,
            is_async=record.is_async,
        )
    try:
        return aws.describe_endpoint(endpoint.name)
    except Exception as error:
        # Its limits can still be seen; without variants there is no evidence, so it cannot idle.
        faults.append(f"DescribeEndpoint: {type(error).__name__}: {error}")
        return endpoint
