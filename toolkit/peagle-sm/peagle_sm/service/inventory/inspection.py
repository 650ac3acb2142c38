"""status(), logs() and wait() for one endpoint.

`status` reports one endpoint in full, with warnings. `logs` reads its log lines, once or continuously.
`follow_endpoint` polls until it is InService with the requested config.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from peagle_sm.aws.control import cloudwatch
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.cloudwatch import LogLine
from peagle_sm.aws.control.guard_resources import RegisterEntry
from peagle_sm.aws.control.sagemaker import EndpointFacts, ModelFacts, did_you_mean
from peagle_sm.aws.session.errors import is_unsettled
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.streams.refusals import ON_ITS_WAY, reason_block, serving_step
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.errors import EndpointFailed, NotFound, PeagleError, PlanRefused, WaitTimeout
from peagle_sm.core.plan import tags_and_schedules as keys
from peagle_sm.core.plan.cost import rest_costs
from peagle_sm.core.served_target import ServedTarget, served_target
from peagle_sm.core.spec.modes import is_synthetic
from peagle_sm.core.words import WHOLE_IN_JSON, cause_first
from peagle_sm.service.inventory.guard_state import known_entry, limit_acts
from peagle_sm.service.inventory.listing import EndpointSummary, ServingFacts, speculative_config, summary_of
from peagle_sm.service.inventory.resources import Belongings, belongings_of
from peagle_sm.service.progress import Pacing, Progress, Reporter

if TYPE_CHECKING:
    from peagle_sm.service.inventory.endpoint_status import EndpointStatus

SYNTHETIC_WARNING = (
    "ITS ANSWERS ARE WRONG: it accepts draft tokens at a given rate, for `peagle-sm tune --synthetic`, which"
    " deletes it at its end"
)


def status(name: str, *, session: Session) -> EndpointStatus:
    """Describe one endpoint, also if it is paused or not created by peagle-sm.

    The ``arn`` of a paused endpoint is empty.

    Raises:
        NotFound: no endpoint has that name; the message lists what a killed run left.
    """
    from peagle_sm.service.inventory.endpoint_status import EndpointStatus  # a deploy does not need it

    facts = control.describe_endpoint(session, name)
    ours = belongings_of(session, name)
    entry, unread = _entry(session, name)
    config_name = facts.config_name if facts else kept_config(ours) if ours.configs else ""
    config = control.describe_endpoint_config(session, config_name) if config_name else None
    model_name = (config.model_name if config else None) or next(iter(ours.models), None)
    model = control.describe_model(session, model_name) if model_name else None
    speculation = speculative_config(model)
    serving = ServingFacts(
        (speculation or {}).get("num_speculative_tokens"),
        config.instance_type if config else None,
        config.instance_count if config else None,
    )
    summary = summary_of(session, ours, session.now(), entry, serving)
    acts = ours.lifetime is None or limit_acts(session, ours.lifetime)
    if not acts:
        summary = replace(summary, expires_at=None)
    if facts is None:
        if summary.status != "Paused":
            if unread is not None:
                raise unread  # the guard may have turned it off
            raise absent(session, name, ours)
    elif ours.endpoint is None:
        summary = EndpointSummary(name, facts.status, managed=False, created_at=facts.created_at)
    else:
        summary = _with_present_count(summary, facts)
    unread_notes = (
        []
        if unread is None
        else [f"the guard's register could not be read ({unread.message}): no lease of `keep` is shown"]
    )
    return EndpointStatus(
        summary=summary,
        arn=facts.arn if facts else "",
        config_name=config_name,
        config_asked=_config_asked(ours),
        model_name=model_name,
        image=model.image if model else None,
        failure_reason=facts.failure_reason if facts else None,
        speculative_config=speculation,
        lifetime=ours.lifetime,
        engine=_engine(session, name) if facts else None,
        read_at=session.now(),
        target=target_of(session, model, ours.tags),
        warnings=(
            *((SYNTHETIC_WARNING,) if is_synthetic(speculation) else ()),
            *(_warnings(session, facts, ours, acts, entry) if facts else _off_warnings(session, summary)),
            *unread_notes,
        ),
    )


def target_of(session: Session, model: ModelFacts | None, tags: Mapping[str, str]) -> ServedTarget:
    """Return what an endpoint with this SageMaker model and these tags serves."""
    hub_id = None if model is None else model.environment.get("HF_MODEL_ID")
    return served_target(
        None if model is None else model.uri,
        tags.get(keys.MODEL) or hub_id,
        load_catalog(),
        image=None if model is None else model.image,
        local=session.is_local,
        artifacts={} if session.local is None else session.local.artifacts,
    )


def _with_present_count(summary: EndpointSummary, facts: EndpointFacts) -> EndpointSummary:
    """Replace the config's initial instance count with the current one."""
    planned, now = summary.instance_count, facts.instance_count
    if facts.status != "InService" or not planned or now is None or now == planned:
        return summary
    hourly = summary.usd_per_hour
    return replace(
        summary, instance_count=now, usd_per_hour=None if hourly is None else hourly / planned * now
    )


