"""The endpoints of one deployment: all up together, and all gone on every ending."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import (
    BillableLeft,
    Interrupted,
    NotFound,
    PeagleError,
    PlanRefused,
)
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import Endpoint, Pacing, delete, deploy
from peagle_sm.service.events import Event, Progress
from peagle_sm.service.inventory.belongings import belongings_of
from peagle_sm.service.lifecycle.handover import leave_to_the_schedule
from peagle_sm.service.lifecycle.teardown import billable_left

ATTEMPTS = 4  #: at a deletion that AWS does not answer


class Fleet:
    """Endpoints that live as long as a ``with`` block; every way out of it deletes them.

    All are asked for before the first is waited for, so that they come up together. Ctrl-C while they are
    deleted leaves the rest to their lifetime limits, brought forward to now.
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
        """Bring all up.

        Raises:
            PlanRefused: one of the names is taken: what is there must not be deleted with ours.
            Interrupted, BillableLeft: Ctrl-C; whatever was created is deleted, or named.
            PeagleError: what a deploy may say; the others are deleted again.
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
        """Delete all.

        Raises:
            BillableLeft: one of them could not be proven gone.
            Interrupted: Ctrl-C while deleting, and nothing billable is left.
        """
        self._leave(error)

    def _deploy(self, spec: EndpointSpec, wait: bool) -> Endpoint:
        return deploy(
            spec,
            session=self._session,
            wait=wait,
            unguarded=self._unguarded,
            progress=_own(self._progress, spec.name) if wait and self._progress else self._progress,
            pacing=self._pacing,
        )

    def _leave(self, cause: BaseException | None) -> None:
        left = self._delete_all(patient=not _hurried(cause))
        if not left:
            return
        billable = [error for error in left if isinstance(error, BillableLeft)]
        if isinstance(cause, BillableLeft):
            billable.append(cause)
        if billable:
            raise _one(billable, self._session) from cause
        if cause is None:
            raise left[0]

    def _delete_all(self, patient: bool) -> list[PeagleError]:
        """Delete each; return what was not proven gone, or left over."""
        left: list[PeagleError] = []
        for name in self._asked:
            try:
                if patient:
                    self._delete(name)
                else:
                    leave_to_the_schedule(self._session, name, self._pacing)
            except NotFound:
                pass  # its own deploy has cleaned it up, or somebody else was quicker
            except KeyboardInterrupt:
                patient = False
                left.append(_handed_over(self._session, name, self._pacing))
            except PeagleError as error:
                patient = patient and not _hurried(error)
                left.append(error)
        self._asked = []
        return [error for error in left if not _is_gone(error)]

    def _delete(self, name: str) -> None:
        """Delete one; what AWS does not answer is asked again before it is given up.

        Raises:
            BillableLeft: it could not be proven gone, for whatever reason.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                delete([name], session=self._session, progress=self._progress, pacing=self._pacing)
                return
            except (BillableLeft, Interrupted, NotFound):
                raise
            except PeagleError as error:
                if attempt == ATTEMPTS:
                    raise billable_left(self._session, name, error.message) from error
                self._pacing.sleep(self._pacing.poll_s)


def _own(progress: Progress, name: str) -> Progress:
    """A deploy that finds an endpoint takes it for an earlier run's: here it is this fleet's own."""

    def say(event: Event) -> None:
        if event.phase == "endpoint" and event.resource is None:  # found, not created
            event = replace(event, message=f"endpoint {name}: asked for above, now waited for")
        elif event.phase == "ready":
            event = replace(event, message=f"endpoint {name} is in service")
        progress(event)

    return say


def _hurried(error: BaseException | None) -> bool:
    """Whether Ctrl-C ended a clean-up: then nobody wants to wait for the others either.

    A single Ctrl-C, which the clean-up follows, leaves Interrupted or KeyboardInterrupt, not BillableLeft.
    """
    cause = error.__context__ if isinstance(error, BillableLeft) else None
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__context__
    return cause is not None


def _handed_over(session: Session, name: str, pacing: Pacing) -> PeagleError:
    try:
        leave_to_the_schedule(session, name, pacing)
    except (BillableLeft, Interrupted) as error:
        return error


def _is_gone(error: PeagleError) -> bool:
    return isinstance(error, Interrupted) and not error.details.get("left")


def refuse_taken_names(session: Session, names: list[str]) -> None:
    """Refuse to deploy over anything: it would be deleted with what is ours.

    Raises:
        PlanRefused: something of one of these names is there.
    """
    taken = {}
    for name in names:
        ours = belongings_of(session, name).resources
        if ours or control.describe_endpoint(session, name) is not None:
            taken[name] = list(ours) or [f"endpoint/{name}"]
    if taken:
        raise PlanRefused(
            f"{', '.join(taken)}: taken already, perhaps by a comparison that was killed. "
            "Nothing was created.",
            next_step=f"Delete what is not needed: `peagle-sm delete {' '.join(taken)}"
            f"{session.command_flags()}`; or give the spec another name.",
            details={"findings": [], "taken": taken},
        )


def _one(errors: list[BillableLeft], session: Session) -> BillableLeft:
    resources = list(dict.fromkeys(name for error in errors for name in error.details["resources"]))
    names = " ".join(resource.removeprefix("endpoint/") for resource in resources)
    return BillableLeft(
        " ".join(dict.fromkeys(error.message for error in errors)),
        next_step=f"peagle-sm delete {names} --yes{session.command_flags()}",
        details={"resources": resources, "region": session.region},
    )
