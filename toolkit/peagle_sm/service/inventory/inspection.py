"""status(): one endpoint in full, with what is not as it should be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.lifetime import Lifetime
from peagle_sm.aws.control.nearest import did_you_mean
from peagle_sm.aws.control.register import Entry
from peagle_sm.aws.control.sagemaker import EndpointFacts
from peagle_sm.aws.session.session import Session
from peagle_sm.core.display.card import Card, Note, Shown, Tone
from peagle_sm.core.errors import NotFound, PeagleError
from peagle_sm.core.failure_words import cause_first
from peagle_sm.core.plan import tags as keys
from peagle_sm.core.plan.resting import rest_costs
from peagle_sm.core.words import STAND_IN, elapsed, speculation_text, usd
from peagle_sm.service.guard.guarding import limit_acts
from peagle_sm.service.guard.rest import known_entry
from peagle_sm.service.inventory.belongings import Belongings, belongings_of
from peagle_sm.service.inventory.listing import EndpointSummary, plain, speculative_config, summary_of

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
