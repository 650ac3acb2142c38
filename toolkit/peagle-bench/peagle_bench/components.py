"""Arms of a measurement as inference components of one endpoint.

`tune` runs them on an endpoint of its own, `learn prove` beside the component that serves. `Components`
creates each with its model and lifetime schedule, and deletes them at the end, also after a failure or
Ctrl-C. The schedule is created first and deletes the component directly, so a killed run leaves nothing that
stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

from peagle_sm.aws.control import executor, lifetime
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.session.errors import is_refused_now
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import (
    BillableLeft,
    CredentialsError,
    EndpointFailed,
    NotFound,
    PeagleError,
    PlanRefused,
)
from peagle_sm.core.plan.tags_and_schedules import schedule_name
from peagle_sm.core.planning import Plan
from peagle_sm.core.resources.component import Component, component_request
from peagle_sm.core.resources.lifetime_schedule import LifetimeSchedule
from peagle_sm.core.resources.model import Model
from peagle_sm.service.inventory.inspection import patience_s, poll_repeatedly
from peagle_sm.service.progress import Pacing, Reporter, once_visible

Mark = tuple[str, str]
"""Key and value of the tag that says which run a component and its model belong to."""


@dataclass(frozen=True)
class ComponentArm:
    """The requests that create an arm: CreateSchedule, CreateModel, CreateInferenceComponent."""

    name: str
    schedule: dict[str, Any]
    model: dict[str, Any]
    component: dict[str, Any]
    patience_s: float  #: seconds that it may take to start


def component_arm(
    plan: Plan,
    endpoint: str,
    needs: Mapping[str, Any],
    schedule: dict[str, Any],
    *,
    tags: Sequence[Mapping[str, str]] | None = None,
) -> ComponentArm:
    """Plan an arm as a component of ``endpoint``; ``plan`` is that of the arm as an endpoint of its own.

    ``needs`` are its compute requirements, ``schedule`` is the request for its lifetime schedule. ``tags``
    are those of an endpoint that the run itself creates: by them `peagle-sm delete` finds the model. Without,
    the arm has its own.
    """
    name, tags = plan.names.endpoint, list(tags or plan.parameters("create_endpoint")["Tags"])
    variant = plan.parameters("create_endpoint_config")["ProductionVariants"][0]
    request = component_request(name, plan.names.model, variant, needs, copies=1)
    return ComponentArm(
        name,
        schedule,
        {**plan.parameters("create_model"), "Tags": tags},
        {**request, "EndpointName": endpoint, "Tags": tags},
        patience_s(plan.spec.startup_timeout_s),
    )


class Components:
    """Context manager of components; every exit deletes what it created.

    ``own_endpoint`` is their endpoint if the run itself creates it: then all of its components are deleted,
    since SageMaker deletes no endpoint that has one, and Ctrl-C sets its lifetime schedule to now, too.
    ``if_one_fails`` is the next step if a component does not start.
    """

    def __init__(
        self,
        arms: Sequence[ComponentArm],
        mark: Mark,
        session: Session,
        pacing: Pacing,
        report: Reporter,
        *,
        own_endpoint: str | None = None,
        if_one_fails: str | None = None,
    ) -> None:
        self._arms, self._mark, self._session = arms, mark, session
        self._pacing, self._report = pacing, report
        self._own_endpoint, self._if_one_fails = own_endpoint, if_one_fails
        self._scheduled: list[ComponentArm] = []
        self._created: set[str] = set()  # components and models whose creation SageMaker confirmed

    def __enter__(self) -> Self:
        """Create the components and wait until they are in service.

        Raises:
            PlanRefused, EndpointFailed: as `schedule` and `start`; everything is deleted.
        """
        try:
            self.schedule()
            self.create_models()
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete the components with their schedules and models.

        Raises:
            BillableLeft: a deletion could not be confirmed; the lifetime schedule still exists.
        """
        self.remove()
        for arm in self._scheduled:
            name = arm.model["ModelName"]
            why = _remove_model(self._session, name, self._mark, name in self._created)
            if why is not None:
                command = f"aws sagemaker delete-model --region {self._session.region} --model-name {name}"
                self._report("delete", f"model {name} may remain, at no cost ({why}); `{command}` deletes it")

    def schedule(self) -> None:
        """Create the lifetime schedules.

        Raises:
            PlanRefused: a component of one of the names exists; nothing was created.
        """
        for arm in self._arms:
            if control.describe_component(self._session, arm.name) is not None:
                raise PlanRefused(
                    f"inference component {arm.name} exists by now; it was not changed.",
                    next_step="Another run of this name may have created it: wait for it, and run again.",
                    details={"findings": []},
                )
        for arm in self._arms:
            self._scheduled.append(arm)
            self._send(lifetime.arm, arm.schedule)
        self._report("lifetime", f"lifetime schedules of inference components created: {len(self._arms)}")

    def create_models(self) -> None:
        """Create the models, which cost nothing."""
        for arm in self._arms:
            self._send(executor.create, Model(arm.model["ModelName"], arm.model))
            self._created.add(arm.model["ModelName"])

    def start(self) -> None:
        """Create the components and wait until all are in service; the first failure ends the wait.

        Raises:
            EndpointFailed: one failed, or was not in service in time.
        """
        for arm in self._arms:
            self._send(executor.create, Component(arm.name, arm.component))
            self._created.add(arm.name)
            endpoint = arm.component["EndpointName"]
            self._report("component", f"inference component {arm.name} created on {endpoint}")
        waiting = [arm.name for arm in self._arms]
        patience = max(arm.patience_s for arm in self._arms)

        def look() -> dict[str, dict[str, Any]]:
            return {arm.name: control.describe_component(self._session, arm.name) or {} for arm in self._arms}

        for components in poll_repeatedly(
            self._session, look, patience=patience, pacing=self._pacing, report=self._report
        ):
            for name, facts in components.items():
                state = facts.get("InferenceComponentStatus", "gone")
                if state in ("Failed", "Deleting", "gone"):
                    raise self._failed(name, facts.get("FailureReason") or f"it is {state}")
                if state == "InService" and name in waiting:
                    waiting.remove(name)
                    self._report("ready", f"inference component {name} is in service")
            if not waiting:
                return
            self._report("waiting", f"Creating inference components: {', '.join(waiting)}", status="Creating")
        raise self._failed(waiting[0], f"it was not in service after {patience / 60:.0f} minutes")

    def remove(self) -> None:
        """Delete the components and their schedules, as `remove_components`."""
        remove_components(
            self._session,
            {arm.name: arm.schedule["Name"] for arm in self._scheduled},
            self._mark,
            self._pacing,
            self._report,
            created=self._created,
            own_endpoint=self._own_endpoint,
        )

    def _send(self, send: Callable[[Session, Any], object], sent: Any) -> None:
        once_visible(partial(send, self._session, sent), self._pacing, self._report)

    def _failed(self, name: str, reason: str) -> EndpointFailed:
        return EndpointFailed(
            f"Inference component {name} failed to start: {reason}",
            next_step=self._if_one_fails,
            details={"failure_reason": reason},
        )


