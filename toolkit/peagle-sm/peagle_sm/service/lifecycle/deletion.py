"""delete(): delete endpoints by name or glob, and check that all is gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from peagle_sm.aws.control import executor, lifetime
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.sagemaker import component_names, did_you_mean
from peagle_sm.aws.control.stacks import stack_status
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import BillableLeft, Declined, NotFound, PeagleError, PlanRefused
from peagle_sm.core.plan.tags_and_schedules import (
    PRICE_BOUND,
    USD_PER_HOUR,
    from_zero_alarm,
    hard_schedule_name,
)
from peagle_sm.core.resources.alarm import Alarm, update_alarms_deletion
from peagle_sm.core.resources.component import Component
from peagle_sm.core.resources.log_group import LogGroup
from peagle_sm.core.resources.ordered import component_of
from peagle_sm.core.resources.scalable_target import ScalableTarget, resource_id
from peagle_sm.service.inventory.guard_state import forget
from peagle_sm.service.inventory.resources import (
    Belongings,
    Note,
    ToRemove,
    all_belongings,
    amount,
    belongings_of,
    delete_command,
    groups_of,
    require_own_stack,
)
from peagle_sm.service.lifecycle.teardown import (
    Removed,
    Teardown,
    joined,
    leave_all_to_the_schedules,
    remove_by_hand,
)
from peagle_sm.service.progress import Pacing, Progress, Reporter

_GLOB = frozenset("*?[")


@dataclass(frozen=True)
class Deletable:
    """Resources that the deletion of one name removes.

    ``status`` is "Paused" or "Orphaned" if there is no endpoint. ``log_group`` is the name of its log group,
    if it exists; it is kept. ``usd_per_hour`` is the planned price; None if no price is
    known or nothing runs. ``price_at_most``: it is an upper bound. ``gone_stack`` is the stack that created
    it, if that stack no longer exists.
    """

    name: str
    status: str
    resources: tuple[str, ...]
    log_group: str | None = None
    usd_per_hour: float | None = None
    price_at_most: bool = False
    gone_stack: str | None = None


@dataclass(frozen=True)
class DeleteReport:
    """Result of a deletion.

    ``leftovers`` are the resources of these names whose deletion AWS did not confirm. ``logs_kept`` are the
    existing log groups. ``absent`` has the names and globs that matched
    nothing, each with the nearest match.
    """

    names: tuple[str, ...]
    deleted: tuple[str, ...]
    leftovers: tuple[str, ...]
    logs_kept: tuple[str, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        rows = {key: list(value) for key, value in asdict(self).items() if key != "absent"}
        return {**rows, "absent": dict(self.absent)}


@dataclass(frozen=True)
class _Choice:
    """Matches of the names and globs of one deletion; ``absent`` has an error for each without a match."""

    chosen: list[Belongings]
    absent: dict[str, NotFound]
    gone_stacks: frozenset[str]
    groups: dict[str, str]
    rows: tuple[Deletable, ...]


def deletable(
    patterns: Sequence[str], *, session: Session, progress: Progress | None = None
) -> tuple[Deletable, ...]:
    """Return what `delete` would delete under these names or globs; delete nothing.

    Raises:
        PlanRefused: as `delete`.
    """
    return _choice(session, patterns, Reporter(progress, Pacing.for_session(session))).rows


def delete(
    patterns: Sequence[str],
    *,
    session: Session,
    confirm: Callable[[Sequence[Deletable]], bool] | None = None,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
    missing_ok: bool = False,
) -> DeleteReport:
    """Delete what peagle-sm created under these names or globs.

    Sends the deletion of all endpoints first, then waits until each is gone, and retries while AWS
    refuses. A schedule is deleted last. Also deletes the resources of killed runs, the alarms of killed
    updates among them, and those of stacks that no longer exist. Resources without peagle-sm's tags are
    kept, and so is the log group of each name. With ``missing_ok`` a name or glob that matches nothing
    raises nothing; the report has it in ``absent``.

    Raises:
        NotFound: a name or glob matches nothing that peagle-sm created.
        PlanRefused: the endpoint was not created by peagle-sm, or it belongs to a stack that exists or
            cannot be read.
        BillableLeft: AWS did not confirm that an endpoint is gone; its lifetime schedule still exists. After
            Ctrl-C the schedule was moved to now.
        Interrupted: Ctrl-C when the endpoint was already gone.
        Declined: ``confirm`` declined; nothing was deleted.
        PeagleError: something that costs nothing is left, or AWS did not confirm that it is gone.
    """
    pacing = pacing or Pacing.for_session(session)
    reporter = Reporter(progress, pacing)
    choice = _choice(session, patterns, reporter)
    chosen, gone_stacks = choice.chosen, choice.gone_stacks
    for pattern in choice.absent:
        if _GLOB.isdisjoint(pattern):
            _remove_remains(session, pattern)
            forget(session, pattern)
    if choice.absent and not missing_ok:
        raise next(iter(choice.absent.values()))
    absent = {
        pattern: " ".join(filter(None, (error.message, error.next_step)))
        for pattern, error in choice.absent.items()
    }
    if not chosen:
        return DeleteReport((), (), (), absent=absent)
    if confirm is not None and not confirm(choice.rows):
        raise Declined("Nothing was deleted: it was not confirmed.", next_step="Run again and confirm.")
    if gone_stacks:
        _gone_stacks(session, chosen)  # a stack may have been deployed again during the prompt
    teardown = Teardown(session, pacing, reporter, "delete", gone_stacks=True)
    removed = _remove_all(session, teardown, chosen, pacing)
    report = DeleteReport(
        names=tuple(belongings.name for belongings in chosen),
        deleted=tuple(removed.deleted),
        leftovers=tuple(removed.left),
        logs_kept=tuple(choice.groups.values()),
        absent=absent,
    )
    if report.leftovers:
        raise _leftovers(report, session, removed.left)
    return report


def _remove_all(
    session: Session, teardown: Teardown, chosen: Sequence[Belongings], pacing: Pacing
) -> Removed:
    """Delete all endpoints at once; return what is deleted, and what costs nothing and may be left.

    Raises:
        BillableLeft: AWS did not confirm that an endpoint is gone.
        Interrupted: Ctrl-C when the endpoints were already gone.
    """
    removed, unproven = Removed(), list[BillableLeft]()
    remaining = {belongings.name: belongings for belongings in chosen}
    try:
        for name, outcome in teardown.run_all([_to_remove(session, belongings) for belongings in chosen]):
            if isinstance(outcome, BillableLeft):  # the others must still be deleted
                unproven.append(outcome)
            else:
                _remove_extras(session, remaining[name], outcome)
                removed.deleted += outcome.deleted
                removed.left |= outcome.left
                forget(session, name)  # or its timetable would try to turn it on
            del remaining[name]
    except KeyboardInterrupt:
        leave_all_to_the_schedules(session, list(remaining), pacing, unproven)
    if unproven:
        raise joined(unproven, session)
    return removed


def leftovers(session: Session) -> list[str]:
    """Return "kind/name" of everything that peagle-sm created in the region."""
    return [resource for belongings in all_belongings(session) for resource in belongings.resources]


def _to_remove(session: Session, belongings: Belongings) -> ToRemove:
    """Return what is deleted; with the components of a gone stack, which no tag shows."""
    if _stack_of(belongings) is None or belongings.endpoint is None:
        return belongings.to_remove
    components = [Component(name) for name in component_names(session, belongings.name)]
    known = [resource for resource in belongings.to_remove if resource not in components]
    return (*known, *components)


def _choice(session: Session, patterns: Sequence[str], reporter: Reporter) -> _Choice:
    chosen, absent = _choose(session, patterns, partial(reporter, "delete"))
    gone_stacks = _gone_stacks(session, chosen)
    for stack in gone_stacks:
        reporter("delete", f"stack {stack} no longer exists: deleting its remaining resources")
    components = {belongings.name: component_of(belongings.name, belongings.tags) for belongings in chosen}
    groups = groups_of(session, components)
    rows = tuple(
        Deletable(
            belongings.name,
            _status(belongings),
            belongings.resources,
            groups.get(belongings.name),
            _price(session, belongings),
            PRICE_BOUND in belongings.tags,
            belongings.stack,
        )
        for belongings in chosen
    )
    return _Choice(chosen, absent, gone_stacks, groups, rows)


def _choose(
    session: Session, patterns: Sequence[str], note: Note
) -> tuple[list[Belongings], dict[str, NotFound]]:
    """Return what matches, and an error for each name or glob that matches nothing.

    Raises:
        PlanRefused: an endpoint was not created by peagle-sm.
    """
    chosen: dict[str, Belongings] = {}
    absent: dict[str, NotFound] = {}
    everything: list[Belongings] | None = None
    for pattern in patterns:
        if _GLOB.isdisjoint(pattern):
            candidates = [belongings_of(session, pattern, note, need_lifetime=False)]
        else:
            everything = all_belongings(session, note) if everything is None else everything
            candidates = [belongings for belongings in everything if fnmatchcase(belongings.name, pattern)]
        matches = [belongings for belongings in candidates if belongings.resources]
        for belongings in candidates:
            if not matches and belongings.unread_lifetime is not None:
                raise belongings.unread_lifetime  # the schedule may be the only remaining resource
        if not matches:
            absent[pattern] = _no_match(session, pattern)
        chosen.update({belongings.name: belongings for belongings in matches})
    return list(chosen.values()), absent


def _gone_stacks(session: Session, chosen: Sequence[Belongings]) -> frozenset[str]:
    """Return the stacks of ``chosen`` that no longer exist.

    Raises:
        PlanRefused: a stack exists, or cannot be read.
    """
    owned = {belongings.name: stack for belongings in chosen if (stack := _stack_of(belongings)) is not None}
    for name, stack in owned.items():
        require_own_stack(name, stack)
    unread: list[str] = []
    existing = {name: stack for name, stack in owned.items() if _may_exist(session, stack, unread)}
    if existing:
        raise _owned_by_stack(session, existing, unread)
    return frozenset(owned.values())


def _may_exist(session: Session, stack: str, unread: list[str]) -> bool:
    try:
        return stack_status(session, stack) is not None
    except PeagleError as error:
        unread.append(f" Stack {stack} could not be read: {error.message}")
        return True


def _owned_by_stack(session: Session, owned: Mapping[str, str], unread: Sequence[str]) -> PlanRefused:
    name = next(iter(owned))
    owners = ", ".join(f"{endpoint} belongs to stack {stack}" for endpoint, stack in owned.items())
    return PlanRefused(
        f"{owners}. Only the stack can delete it: after another deletion the stack's next update would fail. "
        f"Nothing was deleted.{''.join(unread)}",
        next_step=f"To delete it: `cdk destroy {' '.join(owned.values())} -c spec=FILE` with "
        f"its spec. To stop the cost and keep the stack: "
        f"`peagle-sm pause {name}{session.command_flags()}`.",
        details={"findings": [], "stacks": sorted(owned.values())},
    )


def _stack_of(belongings: Belongings) -> str | None:
    """Return the stack that created it, from its tags or from its schedule."""
    only_a_schedule = belongings.endpoint is None and not belongings.configs and not belongings.models
    return (
        belongings.lifetime.stack if only_a_schedule and belongings.lifetime is not None else belongings.stack
    )


def _remove_extras(session: Session, belongings: Belongings, removed: Removed) -> None:
    """Delete the alarms of an endpoint's updates, and the second schedules that no tag shows.

    A gone stack, or a deploy that was killed before it created the endpoint config, leaves such schedules.
    """
    _remove_alarms(session, belongings.name)
    stack = _stack_of(belongings)
    try:
        untagged = stack is None and not belongings.tags
        if untagged or (stack is not None and stack_status(session, stack) is None):
            lifetime.remove_hard(session, belongings.name)
    except PeagleError as error:
        removed.left[f"schedule/{hard_schedule_name(belongings.name)}"] = error.message


def _remove_alarms(session: Session, name: str) -> None:
    """Delete what an update that was killed left; who may not delete alarms has put none."""
    with suppress(PeagleError):  # an alarm costs a few cents a month
        executor.send(session, update_alarms_deletion(name))


def _remove_remains(session: Session, name: str) -> None:
    """Delete what is known only by its name: an earlier deletion was stopped near its end, or refused a part.

    Alarms cost a few cents a month, also those of a scaling policy.
    """
    _remove_alarms(session, name)
    targets = [ScalableTarget(resource_id(name, component)) for component in (None, name)]
    for resource in (*targets, Alarm(from_zero_alarm(name))):
        with suppress(PeagleError):
            executor.delete(session, resource)
    with suppress(PeagleError):  # free, and the next deploy of the name deletes them, too
        lifetime.remove_hard(session, name)


def _no_match(session: Session, pattern: str) -> NotFound:
    """Return the error for a name or glob without a match.

    Raises:
        PlanRefused: the endpoint was not created by peagle-sm.
    """
    if _GLOB.isdisjoint(pattern) and control.describe_endpoint(session, pattern) is not None:
        raise PlanRefused(
            f"endpoint {pattern} exists but was not created by peagle-sm (no tag peagle-sm:managed-by).",
            next_step=f"To delete it anyway: `aws sagemaker delete-endpoint --endpoint-name {pattern}`.",
            details={"findings": []},
        )
    if _GLOB.isdisjoint(pattern) and (group := groups_of(session, {pattern: None}).get(pattern)):
        return NotFound(
            f"only the log group {group} of {pattern!r} is left in {session.region}.",
            next_step=f"Delete it, too: `{delete_command(session, LogGroup(group))}`.",
            details={"pattern": pattern, "log_group": group},
        )
    near = did_you_mean(session, pattern) if _GLOB.isdisjoint(pattern) else ""
    return NotFound(
        f"{pattern!r} matches nothing that peagle-sm created in {session.region}.{near}",
        next_step=f"Run `peagle-sm list{session.command_flags()}` to see the existing endpoints.",
        details={"pattern": pattern},
    )


def _status(belongings: Belongings) -> str:
    if belongings.endpoint is None:
        return "Paused" if belongings.is_off else "Orphaned" if belongings.resources else "Gone"
    return belongings.endpoint.status or "unknown"


def _price(session: Session, belongings: Belongings) -> float | None:
    """Return USD per hour from the endpoint's tag."""
    if belongings.endpoint is None and not belongings.is_off:
        return None
    return 0.0 if session.is_local else amount(belongings.tags, USD_PER_HOUR)


def _leftovers(report: DeleteReport, session: Session, left: Mapping[str, str]) -> PeagleError:
    command = f"peagle-sm delete {' '.join(report.names)} --yes{session.command_flags()}"
    by_hand = [label for label in left if label.startswith(("schedule/", "scalable-target/", "alarm/"))]
    steps = [f"Run it again: `{command}`."] if len(by_hand) < len(left) else []
    steps += [remove_by_hand(session, label) for label in by_hand]
    return PeagleError(
        " ".join(
            f"Deletion not confirmed (no hourly cost): {label} ({reason})." for label, reason in left.items()
        ),
        next_step=" ".join(steps),
        details=report.to_dict(),
    )
