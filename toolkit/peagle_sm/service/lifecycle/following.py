"""Looking at an endpoint until it is in service with the config that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.sagemaker import EndpointFacts
from peagle_sm.aws.session.errors import is_unsettled
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.streams.refusals import ON_ITS_WAY
from peagle_sm.core.errors import EndpointFailed, PeagleError
from peagle_sm.core.failure_words import WHOLE_IN_JSON, cause_first
from peagle_sm.service.events import Pacing, Reporter

LOOKS_THAT_MAY_FAIL = 10
# Downloading may take as long as starting; finding and booting an instance comes on top.
PROVISIONING_S = 1800


def patience_s(startup_timeout_s: float) -> float:
    """Return how long an endpoint with this start-up timeout may take to be in service."""
    return 2 * startup_timeout_s + PROVISIONING_S


def follow_endpoint(
    session: Session,
    name: str,
    config: str,
    *,
    patience: float,
    pacing: Pacing,
    report: Reporter,
    note: Callable[[EndpointFacts], None],
) -> EndpointFacts:
    """Look until endpoint ``name`` serves with ``config``; ``note`` gets what each look finds.

    Raises:
        EndpointFailed: it failed, vanished, took longer than ``patience`` seconds, or runs another config.
        PeagleError: AWS could not be asked, many times in a row.
    """
    for facts in describe_repeatedly(session, name, patience=patience, pacing=pacing, report=report):
        if facts is None:
            raise _failed(
                name, "it was deleted while it was being created (by its lifetime limit, or by hand)"
            )
        note(facts)
        if facts.status == "InService":
            _verify(facts, config, report)
            return facts
        if facts.status not in ON_ITS_WAY:
            raise _failed(name, facts.failure_reason or f"its status is {facts.status}", facts.status)
        report("waiting", f"endpoint {name}", status=facts.status, resource=f"endpoint/{name}")
    raise _failed(name, f"it was not in service after {patience / 60:.0f} minutes")


def describe_repeatedly(
    session: Session, name: str, *, patience: float, pacing: Pacing, report: Reporter
) -> Iterator[EndpointFacts | None]:
    """Yield what each poll finds, None for no endpoint, until ``patience`` seconds are over.

    Raises:
        PeagleError: AWS did not answer many polls in a row, or refused.
    """
    deadline = pacing.monotonic() + patience
    failed_looks = 0
    while True:
        try:
            facts = control.describe_endpoint(session, name)
        except PeagleError as error:
            failed_looks += 1
            if failed_looks >= LOOKS_THAT_MAY_FAIL or not is_unsettled(error):
                raise
            asked = "AWS" if session.local_url is None else "the local SageMaker"
            report("waiting", f"{asked} did not answer, asking again ({error.message})")
        else:
            failed_looks = 0
            yield facts
        if pacing.monotonic() >= deadline:
            return
        pacing.sleep(pacing.poll_s)


def _verify(facts: EndpointFacts, config: str, report: Reporter) -> None:
    # An endpoint that rolled back is InService too, with the config it had before.
    if facts.config_name != config:
        reason = f"it runs config {facts.config_name}, not {config}: SageMaker rolled back"
        raise _failed(facts.name, reason, "InService")
    report("verify", f"endpoint {facts.name} runs config {config}", status="InService")


def _failed(name: str, reason: str, status: str = "Failed") -> EndpointFailed:
    return EndpointFailed(
        f"Endpoint {name} did not come up: {cause_first(reason, WHOLE_IN_JSON)}",
        details={"failure_reason": reason, "status": status},
    )
