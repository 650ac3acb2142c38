"""The first half of a sweep: which endpoints are ours, what they are doing, and what the metrics show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from peagle_guard import tags
from peagle_guard.aws import Aws, arn_key, same_time
from peagle_guard.evidence import window
from peagle_guard.inventory import Inventory, is_foreign
from peagle_guard.measure import Look, look
from peagle_guard.records import BUSY, SERVING, Endpoint, Evidence, Kind, Lifecycle, Record
from peagle_guard.report import Entry
from peagle_guard.track import track

_UNSEEN = Evidence(Kind.UNKNOWN, detail="not looked at in this status")


@dataclass(frozen=True)
class Ours:
    """One endpoint of ours: described, tracked, with what its tags ask for; ``read`` is the register's."""

    endpoint: Endpoint
    lifecycle: Lifecycle
    read: Record
    faults: tuple[str, ...] = ()


def find_ours(aws: Aws, inventory: Inventory, now: datetime) -> tuple[list[Ours], list[Entry]]:
    """Return the endpoints that are ours, and the entries about those that only look so."""
    ours: list[Ours] = []
    others: list[Entry] = []
    for endpoint in inventory.endpoints.values():
        record = inventory.records.get(endpoint.name)
        faults: list[str] = []
        found = _tags(aws, inventory, endpoint, record, faults)
        if not found.get(tags.MANAGED_BY) and record is None:
            continue
        why = is_foreign(endpoint, found, record)
        if why is not None:
            others.append(_foreign(endpoint, why, tuple(faults)))
            continue
        read = replace(record or Record(name=endpoint.name), tags=_kept(found))
        described = _described(aws, endpoint, read, faults)
        if described is not None:
            lifecycle = lifecycle_of(described, found)
            ours.append(
                Ours(inventory.with_components(described), lifecycle, read, (*faults, *lifecycle.faults))
            )
    return ours, others


def evidence_of(
    aws: Aws, inventory: Inventory, ours: list[Ours], now: datetime
) -> tuple[dict[str, Evidence], list[str]]:
    """Return the evidence about each of ours by name, and what failed."""
    looks = [
        Look(each.endpoint, window(each.lifecycle, tracked(each, now), now), each.read.streams_hidden)
        for each in ours
        if each.endpoint.status in (SERVING | BUSY) - {"Creating"} and each.endpoint.variants
    ]
    found, faults = look(aws, looks)
    if inventory.components is None:
        found = {name: _without_components(each) for name, each in found.items()}
    return {each.endpoint.name: found.get(each.endpoint.name, _UNSEEN) for each in ours}, faults


def lifecycle_of(endpoint: Endpoint, found: Mapping[str, str]) -> Lifecycle:
    """Return what the tags ask for, with the described interval where no tag has it.

    Endpoints of older versions of peagle-sm have no such tag.
    """
    lifecycle = tags.lifecycle(found)
    if tags.PUBLISH_SECONDS in found:
        return lifecycle
    return replace(lifecycle, publish=timedelta(seconds=endpoint.publish_seconds))


def tracked(each: Ours, now: datetime) -> Record:
    """Return the record with what this look has taught."""
    return track(each.endpoint, each.lifecycle, each.read, now)


def _without_components(evidence: Evidence) -> Evidence:
    if evidence.kind is not Kind.QUIET:
        return evidence
    return Evidence(Kind.UNKNOWN, detail="the inference components could not be listed")


def _tags(
    aws: Aws, inventory: Inventory, endpoint: Endpoint, record: Record | None, faults: list[str]
) -> Mapping[str, str]:
    """The endpoint's tags.

    The tagging API lags behind: what it does not show although the register knows it, and what it shows of a
    name that has been created anew, is asked for by itself.
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


def _kept(found: Mapping[str, str]) -> dict[str, str]:
    """The tags that the register keeps: whoever wakes the endpoint may not write those of AWS itself."""
    return {key: value for key, value in found.items() if not key.startswith("aws:")}


def _described(aws: Aws, endpoint: Endpoint, record: Record, faults: list[str]) -> Endpoint | None:
    """The endpoint as described, from memory where nothing has changed; None where it has just gone."""
    same = same_time(record.created_at, endpoint.created_at) and same_time(
        record.described_at, endpoint.modified_at
    )
    # An older version of the guard did not record the interval: describe the endpoint once more.
    interval = record.publish_seconds
    if same and record.variants and (interval is not None or tags.PUBLISH_SECONDS in record.tags):
        return replace(
            endpoint,
            config_name=record.config_name,
            variants=record.variants,
            is_async=record.is_async,
            publish_seconds=interval or endpoint.publish_seconds,
        )
    try:
        return aws.describe_endpoint(endpoint.name)
    except Exception as error:
        # Its limits can still be seen; without variants there is no evidence, so it cannot idle.
        faults.append(f"DescribeEndpoint: {type(error).__name__}: {error}")
        return endpoint


def _foreign(endpoint: Endpoint, why: str, faults: tuple[str, ...]) -> Entry:
    return Entry(
        name=endpoint.name,
        arn=endpoint.arn,
        status=endpoint.status,
        evidence="",
        action="foreign",
        reason=why,
        owner="foreign",
        faults=faults,
    )
