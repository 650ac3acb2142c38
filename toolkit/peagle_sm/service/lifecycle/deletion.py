"""delete(): names and globs to nothing, proven."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from peagle_sm.aws.control import lifetime
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.sagemaker import did_you_mean
from peagle_sm.aws.control.stacks import stack_status
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import BillableLeft, Declined, NotFound, PeagleError, PlanRefused
from peagle_sm.core.guard import endpoint_stack
from peagle_sm.core.plan.payloads import hard_schedule_name, schedule_name
from peagle_sm.core.plan.tags import USD_PER_HOUR
from peagle_sm.service.inventory.guard_state import forget
from peagle_sm.service.inventory.resources import (
    Belongings,
    Note,
    all_belongings,
    amount,
    belongings_of,
    groups_of,
    remove_groups,
    require_own_stack,
)
from peagle_sm.service.lifecycle.teardown import Removed, Teardown, leave_to_the_schedule, remove_by_hand
from peagle_sm.service.progress import Pacing, Progress, Reporter

WithLogs = bool | Callable[[Sequence[str]], bool]
"""Whether log groups go too, or who is asked for it, given their names."""

_GLOB = frozenset("*?[")


@dataclass(frozen=True)
class Deletable:
    """What goes when one name is deleted; ``status`` is "Paused" or "Orphaned" where there is no endpoint.

    ``log_group`` is the name of its log group where there is one; it goes only when that is asked for.
    ``usd_per_hour`` is the price when it was planned; None where no price is known, or nothing runs.
    ``gone_stack`` is the stack that made it, where that no longer exists.
    """

    name: str
    status: str
    resources: tuple[str, ...]
    log_group: str | None = None
    usd_per_hour: float | None = None
    gone_stack: str | None = None


@dataclass(frozen=True)
class DeleteReport:
    """``leftovers`` is what AWS still shows of these names, or could not be asked about; empty is the proof.

    ``logs_kept`` are the log groups that stay, since nobody asked for their deletion.
    """

    names: tuple[str, ...]
    deleted: tuple[str, ...]
    leftovers: tuple[str, ...]
    logs_kept: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {key: list(value) for key, value in asdict(self).items()}


def delete(
    patterns: Sequence[str],
    *,
    session: Session,
    confirm: Callable[[Sequence[Deletable]], bool] | None = None,
    with_logs: WithLogs = False,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
) -> DeleteReport:
    """Delete what peagle-sm made under the names or globs, endpoint first and schedule last.

    Waits until each endpoint is gone, asking again while AWS refuses. What killed runs left is deleted by
    the same names. Nothing without our tags is touched. What a stack that no longer exists has left goes like
    anything else. SageMaker's log group of each name stays, unless
    ``with_logs`` is True or says so when asked (after ``confirm``); True takes it also where nothing else is
    left of a name. A later stack of the name makes its own, and fails while there is one.

    Raises:
        NotFound: a name or glob matches nothing of ours.
        PlanRefused: a name is that of an endpoint that is not ours, or that belongs to a stack which exists
            or cannot be read.
        BillableLeft: an endpoint could not be proven gone; its lifetime limit is still armed. After Ctrl-C
            the limit was brought forward to now.
        Interrupted: Ctrl-C when the endpoint was gone already.
        Declined: ``confirm`` said no; nothing was deleted.
        PeagleError: something that costs nothing is left, or could not be proven gone.
    """
    pacing = pacing or Pacing.for_session(session)
    reporter = Reporter(progress, pacing)
    chosen = _choose(session, patterns, partial(reporter, "delete"), logs_alone=with_logs is True)
    gone_stacks = _gone_stacks(session, chosen)
    for stack in gone_stacks:
        reporter("delete", f"stack {stack} no longer exists: what it left is deleted")
    groups = groups_of(session, (one.name for one in chosen), assume=with_logs is True)
    rows = [
        Deletable(
            one.name, _status(one), one.resources, groups.get(one.name), _price(session, one), one.stack
        )
        for one in chosen
    ]
    if confirm is not None and not confirm(rows):
        raise Declined("Nothing was deleted: it was not confirmed.", next_step="Run again and confirm.")
    if gone_stacks:
        _gone_stacks(session, chosen)  # somebody may have deployed one again during the question
    logs_too = bool(groups) and (with_logs(tuple(groups.values())) if callable(with_logs) else with_logs)
    teardown = Teardown(session, pacing, reporter, "delete", gone_stacks)
    deleted: list[str] = []
    unproven_free: dict[str, str] = {}
    unproven: list[BillableLeft] = []
    for one in chosen:
        try:
            gone = _tear_down(session, teardown, one)
        except KeyboardInterrupt:
            leave_to_the_schedule(session, one.name, pacing)
        except BillableLeft as left:  # the others must go all the same
            unproven.append(left)
        else:
            deleted += gone.deleted
            unproven_free |= gone.left
            forget(session, one.name)  # or its timetable would try to wake it
    _raise_billable(unproven, session)
    # Last: an engine that is ending still writes, and would make its group anew.
    logs_gone, logs_left = remove_groups(session, groups, reporter) if logs_too else ([], {})
    seen, unseen = _still_there(session, chosen, pacing, unproven_free)
    report = DeleteReport(
        names=tuple(one.name for one in chosen),
        deleted=(*deleted, *logs_gone),
        leftovers=(*seen, *unseen, *logs_left),
        logs_kept=() if logs_too else tuple(groups.values()),
    )
    _raise_leftovers(report, session, unseen, logs_left)
    return report


def leftovers(session: Session) -> list[str]:
    """Return "kind/name" of everything of ours in the region; empty means that nothing is left."""
    return [resource for one in all_belongings(session) for resource in one.resources]


def remove_if_there(session: Session, name: str, pacing: Pacing) -> Removed:
    """Delete one name if it is there; a name that is gone already is no mistake here.

    Raises:
        PlanRefused: it belongs to a stack that exists or cannot be read.
        BillableLeft: the endpoint could not be proven gone.
        Interrupted: Ctrl-C when the endpoint was gone already.
    """
    try:
        found = belongings_of(session, name, need_lifetime=False)
        gone_stacks = _gone_stacks(session, [found])
        teardown = Teardown(session, pacing, Reporter(None, pacing), "delete", gone_stacks)
        return _tear_down(session, teardown, found)
    except KeyboardInterrupt:
        leave_to_the_schedule(session, name, pacing)


def _choose(session: Session, patterns: Sequence[str], note: Note, *, logs_alone: bool) -> list[Belongings]:
    chosen: dict[str, Belongings] = {}
    everything: list[Belongings] | None = None
    for pattern in patterns:
        if _GLOB.isdisjoint(pattern):
            found = [belongings_of(session, pattern, note, need_lifetime=False)]
        else:
            everything = all_belongings(session, note) if everything is None else everything
            found = [one for one in everything if fnmatchcase(one.name, pattern)]
        matches = [one for one in found if one.resources]
        for one in found:
            if not matches and one.unread_lifetime is not None:
                raise one.unread_lifetime  # the schedule may be all that is left
        if not matches and logs_alone and (only := _only_logs(session, pattern)) is not None:
            matches = [only]
        if not matches:
            raise _nothing(session, pattern)
        chosen.update({one.name: one for one in matches})
    return list(chosen.values())


def _only_logs(session: Session, name: str) -> Belongings | None:
    """A name of which the log group alone is left; it is a stack's where there is a stack of that name."""
    if not _GLOB.isdisjoint(name) or not groups_of(session, [name]):
        return None
    if control.describe_endpoint(session, name) is not None:
        return None
    stack = endpoint_stack(name)
    return Belongings(name, stack=stack if stack_status(session, stack) else None)


