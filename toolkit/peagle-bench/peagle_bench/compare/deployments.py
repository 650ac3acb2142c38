"""Deployments of a comparison as context managers, one after the other.

All endpoints of a deployment are in service together, and all are deleted at its end, also after an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import Self

from peagle_bench.benchmark.endpoint_arm import Described, demand_mode, describe_endpoint
from peagle_bench.compare.arms import Named, called, demand_alike, describe
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import (
    BillableLeft,
    Interrupted,
    PeagleError,
    PlanRefused,
    SpecError,
)
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.spec.modes import Mode as SpecMode
from peagle_sm.service import Endpoint, Pacing, delete, deploy
from peagle_sm.service.inventory.resources import ToRemove, belongings_of
from peagle_sm.service.lifecycle.existing import Survey
from peagle_sm.service.lifecycle.teardown import billable_left, joined, leave_all_to_the_schedules
from peagle_sm.service.progress import Event, Progress

ATTEMPTS = 4  #: tries to delete an endpoint when AWS does not answer


class Fleet:
    """Endpoints that exist for the duration of a ``with`` block; every exit deletes them.

    All are created before the first is waited for, so they start in parallel. Ctrl-C during deletion leaves
    the rest to their lifetime schedules, which are set to now.
    """

    def __init__(
        self,
        specs: Mapping[str, EndpointSpec],
        session: Session,
        *,
        unguarded: bool = False,
        progress: Progress | None = None,
        pacing: Pacing | None = None,
    ) -> None:
        self._specs = dict(specs)
        self._session = session
        self._unguarded = unguarded
        self._progress = progress
        self._pacing = pacing or Pacing.for_session(session)
        self._asked: list[str] = []
        self.endpoints: dict[str, Endpoint] = {}

    def __enter__(self) -> Self:
        """Create all endpoints and wait until they are in service.

        Raises:
            PlanRefused: a name is in use; the existing endpoint must not be deleted at the end.
            Interrupted, BillableLeft: Ctrl-C; everything created is deleted, or named in the error.
            PeagleError: a deployment failed; the others are deleted.
        """
        refuse_taken_names(self._session, [spec.name for spec in self._specs.values()])
        try:
            for wait in (False, True):
                for key, spec in self._specs.items():
                    self._asked = [*dict.fromkeys([*self._asked, spec.name])]
                    self.endpoints[key] = self._deploy(spec, wait)
        except BaseException as cause:
            self._leave(cause)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete all endpoints.

        Raises:
            BillableLeft: the deletion of an endpoint could not be confirmed.
            Interrupted: Ctrl-C while deleting; nothing billable remains.
        """
        self._leave(error)

    def _deploy(self, spec: EndpointSpec, wait: bool) -> Endpoint:
        """Deploy one endpoint; the first time, with ``wait`` False, it must be new.

        Another run may have taken its name meanwhile, perhaps with the same spec. `deploy` would go on with
        that one, and this fleet would delete it at its end.
        """

        def demand_new(survey: Survey) -> None:
            if survey.state in ("creating", "settling", "live"):
                raise _taken(self._session, {spec.name: [f"endpoint/{spec.name}"]})

        try:
            return deploy(
                spec,
                session=self._session,
                wait=wait,
                unguarded=self._unguarded,
                progress=_own(self._progress, spec.name) if wait and self._progress else self._progress,
                pacing=self._pacing,
                surveyed=None if wait else demand_new,
                companions=lambda: self._companions(spec.name),
            )
        except PlanRefused:
            if not wait:
                self._asked.remove(spec.name)
            raise

    def _leave(self, cause: BaseException | None) -> None:
        left = self._delete_all(patient=not _hurried(cause))
        if not left:
            return
        billable = [error for error in left if isinstance(error, BillableLeft)]
        if isinstance(cause, BillableLeft):
            billable.append(cause)
        if billable:
            raise joined(billable, self._session) from cause
        if cause is None:
            raise left[0]

    def _delete_all(self, patient: bool) -> list[PeagleError]:
        """Delete all endpoints at once; return the errors of those that may remain."""
        names, self._asked = self._asked, []
        try:
            if patient:
                self._delete(names)
            else:
                leave_all_to_the_schedules(self._session, names, self._pacing)
        except KeyboardInterrupt:
            return [
                error for error in _handed_over(self._session, names, self._pacing) if not _is_gone(error)
            ]
        except PeagleError as error:
            return [] if _is_gone(error) else [error]
        return []

    def _delete(self, names: Sequence[str]) -> None:
        """Delete the endpoints; retry a few times when AWS does not answer.

        It is not an error if one is gone: its own deploy has already deleted it, or another process has.

        Raises:
            BillableLeft: the deletion could not be confirmed.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                delete(
                    names,
                    session=self._session,
                    progress=self._progress,
                    pacing=self._pacing,
                    missing_ok=True,
                )
                return
            except (BillableLeft, Interrupted):
                raise
            except PeagleError as error:
                if attempt == ATTEMPTS:
                    unproven = [billable_left(self._session, name, error.message) for name in names]
                    raise joined(unproven, self._session) from error
                self._pacing.sleep(self._pacing.poll_s)

    def _companions(self, failed: str) -> list[ToRemove]:
        """Return what a failed deployment's clean-up deletes with its own endpoint."""
        return [
            belongings_of(self._session, name, need_lifetime=False).to_remove
            for name in self._asked
            if name != failed
        ]