def _entry(session: Session, name: str) -> tuple[RegisterEntry | None, PeagleError | None]:
    """Return the guard's entry, or the error: a status is useful without the entry."""
    try:
        return known_entry(session, name), None
    except PeagleError as error:
        return None, error


def kept_config(ours: Belongings) -> str:
    """Return the config that `resume` uses."""
    return ours.kept_config or ours.configs[0]


def _off_warnings(session: Session, summary: EndpointSummary) -> list[str]:
    command = f"peagle-sm resume {summary.name}{session.command_flags()}"
    costs = rest_costs(summary.stack, summary.usd_per_hour)
    return [f"it is off ({summary.off_why}): {costs}; `{command}` turns it on"]


def not_ours(session: Session, belongings: Belongings) -> PeagleError:
    """Return the error for an endpoint that is missing or was not created by peagle-sm."""
    if belongings.resources or control.describe_endpoint(session, belongings.name) is None:
        return absent(session, belongings.name, belongings)
    return PlanRefused(
        f"endpoint {belongings.name} exists but was not created by peagle-sm; it was not changed.",
        next_step="See `aws sagemaker describe-endpoint` for its state.",
        details={"findings": []},
    )


def absent(session: Session, name: str, ours: Belongings | None = None) -> NotFound:
    """Return the error for a missing endpoint; it lists what a killed run left."""
    belongings = ours or belongings_of(session, name)
    left, flags = belongings.resources, session.command_flags()
    if belongings.is_off:
        return NotFound(
            f"endpoint {name!r} is off in {session.region}; kept: {', '.join(left)}.",
            next_step=f"Turn it on with `peagle-sm resume {name}{flags}`, or delete what is kept with "
            f"`peagle-sm delete {name}{flags}`.",
            details={"name": name, "left": list(left)},
        )
    if left:
        return NotFound(
            f"endpoint {name!r} does not exist in {session.region}; remaining resources: {', '.join(left)}.",
            next_step=f"Delete them with `peagle-sm delete {name}{flags}`, or deploy again.",
            details={"name": name, "left": list(left)},
        )
    elsewhere = "" if session.local else "; check --region and --profile"
    return NotFound(
        f"endpoint {name!r} does not exist in {session.region}.{did_you_mean(session, name)}",
        next_step=f"Run `peagle-sm list{flags}`{elsewhere} to see the existing endpoints.",
        details={"name": name, "left": []},
    )


def _config_asked(ours: Belongings) -> str | None:
    digest = ours.tags.get("peagle-sm:spec-hash", "")[:8]
    return next((name for name in ours.configs if digest and name.endswith(digest)), None)


def _engine(session: Session, name: str) -> dict[str, Any] | None:
    if not session.is_local:
        return None
    for engine in session.admin("status").get("engines", []):
        if isinstance(engine, Mapping) and name in (engine.get("endpoint"), engine.get("endpoint_name")):
            return dict(engine)
    return None


