"""Plan of a preparation in processing jobs: both requests, price, time and findings. Pure.

A dry run prints this plan and a run sends it: they are one object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from peagle_learn.core.job_names import attempt_name, base_name, digest_of
from peagle_learn.core.processing.lines import GENERAL
from peagle_learn.core.processing.requests import (
    MOST_INPUTS,
    STAGES,
    PreparationFacts,
    Stage,
    instances_of,
    machine_of,
    own_disks,
    prepared_uri,
    processing_request,
    settings_of,
    type_of,
)
from peagle_learn.core.spec import LearnSpec
from peagle_sm.core.display import Card, Shown, Table
from peagle_sm.core.planning import finding_rows, refuse_errors
from peagle_sm.core.resources.resource import Request
from peagle_sm.core.words import Finding, elapsed, error_finding, usd

READ_BYTES_A_SECOND = 2_000_000
"""Bytes that one CPU redacts in a second: 2.1 MB of code, 5.8 MB of words; measured."""
SPLIT_SECONDS_A_MB = 1.5
"""Seconds of one CPU for the split; measured: 0.5 to 0.8 at 1 and 8 turns, 2.4 at 64 turns."""
SPLIT_MEMORY = 60
"""Memory of the split over the bytes of its prompts; measured: 29 to 38 at 1 turn, 46 at 64, 54 at 256."""


@dataclass(frozen=True)
class PreparationPlan(Shown):
    """Both jobs of a preparation. ``bases`` are the names of their first attempts."""

    spec: LearnSpec
    facts: PreparationFacts
    bases: Mapping[Stage, str]
    requests: Mapping[Stage, Request]
    settings: Mapping[str, Any]
    findings: tuple[Finding, ...] = field(default=())

    @property
    def usd_per_hour(self) -> Mapping[Stage, float | None]:
        """Price of all instances of each job."""
        return {stage: self._hourly(stage) for stage in STAGES}

    @property
    def max_usd(self) -> float | None:
        """Most that both jobs can cost."""
        hourly = [self._hourly(stage) for stage in STAGES]
        known = [each for each in hourly if each is not None]
        return sum(known) * self.spec.data.processing.max_hours if len(known) == len(hourly) else None

    @property
    def estimated_s(self) -> Mapping[Stage, float | None]:
        """Rough seconds of work of each job, without the start of its instances; None if unknown."""
        machine = machine_of(type_of(self.spec, "read"))
        count = instances_of(self.spec, self.facts, "read")
        read = None if machine is None else self.facts.bytes / READ_BYTES_A_SECOND / machine.cpus / count
        return {"read": read, "split": self.facts.bytes / 1e6 * SPLIT_SECONDS_A_MB}

    @property
    def errors(self) -> list[Finding]:
        """Findings that forbid the jobs."""
        return [one for one in self.findings if one.severity == "error"]

    def _hourly(self, stage: Stage) -> float | None:
        each = self.facts.prices[stage]
        return None if each is None else each * instances_of(self.spec, self.facts, stage)

    def request(
        self, stage: Stage, attempt: int, read_job: str | None = None, now: datetime | None = None
    ) -> Request:
        """Return the request of an attempt; the second job reads what ``read_job`` left.

        ``now`` is when it is sent, from which the guard's deadline counts; None: when it was planned.
        """
        return processing_request(
            self.spec,
            self.facts if now is None else replace(self.facts, now=now),
            stage,
            base=self.bases[stage],
            attempt=attempt,
            settings_base=self.bases["split"],
            read_job=read_job or attempt_name(self.bases["read"], 1),
        )

    def refuse_errors(self) -> None:
        """Refuse a plan with errors.

        Raises:
            PlanRefused: it has errors; ``details["findings"]`` has all findings.
        """
        refuse_errors("preparation", self.findings)

    def price_words(self) -> str:
        """Return the price in words: `at most 7.37 USD (4 h x 1.84 USD/hour)`."""
        most = self.max_usd
        if most is None:
            return "price unknown"
        hours = self.spec.data.processing.max_hours
        return "nothing is billed" if most == 0 else f"at most {usd(most)} (each job {hours:g} h at most)"

    def card(self) -> Card:
        """Return the view that terminals and notebooks show."""
        errors = len(self.errors)
        place = "the local SageMaker" if self.facts.local else f"account {self.facts.account}"
        rows = tuple(
            (
                self.bases[stage],
                f"{instances_of(self.spec, self.facts, stage)} x {type_of(self.spec, stage)}",
                "" if (seconds := self.estimated_s[stage]) is None else f"about {elapsed(seconds)}",
                usd(self._hourly(stage), "hour"),
            )
            for stage in STAGES
        )
        tables = (
            Table("Jobs", ("job", "instances", "work", "price"), rows),
            Table("Findings", (), finding_rows(self.findings)),
        )
        return Card(
            f"Preparation of the prompts of {self.spec.name} in {self.facts.region}, {place}",
            f"The preparation is refused: {errors} error{'s' if errors > 1 else ''} below" if errors else "",
            "bad" if errors else "plain",
            tuple((name, value) for name, value in _fields(self) if value),
            tuple(table for table in tables if table.rows),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; None for what is not known."""
        return {
            "name": self.spec.name,
            "account": self.facts.account,
            "region": self.facts.region,
            "local": self.facts.local,
            "jobs": dict(self.bases),
            "sources": [
                {"uri": each.uri, "bytes": each.bytes, "objects": each.objects, "set": each.of}
                for each in self.facts.sources
            ],
            "usd_per_hour": dict(self.usd_per_hour),
            "max_usd": self.max_usd,
            "max_hours": self.spec.data.processing.max_hours,
            "price_source": self.facts.price_source,
            "estimated_seconds": dict(self.estimated_s),
            "stored": prepared_uri(self.spec, self.bases["split"]),
            "refused": bool(self.errors),
            "findings": [one.to_dict() for one in self.findings],
            "requests": {stage: self.requests[stage].parameters for stage in STAGES},
        }


