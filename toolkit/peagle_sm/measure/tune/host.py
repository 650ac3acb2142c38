"""The endpoint that carries several arms as inference components: up, and gone on every ending."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from peagle_sm.aws.control import lifetime
from peagle_sm.aws.control.components import component_names, describe_component
from peagle_sm.aws.session.errors import aws_errors, is_refused_now
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import BillableLeft, EndpointFailed, NotFound, PeagleError
from peagle_sm.measure.compare.fleet import refuse_taken_names
from peagle_sm.measure.tune.components import HostPlan
from peagle_sm.service import Endpoint, Pacing, delete
from peagle_sm.service.events import Progress, Reporter
from peagle_sm.service.guard.guarding import require_guard
from peagle_sm.service.lifecycle.following import follow_endpoint, patience_s


class Host:
    """Brings the plan's endpoint up as a ``with`` block begins, and deletes all of it as it ends."""

    def __init__(
        self,
        plan: HostPlan,
        session: Session,
        *,
        unguarded: bool = False,
        progress: Progress | None = None,
        pacing: Pacing | None = None,
    ) -> None:
        self._plan = plan
        self._session = session
        self._unguarded = unguarded
        self._progress = progress
        self._pacing = pacing or Pacing.for_session(session)
        self._report = Reporter(progress, self._pacing, plan.usd_per_hour)
        self.endpoint = Endpoint(plan.endpoint, session, pacing=self._pacing)

    def __enter__(self) -> Self:
        """Create everything and wait until every component serves.

        Raises:
            GuardMissing: no guard, and not ``unguarded``.
            PlanRefused: the name is taken.
            EndpointFailed: the endpoint or a component did not come up; everything is deleted again.
        """
        if not self._unguarded:
            require_guard(self._session)
        refuse_taken_names(self._session, [self._plan.endpoint])
        try:
            self._create()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete everything.

        Raises:
            BillableLeft: something could not be proven gone; its lifetime limit is still armed.
        """
        self._leave()

    def _create(self) -> None:
        lifetime.remove_hard(self._session, self._plan.endpoint)
        for parameters in self._plan.of("create_schedule"):
            lifetime.arm(self._session, parameters)
        self._report("lifetime", f"lifetime limits armed: {len(self._plan.schedules)} schedules")
        for operation in ("create_model", "create_endpoint_config", "create_endpoint"):
            self._send(operation)
        self._report.start_billing()
        follow_endpoint(
            self._session,
            self._plan.endpoint,
            self._plan.of("create_endpoint_config")[0]["EndpointConfigName"],
            patience=patience_s(self._plan.startup_timeout_s),
            pacing=self._pacing,
            report=self._report,
            note=lambda facts: None,
        )
        self._send("create_inference_component")
        self._wait(self._serving, patience_s(self._plan.startup_timeout_s))

    def _send(self, operation: str) -> None:
        client = self._session.creating_client("sagemaker")
        for parameters in self._plan.of(operation):
            with aws_errors(operation, self._session.local_url):
                getattr(client, operation)(**parameters)
        self._report("endpoint", f"{operation.replace('_', ' ')}: {len(self._plan.of(operation))} sent")

    def _serving(self) -> bool:
        states = {name: describe_component(self._session, name) for name in self._plan.components.values()}
        for name, facts in states.items():
            if facts is None or facts["InferenceComponentStatus"] == "Failed":
                reason = (facts or {}).get("FailureReason", "it is gone")
                raise EndpointFailed(
                    f"Inference component {name} did not come up: {reason}",
                    details={"failure_reason": reason},
                )
        waiting = [n for n, f in states.items() if f and f["InferenceComponentStatus"] != "InService"]
        self._report(
            "waiting", f"components: {len(states) - len(waiting)} of {len(states)} serve", status="Creating"
        )
        return not waiting

    def _leave(self) -> None:
        """Components first: SageMaker refuses to delete an endpoint that has any."""
        try:
            self._delete()
        except KeyboardInterrupt:
            now = self._pacing.clock()
            for name in self._plan.schedules:
                limit = lifetime.get(self._session, name)
                if limit is not None:
                    lifetime.bring_forward(self._session, limit, now)
            raise self._billable("interrupted; the end of its lifetime is now") from None

    def _delete(self) -> None:
        self._wait(self._components_gone, self._pacing.delete_timeout_s)
        with suppress(NotFound):
            delete(
                [self._plan.endpoint],
                session=self._session,
                progress=self._progress,
                pacing=self._pacing,
            )
        for name in self._plan.schedules:
            with suppress(NotFound):
                lifetime.remove(self._session, name)

    def _components_gone(self) -> bool:
        left = component_names(self._session, self._plan.endpoint)
        for name in left:
            facts = describe_component(self._session, name)
            if facts is None or facts["InferenceComponentStatus"] == "Deleting":
                continue
            try:
                with aws_errors("DeleteInferenceComponent", self._session.local_url):
                    self._session.client("sagemaker").delete_inference_component(InferenceComponentName=name)
            except NotFound:
                continue
            except PeagleError as error:
                if not is_refused_now(error):
                    raise self._billable(error.message) from error
        self._report("cleanup", f"components: {len(left)} left", status="Deleting")
        return not left

    def _wait(self, done: Callable[[], bool], patience: float) -> None:
        deadline = self._pacing.monotonic() + patience
        while not done():
            if self._pacing.monotonic() >= deadline:
                raise self._billable(f"not done after {patience / 60:.0f} minutes")
            self._pacing.sleep(self._pacing.poll_s)

    def _billable(self, why: str) -> BillableLeft:
        name = self._plan.endpoint
        return BillableLeft(
            f"Endpoint {name} may remain, with its inference components: {why}",
            next_step=f"delete its components in the console, then: peagle-sm delete {name} --yes"
            f"{self._session.command_flags()}; its lifetime limits are armed",
            details={"resources": [f"endpoint/{name}"], "region": self._session.region},
        )
