"""Sweeper: checks every endpoint and training job once, decides on each, and acts on few.

A failure with one endpoint never stops the sweep of the others. It is in the report, and the handler fails
at the end so that the alarm on errors sees it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from peagle_guard import looking, records, training
from peagle_guard import settings as environment
from peagle_guard.acting import Actor
from peagle_guard.aws import Aws, same_time
from peagle_guard.boto_aws import BotoAws
from peagle_guard.decide import asks_for_its_stack, decide
from peagle_guard.looking import Inventory, Ours, Report, ReportEntry, entry, take
from peagle_guard.records import Action, Decision, Evidence, Kind, Lifecycle, Record
from peagle_guard.settings import Settings

# Less than the time between two sweeps, more than the sweeper may run (240 s).
_LOCKED = timedelta(seconds=250)


def sweep(aws: Aws, settings: Settings, now: datetime, dry_run: bool = False) -> Report:
    """Check all endpoints at ``now`` and carry out what is due; a dry run changes nothing.

    Raises:
        Exception: the list of endpoints or the register could not be read, so nothing was decided.
    """
    if dry_run:
        return _sweep(aws, settings, now, dry_run)
    if not aws.register.lock(now, now + _LOCKED):
        return Report(now, (), dict(aws.calls), skipped="another sweep is running")
    finished = False
    try:
        report = _sweep(aws, settings, now, dry_run)
        finished = True
    finally:
        aws.register.unlock(now, finished=finished)
    return report


def _sweep(aws: Aws, settings: Settings, now: datetime, dry_run: bool) -> Report:
    inventory = take(aws)
    ours, foreign = looking.find_ours(aws, inventory, now)
    evidence, faults = looking.evidence_of(aws, inventory, ours, now)
    actor = Actor(aws, settings, inventory, now, dry_run)
    # The oldest try first: an endpoint that hangs must not block others in every sweep.
    entries = [
        *(
            _one(actor, each, evidence[each.endpoint.name])
            for each in sorted(ours, key=lambda each: _last(each.read.off_at))
        ),
        *_gone(actor, inventory, {each.endpoint.name for each in ours}),
        *foreign,
    ]
    entries.sort(key=lambda each: each.name)
    jobs, job_faults = training.watch(aws, settings, now, dry_run)
    faults = [*inventory.faults, *faults, *job_faults]
    return Report(now, tuple(entries), dict(aws.calls), tuple(faults), training=tuple(jobs))


def _last(tried_at: datetime | None) -> datetime:
    return tried_at or datetime.min.replace(tzinfo=UTC)


def _one(actor: Actor, ours: Ours, evidence: Evidence) -> ReportEntry:
    decision = Decision(Action.NONE, "nothing could be decided", ours.read)
    faults: tuple[str, ...]
    try:
        decision = decide(ours.endpoint, ours.lifecycle, ours.read, evidence, actor.now)
        decision, faults = actor.act(ours, decision)
    except Exception as error:
        faults = (f"{type(error).__name__}: {error}",)
    return entry(decision, ours.lifecycle, ours.endpoint.status, evidence, (*ours.faults, *faults))


def _gone(actor: Actor, inventory: Inventory, ours: set[str]) -> Iterator[ReportEntry]:
    for record in sorted(inventory.records.values(), key=lambda each: _last(each.wake_tried_at)):
        listed = inventory.endpoints.get(record.name)
        # An endpoint of that name that peagle-sm did not create: the old one is gone and not turned on.
        if record.name in ours or (listed is not None and record.gone_at is not None):
            continue
        if listed is not None and same_time(listed.created_at, record.created_at):
            continue
        yield _one_gone(actor, record)


def _one_gone(actor: Actor, record: Record) -> ReportEntry:
    lifecycle = records.lifecycle_from_tags(record.tags)
    decision = Decision(Action.NONE, "nothing could be decided", record)
    faults: tuple[str, ...] = ()
    try:
        decision = decide(None, lifecycle, record, Evidence(Kind.UNKNOWN), actor.now)
        if decision.action is Action.WAKE or asks_for_its_stack(lifecycle, record, actor.now):
            decision = _unless_destroyed(actor.aws, lifecycle, record, decision)
        decision, faults = actor.act_on_gone(record, lifecycle, decision)
    except Exception as error:
        faults = (f"{type(error).__name__}: {error}",)
        decision = Decision(Action.NONE, decision.reason, record)
    return entry(decision, lifecycle, "Gone", None, (*lifecycle.faults, *faults))


def _unless_destroyed(aws: Aws, lifecycle: Lifecycle, record: Record, decision: Decision) -> Decision:
    """Return the decision if the stack exists; else forget the endpoint, which cannot be turned on."""
    if lifecycle.stack is None or aws.describe_stack(lifecycle.stack) is not None:
        return decision
    return Decision(Action.FORGET, f"off, and {lifecycle.stack} does not exist any more", record)


class SweepFailed(Exception):
    """Parts of a sweep failed; the rest was done. The message names each part."""


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    """Sweep now; with ``dry_run`` in the event nothing is changed.

    Raises:
        SweepFailed: something failed, so that the alarm on errors sees it.
    """
    settings = environment.load()
    return run(BotoAws(settings), settings, event)


def run(aws: Aws, settings: Settings, event: Mapping[str, Any]) -> dict[str, Any]:
    """Sweep at AWS's current time.

    The schedule's time and this machine's clock may both be behind. A sweep that believed them would turn off
    an endpoint although CloudWatch already shows its traffic.

    Raises:
        SweepFailed: something failed.
    """
    dry_run = event.get("dry_run") is True
    report = sweep(aws, settings, aws.time(), dry_run)
    document = report.as_json()
    print(json.dumps(document))
    if report.failures and not dry_run:
        raise SweepFailed("; ".join(report.failures))
    return document
