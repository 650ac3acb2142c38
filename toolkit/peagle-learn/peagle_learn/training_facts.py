"""The facts of a training plan, read from AWS: target, head, data, price, role and quota. Creates nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from peagle_learn.aws.prices import find_job_price
from peagle_learn.core.price import TrainingPrice
from peagle_learn.core.recipes import HeadSizes, Recipe, load_recipes, recipe_from_config
from peagle_learn.core.rules import HeadShape, TargetShape, head_faults, head_shape, target_shape
from peagle_learn.core.spec import FROM_NOTHING, LearnSpec
from peagle_learn.core.training_request import (
    ChannelFacts,
    TrainingFacts,
    out_of_reach,
    role_arn,
)
from peagle_learn.stored_data import prefix_digest, read_channel
from peagle_sm.aws.control.prices import LOCAL
from peagle_sm.aws.control.stacks import describe
from peagle_sm.aws.readers.account import read_role
from peagle_sm.aws.readers.resources import find_quotas
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.s3 import s3_folder, split_uri
from peagle_sm.core.catalog import Catalog, HeadEntry, load_catalog
from peagle_sm.core.errors import NotFound, PeagleError, SpecError
from peagle_sm.core.guard import TRAINING_STACK
from peagle_sm.core.heads.inspect import inspect_head
from peagle_sm.core.heads.layout import read_layout
from peagle_sm.core.heads.reading import CONFIG, Folder, read_json
from peagle_sm.core.served_target import ServedTarget, served_target
from peagle_sm.core.words import Finding, error_finding

TRAINER_IMAGE = "peagle-trainer"
"""The local SageMaker's name for the training image."""


@dataclass(frozen=True)
class _Target:
    uri: str | None
    digest: str
    size: int
    config: Mapping[str, Any] | None
    recipe: Recipe
    findings: tuple[Finding, ...]
    sizes: TargetShape | None = None


@dataclass(frozen=True)
class _Head:
    """The head to start from: its place, a hash of its files, the recipe with its sizes, and its faults."""

    uri: str | None
    digest: str
    recipe: Recipe
    faults: tuple[Finding, ...] = ()
    shape: HeadShape | None = None


def read_facts(
    spec: LearnSpec, session: Session, base: Path, *, data_is_to_come: bool = False
) -> TrainingFacts:
    """Read all that a plan needs; paths in the spec are relative to ``base``.

    ``data_is_to_come`` leaves out the data that `learn data` will store, and what is wrong with it.
    What is wrong with target, head, data, role, bucket or quota becomes a finding of the plan.

    Raises:
        SpecError: the model has no recipe, or its config has no sizes.
        CredentialsError, ServiceFault: AWS refuses, or does not answer.
    """
    catalog = load_catalog()
    target = _target(spec, session, catalog)
    head = _head(spec, session, catalog, target)
    vocab = None if target.sizes is None else target.sizes.vocab
    channels, data_findings = _channels(spec, session, base, vocab, data_is_to_come)
    findings = [*target.findings, *head.faults, *_bucket_findings(spec, session), *data_findings]
    kind = spec.train.instance_type or head.recipe.instance_type
    local = session.local
    facts = TrainingFacts(
        account=session.account(),
        region=session.region,
        now=session.now(),
        local=local is not None,
        recipe=head.recipe,
        target_uri=target.uri,
        target_digest=target.digest,
        target_bytes=target.size,
        head_uri=head.uri,
        head_digest=head.digest,
        training=channels["training"],
        validation=channels["validation"],
        instance_type=kind,
        instance=catalog.instances.get(kind),
        price=read_price(spec, session, kind),
        image=spec.train.image or (dict(local.image_uris).get(TRAINER_IMAGE) if local else None),
        role_arn=local.role_arn if local else None,
        target=_served(spec, target.uri, session, catalog),
        sizes=target.sizes,
        head=head.shape,
        data_is_to_come=data_is_to_come,
    )
    findings += [*role_findings(session, role_arn(spec, facts)), *_reach_findings(spec, facts, session)]
    findings += quota_findings(session, quota_name(kind, spec.train.spot), spec.train.instance_count)
    return replace(facts, findings=tuple(findings))


def _channels(
    spec: LearnSpec, session: Session, base: Path, vocab: int | None, is_to_come: bool
) -> tuple[dict[str, ChannelFacts | None], list[Finding]]:
    """Read the data of each channel, and what is wrong with it."""
    channels: dict[str, ChannelFacts | None] = {}
    findings: list[Finding] = []
    for name, given in (("training", spec.train.training), ("validation", spec.train.validation)):
        channels[name] = None
        if given is None and is_to_come:
            continue
        try:
            channels[name] = read_channel(spec, session, name, given, base, vocab)
        except SpecError as error:
            finding = error_finding("data", error.message, error.next_step or "")
            findings += [] if finding in findings else [finding]
    return channels, findings


def _served(spec: LearnSpec, uri: str | None, session: Session, catalog: Catalog) -> ServedTarget:
    """Return what the target is; its files may be the catalogue's or the user's."""
    artifacts = {} if session.local is None else session.local.artifacts
    return served_target(uri, spec.target.model, catalog, local=session.is_local, artifacts=artifacts)


