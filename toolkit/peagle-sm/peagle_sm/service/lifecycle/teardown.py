"""Deletion of an endpoint's resources in the order that limits the cost.

First the inference component, if any, then the endpoint; several endpoints are deleted at once. When an
endpoint is gone, its autoscaling, config and model follow. The lifetime schedule is deleted last, once AWS
confirms that the endpoint is gone: it deletes the endpoint if this process dies before. If the user does not
wait, `leave_to_the_schedule` leaves the deletion to the lifetime schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NoReturn

from peagle_sm.aws.control import executor, lifetime
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.stacks import stack_status
from peagle_sm.aws.session.errors import is_refused_connection, is_refused_now
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import (
    BillableLeft,
    EngineError,
    Interrupted,
    NotFound,
    PeagleError,
)
from peagle_sm.core.plan.tags_and_schedules import hard_schedule_name, schedule_name
from peagle_sm.core.resources.alarm import Alarm
from peagle_sm.core.resources.component import Component
from peagle_sm.core.resources.endpoint import Endpoint
from peagle_sm.core.resources.lifetime_schedule import LifetimeSchedule
from peagle_sm.core.resources.log_group import LogGroup
from peagle_sm.core.resources.resource import Resource
from peagle_sm.core.resources.scalable_target import ScalableTarget, resource_id
from peagle_sm.core.resources.scaling_policy import ScalingPolicy
from peagle_sm.service.inventory.resources import (
    ToRemove,
    belongs_to,
    delete_command,
    endpoint_name,
    stack_of,
)
from peagle_sm.service.progress import Pacing, Phase, Reporter

PLAIN_ATTEMPTS = 5
SETTLING_LOOKS = 4
LOG_LINES = 20  #: of the engine's log, in the error of a failed endpoint
# Time for a local server to restart on its port.
LOCAL_PATIENCE_S = 5.0
_NOT_DELETABLE = frozenset({"Creating", "Updating", "SystemUpdating", "RollingBack"})


class LocalServerGone(EngineError):
    """The local SageMaker has ended, and its engines with it; nothing is billed."""


@dataclass
class Removed:
    """Deleted and remaining resources (name -> why), each as "kind/name"."""

    deleted: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)


@dataclass
class _Removal:
    """State of one endpoint's deletion; ``looks`` is how many polls in a row must show no endpoint."""

    to_remove: ToRemove
    looks: int
    seen: bool = False
    absent: int = 0
    why: str = ""
    status: str = "unknown"
    removed: Removed = field(default_factory=Removed)

    @property
    def name(self) -> str:
        """The endpoint's name."""
        return endpoint_name(self.to_remove)


