"""The log groups of deleted endpoints: SageMaker makes them, and where one is, a later stack fails."""

from __future__ import annotations

from collections.abc import Iterable

from peagle_sm.aws import logs
from peagle_sm.aws.session import Session
from peagle_sm.core.errors import NotFound, PeagleError
from peagle_sm.service.events import Reporter


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