def remove_components(
    session: Session,
    schedules: Mapping[str, str],
    mark: Mark,
    pacing: Pacing,
    report: Reporter,
    *,
    created: Collection[str] = (),
    own_endpoint: str | None = None,
) -> None:
    """Delete components, wait until they are gone, and delete their schedules; what is missing is no error.

    ``schedules`` has the name of each component's lifetime schedule. A component whose tag has another value
    than ``mark`` belongs to another run, and is kept. One without the tag is deleted only if it is among
    ``created``, the names that this run created. While a component exists, its schedule stays. Ctrl-C leaves
    the rest to the lifetime schedules, which are set to now. ``own_endpoint``: see `Components`.

    Raises:
        BillableLeft: a deletion could not be confirmed.
    """
    left: dict[str, str] = {}
    waiting = list(schedules)
    deadline = pacing.monotonic() + pacing.delete_timeout_s
    try:
        if own_endpoint is not None:
            with suppress(PeagleError):  # without this list, those of the run are deleted all the same
                others = set(control.component_names(session, own_endpoint)) - set(schedules)
                waiting, created = [*schedules, *sorted(others)], {*created, *others}
        while waiting:
            for name in list(waiting):  # one that cannot be deleted yet delays no other
                state, reason = _send_deletion(session, name, mark, name in created)
                if state is None:
                    waiting.remove(name)
                    if reason is not None:
                        left[name] = reason
                    else:
                        _remove_schedule(session, name, schedules.get(name), report)
                elif pacing.monotonic() >= deadline:
                    waiting.remove(name)
                    left[name] = f"still {state}"
                else:
                    report("delete", f"inference component {name}", status="Deleting")
            if waiting:
                pacing.sleep(pacing.poll_s)
    except KeyboardInterrupt:
        for name in waiting:
            outcome = _set_to_now(session, partial(_schedule_of, session, name, schedules.get(name)), pacing)
            left[name] = f"interrupted; its lifetime schedule {outcome}"
        if own_endpoint is not None:
            _set_to_now(session, partial(lifetime.get, session, schedule_name(own_endpoint)), pacing)
    if left:
        raise _left(session, left)


