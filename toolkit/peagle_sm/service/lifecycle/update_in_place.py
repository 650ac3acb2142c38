"""UpdateEndpoint: a second fleet beside the first; what SageMaker rolls back is told as a failure."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import NoReturn

from peagle_sm.aws.control import alarms as cloudwatch
from peagle_sm.aws.control import lifetime, logs, register
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.lifetime import Lifetime
from peagle_sm.aws.control.register import Entry, Value
from peagle_sm.aws.control.sagemaker import EndpointFacts
from peagle_sm.aws.session.errors import is_refused_now, is_unsettled
from peagle_sm.aws.streams.refusals import ON_ITS_WAY
from peagle_sm.core.errors import EndpointFailed, Interrupted, PeagleError
from peagle_sm.core.plan.updates import BAKING_S, deployment_config, update_alarm
from peagle_sm.service.guard.leases import lease_of, prolonged
from peagle_sm.service.inventory.belongings import ToRemove
from peagle_sm.service.lifecycle.bringup import CREATE_ATTEMPTS, Deploy, create_free
from peagle_sm.service.lifecycle.following import follow_endpoint, patience_s
from peagle_sm.service.lifecycle.rescue import LOG_LINES
from peagle_sm.service.lifecycle.teardown import PLAIN_ATTEMPTS, Removed, Teardown
from peagle_sm.service.lifecycle.update_offer import CurrentState, UpdateOffer

# DescribeEndpoint may lag behind UpdateEndpoint; an old InService must not be taken for a rollback.
_BEGINS_WITHIN_S = 60.0


class InPlace:
    """One update of an endpoint that serves and goes on serving."""

    def __init__(self, run: Deploy, found: CurrentState, offer: UpdateOffer) -> None:
        """Remember how it stood, so that a failure puts it back."""
        self._run = run
        self._offer = offer
        self._limit: Lifetime | None = found.one.lifetime
        self._created = None if found.facts is None else found.facts.created_at

    def bring_about(self) -> None:
        """Extend the lifetime, create model and config, update, and follow.

        Raises:
            EndpointFailed: SageMaker rolled back; what was made for the update is gone again.
            Interrupted: Ctrl-C; the message says whether SageMaker goes on.
            PeagleError: AWS refused or did not answer; ``next_step`` says how it stands.
        """
        run = self._run
        try:
            self._extend()
            if not self._offer.fleet:
                return
            create_free(run)
            cloudwatch.put(run.session, update_alarm(run.name))
            self._send()
            self._follow()
        except (KeyboardInterrupt, Exception) as cause:
            self._stopped(cause)

    def _extend(self) -> None:
        """Write the new end of its life: first of all, so that what is started has one."""
        run = self._run
        schedule = prolonged(run.parameters("create_schedule"), self._lease())
        armed = lifetime.arm(run.session, schedule)
        self._remember(armed.expires_at)
        run.report(
            "lifetime",
            f"lifetime limit armed: deleted at {armed.expires_at:%Y-%m-%d %H:%M} UTC",
            resource=f"schedule/{armed.name}",
        )

    def _lease(self) -> datetime | None:
        return lease_of(self._run.session, self._run.name, self._created)

    def _remember(self, ends: datetime | None) -> None:
        """The guard counts from the endpoint's creation, unless its register has another end."""

        def change(seen: Entry) -> Mapping[str, Value]:
            older = {} if seen.is_of(self._created) else {"created_at": None, "keep_until": None}
            return {"expires_at": ends, **older}

        register.update(self._run.session, self._run.name, change)

    def _send(self) -> None:
        """Ask once; after an unclear answer, or a refusal that may pass, look before asking again."""
        run, config = self._run, self._run.plan.names.config
        run.report.start_billing()
        for attempt in range(1, CREATE_ATTEMPTS + 1):
            if self._begun():
                break
            try:
                deployment = deployment_config(self._offer.alarms)
                retain = not self._offer.changes_field("InitialInstanceCount")
                control.update_endpoint(run.session, run.name, config, deployment, retain=retain)
            except PeagleError as error:
                if not is_refused_now(error) or attempt == CREATE_ATTEMPTS:
                    raise
                run.report("check", f"no clear answer, looking before trying again ({error.message})")
                run.pacing.sleep(min(run.pacing.poll_s, 2.0**attempt))
            else:
                break
        run.report("endpoint", f"endpoint {run.name} is being updated", status="Updating")

    def _begun(self) -> bool:
        facts = control.describe_endpoint(self._run.session, self._run.name)
        config = self._run.plan.names.config
        return facts is not None and config in (facts.pending_config, facts.config_name)

    def _follow(self) -> None:
        run = self._run
        until = run.pacing.monotonic() + _BEGINS_WITHIN_S
        while not self._begun() and run.pacing.monotonic() < until:
            run.pacing.sleep(run.pacing.poll_s)
        follow_endpoint(
            run.session,
            run.name,
            run.plan.names.config,
            patience=patience_s(run.plan.spec.startup_timeout_s) + BAKING_S,
            pacing=run.pacing,
            report=run.report,
            note=lambda facts: None,
        )

    def _stopped(self, cause: BaseException) -> NoReturn:
        """Put back what can be put back, and tell how it stands."""
        run = self._run
        run.report.quiet = True
        try:
            facts = self._look()
        except (PeagleError, KeyboardInterrupt):
            self._raise(
                cause,
                f"How endpoint {run.name} stands is not known; its lifetime limit holds. Left, costing "
                "nothing by the hour: the new config and model, and the alarm of the update.",
            )
        if facts is None:
            self._raise(cause, f"Endpoint {run.name} is gone.")
        if run.plan.names.config in (facts.config_name, facts.pending_config) or facts.status in ON_ITS_WAY:
            self._raise(
                cause,
                f"SageMaker goes on updating endpoint {run.name}, and the second fleet costs until it is "
                "over; its lifetime limit holds.",
            )
        self._put_back(facts, cause)

    def _look(self) -> EndpointFacts | None:
        for attempt in range(PLAIN_ATTEMPTS):
            try:
                return control.describe_endpoint(self._run.session, self._run.name)
            except PeagleError as error:
                if not is_unsettled(error) or attempt + 1 == PLAIN_ATTEMPTS:
                    raise
                self._run.pacing.sleep(self._run.pacing.poll_s)
        raise AssertionError("unreachable")

    def _put_back(self, facts: EndpointFacts, cause: BaseException) -> NoReturn:
        run, names, left = self._run, self._run.plan.names, {}
        if isinstance(cause, EndpointFailed):
            with suppress(PeagleError):
                cause.details["log_tail"] = [
                    line.message for line in logs.tail(run.session, run.name, LOG_LINES, None)
                ]
        gone = Removed()
        try:
            new = ToRemove(run.name, (names.config,), (names.model,))
            Teardown(run.session, run.pacing, run.report).remove_free(new, gone)
            left = dict(gone.left)
            cloudwatch.remove(run.session, update_alarm(run.name)["AlarmName"])
            if self._limit is not None and self._limit.expires_at is not None:
                lifetime.move(run.session, self._limit, self._limit.expires_at)
                self._remember(self._limit.expires_at)
        except (PeagleError, KeyboardInterrupt) as error:
            left[f"alarm or lifetime limit of {run.name}"] = str(error)
        serves = f"Endpoint {run.name} runs its old config {facts.config_name} ({facts.status})"
        if isinstance(cause, EndpointFailed):
            cause.message = (
                f"The update of endpoint {run.name} failed: SageMaker rolled back. {serves}, as before."
            )
            cause.details |= {"config": facts.config_name, "asked": names.config}
            cause.next_step = cause.next_step or (
                "Read the engine's last lines (details.log_tail), correct the spec, and update again."
            )
        elif isinstance(cause, PeagleError):
            cause.next_step = f"{serves}, as before. {cause.next_step or 'Run the update again.'}"
        if isinstance(cause, PeagleError):
            cause.details |= {"deleted": gone.deleted, "left": sorted(left)}
            if left:
                cause.next_step = f"{cause.next_step} Left, costing nothing by the hour: {', '.join(left)}."
        elif isinstance(cause, KeyboardInterrupt):
            raise Interrupted(f"Interrupted: nothing was updated. {serves}, as before.") from None
        raise cause

    def _raise(self, cause: BaseException, how: str) -> NoReturn:
        flags = self._run.session.command_flags()
        step = (
            f"{how} Follow it by running the update again; look with `peagle-sm status {self._run.name}"
            f"{flags}`; end it with `peagle-sm delete {self._run.name} --yes{flags}`."
        )
        if isinstance(cause, KeyboardInterrupt):
            raise Interrupted(f"Interrupted. {how}", next_step=step) from None
        if isinstance(cause, PeagleError):
            cause.next_step = f"{cause.next_step or ''} {step}".strip()
        raise cause