def make_preparation_plan(spec: LearnSpec, facts: PreparationFacts) -> PreparationPlan:
    """Plan both jobs; uses no clock and no AWS. A plan with errors must not be sent."""
    settings = settings_of(spec, facts)
    read = digest_of(settings["schema"], settings["sources"], settings["max_tokens"])
    bases: dict[Stage, str] = {
        "read": f"{base_name(spec.name, read)}-read",
        "split": f"{base_name(spec.name, digest_of(settings))}-split",
    }
    plan = PreparationPlan(spec, facts, bases, {}, settings)
    requests = {stage: plan.request(stage, 1) for stage in STAGES}
    plan = replace(plan, requests=requests)
    return replace(plan, findings=(*facts.findings, *_findings(plan)))


def _findings(plan: PreparationPlan) -> Iterator[Finding]:
    spec, facts = plan.spec, plan.facts
    processing = spec.data.processing
    if facts.image is None:
        yield error_finding(
            "image",
            "data.processing.image is missing: AWS publishes no image with peagle-sm",
            "Build the image of preparation jobs (`peagle-sm help learn-data`) and write its URI into"
            " data.processing.image.",
        )
    if len(facts.sources) + 1 > MOST_INPUTS:
        yield error_finding(
            "sources",
            f"data.prompts and data.general: found {len(facts.sources)} sources; a processing job takes at"
            f" most {MOST_INPUTS - 1}",
            "Give a common prefix of several sources.",
        )
    kinds = {type_of(spec, stage) for stage in STAGES}
    if spec.train.kms_key is not None and "alias/" in spec.train.kms_key and not all(map(own_disks, kinds)):
        yield error_finding(
            "kms-key",
            f"train.kms_key: found {spec.train.kms_key!r}; allowed for the disks of"
            f" {', '.join(sorted(kinds))}: a key's id or its ARN",
            "Give the ARN: `aws kms describe-key --key-id ALIAS --query KeyMetadata.Arn`.",
        )
    if instances_of(spec, facts, "read") < processing.instance_count:
        yield Finding(
            "info",
            f"{instances_of(spec, facts, 'read')} instances read, not {processing.instance_count}: an"
            " instance without a file of its own would be billed for nothing",
            "Write the prompts into more files to read them in parallel.",
            "instances",
        )
    yield from _price_findings(plan)
    hours = max((each for each in plan.estimated_s.values() if each is not None), default=0.0) / 3600
    if hours > processing.max_hours:
        yield Finding(
            "warning",
            f"data.processing.max_hours: found {processing.max_hours:g}; the longer job takes about"
            f" {hours:.1f} h",
            "Raise max_hours, or take more or larger instances.",
            "time",
        )
    machine = machine_of(type_of(spec, "split"))
    needed = facts.bytes * SPLIT_MEMORY / 1e9
    if machine is not None and needed > machine.memory_gb:
        yield Finding(
            "warning",
            f"the split of {facts.bytes / 1e9:.1f} GB of prompts without repeats needs about {needed:.0f} GB"
            f" of memory; {type_of(spec, 'split')} has {machine.memory_gb:g} GB",
            "Give data.processing.split_instance_type, for example ml.r5.8xlarge (256 GB), or fewer sources.",
            "memory",
        )


def _price_findings(plan: PreparationPlan) -> Iterator[Finding]:
    processing, most = plan.spec.data.processing, plan.max_usd
    if most is None:
        yield error_finding(
            "price",
            f"the price of {processing.instance_type} in processing jobs is not known"
            f" ({plan.facts.price_source})",
            "Write what AWS's price list says into data.processing.usd_per_hour (USD per hour of one"
            " instance).",
        )
    elif processing.budget_usd is not None and most > processing.budget_usd:
        yield error_finding(
            "budget",
            f"data.processing.budget_usd: found {processing.budget_usd:g}; the jobs can cost {most:,.2f} USD",
            f"Lower data.processing.max_hours or instance_count, or raise budget_usd to {most:,.2f}.",
        )


def _fields(plan: PreparationPlan) -> list[tuple[str, str]]:
    facts, processing = plan.facts, plan.spec.data.processing
    sources = [
        f"{each.uri} ({each.objects:,} files, {each.bytes / 1e6:,.1f} MB{', general' * (each.of == GENERAL)})"
        for each in facts.sources
    ]
    return [
        ("prompts", "\n".join(sources)),
        ("target", plan.spec.target.model),
        ("price", plan.price_words()),
        ("price from", facts.price_source),
        ("budget", "" if processing.budget_usd is None else usd(processing.budget_usd)),
        ("stops", f"each job after {processing.max_hours:g} h at the latest"),
        ("leaves", prepared_uri(plan.spec, plan.bases["split"])),
        ("note", "\n".join(facts.notes)),
    ]