def _warnings(
    session: Session, facts: EndpointFacts, ours: Belongings, acts: bool, entry: RegisterEntry | None
) -> list[str]:
    if ours.endpoint is None:
        return ["not created by peagle-sm: no lifetime schedule, and `peagle-sm delete` does not delete it"]
    warnings = []
    config = _config_asked(ours)
    if config is not None and facts.config_name != config:
        warnings.append(f"runs config {facts.config_name}, expected {config}: an update was rolled back")
    if ours.lifetime is None:
        warnings.append(
            "it has no lifetime schedule: nothing deletes it automatically; deploy again to create one"
        )
    elif not acts:
        warnings.append(
            f"its lifetime schedule ({ours.lifetime.expires_at:%Y-%m-%d %H:%M} UTC) cannot delete it, since "
            "its role was removed with the guard: nothing deletes the endpoint automatically; "
            f"`peagle-sm guard install{session.command_flags()}` creates the role again"
        )
    elif not ours.lifetime.guards(facts.name, session.now()) and facts.status != "Deleting":
        warnings.append("its lifetime schedule has ended or is disabled, and the endpoint still exists")
    if entry is not None and entry.streams_hidden and entry.is_of(facts.created_at):
        grace = ours.tags.get(keys.GRACE_MINUTES, "10")
        warnings.append(
            "CloudWatch has no metric of its requests in flight. The guard detects a stream longer than the "
            f"grace period ({grace} minutes) only by GPU use: set lifecycle.grace_minutes above your longest "
            "stream"
        )
    return warnings


# CloudWatch shows lines late and out of order: a follower reads this far back and drops known lines.
OVERLAP = timedelta(seconds=60)
# Lines that a follower reads first; more than can have the same millisecond.
BASELINE_LINES = 1000


def logs(
    name: str, *, session: Session, follow: bool = False, limit: int = 100, pacing: Pacing | None = None
) -> Iterator[LogLine]:
    """Yield the last ``limit`` log lines of an endpoint, oldest first.

    ``follow`` continues until the endpoint is gone. CloudWatch keeps the lines of deleted endpoints.

    Raises:
        NotFound: neither the endpoint nor log lines of it exist.
    """
    lines = cloudwatch.tail(session, name, max(limit, BASELINE_LINES) if follow else limit)
    if not lines and control.describe_endpoint(session, name) is None:
        raise absent(session, name)
    last = lines[-limit:] if limit > 0 else []
    if not follow:
        return iter(last)
    return chain(last, _new_lines(name, session, lines, pacing or Pacing.for_session(session)))


def _new_lines(name: str, session: Session, known: list[LogLine], pacing: Pacing) -> Iterator[LogLine]:
    epoch = datetime.fromtimestamp(0, UTC)
    newest = known[-1].timestamp if known else epoch
    # The overlap returns these again; the first read did not return their event ids.
    shown = set(known)
    # The first poll may return older lines, which were before the requested tail.
    old_before: datetime | None = newest
    seen: set[str] = set()
    exists = True
    while exists:
        exists = control.describe_endpoint(session, name) is not None
        start = max(epoch, newest - OVERLAP) if newest > epoch else epoch
        lines = sorted(cloudwatch.since(session, name, start), key=lambda pair: pair[1].timestamp)
        for event_id, line in lines:
            if event_id in seen:
                continue
            seen.add(event_id)
            if line in shown or (old_before is not None and line.timestamp < old_before):
                continue
            newest = max(newest, line.timestamp)
            yield line
        old_before = None
        if exists:
            pacing.sleep(min(pacing.poll_s, 2.0))


LOOKS_THAT_MAY_FAIL = 10
# Time to find and boot an instance, in addition to downloading and starting.
PROVISIONING_S = 1800
T = TypeVar("T")