def _send_deletion(session: Session, name: str, mark: Mark, created: bool) -> tuple[str | None, str | None]:
    """Send a component's deletion, unless it belongs to another run.

    Returns:
        Its status while it exists, and why it may remain; both None if none of ours is left.
    """
    state = "unknown"
    try:
        facts = control.describe_component(session, name)
        if facts is None:
            return None, None
        state = str(facts["InferenceComponentStatus"])
        ours = _is_ours(session, facts["InferenceComponentArn"], mark, created)
        if ours is None and state != "Deleting":
            return None, f"{state}, without the tag {mark[0]} that says whose it is"
        if ours is False:
            return None, None
        if state != "Deleting":
            executor.delete(session, Component(name))
    except NotFound:
        return None, None
    except PeagleError as error:
        if not is_refused_now(error):
            return None, error.message
    return state, None


def _is_ours(session: Session, arn: str, mark: Mark, created: bool) -> bool | None:
    """Return whether a resource has this run's tag; without the tag, True if ``created``, else None."""
    key, value = mark
    try:
        current = (control.tags_of(session, arn) or {}).get(key)
    except CredentialsError:  # the tags must not be read
        if not created:
            raise
        return True
    return current == value if current is not None else created or None


def _remove_model(session: Session, name: str, mark: Mark, created: bool) -> str | None:
    """Delete a model unless it is another run's; return why one of ours may remain."""
    try:
        facts = control.describe_model(session, name)
        ours = facts is not None and _is_ours(session, facts.arn, mark, created)
        if ours is None:
            return f"without the tag {mark[0]} that says whose it is"
        if ours:
            executor.delete(session, Model(name))
    except NotFound:
        return None
    except PeagleError as error:
        return error.message
    return None


def _schedule_of(session: Session, component: str, schedule: str | None) -> lifetime.Lifetime | None:
    """Return the component's lifetime schedule; an older stack's endpoint may have one of that name."""
    limit = None if schedule is None else lifetime.get(session, schedule)
    return limit if limit is not None and limit.component == component else None


def _remove_schedule(session: Session, component: str, schedule: str | None, report: Reporter) -> None:
    """Delete a deleted component's schedule; an error is only reported, since it delays no other deletion."""
    try:
        limit = _schedule_of(session, component, schedule)
        # A component that is there by now is another run's, and so is the schedule of that name.
        if limit is not None and control.describe_component(session, component) is None:
            executor.delete(session, LifetimeSchedule(limit.name))
    except NotFound:
        return
    except PeagleError as error:
        report("delete", f"schedule {schedule} may remain, at no cost ({error.message})")


def _set_to_now(session: Session, read: Callable[[], lifetime.Lifetime | None], pacing: Pacing) -> str:
    """Make a lifetime schedule fire now; return what became of it."""
    try:
        limit = read()
        if limit is None:
            return "does not exist"
        lifetime.bring_forward(session, limit, pacing.clock())
    except PeagleError as error:
        return f"could not be set to now: {error.message}"
    return "was set to now"


def _left(session: Session, left: Mapping[str, str]) -> BillableLeft:
    reasons = "; ".join(f"{name} ({why})" for name, why in left.items())
    command = f"aws sagemaker delete-inference-component --region {session.region} --inference-component-name"
    return BillableLeft(
        f"Inference components may remain, and would keep their instance running: {reasons}",
        next_step="Run "
        + ", ".join(f"`{command} {name}`" for name in left)
        + "; otherwise the lifetime schedules delete them.",
        details={"resources": [f"inference-component/{name}" for name in left], "region": session.region},
    )