class Teardown:
    """Deletion of endpoints and their resources; ``phase`` is that of its events.

    ``gone_stacks`` also deletes the resources of stacks that do not exist. A stack that exists must delete
    its own: otherwise its next update fails.
    """

    def __init__(
        self,
        session: Session,
        pacing: Pacing,
        report: Reporter,
        phase: Phase = "cleanup",
        *,
        gone_stacks: bool = False,
    ) -> None:
        self._session = session
        self._gone_stacks = gone_stacks
        self._pacing = pacing
        self._report = report
        self._phase = phase
        self._known_ours: set[str] = set()
        self._refused_since: float | None = None

    def run(self, to_remove: ToRemove, *, unsettled: bool = False) -> Removed:
        """Delete everything in ``to_remove`` that has peagle-sm's tags, except a log group.

        ``unsettled``: a CreateEndpoint may still be in flight, so several polls must show no endpoint.

        Raises:
            BillableLeft: AWS did not confirm that the endpoint is gone; its schedule still exists.
            LocalServerGone: the local SageMaker has ended.
        """
        outcome = dict(self.run_all([to_remove], unsettled=unsettled))[endpoint_name(to_remove)]
        if isinstance(outcome, BillableLeft):
            raise outcome
        return outcome

    def run_all(
        self, every: Sequence[ToRemove], *, unsettled: bool = False
    ) -> Iterator[tuple[str, Removed | BillableLeft]]:
        """Delete several endpoints at once; yield each name with its result as soon as it is known.

        Every round sends each deletion that AWS has not accepted yet. AWS refuses to delete an endpoint that
        is being created; such an endpoint delays no other.

        Raises:
            LocalServerGone: the local SageMaker has ended.
        """
        looks = SETTLING_LOOKS if unsettled else 1
        waiting = [_Removal(to_remove, looks) for to_remove in every]
        deadline = self._pacing.monotonic() + self._pacing.delete_timeout_s
        while waiting:
            gone = []
            for removal in list(waiting):
                try:
                    if self._poll(removal):
                        gone.append(removal)
                except BillableLeft as left:
                    waiting.remove(removal)
                    yield removal.name, left
            for removal in gone:  # after the round: what is free must not delay another deletion
                try:
                    finished = self._remove_rest(removal)
                except BillableLeft as left:
                    waiting.remove(removal)
                    yield removal.name, left
                else:
                    if finished:
                        waiting.remove(removal)
                        yield removal.name, removal.removed
            if waiting:
                self._report_waiting(waiting)
                if self._pacing.monotonic() >= deadline:
                    yield from ((removal.name, self._timed_out(removal)) for removal in waiting)
                    return
                self._pacing.sleep(self._pacing.poll_s)

    def _remove_rest(self, removal: _Removal) -> bool:
        """Delete the rest of a deleted endpoint; return False if the endpoint exists again."""
        self._note_gone(removal)
        schedules = [resource for resource in removal.to_remove if isinstance(resource, LifetimeSchedule)]
        self.remove_free(
            [resource for resource in removal.to_remove if resource not in schedules],
            removal.name,
            removal.removed,
        )
        if schedules:
            # Without its config no late CreateEndpoint can succeed: this poll is final.
            removal.looks, removal.absent = 1, 0
            if not self._poll(removal):
                return False
            self._note_gone(removal)
        self.remove_free(schedules, removal.name, removal.removed)
        return True

    def remove_free(self, resources: Sequence[Resource], endpoint: str, removed: Removed) -> None:
        """Delete what AWS does not bill, backwards; keep the log group.

        Raises:
            LocalServerGone: the local SageMaker has ended.
        """
        for resource in reversed(resources):
            # Policies go with their target.
            if not resource.billed and not isinstance(resource, LogGroup | ScalingPolicy):
                self._remove(resource, endpoint, removed)

    def remove_endpoint(self, name: str) -> None:
        """Delete the endpoint; retry while AWS refuses, and wait until it is gone.

        Raises:
            BillableLeft: a timeout before AWS confirmed that it is gone, or AWS does not answer.
            LocalServerGone: the local SageMaker has ended.
        """
        self.run((Endpoint(name),))

    def _poll(self, removal: _Removal) -> bool:
        """Send an endpoint's deletion once; return whether it is gone.

        DeleteEndpoint may return 200 and do nothing, so only DescribeEndpoint counts.

        Raises:
            BillableLeft: AWS does not answer.
            LocalServerGone: the local SageMaker has ended.
        """
        name = removal.name
        try:
            facts = control.describe_endpoint(self._session, name)
            self._refused_since, removal.why = None, ""
            if facts is None or not self._is_ours(facts.arn, str(facts.created_at), name):
                removal.absent += 1
                return removal.absent >= removal.looks
            removal.seen, removal.absent, removal.status = True, 0, facts.status
            if facts.status != "Deleting" and self._component_gone(removal):
                executor.delete(self._session, Endpoint(name))
        except NotFound as error:
            removal.why = error.message  # probably deleted since it was described; poll again
        except PeagleError as error:
            removal.why = error.message
            if not is_refused_now(error):
                raise billable_left(self._session, name, error.message) from error
            self._raise_if_server_gone(error)
        return False

    def _report_waiting(self, waiting: Sequence[_Removal]) -> None:
        seen = [removal for removal in waiting if removal.seen]
        if len(seen) == 1:
            (removal,) = seen
            self._report(
                self._phase,
                f"waiting for endpoint {removal.name} to be deleted" + _reason(removal.status, removal.why),
                status=removal.status,
                resource=f"endpoint/{removal.name}",
            )
        elif seen:  # one event: alternating lines would fill a log
            states = "; ".join(
                f"{removal.name} is {removal.status}" + _reason(removal.status, removal.why)
                for removal in seen
            )
            self._report(self._phase, f"waiting for {len(seen)} endpoints to be deleted: {states}")

    def _timed_out(self, removal: _Removal) -> BillableLeft:
        return billable_left(self._session, removal.name, removal.why or f"still {removal.status}")

    def _note_gone(self, removal: _Removal) -> None:
        resource = f"endpoint/{removal.name}"
        if removal.seen and resource not in removal.removed.deleted:
            removal.removed.deleted.append(resource)
            self._report(self._phase, f"endpoint {removal.name} is gone", status="gone", resource=resource)

    def _component_gone(self, removal: _Removal) -> bool:
        """Delete the component, which blocks the endpoint's deletion; return whether it is gone.

        Its autoscaling goes first, so that it creates no copy again. What cannot be deregistered now is
        retried once the endpoint is gone.
        """
        for component in (resource for resource in removal.to_remove if isinstance(resource, Component)):
            facts = executor.describe(self._session, component)
            if facts is None or facts["EndpointName"] != removal.name:
                continue
            removal.why = f"its inference component is {facts['InferenceComponentStatus']}"
            if facts["InferenceComponentStatus"] != "Deleting":
                with suppress(PeagleError):
                    executor.delete(self._session, ScalableTarget(resource_id(removal.name, component.name)))
                executor.delete(self._session, component)
            return False
        return True

    def _raise_if_server_gone(self, error: PeagleError) -> None:
        url = self._session.local_url
        if url is None or not is_refused_connection(error):
            return
        now = self._pacing.monotonic()
        if self._refused_since is None:
            self._refused_since = now
        waited = now - self._refused_since
        if waited >= LOCAL_PATIENCE_S:
            raise LocalServerGone(
                local_server_gone(url),
                next_step="Start it with `peagle-sm local up --detach`, and run the command again.",
            ) from error
        self._report(
            self._phase,
            f"the local SageMaker at {url} does not answer; retrying for {LOCAL_PATIENCE_S - waited:.0f} s",
        )

    def _is_ours(self, arn: str, created: str, endpoint: str) -> bool:
        # By ARN and creation time: a new endpoint may get the name during the wait.
        key = f"{arn} {created}"
        if key not in self._known_ours and self._may_delete(control.tags_of(self._session, arn), endpoint):
            self._known_ours.add(key)
        return key in self._known_ours

    def _exists(self, resource: Resource, endpoint: str) -> bool:
        """Return whether the resource exists and may be deleted."""
        if isinstance(resource, LifetimeSchedule):
            return self._guards(resource.name, endpoint)
        facts = executor.describe(self._session, resource)
        if facts is None or resource.arn_field is None:
            return facts is not None
        return self._may_delete(control.tags_of(self._session, facts[resource.arn_field]), endpoint)

    def _may_delete(self, tags: Mapping[str, str] | None, endpoint: str) -> bool:
        stack = stack_of(tags)
        return belongs_to(tags, endpoint) and (stack is None or self._is_gone(stack))

    def _is_gone(self, stack: str) -> bool:
        return self._gone_stacks and stack_status(self._session, stack) is None

    def _guards(self, name: str, endpoint: str) -> bool:
        schedule = lifetime.get(self._session, name)
        if schedule is None:
            return False
        if schedule.stack is None:
            return endpoint in (schedule.endpoint, schedule.component)
        return schedule.ends(endpoint) and self._is_gone(schedule.stack)

    def _remove(self, resource: Resource, endpoint: str, removed: Removed) -> None:
        why, sent = "", False
        for attempt in range(PLAIN_ATTEMPTS):
            if attempt:
                self._pacing.sleep(self._pacing.poll_s)
            try:
                exists = self._exists(resource, endpoint)
                self._refused_since = None
                if exists:
                    sent = True
                    executor.delete(self._session, resource)
                    why = "it still exists after its deletion was accepted"
                    if self._exists(resource, endpoint):
                        continue
                if sent:
                    removed.deleted.append(resource.label)
                    self._report(self._phase, f"deleted {resource.label}", resource=resource.label)
                return
            except PeagleError as error:
                why = error.message
                if not is_refused_now(error):
                    break
                self._raise_if_server_gone(error)
        removed.left[resource.label] = why
        self._report(self._phase, f"could not delete {resource.label}: {why}", resource=resource.label)


