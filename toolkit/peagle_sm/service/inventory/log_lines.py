"""logs(): an endpoint's own output, once or as it comes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain

from peagle_sm.aws.control import logs as cloudwatch
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.logs import LogLine
from peagle_sm.aws.session.session import Session
from peagle_sm.service.events import Pacing
from peagle_sm.service.inventory.inspection import absent

__all__ = ["LogLine", "logs"]

# CloudWatch shows lines late and out of order, so a follower looks back this far and drops what it has shown.
OVERLAP = timedelta(seconds=60)
# What a follower knows to be old before it looks for news: more than ever share one millisecond.
BASELINE_LINES = 1000


def logs(
    name: str, *, session: Session, follow: bool = False, limit: int = 100, pacing: Pacing | None = None
) -> Iterator[LogLine]:
    """Yield the last ``limit`` lines of an endpoint, oldest first; ``follow`` goes on until it is gone.

    The lines of an endpoint that no longer exists are kept by CloudWatch, and shown.

    Raises:
        NotFound: there is neither such an endpoint nor output of one.
    """
    lines = cloudwatch.tail(session, name, max(limit, BASELINE_LINES) if follow else limit)
    if not lines and control.describe_endpoint(session, name) is None:
        raise absent(session, name)
    last = lines[-limit:] if limit > 0 else []
    if not follow:
        return iter(last)
    return chain(last, _news(name, session, lines, pacing or Pacing.for_session(session)))


def _news(name: str, session: Session, known: list[LogLine], pacing: Pacing) -> Iterator[LogLine]:
    epoch = datetime.fromtimestamp(0, UTC)
    newest = known[-1].timestamp if known else epoch
    # These come again within the overlap, with event ids that their first reading did not tell.
    shown = set(known)
    # What is older still and comes with the first look was there before the tail that was asked for.
    old_before: datetime | None = newest
    seen: set[str] = set()
    there = True
    while there:
        there = control.describe_endpoint(session, name) is not None
        start = max(epoch, newest - OVERLAP) if newest > epoch else epoch
        found = sorted(cloudwatch.since(session, name, start), key=lambda one: one[1].timestamp)
        for event_id, line in found:
            if event_id in seen:
                continue
            seen.add(event_id)
            if line in shown or (old_before is not None and line.timestamp < old_before):
                continue
            newest = max(newest, line.timestamp)
            yield line
        old_before = None
        if there:
            pacing.sleep(min(pacing.poll_s, 2.0))
