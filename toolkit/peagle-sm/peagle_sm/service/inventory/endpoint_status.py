"""Status of one endpoint, as text, HTML and JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from peagle_sm.aws.control.lifetime import Lifetime
from peagle_sm.core.display import Card, Shown, Tone
from peagle_sm.core.errors import SpecError
from peagle_sm.core.plan.cost import rest_costs
from peagle_sm.core.served_target import ServedTarget
from peagle_sm.core.spec.modes import is_synthetic
from peagle_sm.core.words import cause_first, speculation_text, usd, when_to
from peagle_sm.service.inventory.listing import EndpointSummary, plain

_TONES: dict[str, Tone] = {"InService": "good", "Failed": "bad", "OutOfService": "bad", "Paused": "plain"}
_REASON = "in full: `peagle-sm status --verbose`, or failure_reason of the Python API"


@dataclass(frozen=True)
class EndpointStatus(Shown):
    """Status of one endpoint in full, at the time ``read_at``.

    ``config_asked`` is the config that the deploy created, ``config_name`` the one that runs: they differ
    after a silent rollback. ``engine`` is the local server's report of the endpoint's engine, including its
    overrides; None on AWS.
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
    read_at: datetime
    target: ServedTarget = field(default_factory=ServedTarget)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; times as ISO text."""
        document: dict[str, Any] = plain(
            {**asdict(self), "summary": self.summary.to_dict(), **self.target.to_dict()}
        )
        del document["read_at"], document["target"]
        if self.lifetime is not None:
            del document["lifetime"]["raw"]
        return document

    @property
    def synthetic(self) -> bool:
        """Whether it accepts draft tokens at a given rate, so that its answers are wrong."""
        return is_synthetic(self.speculative_config)

    def demand_real(self) -> None:
        """Refuse an endpoint of `tune --synthetic`.

        Raises:
            SpecError: its answers and its rate are those of no mode.
        """
        if self.synthetic:
            raise SpecError(
                f"endpoint {self.summary.name!r} has synthetic acceptance: it accepts draft tokens at a "
                "given rate, so its answers are wrong and its rate is no mode's",
                next_step="Name an endpoint that `peagle-sm deploy` created; delete this one if no "
                "`peagle-sm tune --synthetic` is running.",
                details={"speculative_config": self.speculative_config},
            )

    @property
    def config(self) -> str:
        """The running config, and the one that the deploy created if it is another."""
        if self.config_asked and self.config_asked != self.config_name:
            return f"{self.config_name} (requested: {self.config_asked})"
        return self.config_name or ""

    def card(self, verbose: bool = False) -> Card:
        """Return the view that terminals and notebooks show; lines without a value are left out.

        ``verbose`` shows a long failure reason in full, and each override of the engine.
        """
        each, now, reason = self.summary, self.read_at, self.failure_reason or ""
        ends, kept = each.expires_at, each.keep_until
        since = f", since {when_to(each.off_since, now)}" if each.off_since else ""
        fields = (
            ("name", each.name),
            ("status", each.status),
            ("reason", reason if verbose else cause_first(reason, _REASON)),
            ("off", (each.off_why or "") + since),
            ("stack", each.stack or ""),
            ("speculation", speculation_text(each.mode, each.num_speculative_tokens)),
            ("weights", self.target.note),
            ("instance", _instances_now(each)),
            ("image", self.image or ""),
            ("model", self.model_name or ""),
            ("config", self.config),
            ("created", when_to(each.created_at, now)),
            ("price", _price(each)),
            ("lifetime", f"deleted at {when_to(ends, now)} even if in use" if ends else ""),
            ("kept", f"until {when_to(kept, now)}, even if idle" if kept else ""),
            ("hours", each.hours or ""),
            ("idle", _idle(each)),
            *(_engine(self.engine, verbose) if self.engine else ()),
            ("warning", "\n".join(self.warnings)),
        )
        tone = _TONES.get(each.status, "caution")
        return Card(tone=tone, fields=tuple((name, value) for name, value in fields if value))


def instance_text(row: EndpointSummary) -> str:
    """Format `2 x ml.g7e.2xlarge`; with autoscaling `1-4 x ml.g7e.2xlarge`."""
    if row.instance_type is None:
        return "-"
    count = row.instance_bounds or row.instance_count
    return f"{count} x {row.instance_type}" if count else row.instance_type


def _instances_now(row: EndpointSummary) -> str:
    if row.instance_bounds is None or row.instance_type is None:
        return instance_text(row)
    return f"{row.instance_count} x {row.instance_type} (autoscaling: {row.instance_bounds})"


def _price(row: EndpointSummary) -> str:
    bound = row.price_at_most
    hourly, spent = usd(row.usd_per_hour, "hour", at_most=bound), usd(row.spent_usd, at_most=bound)
    if row.off_why is not None:
        return f"{hourly} when it is on\noff: {rest_costs(row.stack, row.usd_per_hour)}"
    if row.instance_bounds is None:
        return f"{hourly}, {spent} spent so far"
    return f"{hourly}, about {usd(row.spent_usd)} spent so far (at autoscaling's initial instance count)"


def _idle(row: EndpointSummary) -> str:
    if row.idle_minutes is None:
        return ""
    grace = f", checked again {row.grace_minutes} min later" if row.grace_minutes else ""
    return f"counts as idle after {row.idle_minutes} min in which the metrics show no request{grace}"


def engine_words(engine: Mapping[str, Any]) -> str:
    """Format an engine as `vLLM 0.32.0 (image: 0.30.0-gpu-…), process 4711`."""
    running = engine.get("engine_version") or "not running yet"
    image = str(engine.get("image") or "unknown").rpartition(":")[2]
    return f"vLLM {running} (image: {image}), process {engine.get('pid') or 'none'}"


def _engine(engine: Mapping[str, Any], verbose: bool) -> tuple[tuple[str, str], ...]:
    overrides = [str(line) for line in engine.get("overrides", ())]
    if len(overrides) > 1 and not verbose:
        overrides = [f"{len(overrides)} for this machine (`peagle-sm status --verbose` lists them)"]
    return ("engine", engine_words(engine)), ("overrides", "\n".join(overrides))