def patience_s(startup_timeout_s: float) -> float:
    """Return how many seconds an endpoint with this startup timeout may take."""
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
    """Poll until endpoint ``name`` serves ``config``; pass each result to ``note``.

    Raises:
        EndpointFailed: it failed, vanished, took longer than ``patience`` seconds, or runs another config.
        PeagleError: AWS did not answer many polls in a row.
    """
    for facts in describe_repeatedly(session, name, patience=patience, pacing=pacing, report=report):
        if facts is None:
            raise _failed(name, "it was deleted during its creation (by its lifetime schedule, or by hand)")
        note(facts)
        if facts.status == "InService":
            _verify(facts, config, report)
            return facts
        if facts.status not in ON_ITS_WAY:
            raise _failed(name, facts.failure_reason or f"its status is {facts.status}", facts.status)
        report("waiting", f"endpoint {name}", status=facts.status, resource=f"endpoint/{name}")
    raise _failed(name, f"it was not InService after {patience / 60:.0f} minutes")


def describe_repeatedly(
    session: Session, name: str, *, patience: float, pacing: Pacing, report: Reporter
) -> Iterator[EndpointFacts | None]:
    """Yield each poll's result (None: no endpoint) for ``patience`` seconds.

    Raises:
        PeagleError: AWS did not answer many polls in a row, or refused.
    """
    look = partial(control.describe_endpoint, session, name)
    yield from poll_repeatedly(session, look, patience=patience, pacing=pacing, report=report)


def poll_repeatedly(
    session: Session, look: Callable[[], T], *, patience: float, pacing: Pacing, report: Reporter
) -> Iterator[T]:
    """Yield what ``look`` returns at each poll, for ``patience`` seconds; errors as `describe_repeatedly`."""
    deadline = pacing.monotonic() + patience
    failed_looks = 0
    while True:
        try:
            facts = look()
        except PeagleError as error:
            failed_looks += 1
            if failed_looks >= LOOKS_THAT_MAY_FAIL or not is_unsettled(error):
                raise
            server = "AWS" if session.local_url is None else "the local SageMaker"
            report("waiting", f"{server} did not answer; retrying ({error.message})")
        else:
            failed_looks = 0
            yield facts
        if pacing.monotonic() >= deadline:
            return
        pacing.sleep(pacing.poll_s)


def _verify(facts: EndpointFacts, config: str, report: Reporter) -> None:
    # After a rollback the endpoint is InService, too, with its previous config.
    if facts.config_name != config:
        reason = f"it runs config {facts.config_name}, not {config}: SageMaker rolled back"
        raise _failed(facts.name, reason, "InService")
    report("verify", f"endpoint {facts.name} runs config {config}", status="InService")


def _failed(name: str, reason: str, status: str = "Failed") -> EndpointFailed:
    return EndpointFailed(
        f"Endpoint {name} failed: {cause_first(reason, WHOLE_IN_JSON)}",
        details={"failure_reason": reason, "status": status},
    )


TIMEOUT_S = 9000.0
"""Longest download and startup timeouts (an hour each), and half an hour for the instance."""


def wait(
    name: str,
    *,
    session: Session,
    deleted: bool = False,
    timeout_s: float = TIMEOUT_S,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
) -> EndpointFacts | None:
    """Wait until an endpoint is InService, or with ``deleted`` until it is gone.

    Returns the last poll's result; None for an endpoint that is gone. Changes nothing.

    Raises:
        NotFound: no endpoint has that name.
        EndpointFailed: its status does not change without help, or it was deleted meanwhile.
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
                f"Endpoint {name} was deleted before it was InService; its last status was {status}.",
                details={"status": status},
            )
        status = facts.status
        if not deleted:
            if status == "InService":
                report("ready", f"endpoint {name} is in service", status=status)
                return facts
            if status not in ON_ITS_WAY:
                raise EndpointFailed(
                    f"Endpoint {name} is not InService: its status is {status}.{reason_block(facts)}",
                    next_step=serving_step(session, name, status),
                    details={"status": status, "failure_reason": facts.failure_reason},
                )
        report("waiting", f"endpoint {name}", status=status, resource=f"endpoint/{name}")
    awaited = "gone" if deleted else "InService"
    raise WaitTimeout(
        f"Endpoint {name} was not {awaited} after {timeout_s:g} s; its status is {status}.",
        next_step=f"Check it with `peagle-sm status {name}{session.command_flags()}`, or wait longer "
        "with --timeout.",
        details={"status": status},
    )