def _gone_stacks(session: Session, chosen: Sequence[Belongings]) -> frozenset[str]:
    """Return the stacks of ``chosen`` that no longer exist: what they left is deleted like anything else.

    Raises:
        PlanRefused: a stack exists, or could not be read.
    """
    owned = {one.name: stack for one in chosen if (stack := _stack_of(one)) is not None}
    for name, stack in owned.items():
        require_own_stack(name, stack)
    unread: list[str] = []
    existing = {name: stack for name, stack in owned.items() if _may_exist(session, stack, unread)}
    if existing:
        raise _owned(session, existing, unread)
    return frozenset(owned.values())


def _may_exist(session: Session, stack: str, unread: list[str]) -> bool:
    try:
        return stack_status(session, stack) is not None
    except PeagleError as error:
        unread.append(f" Stack {stack} could not be read: {error.message}")
        return True


def _owned(session: Session, owned: Mapping[str, str], unread: Sequence[str]) -> PlanRefused:
    name = next(iter(owned))
    told = ", ".join(f"{one} belongs to stack {its}" for one, its in owned.items())
    return PlanRefused(
        f"{told}; deleted behind its back, the stack would believe that it is still there. "
        f"Nothing was deleted.{''.join(unread)}",
        next_step=f"For good: `cdk destroy {' '.join(owned.values())} -c spec=FILE` with "
        f"its spec. To stop the cost and keep the stack: "
        f"`peagle-sm pause {name}{session.command_flags()}`.",
        details={"findings": [], "stacks": sorted(owned.values())},
    )


def _stack_of(one: Belongings) -> str | None:
    """Return the stack that made it; where only its schedule is left, the one that the schedule turns off."""
    only_a_schedule = one.endpoint is None and not one.configs and not one.models
    return one.lifetime.stack if only_a_schedule and one.lifetime is not None else one.stack


