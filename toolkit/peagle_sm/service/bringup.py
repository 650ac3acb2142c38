"""From a plan to an endpoint in service; every step takes up what an earlier, killed run has made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from peagle_sm.aws import control, lifetime
from peagle_sm.aws.control import EndpointFacts
from peagle_sm.aws.errors import is_taken, is_unsettled
from peagle_sm.aws.session import Session
from peagle_sm.core.errors import EndpointFailed, PeagleError, PlanRefused
from peagle_sm.core.records import Plan
from peagle_sm.core.tags import SPEC_HASH
from peagle_sm.service.events import Pacing, Reporter
from peagle_sm.service.ownership import belongs_to
from peagle_sm.service.survey import Survey
from peagle_sm.service.teardown import Gone, Teardown

CREATE_ATTEMPTS = 5
LOOKS_THAT_MAY_FAIL = 10
# Downloading may take as long as starting; finding and booting an instance comes on top.
PROVISIONING_S = 1800


@dataclass
class Run:
    """One deploy under way.

    ``may_exist``: an endpoint of ours may be there, so a clean-up that cannot ask AWS must say so.
    ``unsettled``: a CreateEndpoint was sent and its answer has not come.
    ``began_at``: when AWS says that the endpoint was created; None while it has not said.
    """

    plan: Plan
    session: Session
    pacing: Pacing
    report: Reporter
    may_exist: bool = False
    unsettled: bool = False
    began_at: datetime | None = None

    @property
    def name(self) -> str:
        """The endpoint's name."""
        return self.plan.names.endpoint

    def parameters(self, operation: str) -> dict[str, Any]:
        """Return the plan's parameters of one operation."""
        return next(one.parameters for one in self.plan.requests if one.operation == operation)


def arm(run: Run, found: Survey) -> None:
    """Arm the lifetime limit, unless that of an endpoint which exists is armed: its time runs on."""
    limit = found.lifetime
    exists = found.state in ("creating", "settling", "live")
    if exists and limit is not None and limit.guards(run.name, run.pacing.clock()):
        run.report(
            "lifetime", f"lifetime limit kept: deleted at {_at(limit)}", resource=f"schedule/{limit.name}"
        )
        return
    armed = lifetime.arm(run.session, run.parameters("create_schedule"))
    run.report(
        "lifetime", f"lifetime limit armed: deleted at {_at(armed)}", resource=f"schedule/{armed.name}"
    )


def create(run: Run, found: Survey) -> None:
    """Create model, config and endpoint, or adopt what is there.

    Raises:
        PlanRefused: one of the names is taken by a resource that is not this plan's.
        PeagleError: AWS refused, or gave no answer several times.
    """
    _clear_the_name(run, found)
    if found.state == "creating":
        run.may_exist = True
        run.report.start_billing(_age_s(run, found.endpoint))
        run.report("endpoint", f"endpoint {run.name} of an earlier run is taken up", status="Creating")
        return
    names, session = run.plan.names, run.session
    made = _ensure(
        run,
        lambda: control.create_model(session, run.parameters("create_model")),
        lambda: control.describe_model(session, names.model),
    )
    run.report("model", f"model {names.model} {made}", resource=f"model/{names.model}")
    made = _ensure(
        run,
        lambda: control.create_endpoint_config(session, run.parameters("create_endpoint_config")),
        lambda: control.describe_endpoint_config(session, names.config),
    )
    run.report("config", f"endpoint config {names.config} {made}", resource=f"endpoint-config/{names.config}")
    run.may_exist = run.unsettled = True
    run.report.start_billing()
    try:
        made = _ensure(
            run,
            lambda: control.create_endpoint(session, run.parameters("create_endpoint")),
            lambda: control.describe_endpoint(session, names.endpoint),
        )
    except PeagleError as error:
        run.may_exist = run.unsettled = is_unsettled(error)
        raise
    run.unsettled = False
    run.report("endpoint", f"endpoint {run.name} {made}", status="Creating", resource=f"endpoint/{run.name}")


