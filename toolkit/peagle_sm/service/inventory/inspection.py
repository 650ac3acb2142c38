"""status(), logs() and wait() of one endpoint.

`status` reports one endpoint in full, with warnings. `logs` reads its output, once or continuously.
`follow_endpoint` polls until it is InService with the config that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

from peagle_sm.aws.control import cloudwatch
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.cloudwatch import LogLine
from peagle_sm.aws.control.guard_resources import Entry
from peagle_sm.aws.control.lifetime import Lifetime
from peagle_sm.aws.control.sagemaker import EndpointFacts, did_you_mean
from peagle_sm.aws.session.errors import is_unsettled
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.streams.refusals import ON_ITS_WAY, reason_block, serving_step
from peagle_sm.core.display import Card, Note, Shown, Tone
from peagle_sm.core.errors import EndpointFailed, NotFound, PeagleError, WaitTimeout
from peagle_sm.core.plan import tags as keys
from peagle_sm.core.plan.cost import rest_costs
from peagle_sm.core.words import STAND_IN, WHOLE_IN_JSON, cause_first, elapsed, speculation_text, usd
from peagle_sm.service.inventory.guard_state import known_entry, limit_acts
from peagle_sm.service.inventory.listing import EndpointSummary, plain, speculative_config, summary_of
from peagle_sm.service.inventory.resources import Belongings, belongings_of
from peagle_sm.service.progress import Pacing, Progress, Reporter

_STATUS: dict[str, Tone] = {"InService": "good", "Failed": "bad", "OutOfService": "bad", "Paused": "plain"}


@dataclass(frozen=True)
class EndpointStatus(Shown):
    """Everything known of one endpoint.

    ``config_asked`` is the config that this endpoint's deploy made, ``config_name`` the one it runs: they
    differ after a silent rollback. ``engine`` is the local server's account of the engine behind it, its
    overrides included; None on AWS.
    """

    summary: EndpointSummary
    arn: str
    config_name: str
    config_asked: str | None
    model_name: str | None
    image: str | None
    failure_reason: str | None
    speculative_config: dict[str, Any] | None
    lifetime: Lifetime | None
    engine: dict[str, Any] | None
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; times as ISO text."""
        document: dict[str, Any] = plain({**asdict(self), "summary": self.summary.to_dict()})
        if self.lifetime is not None:
            del document["lifetime"]["raw"]
        return document

    def card(self) -> Card:
        """What a notebook shows of it."""
        return _card(self)


def status(name: str, *, session: Session) -> EndpointStatus:
    """Describe one endpoint, whoever made it; also one that is paused, whose ``arn`` is then empty.

    Raises:
        NotFound: there is no endpoint of that name; the message says when something of a killed run is left.
    """
    facts = control.describe_endpoint(session, name)
    ours = belongings_of(session, name)
    entry, unread = _entry(session, name)
    summary = summary_of(session, ours, session.now(), entry)
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
        summary = _with_the_count_of_now(summary, facts)
    config_name = facts.config_name if facts else kept_config(ours)
    config = control.describe_endpoint_config(session, config_name)
    model_name = (config.model_name if config else None) or next(iter(ours.models), None)
    model = control.describe_model(session, model_name) if model_name else None
    return EndpointStatus(
        summary=summary,
        arn=facts.arn if facts else "",
        config_name=config_name,
        config_asked=_config_asked(ours),
        model_name=model_name,
        image=model.image if model else None,
        failure_reason=facts.failure_reason if facts else None,
        speculative_config=speculative_config(model),
        lifetime=ours.lifetime,
        engine=_engine(session, name) if facts else None,
        warnings=(
            *(_warnings(session, facts, ours, acts, entry) if facts else _resting(session, summary)),
            *_without_the_register(unread),
        ),
    )


