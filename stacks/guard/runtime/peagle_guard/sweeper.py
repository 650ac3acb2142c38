"""The sweeper's handler: one sweep, written to the log, failing at the end if anything failed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from peagle_guard import settings as environment
from peagle_guard.aws import Aws
from peagle_guard.boto_aws import BotoAws
from peagle_guard.settings import Settings
from peagle_guard.sweep import sweep


class SweepFailed(Exception):
    """Parts of a sweep failed; the rest was done. The message names each part."""


class TimedAws(Aws, Protocol):
    """AWS, and what time it is there."""

    def time(self) -> datetime:
        """Return the present by AWS's own clock."""


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    """Sweep now; with ``dry_run`` in the event it writes and does nothing.

    Raises:
        SweepFailed: something failed, so that the alarm on errors sees it.
    """
    settings = environment.load()
    return run(BotoAws(settings), settings, event)


def run(aws: TimedAws, settings: Settings, event: Mapping[str, Any]) -> dict[str, Any]:
    """Sweep at AWS's present time.

    The schedule's time and this machine's clock may both be behind. A sweep that believed them would turn off
    an endpoint although CloudWatch already shows its traffic.

    Raises:
        SweepFailed: something failed.
    """
    dry_run = event.get("dry_run") is True
    report = sweep(aws, settings, aws.time(), dry_run)
    found = report.as_json()
    print(json.dumps(found))
    if report.failures and not dry_run:
        raise SweepFailed("; ".join(report.failures))
    return found