def follow(run: Run) -> EndpointFacts:
    """Look at the endpoint until it is in service with the config that was asked for.

    Raises:
        EndpointFailed: it failed, vanished, took too long, or runs another config.
        PeagleError: AWS could not be asked, many times in a row.
    """
    patience_s = 2 * run.plan.spec.startup_timeout_s + PROVISIONING_S
    deadline = run.pacing.monotonic() + patience_s
    failed_looks = 0
    while True:
        try:
            facts = control.describe_endpoint(run.session, run.name)
            failed_looks = 0
        except PeagleError as error:
            failed_looks += 1
            if failed_looks >= LOOKS_THAT_MAY_FAIL or not is_unsettled(error):
                raise
            asked = "AWS" if run.session.local_url is None else "the local SageMaker"
            run.report("waiting", f"{asked} did not answer, asking again ({error.message})")
        else:
            if facts is None:
                raise _failed(
                    run, "it was deleted while it was being created (by its lifetime limit, or by hand)"
                )
            run.began_at = facts.created_at
            if facts.status == "InService":
                _verify(run, facts)
                return facts
            if facts.status not in ("Creating", "Updating", "SystemUpdating", "RollingBack"):
                raise _failed(run, facts.failure_reason or f"its status is {facts.status}", facts.status)
            run.report(
                "waiting", f"endpoint {run.name}", status=facts.status, resource=f"endpoint/{run.name}"
            )
        if run.pacing.monotonic() >= deadline:
            raise _failed(run, f"it was not in service after {patience_s / 60:.0f} minutes")
        run.pacing.sleep(run.pacing.poll_s)


def _verify(run: Run, facts: EndpointFacts) -> None:
    # An endpoint that rolled back is InService too, with the config it had before.
    asked = run.plan.names.config
    if facts.config_name != asked:
        raise _failed(
            run, f"it runs config {facts.config_name}, not {asked}: SageMaker rolled back", "InService"
        )
    run.report("verify", f"endpoint {run.name} runs config {asked}", status="InService")


def _clear_the_name(run: Run, found: Survey) -> None:
    if found.state == "failed" and found.endpoint is not None:
        reason = found.endpoint.failure_reason or "no reason given"
        run.report(
            "check", f"an earlier run's endpoint had failed ({reason}); it is replaced", status="Failed"
        )
    if found.state in ("failed", "leaving"):
        Teardown(run.session, run.pacing, run.report, "check").remove_endpoint(run.name, Gone())


def _ensure(run: Run, send: Callable[[], None], look: Callable[[], Any]) -> str:
    """Create once; after an unclear answer look before trying again, and adopt what is this plan's."""
    for attempt in range(1, CREATE_ATTEMPTS + 1):
        try:
            send()
        except PeagleError as error:
            if not (is_unsettled(error) or is_taken(error)):
                raise
            if _is_this_plans(run, look()):
                return "was there already and is taken up"
            if attempt == CREATE_ATTEMPTS:
                raise
            run.report("check", f"no clear answer, trying again ({error.message})")
            run.pacing.sleep(min(run.pacing.poll_s, 2.0**attempt))
        else:
            return "created"
    raise AssertionError("unreachable")


def _is_this_plans(run: Run, facts: Any) -> bool:
    if facts is None:
        return False
    tags = control.tags_of(run.session, facts.arn)
    if tags is None:
        return False
    if belongs_to(tags, run.name) and tags.get(SPEC_HASH) == run.plan.spec_hash:
        return True
    raise PlanRefused(
        f"{facts.arn} exists and is not of this spec; it is not touched.",
        next_step="Choose another name for the spec, or delete what stands in the way.",
        details={"findings": [], "arn": facts.arn},
    )


def _failed(run: Run, reason: str, status: str = "Failed") -> EndpointFailed:
    return EndpointFailed(
        f"Endpoint {run.name} did not come up: {reason}", details={"failure_reason": reason, "status": status}
    )


def _age_s(run: Run, facts: EndpointFacts | None) -> float:
    if facts is None or facts.created_at is None:
        return 0.0
    return (run.pacing.clock() - facts.created_at).total_seconds()


def _at(limit: lifetime.Lifetime) -> str:
    return "an unknown time" if limit.expires_at is None else f"{limit.expires_at:%Y-%m-%d %H:%M} UTC"