def _reason(status: str, why: str) -> str:
    if status in _NOT_DELETABLE:
        return f": SageMaker does not delete it while it is {status}"
    return f" ({why})" if why else ""


def remove_by_hand(session: Session, label: str) -> str:
    """Return the step that removes a schedule, target or alarm for a caller who may not read it."""
    kind, _, name = label.partition("/")
    resource = next(row for row in (LifetimeSchedule, ScalableTarget, Alarm) if row.kind == kind)(name)
    return f"If it exists: `{delete_command(session, resource)}`."


def local_server_gone(url: str) -> str:
    """Return the message for a local SageMaker that has ended."""
    return f"The local SageMaker at {url} has ended, with everything that it ran; nothing is billed."


def billable_left(session: Session, name: str, why: str, more: str = "") -> BillableLeft:
    """Return the error for an endpoint that may still be running and billed."""
    return BillableLeft(
        f"Endpoint {name} may still be running and billed: {why}{more}",
        next_step=f"peagle-sm delete {name} --yes{session.command_flags()}",
        details={"resources": [f"endpoint/{name}"], "region": session.region},
    )


def leave_to_the_schedule(
    session: Session, name: str, pacing: Pacing, *, unsettled: bool = False, undo: str = "delete"
) -> NoReturn:
    """Move the endpoint's lifetime schedule to now, and raise what remains.

    ``unsettled``: a CreateEndpoint may still be in flight, so a missing endpoint proves nothing. ``undo`` is
    the command that finishes: delete, or pause if config and model are to be kept.

    Raises:
        Interrupted: the endpoint is already gone, and only free resources may be left; or the local
            SageMaker has ended.
        BillableLeft: the endpoint may exist; ``next_step`` is the command that finishes.
    """
    try:
        limit = lifetime.get(session, schedule_name(name))
        if limit is None or not limit.ends(name):
            outlook = "; it has no lifetime schedule"
        else:
            of_component = lifetime.get(session, hard_schedule_name(name, 1)) if limit.stack is None else None
            if of_component is not None and of_component.component == name:
                lifetime.move(session, of_component, pacing.clock())
            lifetime.move(session, limit, pacing.clock())
            outlook = "; its lifetime schedule was moved to now and deletes it within about 10 minutes"
    except (PeagleError, KeyboardInterrupt) as error:
        end_with_the_local_server(session, error)
        outlook = "; its lifetime schedule could not be moved and deletes it at the planned time"
    gone = False
    try:
        gone = not unsettled and control.describe_endpoint(session, name) is None
    except (PeagleError, KeyboardInterrupt) as error:
        end_with_the_local_server(session, error)
    if gone:
        raise Interrupted(
            f"Interrupted: endpoint {name} is gone; its config, model or schedule may be left (free).",
            next_step=f"peagle-sm {undo} {name} --yes{session.command_flags()}",
            details={"left": ["endpoint-config", "model", "schedule"]},
        ) from None
    left = billable_left(session, name, "interrupted while cleaning up", outlook)
    left.next_step = f"peagle-sm {undo} {name} --yes{session.command_flags()}"
    raise left from None