def _target(spec: LearnSpec, session: Session, catalog: Catalog) -> _Target:
    model = spec.target.model
    uri = model.rstrip("/") + "/" if model.startswith("s3://") else spec.target.uri
    if uri is None:
        catalog.model(model)  # raises for an unknown model
        uri = _target_uri(model, session, catalog)
    known = None if model.startswith("s3://") else load_recipes().recipe(model)
    if uri is None:
        finding = error_finding(
            "target",
            f"target.uri is missing: no place of the weights of {model} is known",
            "Copy its Hugging Face folder to S3 and give the prefix as target.uri.",
        )
        assert known is not None
        return _Target(None, "", 0, None, known, (finding,))
    try:
        folder = s3_folder(session, uri)
        config = _config(folder)
    except (NotFound, ValueError) as error:
        reason = error.message if isinstance(error, NotFound) else f"config.json below {uri}: {error}"
        step = "Give the folder of a Hugging Face model."
        finding = error_finding("target", f"target: {reason}", step)
        if known is None:
            raise SpecError(f"target.model: {reason}", next_step=finding.next_step) from error
        return _Target(uri, "", 0, None, known, (finding,))
    return _read_target(uri, prefix_digest(session, uri), folder, config, known)


def _read_target(
    uri: str, digest: str, folder: Folder, config: Mapping[str, Any], known: Recipe | None
) -> _Target:
    sizes: TargetShape | None = None
    findings: tuple[Finding, ...] = ()
    try:
        sizes = target_shape(config, folder.sizes)
    except ValueError as error:
        step = "Give the whole folder of a Hugging Face model whose heads the trainer can train."
        if known is None:
            raise SpecError(f"target.model: {error}", next_step=step) from error
        findings = (error_finding("target", f"target: {error}", step),)
    weights = sum(size for name, size in folder.sizes.items() if name.endswith(".safetensors"))
    recipe = known or recipe_from_config(config, weights)
    return _Target(uri, digest, sum(folder.sizes.values()), config, recipe, findings, sizes)


def _target_uri(model: str, session: Session, catalog: Catalog) -> str | None:
    entry = catalog.models[model]
    if session.local is not None:
        artifact = dict(session.local.artifacts).get(entry.artifact or "")
        return None if artifact is None else artifact.rstrip("/") + "/"
    jumpstart = catalog.jumpstart.get(model)
    return None if jumpstart is None else jumpstart.target(session.region)


def _config(folder: Folder) -> Mapping[str, Any]:
    text = folder.text(CONFIG)
    config = None if text is None else read_json(text, CONFIG)
    if not isinstance(config, dict):
        raise ValueError("it is missing, or no JSON object")
    return config


def _head(spec: LearnSpec, session: Session, catalog: Catalog, target: _Target) -> _Head:
    given = spec.head
    if given == FROM_NOTHING:
        return _Head(None, "", target.recipe)
    entry: HeadEntry | None = None
    if given is None or not given.startswith("s3://"):
        named = given or _default_head(spec, catalog)
        if named is None:
            return _Head(None, "", target.recipe)
        entry, uri = _catalogue_head(named, spec, session, catalog)
        if uri is None:
            step = f"Copy it to S3 with `peagle-sm heads stage {named}` and give the prefix as head, or none."
            fault = error_finding("head", f"head: no place of {named} in S3 is known", step)
            return _Head(None, "", target.recipe, (fault,))
    else:
        uri = given.rstrip("/") + "/"
    try:
        folder = s3_folder(session, uri)
    except NotFound as error:
        missing = error_finding("head", f"head: {error.message}", error.next_step or "")
        return _Head(None, "", target.recipe, (missing,))
    return _read_head(
        uri, prefix_digest(session, uri), folder, target, entry.trained_depth if entry else None
    )


def _read_head(uri: str, digest: str, folder: Folder, target: _Target, trained: int | None) -> _Head:
    """Check a head as a deploy does, and, if that finds no error, as the trainer does."""
    report = inspect_head(folder, target=target.config, mode="p-eagle", trained_k=trained)
    faults = [
        Finding(fault.severity, f"head: {fault.message}", fault.next_step, f"head-{fault.check}")
        for fault in report.faults
        if fault.check != "licence"
    ]
    try:
        config = _config(folder)
    except ValueError:  # the report has it as a fault
        return _Head(uri, digest, target.recipe, tuple(faults))
    shape: HeadShape | None = None
    if report.ok and target.sizes is not None:
        try:
            shape = head_shape(config, target.sizes.longest)
            unfit = list(head_faults(config, shape, target.sizes))
        except ValueError as error:
            unfit = [str(error)]
        step = "Give a head that the trainer can train further, or train a new one with `head: none`."
        faults += [error_finding("head-training", f"head: {fault}", step) for fault in unfit]
    return _Head(uri, digest, _sized(target.recipe, config, report.trained_k), tuple(faults), shape)


def _default_head(spec: LearnSpec, catalog: Catalog) -> str | None:
    entry = catalog.models.get(spec.target.model)
    return None if entry is None else entry.default_heads.get("p-eagle")


