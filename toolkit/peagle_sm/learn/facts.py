"""What a training plan stands on: target, head, data, price, role, quota, read from AWS; creates nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from peagle_sm.aws.control.prices import LOCAL, Use, find_job_price
from peagle_sm.aws.readers.account import read_role
from peagle_sm.aws.readers.resources import find_quotas
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.s3 import listed_objects, read_range, s3_folder, split_uri
from peagle_sm.core.catalog import Catalog, HeadEntry, load_catalog
from peagle_sm.core.errors import NotFound, PeagleError, SpecError
from peagle_sm.core.heads.inspect import inspect_head
from peagle_sm.core.heads.layout import read_layout
from peagle_sm.core.heads.reading import CONFIG, Folder, read_json
from peagle_sm.core.learn.price import TrainingPrice
from peagle_sm.core.learn.recipes import HeadSizes, Recipe, load_recipes, recipe_from_config
from peagle_sm.core.learn.spec import FROM_NOTHING, LearnSpec
from peagle_sm.core.learn.training_request import ChannelFacts, TrainingFacts, role_arn
from peagle_sm.core.rules import HeadShape, TargetShape, head_faults, head_shape, read_line, target_shape
from peagle_sm.core.words import Finding, error_finding
from peagle_sm.learn.stored_data import Counts, set_uri, stored_manifest, told_counts

SUFFIX = ".tokens.jsonl"
"""Files of training data: one document of token ids a line."""
COUNTED_BYTES = 64_000_000
"""Data in S3 up to this size is read before the job, to check and count it; the trainer checks all of it.
Of larger data the counts are those of `learn data`'s manifest."""
BEGINNING_BYTES, SAMPLED_FILES = 1_000_000, 16
"""Of larger data, this much of each file is checked, and of this many files, evenly spread."""
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
        stand_in=local is not None or (spec.target.model in catalog.models and _stand_in(spec, catalog)),
        sizes=target.sizes,
        head=head.shape,
        data_is_to_come=data_is_to_come,
    )
    findings += [*_role_findings(spec, facts, session), *_quota_findings(spec, kind, session)]
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


def _stand_in(spec: LearnSpec, catalog: Catalog) -> bool:
    return catalog.models[spec.target.model].stand_in


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
        said = error.message if isinstance(error, NotFound) else f"config.json below {uri}: {error}"
        finding = error_finding("target", f"target: {said}", "Give the folder of a Hugging Face model.")
        if known is None:
            raise SpecError(f"target.model: {said}", next_step=finding.next_step) from error
        return _Target(uri, "", 0, None, known, (finding,))
    return _read_target(uri, _digest(session, uri), folder, config, known)


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
        found = dict(session.local.artifacts).get(entry.artifact or "")
        return None if found is None else found.rstrip("/") + "/"
    jumpstart = catalog.jumpstart.get(model)
    return None if jumpstart is None else jumpstart.target(session.region)


def _config(folder: Folder) -> Mapping[str, Any]:
    text = folder.text(CONFIG)
    config = None if text is None else read_json(text, CONFIG)
    if not isinstance(config, dict):
        raise ValueError("it is missing, or no JSON object")
    return config


def _head(spec: LearnSpec, session: Session, catalog: Catalog, target: _Target) -> _Head:
    asked = spec.head
    if asked == FROM_NOTHING:
        return _Head(None, "", target.recipe)
    entry: HeadEntry | None = None
    if asked is None or not asked.startswith("s3://"):
        named = asked or _default_head(spec, catalog)
        if named is None:
            return _Head(None, "", target.recipe)
        entry, uri = _catalogue_head(named, spec, session, catalog)
        if uri is None:
            step = f"Copy it to S3 with `peagle-sm heads stage {named}` and give the prefix as head, or none."
            fault = error_finding("head", f"head: no place of {named} in S3 is known", step)
            return _Head(None, "", target.recipe, (fault,))
    else:
        uri = asked.rstrip("/") + "/"
    try:
        folder = s3_folder(session, uri)
    except NotFound as error:
        missing = error_finding("head", f"head: {error.message}", error.next_step or "")
        return _Head(None, "", target.recipe, (missing,))
    return _read_head(uri, _digest(session, uri), folder, target, entry.trained_depth if entry else None)