def _tear_down(session: Session, teardown: Teardown, one: Belongings) -> Removed:
    """Delete what is left of one name; of a stack that is gone its second schedules too, last."""
    gone = teardown.run(one.to_remove)
    stack = _stack_of(one)
    try:
        if stack is not None and stack_status(session, stack) is None:
            lifetime.remove_hard(session, one.name)
    except PeagleError as error:
        gone.left[f"schedule/{hard_schedule_name(one.name)}"] = error.message
    return gone


def _nothing(session: Session, pattern: str) -> PeagleError:
    if _GLOB.isdisjoint(pattern) and control.describe_endpoint(session, pattern) is not None:
        return PlanRefused(
            f"endpoint {pattern} exists but was not made by peagle-sm (no tag peagle-sm:managed-by).",
            next_step=f"If it is to go: `aws sagemaker delete-endpoint --endpoint-name {pattern}`.",
            details={"findings": []},
        )
    if _GLOB.isdisjoint(pattern) and (group := groups_of(session, [pattern]).get(pattern)):
        return NotFound(
            f"of {pattern!r} only its log group {group} is left in {session.region}.",
            next_step=f"Delete that too: `peagle-sm delete {pattern} --with-logs{session.command_flags()}`.",
            details={"pattern": pattern, "log_group": group},
        )
    if _GLOB.isdisjoint(pattern):
        forget(session, pattern)  # a deletion that was stopped at its end has left it in the register
    near = did_you_mean(session, pattern) if _GLOB.isdisjoint(pattern) else ""
    return NotFound(
        f"{pattern!r} matches nothing that peagle-sm made in {session.region}.{near}",
        next_step=f"Run `peagle-sm list{session.command_flags()}` to see the existing endpoints.",
        details={"pattern": pattern},
    )


def _status(one: Belongings) -> str:
    if one.endpoint is None:
        return "Paused" if one.is_off else "Orphaned" if one.resources else "Gone"
    return one.endpoint.status or "unknown"


def _price(session: Session, one: Belongings) -> float | None:
    """Return USD per hour from the endpoint's own tag, which needs no call."""
    if one.endpoint is None and not one.is_off:
        return None
    return 0.0 if session.is_local else amount(one.tags, USD_PER_HOUR)


def _still_there(
    session: Session, chosen: Sequence[Belongings], pacing: Pacing, unproven: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return what AWS still shows, and the schedules of ``unproven`` that it was not asked about: why."""
    left: tuple[str, ...] = ()
    found: list[Belongings] = []
    for look in range(3):  # lists may lag behind deletions; a few looks settle it
        if look:
            pacing.sleep(pacing.poll_s)
        found = [belongings_of(session, one.name, need_lifetime=False) for one in chosen]
        left = tuple(resource for one in found for resource in one.resources)
        if not left:
            break
    known = {f"schedule/{schedule_name(one.name)}" for one in found if one.unread_lifetime is None}
    schedules = {resource: why for resource, why in unproven.items() if resource.startswith("schedule/")}
    return left, {resource: why for resource, why in schedules.items() if resource not in known}


def _raise_billable(unproven: Sequence[BillableLeft], session: Session) -> None:
    if not unproven:
        return
    resources = [resource for one in unproven for resource in one.details["resources"]]
    names = " ".join(resource.removeprefix("endpoint/") for resource in resources)
    raise BillableLeft(
        " ".join(one.message for one in unproven),
        next_step=f"peagle-sm delete {names} --yes{session.command_flags()}",
        details={"resources": resources, "region": session.region},
    )


def _raise_leftovers(
    report: DeleteReport, session: Session, unseen: Mapping[str, str], logs_left: Mapping[str, str]
) -> None:
    if not report.leftovers:
        return
    details = report.to_dict()
    option = " --with-logs" if logs_left else ""
    command = f"peagle-sm delete {' '.join(report.names)}{option} --yes{session.command_flags()}"
    if any(one.startswith("endpoint/") for one in report.leftovers):
        endpoints = [one for one in report.leftovers if one.startswith("endpoint/")]
        raise BillableLeft(
            f"After the deletion there is again: {', '.join(report.leftovers)}.",
            next_step=command,
            details={**details, "resources": endpoints},
        )
    seen = [one for one in report.leftovers if one not in unseen]
    told = [f"Still there, costing nothing by the hour: {', '.join(seen)}."] if seen else []
    told += [f"{reason}." for reason in logs_left.values()]
    told += [f"Not proven gone, costing nothing by the hour: {one} ({why})." for one, why in unseen.items()]
    steps = [f"Run it again: `{command}`."] if seen else []
    steps += [remove_by_hand(session, resource) for resource in unseen]
    raise PeagleError(" ".join(told), next_step=" ".join(steps), details=details)
