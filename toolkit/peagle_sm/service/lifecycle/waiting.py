"""wait(): poll one endpoint until it is in service, or until it is gone."""

from __future__ import annotations

from peagle_sm.aws.control.sagemaker import EndpointFacts
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.streams.refusals import ON_ITS_WAY, reason_block, serving_step
from peagle_sm.core.errors import EndpointFailed, WaitTimeout
from peagle_sm.service.events import Pacing, Progress, Reporter
from peagle_sm.service.inventory.inspection import absent
from peagle_sm.service.lifecycle.following import describe_repeatedly

TIMEOUT_S = 9000.0
"""Both start-up timeouts at their longest (an hour each), and half an hour for the instance."""


def wait(
    name: str,
    *,
    session: Session,
    deleted: bool = False,
    timeout_s: float = TIMEOUT_S,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
) -> EndpointFacts | None:
    """Wait until an endpoint is in service, or with ``deleted`` until it is gone; change nothing.

    Returns what the last poll found; None for an endpoint that is gone.

    Raises:
        NotFound: there is no endpoint of that name to wait for.
        EndpointFailed: its status is one that it does not leave by itself, or it was deleted meanwhile.
        WaitTimeout: ``timeout_s`` seconds are over.
        PeagleError: AWS did not answer many polls in a row.
    """
    pacing = pacing or Pacing.for_session(session)
    report = Reporter(progress, pacing)
    status = "unknown"
    for facts in describe_repeatedly(session, name, patience=timeout_s, pacing=pacing, report=report):
        if facts is None:
            if deleted:
                report("done", f"endpoint {name} is gone", status="gone")
                return None
            if status == "unknown":
                raise absent(session, name)
            raise EndpointFailed(
                f"Endpoint {name} was deleted before it was in service; its last status was {status}.",
                details={"status": status},
            )
        status = facts.status
        if not deleted:
            if status == "InService":
                report("ready", f"endpoint {name} is in service", status=status)
                return facts
            if status not in ON_ITS_WAY:
                raise _not_coming(session, facts)
        report("waiting", f"endpoint {name}", status=status, resource=f"endpoint/{name}")
    awaited = "gone" if deleted else "in service"
    raise WaitTimeout(
        f"Endpoint {name} was not {awaited} after {timeout_s:g} s; its status is {status}.",
        next_step=f"Look at it with `peagle-sm status {name}{session.command_flags()}`, or wait longer "
        "with --timeout.",
        details={"status": status},
    )


def _not_coming(session: Session, facts: EndpointFacts) -> EndpointFailed:
    """Return the error for an endpoint that does not come into service by itself."""
    return EndpointFailed(
        f"Endpoint {facts.name} is not in service: its status is {facts.status}.{reason_block(facts)}",
        next_step=serving_step(session, facts.name, facts.status),
        details={"status": facts.status, "failure_reason": facts.failure_reason},
    )