def _read_head(uri: str, digest: str, folder: Folder, target: _Target, trained: int | None) -> _Head:
    """Check a head as a deploy does, and, if that finds no error, as the trainer does."""
    report = inspect_head(folder, target=target.config, mode="p-eagle", trained_k=trained)
    faults = [
        Finding(one.severity, f"head: {one.message}", one.next_step, f"head-{one.check}")
        for one in report.faults
        if one.check != "licence"
    ]
    try:
        config = _config(folder)
    except ValueError:  # the report says so
        return _Head(uri, digest, target.recipe, tuple(faults))
    shape: HeadShape | None = None
    if report.ok and target.sizes is not None:
        try:
            shape = head_shape(config, target.sizes.longest)
            said = list(head_faults(config, shape, target.sizes))
        except ValueError as error:
            said = [str(error)]
        step = "Give a head that the trainer can train further, or train a new one with `head: none`."
        faults += [error_finding("head-training", f"head: {one}", step) for one in said]
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


def _digest(session: Session, uri: str) -> str:
    """Hash the names, sizes and ETags of all objects below a prefix."""
    bucket, prefix = split_uri(uri)
    rows = sorted(listed_objects(session, bucket, prefix))
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16] if rows else ""


def read_channel(
    spec: LearnSpec, session: Session, name: str, given: str | None, base: Path, vocab: int | None
) -> ChannelFacts | None:
    """Read a channel's data: a path of this machine, an s3:// prefix, or what `learn data` wrote.

    Raises:
        SpecError: there is no such file, it was made for another target, or a line is none of the trainer's.
    """
    if given is not None and not given.startswith("s3://"):
        return _local_channel(spec, name, base / given, vocab)
    newest = None if given is not None else _newest_set(spec, session)
    if given is None and newest is None:
        return None
    uri = f"{given.rstrip('/')}/" if given is not None else f"{newest}{name}/"
    bucket, prefix = split_uri(uri)
    try:
        rows = [row for row in listed_objects(session, bucket, prefix) if row[0].endswith(SUFFIX)]
    except NotFound:
        rows = []
    if not rows:
        if given is not None:
            raise SpecError(
                f"train.{name}: no file {SUFFIX} lies below {uri}", next_step="Correct the s3:// prefix."
            )
        return None
    size = sum(row[1] for row in rows)
    sizes = {key: length for key, length, _ in rows}
    checked = ""
    if size <= COUNTED_BYTES:
        lines = (
            line
            for key, length in sizes.items()
            for line in _numbered(read_range(session, bucket, prefix + key, 0, length), f"{uri}{key}")
        )
        counts = count_documents(lines, f"train.{name}", vocab)
    else:
        counts = told_counts(spec, session, {f"{uri}{key}": length for key, length in sizes.items()})
        checked = _check_beginnings(session, uri, sizes, f"train.{name}", vocab)
    digest = _digest(session, uri)
    return ChannelFacts(
        uri, digest, size, counts.tokens, counts.documents, counts.conversations, checked=checked
    )


def _check_beginnings(
    session: Session, uri: str, sizes: Mapping[str, int], what: str, vocab: int | None
) -> str:
    """Check the whole lines at the beginning of up to `SAMPLED_FILES` files; return what was checked.

    Raises:
        SpecError: a line is none of the trainer's.
    """
    bucket, prefix = split_uri(uri)
    keys, documents, read = spread(list(sizes), SAMPLED_FILES), 0, 0
    for key in keys:
        length = min(sizes[key], BEGINNING_BYTES)
        content = read_range(session, bucket, prefix + key, 0, length)
        whole = content if length == sizes[key] else content[: content.rfind(b"\n") + 1]
        read += len(whole)
        for origin, line in _numbered(whole, f"{uri}{key}"):
            documents += 1
            _tokens(line, origin, what, vocab)
    return (
        f"checked: {documents:,} documents at the beginning of {len(keys)} of {len(sizes)} files,"
        f" {read / 1e6:,.1f} of {sum(sizes.values()) / 1e6:,.1f} MB; the job checks the rest"
    )


def spread(names: Sequence[str], most: int) -> list[str]:
    """Return at most ``most`` of the names (2 or more), evenly spread, with the first and the last."""
    if len(names) <= most:
        return list(names)
    return [names[round(at * (len(names) - 1) / (most - 1))] for at in range(most)]


def _newest_set(spec: LearnSpec, session: Session) -> str | None:
    try:
        manifest = stored_manifest(spec, session)
    except NotFound:
        return None
    now = spec.target.model_dump(mode="json")
    made_for = manifest.get("target")
    if not isinstance(made_for, dict):
        made_for = now  # not known
    for key in ("model", "revision"):
        if made_for.get(key) == now[key]:
            continue
        raise SpecError(
            f"the data below {set_uri(spec, manifest['data'])} was made for target.{key}: "
            f"{made_for.get(key)!r}; learn.yaml has {now[key]!r}",
            next_step="Make data for this target: `peagle-sm learn data`.",
        )
    return set_uri(spec, manifest["data"])


