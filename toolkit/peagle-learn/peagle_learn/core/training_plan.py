"""Plan of a training job: its exact request, memory, price and findings. Pure.

A dry run prints this plan and a run sends it: they are one object. Only the guard's deadline counts from the
moment at which it is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from peagle_learn.core.conversations import FEWEST
from peagle_learn.core.job_names import attempt_name, base_name, digest_of, time_tag
from peagle_learn.core.memory import (
    PARTITIONS,
    TrainingLoad,
    TrainingMachine,
    TrainingMemory,
    least_partitions,
    memory_of,
)
from peagle_learn.core.price import Duration, duration_of, epoch_findings, hour_words, price_findings
from peagle_learn.core.recipes import chosen, head_sizes, load_recipes, shards_of
from peagle_learn.core.rules import contradictions, fit_faults
from peagle_learn.core.spec import LearnSpec
from peagle_learn.core.training_request import (
    ChannelFacts,
    TrainingFacts,
    artifact_uri,
    channel_dict,
    deadline,
    own_disks,
    text,
    training_request,
)
from peagle_sm.core.display import Card, Shown, Table
from peagle_sm.core.plan.tags_and_schedules import DEADLINE
from peagle_sm.core.planning import finding_rows, refuse_errors
from peagle_sm.core.resources.resource import Request
from peagle_sm.core.words import Finding, error_finding, usd

_LEAST_SEGMENT = 16


@dataclass(frozen=True)
class LearnPlan(Shown):
    """The plan of one training job."""

    spec: LearnSpec
    facts: TrainingFacts
    base: str
    attempt: int
    values: Mapping[str, Any]
    memory: TrainingMemory | None
    duration: Duration
    request: Request
    findings: tuple[Finding, ...] = field(default=())

    @property
    def job(self) -> str:
        """Name of the job."""
        return attempt_name(self.base, self.attempt)

    @property
    def artifact(self) -> str:
        """S3 address of the head that the job leaves."""
        return artifact_uri(self.spec, self.job)

    @property
    def estimated_hours(self) -> float | None:
        """Estimated hours of all epochs on all instances; None if unknown."""
        data = self.facts.training
        if data is None or data.tokens is None or self.values.get("max_steps") is not None:
            return None
        return self.duration.hours(data.tokens * int(self.values["epochs"]) / self.facts.price.instances)

    @property
    def errors(self) -> list[Finding]:
        """Findings that forbid the job."""
        return [finding for finding in self.findings if finding.severity == "error"]

    def refuse_errors(self) -> None:
        """Refuse a plan with errors.

        Raises:
            PlanRefused: it has errors; ``details["findings"]`` has all findings.
        """
        refuse_errors("training", self.errors, self.findings)

    def as_attempt(self, attempt: int) -> LearnPlan:
        """Return the plan of a further attempt, which resumes from the checkpoints of the others."""
        name = attempt_name(self.base, attempt)
        parameters = {**self.request.parameters, "TrainingJobName": name}
        request = Request(self.request.service, self.request.operation, parameters)
        return replace(self, attempt=attempt, request=request)

    def parameters_at(self, now: datetime) -> dict[str, Any]:
        """Return the request as it is sent ``now``, from which the guard's deadline counts."""
        deadlines = {DEADLINE: time_tag(deadline(self.spec, now))}
        sent = self.request.parameters
        tags = [{**each, "Value": deadlines.get(each["Key"], each["Value"])} for each in sent["Tags"]]
        return {**sent, "Tags": tags}

    def card(self) -> Card:
        """Return the view that terminals and notebooks show."""
        errors = len(self.errors)
        place = "the local SageMaker" if self.facts.local else f"account {self.facts.account}"
        memory = tuple((line,) for line in self.memory.lines) if self.memory else ()
        what = "one GPU" if self.facts.instance and self.facts.instance.gpu_count else "the instance"
        verdict = "fits" if self.memory and self.memory.fits else "DOES NOT FIT"
        tables = (
            Table(f"Memory of {what}: {verdict}", (), memory),
            Table("Hyperparameters", (), tuple((name, text(value)) for name, value in self.values.items())),
            Table("Findings", (), finding_rows(self.findings)),
        )
        return Card(
            f"Training of {self.spec.name} in {self.facts.region}, {place}",
            f"The training is refused: {errors} error{'s' if errors > 1 else ''} below" if errors else "",
            "bad" if errors else "plain",
            tuple((name, value) for name, value in _fields(self) if value),
            tuple(table for table in tables if table.rows),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; None for what is not known."""
        price, memory = self.facts.price, self.memory
        return {
            "job": self.job,
            "name": self.spec.name,
            "account": self.facts.account,
            "region": self.facts.region,
            "local": self.facts.local,
            **self.facts.target.to_dict(),
            "usd_per_hour": price.usd_per_hour,
            "max_usd": price.max_usd,
            "max_hours": price.max_hours,
            "price_source": price.source,
            "estimated_hours": self.estimated_hours,
            "tokens_per_second": self.duration.tokens_per_second,
            "estimate_source": self.duration.source,
            "memory_gb": None if memory is None else memory.needed_gb,
            "available_gb": None if memory is None else memory.available_gb,
            "fits": None if memory is None else memory.fits,
            "hyperparameters": dict(self.values),
            "artifact": self.artifact,
            "channels": {name: channel_dict(channel) for name, channel in self.facts.channels.items()},
            "refused": bool(self.errors),
            "findings": [finding.to_dict() for finding in self.findings],
            "request": self.request.parameters,
        }


def make_training_plan(spec: LearnSpec, facts: TrainingFacts) -> LearnPlan:
    """Plan a training job; uses no clock and no AWS. A plan with errors must not be sent."""
    entry = facts.instance
    gpus = entry.gpu_count if entry else 0
    values = chosen(spec.train, facts.recipe, warm=facts.head_uri is not None, gpus=gpus)
    head = head_sizes(facts.recipe, values)
    shards = shards_of(values)
    memory = None
    if entry is not None:
        machine = TrainingMachine.of(entry, facts.instance_type)
        if "sequence_partitions" not in values:
            load = TrainingLoad.of(values)
            fewest = least_partitions(facts.recipe.target, head, load, machine, shards)
            most = max(1, load.sequence_length // _LEAST_SEGMENT)
            values["sequence_partitions"] = min(fewest or PARTITIONS[-1], most)
        memory = memory_of(facts.recipe.target, head, TrainingLoad.of(values), machine, shards)
    load = TrainingLoad.of(values)
    book = load_recipes()
    duration = duration_of(facts.recipe, head, load, book.speeds, entry.gpu if entry else None, gpus)
    base = base_name(spec.name, _digest(spec, facts, values, gpus))
    plan = LearnPlan(
        spec=spec,
        facts=facts,
        base=base,
        attempt=1,
        values=values,
        memory=memory,
        duration=duration,
        request=training_request(spec, facts, values, head, base),
    )
    return replace(plan, findings=(*facts.findings, *_findings(plan)))


def _digest(spec: LearnSpec, facts: TrainingFacts, values: Mapping[str, Any], gpus: int) -> str:
    """Hash what is trained, and on how many GPUs: a checkpoint belongs to as many processes."""
    free = ("checkpoint_every_steps", "log_every_steps")
    data = [channel.digest for channel in (facts.training, facts.validation) if channel]
    return digest_of(
        {name: value for name, value in values.items() if name not in free},
        [facts.target_uri, facts.target_digest, spec.target.revision],
        [facts.head_uri, facts.head_digest],
        data,
        spec.train.instance_count * max(1, gpus),
    )


def _findings(plan: LearnPlan) -> list[Finding]:
    facts, train, values = plan.facts, plan.spec.train, plan.values
    findings: list[Finding] = []
    if facts.image is None:
        findings.append(
            error_finding(
                "image",
                "train.image is missing: AWS publishes no image with the trainer",
                "Build it (`peagle-sm help container`) and write its URI into train.image.",
            )
        )
    has_data_error = any(
        finding.check == "data" and finding.severity == "error" for finding in facts.findings
    )
    if facts.training is None and not facts.data_is_to_come and not has_data_error:
        findings.append(
            error_finding(
                "data",
                f"no training data exists below {plan.spec.folder}data/",
                "Run `peagle-sm learn data` first, or give train.training.",
            )
        )
    if facts.instance is None:
        findings.append(
            error_finding(
                "instance",
                f"train.instance_type: the memory of {facts.instance_type} is not known",
                "Take an instance type of `peagle-sm learn plan`.",
            )
        )
    if plan.memory is not None and not plan.memory.fits:
        findings.append(
            error_finding(
                "memory",
                f"too little memory on {facts.instance_type}: {plan.memory.needed_gb:.1f} GB needed, "
                f"{plan.memory.available_gb:.1f} GB available\n  " + "\n  ".join(plan.memory.lines),
                f"Take a larger instance or a train.sequence_length below {values['sequence_length']}; "
                f"`peagle-sm learn plan {plan.spec.target.model}` lists what fits.",
            )
        )
    length = int(values["sequence_length"])
    if int(values.get("sequence_partitions", 1)) > length // _LEAST_SEGMENT:
        findings.append(
            error_finding(
                "partitions",
                f"train.sequence_partitions: found {values['sequence_partitions']} parts of {length} tokens; "
                f"allowed: parts of {_LEAST_SEGMENT} tokens or more",
                "Give fewer parts.",
            )
        )
    if float(values["down_sample_ratio_min"]) > float(values["down_sample_ratio"]):
        findings.append(
            error_finding(
                "down-sample-ratio",
                f"train.down_sample_ratio_min: found {values['down_sample_ratio_min']:g}; allowed: at most "
                f"down_sample_ratio ({values['down_sample_ratio']:g})",
                "Make it smaller.",
            )
        )
    if facts.head_uri is None and "mask_token_id" not in values:
        findings.append(
            error_finding(
                "mask-token",
                "train.mask_token_id is missing: a head from nothing needs a token that the data never has",
                "Give a reserved token of the target's tokenizer, or a head to start from.",
            )
        )
    if facts.training and facts.validation and facts.training.digest == facts.validation.digest:
        findings.append(
            Finding(
                "warning",
                "train.training and train.validation are the same data: validation then shows how well the "
                "head knows its training data, not held-out data",
                "Give other conversations as train.validation, or leave it out.",
                "validation",
            )
        )
    findings += _few_findings(plan)
    findings += _fit_findings(plan)
    findings += _key_and_network_findings(plan)
    findings += price_findings(train, facts.price)
    if facts.training is not None:
        tokens = facts.training.tokens
        findings += epoch_findings(train, values, tokens, plan.duration, facts.price.instances)
    return findings


def _few_findings(plan: LearnPlan) -> Iterator[Finding]:
    """Data of fewer conversations than `learn data` makes."""
    for name, channel in (("training", plan.facts.training), ("validation", plan.facts.validation)):
        count = None if channel is None else channel.conversations
        if count is not None and count < FEWEST:
            yield error_finding(
                "data",
                f"train.{name}: found {count} conversation; allowed: at least {FEWEST}, as in `learn data`",
                "Run `peagle-sm learn data` with prompts of more conversations, or add documents of others.",
            )


def _fit_findings(plan: LearnPlan) -> Iterator[Finding]:
    """Settings that the trainer refuses, since they do not fit the target or the head."""
    facts, values = plan.facts, plan.values
    if facts.sizes is None:
        return
    of_head = {} if facts.head is None else facts.head.as_settings
    for fault in contradictions(values, of_head):
        yield error_finding("head-settings", f"train.{fault}", "Leave it out, or set `head: none`.")
    gpus = facts.instance.gpu_count if facts.instance else 0
    world = plan.spec.train.instance_count * max(1, gpus)
    for fault in fit_faults({**values, **of_head}, facts.sizes, facts.head, world):
        check = fault.partition(":")[0].replace("_", "-")
        yield error_finding(check, f"train.{fault}", "Correct it, or leave it out.")


def _key_and_network_findings(plan: LearnPlan) -> Iterator[Finding]:
    """Settings that AWS refuses or ignores, and network settings that fail only in the running job."""
    train, kind = plan.spec.train, plan.facts.instance_type
    if train.kms_key is not None and not own_disks(plan.facts) and "alias/" in train.kms_key:
        yield error_finding(
            "kms-key",
            f"train.kms_key: found {train.kms_key!r}; allowed for the disks of {kind}: a key's id or its ARN "
            "(ResourceConfig.VolumeKmsKeyId takes no alias)",
            "Give the ARN: `aws kms describe-key --key-id ALIAS --query KeyMetadata.Arn`.",
        )
    if train.kms_key is not None and own_disks(plan.facts):
        yield Finding(
            "info",
            f"train.kms_key encrypts the head alone: the disks of {kind} are its own, encrypted by its "
            "hardware, and SageMaker takes no key for them",
            "",
            "kms-key",
        )
    if train.volume_gb is not None and own_disks(plan.facts):
        yield Finding(
            "warning",
            f"train.volume_gb has no effect: {kind} has disks of its own, and gets no volume",
            "Leave it out.",
            "volume",
        )
    if train.subnets and train.instance_count > 1:
        yield Finding(
            "info",
            f"{train.instance_count} instances in a VPC train together, encrypted: a security group of "
            "theirs must allow all traffic from itself, with UDP 500 and IP protocol 50",
            "",
            "network",
        )


def _fields(plan: LearnPlan) -> list[tuple[str, str]]:
    facts, train = plan.facts, plan.spec.train
    hours = plan.estimated_hours
    return [
        ("job", plan.job),
        ("target", plan.spec.target.model + (f"\n({facts.target.note})" if facts.target.note else "")),
        ("start from", facts.head_uri or "nothing: random weights"),
        ("training", _data_words(facts.training)),
        ("validation", _data_words(facts.validation)),
        ("instance", f"{train.instance_count} x {facts.instance_type}{', managed spot' * train.spot}"),
        ("price", facts.price.words()),
        ("price from", facts.price.source),
        ("budget", "" if train.budget_usd is None else usd(train.budget_usd)),
        ("takes", "" if hours is None else f"about {hour_words(hours)} ({plan.duration.source})"),
        ("stops", f"after {train.max_hours:g} h of training at the latest"),
        ("leaves", plan.artifact),
        ("sizes", plan.facts.recipe.checked or ""),
    ]


def _data_words(channel: ChannelFacts | None) -> str:
    if channel is None:
        return "none"
    counts = (
        (channel.conversations, "conversations"),
        (channel.documents, "documents"),
        (channel.tokens, "tokens"),
    )
    counted = ", ".join(f"{count:,} {what}" for count, what in counts if count is not None)
    words = f"{channel.uri}: {counted}" if counted else channel.uri
    return f"{words}\n{channel.checked}" if channel.checked else words