def leave_all_to_the_schedules(
    session: Session, names: Sequence[str], pacing: Pacing, known: Sequence[BillableLeft] = ()
) -> NoReturn:
    """Move the lifetime schedules of several endpoints to now, and raise what remains.

    ``known`` are errors of other endpoints, which belong to the same report.

    Raises:
        BillableLeft: one of the endpoints may exist; ``next_step`` is the command that finishes.
        Interrupted: the endpoints are already gone; or the local SageMaker has ended.
    """
    billable, ended = [*known], list[Interrupted]()
    for name in names:
        try:
            leave_to_the_schedule(session, name, pacing)
        except BillableLeft as left:
            billable.append(left)
        except Interrupted as gone:
            ended.append(gone)
    if billable:
        remaining = joined(billable, session)
        if ended:  # their configs and models may be left, too
            remaining.next_step = f"peagle-sm delete {' '.join(names)} --yes{session.command_flags()}"
        raise remaining from None
    commands = list(dict.fromkeys(error.next_step for error in ended if error.next_step))
    raise Interrupted(
        " ".join(dict.fromkeys(error.message for error in ended)) or "Interrupted.",
        next_step="; ".join(commands) or None,
        details=ended[0].details if ended else {"left": []},
    ) from None


def joined(errors: Sequence[BillableLeft], session: Session) -> BillableLeft:
    """Return one error for all endpoints that may still be running."""
    if len(errors) == 1:
        return errors[0]
    resources = list(dict.fromkeys(resource for error in errors for resource in error.details["resources"]))
    names = " ".join(resource.removeprefix("endpoint/") for resource in resources)
    return BillableLeft(
        " ".join(dict.fromkeys(error.message for error in errors)),
        next_step=f"peagle-sm delete {names} --yes{session.command_flags()}",
        details={"resources": resources, "region": session.region},
    )


def end_with_the_local_server(session: Session, error: BaseException) -> None:
    """Report an interruption if the local SageMaker has ended and nothing is left.

    Raises:
        Interrupted: the local SageMaker has ended. On AWS a refused connection proves nothing.
    """
    if session.local_url is not None and is_refused_connection(error):
        raise Interrupted(
            f"Interrupted. {local_server_gone(session.local_url)}", details={"deleted": [], "left": []}
        ) from None
