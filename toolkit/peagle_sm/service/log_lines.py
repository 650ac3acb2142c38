"""logs(): an endpoint's own output, once or as it comes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from peagle_sm.aws import control
from peagle_sm.aws import logs as cloudwatch
from peagle_sm.aws.logs import LogLine
from peagle_sm.aws.session import Session
from peagle_sm.service.events import Pacing
from peagle_sm.service.inspection import absent

__all__ = ["LogLine", "logs"]

# CloudWatch shows lines late and out of order, so a follower looks back this far and drops what it has shown.
OVERLAP = timedelta(seconds=60)


def logs(
    name: str, *, session: Session, follow: bool = False, limit: int = 100, pacing: Pacing | None = None
) -> Iterator[LogLine]:
    """Yield the last ``limit`` lines of an endpoint, oldest first; ``follow`` goes on until it is gone.

    The lines of an endpoint that no longer exists are kept by CloudWatch, and shown.

    Raises:
        NotFound: there is neither such an endpoint nor output of one.
    """
    lines = cloudwatch.tail(session, name, limit)
    if not lines and control.describe_endpoint(session, name) is None:
        raise absent(session, name)
    return _lines(name, session, follow, lines, pacing or Pacing.for_session(session))


def _lines(
    name: str, session: Session, follow: bool, lines: list[LogLine], pacing: Pacing
) -> Iterator[LogLine]:
    yield from lines
    if not follow:
        return
    newest = lines[-1].timestamp if lines else datetime.fromtimestamp(0, UTC)
    # Those just shown come again within the overlap, without their event ids.
    shown = {(line.timestamp, line.stream, line.message) for line in lines}
    seen: set[str] = set()
    there = True
    while there:
        there = control.describe_endpoint(session, name) is not None
        start = max(datetime.fromtimestamp(0, UTC), newest - OVERLAP) if newest.timestamp() > 0 else newest
        for event_id, line in cloudwatch.since(session, name, start):
            key = (line.timestamp, line.stream, line.message)
            if event_id in seen or key in shown:
                continue
            seen.add(event_id)
            newest = max(newest, line.timestamp)
            yield line
        if there:
            pacing.sleep(min(pacing.poll_s, 2.0))