def _own(progress: Progress, name: str) -> Progress:
    """Reword deploy's events: an existing endpoint is not an earlier run's but this fleet's own.

    Its lifetime schedule was reported when it was created.
    """

    def say(event: Event) -> None:
        if event.phase == "lifetime":
            return
        if event.phase == "endpoint" and event.resource is None:  # found, not created
            event = replace(event, message=f"endpoint {name}: created above, waiting until InService")
        elif event.phase == "ready":
            event = replace(event, message=f"endpoint {name} is in service")
        progress(event)

    return say


def _hurried(error: BaseException | None) -> bool:
    """Decide whether Ctrl-C ended a clean-up: then the other clean-ups must not wait either.

    A single Ctrl-C, which the clean-up follows, leaves Interrupted or KeyboardInterrupt, not BillableLeft.
    """
    cause = error.__context__ if isinstance(error, BillableLeft) else None
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__context__
    return cause is not None


def _handed_over(session: Session, names: Sequence[str], pacing: Pacing) -> list[PeagleError]:
    try:
        leave_all_to_the_schedules(session, names, pacing)
    except (BillableLeft, Interrupted) as error:
        return [error]


def _is_gone(error: PeagleError) -> bool:
    return isinstance(error, Interrupted) and not error.details.get("left")


def refuse_taken_names(session: Session, names: list[str]) -> None:
    """Refuse names that are in use: the existing endpoints would be deleted at the end.

    Raises:
        PlanRefused: resources with one of these names exist.
    """
    taken = {}
    for name in names:
        ours = belongings_of(session, name).resources
        if ours or control.describe_endpoint(session, name) is not None:
            taken[name] = list(ours) or [f"endpoint/{name}"]
    if taken:
        raise _taken(session, taken)


def _taken(session: Session, taken: Mapping[str, list[str]]) -> PlanRefused:
    return PlanRefused(
        f"{', '.join(taken)}: name already in use, perhaps by a comparison that was killed. "
        "Nothing was created.",
        next_step=f"If it is not needed, run `peagle-sm delete {' '.join(taken)}"
        f"{session.command_flags()}`; else give the spec another name.",
        details={"findings": [], "taken": dict(taken)},
    )


Round = AbstractContextManager[Sequence[Described]]


def existing_rounds(arms: Sequence[Named], session_of: Callable[[], Session]) -> list[Round]:
    """Return one round for each deployment of existing endpoints; they are not deleted.

    Raises:
        SpecError: the deployments of an arm differ, or two arms have the same name.
        PeagleError: an endpoint cannot be measured.
    """
    by_arm = [describe(arm, session_of) for arm in arms]
    for deployments in by_arm:
        demand_alike(deployments)
    names = [each.arm.name for deployments in by_arm for each in deployments]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise SpecError(
            f"two arms have the name {repeated}, so their requests could not be told apart.",
            next_step="Name each arm, for example plain=URL fast=URL.",
            details={"names": names},
        )
    return [nullcontext(list(deployment)) for deployment in zip(*by_arm, strict=True)]


def deployed_rounds(
    specs: Sequence[Mapping[SpecMode, EndpointSpec]],
    session: Session,
    *,
    unguarded: bool,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
) -> list[Round]:
    """Return rounds that each deploy every spec, and delete all before the next round."""
    return [
        _deployed(by_mode, number, session, unguarded=unguarded, progress=progress, pacing=pacing)
        for number, by_mode in enumerate(specs, start=1)
    ]


@contextmanager
def _deployed(
    specs: Mapping[SpecMode, EndpointSpec],
    number: int,
    session: Session,
    *,
    unguarded: bool,
    progress: Progress | None,
    pacing: Pacing | None,
) -> Iterator[Sequence[Described]]:
    named = {str(mode): spec for mode, spec in specs.items()}
    fleet = Fleet(named, session, unguarded=unguarded, progress=progress, pacing=pacing)
    try:
        with fleet:
            arms = []
            for mode, spec in specs.items():
                arm = demand_mode(describe_endpoint(session, spec.name), mode)
                named_arm = called(arm, mode, number)
                arms.append(replace(named_arm, arm=replace(named_arm.arm, deployment=str(number))))
            yield arms
    except (KeyboardInterrupt, Interrupted) as error:
        # The fleet raises BillableLeft unless all deletions were confirmed, so here all are deleted.
        raise _all_gone(error, [named[mode].name for mode in fleet.endpoints]) from error


def _all_gone(error: BaseException, names: Sequence[str]) -> BaseException:
    """Add the deleted endpoints to the interruption's message."""
    if not names:
        return error
    message = error.message.rstrip(".") if isinstance(error, Interrupted) else "Interrupted"
    details = error.details if isinstance(error, Interrupted) else {}
    return Interrupted(
        f"{message}; deleted, so that nothing is billed: {', '.join(names)}",
        next_step=error.next_step if isinstance(error, Interrupted) else None,
        details={**details, "deleted": [*details.get("deleted", []), *names]},
    )