def _with_the_count_of_now(summary: EndpointSummary, facts: EndpointFacts) -> EndpointSummary:
    """Replace the count that the config starts with: autoscaling, or a person, may have changed it."""
    asked, now = summary.instance_count, facts.instance_count
    if facts.status != "InService" or not asked or now is None or now == asked:
        return summary
    hourly = summary.usd_per_hour
    return replace(summary, instance_count=now, usd_per_hour=None if hourly is None else hourly / asked * now)


def _entry(session: Session, name: str) -> tuple[Entry | None, PeagleError | None]:
    """Return the guard's entry, and why it could not be read: a status is worth showing without it."""
    try:
        return known_entry(session, name), None
    except PeagleError as error:
        return None, error


def _without_the_register(unread: PeagleError | None) -> list[str]:
    if unread is None:
        return []
    return [f"the guard's register could not be read ({unread.message}): no lease of `keep` is shown"]


def kept_config(ours: Belongings) -> str:
    """Return the config with which an endpoint that is off comes back."""
    return ours.kept_config or ours.configs[0]


def _resting(session: Session, summary: EndpointSummary) -> list[str]:
    command = f"peagle-sm resume {summary.name}{session.command_flags()}"
    costs = rest_costs(summary.stack, summary.usd_per_hour)
    return [f"it is off ({summary.off_why}): {costs}; `{command}` brings it back"]


def absent(session: Session, name: str, ours: Belongings | None = None) -> NotFound:
    """Return the error for an endpoint that is not there, naming what a killed run has left of it."""
    one = ours or belongings_of(session, name)
    left, flags = one.resources, session.command_flags()
    if one.is_off:
        return NotFound(
            f"endpoint {name!r} is off in {session.region}; kept of it: {', '.join(left)}.",
            next_step=f"Turn it on with `peagle-sm resume {name}{flags}`, or remove the rest with "
            f"`peagle-sm delete {name}{flags}`.",
            details={"name": name, "left": list(left)},
        )
    if left:
        return NotFound(
            f"endpoint {name!r} does not exist in {session.region}; left of it: {', '.join(left)}.",
            next_step=f"Remove that with `peagle-sm delete {name}{flags}`, or deploy again.",
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
    session: Session, facts: EndpointFacts, ours: Belongings, acts: bool, entry: Entry | None
) -> list[str]:
    if ours.endpoint is None:
        return ["not made by peagle-sm: no lifetime limit, and `peagle-sm delete` does not touch it"]
    found = []
    asked = _config_asked(ours)
    if asked is not None and facts.config_name != asked:
        found.append(f"runs config {facts.config_name}, asked for {asked}: an update rolled back")
    if ours.lifetime is None:
        found.append(
            "no lifetime limit is armed: nothing ends this endpoint by itself; deploy again to arm it"
        )
    elif not acts:
        found.append(
            f"its lifetime limit ({ours.lifetime.expires_at:%Y-%m-%d %H:%M} UTC) cannot act, since its role "
            "went with the guard: nothing ends this endpoint by itself; "
            f"`peagle-sm guard install{session.command_flags()}` brings the role back"
        )
    elif not ours.lifetime.guards(facts.name, session.now()) and facts.status != "Deleting":
        found.append("its lifetime limit is over or disabled, and the endpoint still exists")
    if entry is not None and entry.streams_hidden and entry.is_of(facts.created_at):
        grace = ours.tags.get(keys.GRACE_MINUTES, "10")
        found.append(
            "CloudWatch does not show its requests in flight: the guard sees a stream longer than the grace "
            f"({grace} minutes) only by its GPUs; set lifecycle.grace_minutes above your longest stream"
        )
    return found


