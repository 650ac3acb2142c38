"""The sweeper's handler: one sweep, told in the log, failing at the end if anything failed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from peagle_guard import settings as environment
from peagle_guard.boto_aws import BotoAws
from peagle_guard.sweep import sweep


class SweepFailed(Exception):
    """Parts of a sweep failed; the rest was done. The message names each part."""


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    """Sweep at the event's ``time``; ``dry_run`` writes and does nothing.

    Raises:
        SweepFailed: something failed, so that the alarm on errors sees it.
    """
    settings = environment.load()
    now = environment.time_of(event) or environment.now(settings)
    dry_run = event.get("dry_run") is True
    report = sweep(BotoAws(settings), settings, now, dry_run)
    told = report.as_json()
    print(json.dumps(told))
    if report.failures and not dry_run:
        raise SweepFailed("; ".join(report.failures))
    return told