def _local_channel(spec: LearnSpec, name: str, path: Path, vocab: int | None) -> ChannelFacts:
    files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    if not files or not all(file.is_file() and file.name.endswith(SUFFIX) for file in files):
        raise SpecError(
            f"train.{name}: {path} is not a file or folder of *{SUFFIX}",
            next_step="Give one that `peagle-sm learn data` wrote.",
        )
    total, size = hashlib.sha256(), 0

    def lines() -> Iterator[tuple[str, bytes]]:
        nonlocal size
        for file in files:
            content = file.read_bytes()
            size += len(content)
            total.update(f"{file.name}\0{len(content)}\0".encode() + content)
            yield from _numbered(content, str(file))

    counts = count_documents(lines(), f"train.{name}", vocab)
    digest = total.hexdigest()[:16]
    uri = f"{spec.folder}data/{digest}/{name}/"
    return ChannelFacts(
        uri, digest, size, counts.tokens, counts.documents, counts.conversations, files=tuple(map(str, files))
    )


def _numbered(content: bytes, origin: str) -> Iterator[tuple[str, bytes]]:
    for number, line in enumerate(content.splitlines(), 1):
        if line.strip():
            yield f"{origin} line {number}", line


def count_documents(lines: Iterable[tuple[str, bytes]], what: str, vocab: int | None = None) -> Counts:
    """Check documents as the trainer does, and count them; ``vocab`` None: unknown.

    A document that names no conversation is one of its own.

    Raises:
        SpecError: there is none, or one is not ``{"input_ids": […], "loss_mask": […]}`` of the target.
    """
    documents = tokens = 0
    conversations = set[str]()
    for origin, line in lines:
        documents += 1
        tokens += _tokens(line, origin, what, vocab)
        conversations.add(str(json.loads(line).get("conversation", origin)))
    if not documents:
        raise SpecError(
            f"{what}: found 0 documents; allowed: at least one",
            next_step="Run `peagle-sm learn data` with more prompts.",
        )
    return Counts(documents, len(conversations), tokens)


def _tokens(line: bytes, origin: str, what: str, vocab: int | None) -> int:
    """Return the number of a document's tokens.

    Raises:
        SpecError: it is none that the trainer takes.
    """
    try:
        return len(read_line(line, vocab)[0])
    except ValueError as error:
        raise SpecError(
            f"{what}: {origin}: {error}",
            next_step="Write the data with `peagle-sm learn data`, or correct the line.",
        ) from error


def read_price(spec: LearnSpec, session: Session, kind: str) -> TrainingPrice:
    """Return the job's price: AWS's price list, else the spec's ``usd_per_hour``; local: 0."""
    train = spec.train
    each, source = hourly_price(session, kind, "Train", train.usd_per_hour, "train.usd_per_hour")
    return TrainingPrice(each, train.instance_count, train.max_hours, train.spot, source)


def hourly_price(
    session: Session, kind: str, use: Use, given: float | None, field: str
) -> tuple[float | None, str]:
    """Return an instance's price and its source: AWS's price list, else the spec's ``field``; local: 0."""
    if session.is_local:
        return 0.0, LOCAL
    found, why = find_job_price(session, kind, session.region, use)
    if found is not None:
        return found.usd_per_hour, str(found)
    if given is not None:
        return given, f"{field} of the spec ({why})"
    return None, str(why)


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


def _role_findings(spec: LearnSpec, facts: TrainingFacts, session: Session) -> Iterator[Finding]:
    arn = role_arn(spec, facts)
    try:
        role = read_role(session, arn)
    except PeagleError as error:
        yield Finding("info", f"the role {arn} could not be read: {error.message}", "", "role")
        return
    step = "Deploy the stack PeagleTraining (docs/how-to/train-a-head.md), or give train.execution_role_arn."
    if not role.exists:
        yield error_finding("role", f"the role {arn} does not exist", step)
    elif "sagemaker.amazonaws.com" not in role.trusts:
        yield error_finding("role", f"sagemaker.amazonaws.com may not assume {arn}", step)


def quota_name(kind: str, spot: bool) -> str:
    """Return the name of an instance type's training quota in Service Quotas."""
    return f"{kind} for {'spot ' * spot}training job usage"


def _quota_findings(spec: LearnSpec, kind: str, session: Session) -> Sequence[Finding]:
    name = quota_name(kind, spec.train.spot)
    try:
        granted = find_quotas(session, {name}).get(name)
    except PeagleError as error:
        return [Finding("info", f"the quota {name!r} could not be read: {error.message}", "", "quota")]
    if granted is None or granted >= spec.train.instance_count:
        return []
    return [
        error_finding(
            "quota",
            f"the quota {name!r} is {granted:g}; the job needs {spec.train.instance_count}",
            "Request more in the Service Quotas console (Amazon SageMaker); it can take days.",
        )
    ]