def _card(status: EndpointStatus) -> Card:
    """Status, price and end of life first; what is not as it should be last."""
    each = status.summary
    local = status.engine is not None
    fields = [
        ("speculation", speculation_text(each.mode, each.num_speculative_tokens)),
        ("weights", STAND_IN if local else ""),
        ("instance", _instance(each)),
        ("engine", _running(status)),
        ("price", _price(each)),
        ("age", "" if each.age_s is None else elapsed(each.age_s)),
        ("lifetime", f"deleted at {_when(each.expires_at)} whatever happens" if each.expires_at else ""),
        ("kept", f"until {_when(each.keep_until)}, idle or not" if each.keep_until else ""),
        ("idle", _idle(each)),
        ("config", status.config_name or ""),
        ("why", cause_first(status.failure_reason or "", "whole: .failure_reason")),
    ]
    return Card(
        f"{each.name}: {each.status}",
        tone=_STATUS.get(each.status, "caution"),
        fields=tuple((name, value) for name, value in fields if value),
        notes=tuple(Note(f"warning: {line}", "caution") for line in status.warnings),
    )


def _when(moment: datetime | None) -> str:
    return "-" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _instance(each: EndpointSummary) -> str:
    if each.instance_type is None:
        return ""
    return f"{each.instance_count} x {each.instance_type}" if each.instance_count else each.instance_type


def _running(status: EndpointStatus) -> str:
    if status.engine is None:
        return ""
    running = status.engine.get("engine_version") or "not running yet"
    asked = str(status.engine.get("image") or "unknown").rpartition(":")[2]
    return f"vLLM {running} on this machine (image: {asked})"


def _price(each: EndpointSummary) -> str:
    if each.off_why is not None:
        rest = rest_costs(each.stack, each.usd_per_hour)
        return f"{usd(each.usd_per_hour, 'hour')} when it is on; off: {rest}"
    return f"{usd(each.usd_per_hour, 'hour')}, {usd(each.spent_usd)} spent so far"


def _idle(each: EndpointSummary) -> str:
    if each.idle_minutes is None:
        return ""
    return f"counts as idle after {each.idle_minutes} min of proven quiet"


# CloudWatch shows lines late and out of order, so a follower looks back this far and drops what it has shown.
OVERLAP = timedelta(seconds=60)
# What a follower knows to be old before it looks for news: more than ever share one millisecond.
BASELINE_LINES = 1000


def logs(
    name: str, *, session: Session, follow: bool = False, limit: int = 100, pacing: Pacing | None = None
) -> Iterator[LogLine]:
    """Yield the last ``limit`` lines of an endpoint, oldest first; ``follow`` goes on until it is gone.

    The lines of an endpoint that no longer exists are kept by CloudWatch, and shown.

    Raises:
        NotFound: there is neither such an endpoint nor output of one.
    """
    lines = cloudwatch.tail(session, name, max(limit, BASELINE_LINES) if follow else limit)
    if not lines and control.describe_endpoint(session, name) is None:
        raise absent(session, name)
    last = lines[-limit:] if limit > 0 else []
    if not follow:
        return iter(last)
    return chain(last, _news(name, session, lines, pacing or Pacing.for_session(session)))


def _news(name: str, session: Session, known: list[LogLine], pacing: Pacing) -> Iterator[LogLine]:
    epoch = datetime.fromtimestamp(0, UTC)
    newest = known[-1].timestamp if known else epoch
    # These come again within the overlap, with event ids that their first reading did not tell.
    shown = set(known)
    # What is older still and comes with the first look was there before the tail that was asked for.
    old_before: datetime | None = newest
    seen: set[str] = set()
    there = True
    while there:
        there = control.describe_endpoint(session, name) is not None
        start = max(epoch, newest - OVERLAP) if newest > epoch else epoch
        found = sorted(cloudwatch.since(session, name, start), key=lambda one: one[1].timestamp)
        for event_id, line in found:
            if event_id in seen:
                continue
            seen.add(event_id)
            if line in shown or (old_before is not None and line.timestamp < old_before):
                continue
            newest = max(newest, line.timestamp)
            yield line
        old_before = None
        if there:
            pacing.sleep(min(pacing.poll_s, 2.0))


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