def _catalogue_head(
    named: str, spec: LearnSpec, session: Session, catalog: Catalog
) -> tuple[HeadEntry, str | None]:
    entry = catalog.heads.get(named)
    if entry is None:
        raise SpecError(
            f"head: found {named!r}; allowed: {', '.join(sorted(catalog.heads))}, s3:// of a head, or none",
            next_step="Give one of these, or leave head out for the catalogue's.",
        )
    if session.local is not None:
        uri = dict(session.local.artifacts).get(entry.artifact or "")
    else:
        jumpstart = catalog.jumpstart.get(spec.target.model)
        default = _default_head(spec, catalog) == named
        uri = jumpstart.draft(session.region) if jumpstart is not None and default else None
    return entry, None if uri is None else uri.rstrip("/") + "/"


def _sized(recipe: Recipe, config: Mapping[str, Any], trained: int | None) -> Recipe:
    layout = read_layout(config)[0]
    if layout is None:
        return recipe
    sizes = HeadSizes(
        layers=layout.layers,
        depths=trained or recipe.head.depths,
        attention_heads=layout.heads,
        kv_heads=layout.kv_heads,
        head_dim=layout.head_dim,
        intermediate_size=layout.inner,
        bytes_per_value=recipe.head.bytes_per_value,
    )
    return recipe.model_copy(update={"head": sizes, "checked": None})


def read_price(spec: LearnSpec, session: Session, kind: str) -> TrainingPrice:
    """Return the job's price and its source; 0 on the local SageMaker."""
    train, field = spec.train, "train.usd_per_hour"
    usd_per_hour: float | None = 0.0
    source = LOCAL
    if not session.is_local:
        price, source = find_job_price(session, kind, session.region, "Train", train.usd_per_hour, field)
        usd_per_hour = None if price is None else price.counted_usd_per_hour
    return TrainingPrice(usd_per_hour, train.instance_count, train.max_hours, train.spot, source)


def _bucket_findings(spec: LearnSpec, session: Session) -> Iterator[Finding]:
    bucket, _ = split_uri(spec.bucket)
    try:
        answer = session.api("s3").head_bucket(Bucket=bucket)
    except PeagleError as error:
        step = "Create the bucket in the job's region, or correct it: the stack PeagleTraining can make one."
        yield error_finding("bucket", f"bucket: {bucket} cannot be used: {error.message}", step)
        return
    region = answer["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region")
    if region and not session.is_local and region != session.region:
        yield error_finding(
            "bucket",
            f"bucket: {bucket} is in {region}; the job is in {session.region}, and SageMaker takes data of "
            "its own region alone",
            f"Give a bucket in {session.region}, or --region {region}.",
        )


def role_findings(session: Session, arn: str) -> Iterator[Finding]:
    """Check that a job's role exists and that SageMaker may assume it."""
    try:
        role = read_role(session, arn)
    except PeagleError as error:
        yield Finding("info", f"the role {arn} could not be read: {error.message}", "", "role")
        return
    step = (
        "Deploy the stack PeagleTraining (`peagle-sm help train-a-head`), or give train.execution_role_arn."
    )
    if not role.exists:
        yield error_finding("role", f"the role {arn} does not exist", step)
    elif "sagemaker.amazonaws.com" not in role.trusts:
        yield error_finding("role", f"sagemaker.amazonaws.com may not assume {arn}", step)


def _reach_findings(spec: LearnSpec, facts: TrainingFacts, session: Session) -> Iterator[Finding]:
    """Check what the role of the stack PeagleTraining may use; a role of the user's own is not checked."""
    if session.is_local or spec.train.execution_role_arn is not None:
        return
    try:
        stack = describe(session, TRAINING_STACK)
    except PeagleError:  # without the permission, the job itself fails with the reason
        return
    if stack is None:
        return
    parameters = stack.parameters
    for field, uri in out_of_reach(spec, facts, parameters).items():
        yield error_finding(
            "role",
            f"{field}: found {uri}; the role of the stack {TRAINING_STACK} may use "
            f"s3://{parameters.get('Bucket')}/{parameters.get('Prefix')}/ alone, so the job would fail",
            f"Give a place below it, or deploy {TRAINING_STACK} with other parameters (Bucket, Prefix). If "
            "you allowed the role more than its stack does, name it in train.execution_role_arn.",
        )


def quota_name(kind: str, spot: bool) -> str:
    """Return the name of an instance type's training quota in Service Quotas."""
    return f"{kind} for {'spot ' * spot}training job usage"


def quota_findings(session: Session, name: str, count: int) -> Iterator[Finding]:
    """Compare a quota with the instances that the job needs."""
    try:
        granted = find_quotas(session, {name}).get(name, count)
    except PeagleError as error:
        yield Finding("info", f"the quota {name!r} could not be read: {error.message}", "", "quota")
        return
    if granted < count:
        yield error_finding(
            "quota",
            f"the quota {name!r} is {granted:g}; the job needs {count}",
            "Request more in the Service Quotas console (Amazon SageMaker); it can take days.",
        )
