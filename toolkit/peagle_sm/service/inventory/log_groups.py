"""The log groups of endpoints.

`deploy` creates them, since the guard's execution role may not: a line that arrives after a deletion would
bring the group back, and a later stack of that name would fail.
"""

from __future__ import annotations

from collections.abc import Iterable

from peagle_sm.aws.control import logs
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound, PeagleError
from peagle_sm.service.events import Reporter

KEPT_DAYS = 30
"""As in a stack (stacks/observability.py)."""


def create_group(session: Session, endpoint: str, report: Reporter) -> None:
    """Create the log group of an endpoint; one that exists is used as it is.

    Without it the endpoint works, and its output is lost unless its role may create the group: so a refusal
    is reported and stops nothing.
    """
    group = logs.group_of(endpoint)
    resource, words = f"log-group/{group}", f"log group {group}"
    try:
        made = logs.create(session, group, KEPT_DAYS)
    except PeagleError as error:
        report("config", f"{words} not created, so the output may be lost: {error.message}")
        return
    told = f"created; it keeps logs for {KEPT_DAYS} days" if made else "exists and is used"
    report("config", f"{words} {told}", resource=resource)


def groups_of(session: Session, names: Iterable[str], *, assume: bool = False) -> dict[str, str]:
    """Return the log groups that are there, by endpoint name.

    A group that may not be looked for is left out, or with ``assume`` taken to be there.
    """
    found = {}
    for name in names:
        try:
            there = logs.exists(session, name)
        except PeagleError:
            there = assume
        if there:
            found[name] = logs.group_of(name)
    return found


def remove_groups(
    session: Session, names: Iterable[str], report: Reporter
) -> tuple[list[str], dict[str, str]]:
    """Delete the log groups of these endpoints; return what went, and why something did not.

    Both name each as "log-group/<name of the group>".
    """
    deleted, left = [], {}
    for name in names:
        resource = f"log-group/{logs.group_of(name)}"
        try:
            logs.remove(session, name)
        except NotFound:
            continue
        except PeagleError as error:
            left[resource] = error.message
        else:
            deleted.append(resource)
            report("delete", f"deleted {resource}", resource=resource)
    return deleted, left
