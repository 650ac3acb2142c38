"""What a preparation needs to know, read from AWS: sources, target, prices, role, bucket, quotas."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator

from peagle_learn.core.processing.lines import GENERAL, PROMPTS
from peagle_learn.core.processing.requests import (
    STAGES,
    PreparationFacts,
    SourceFacts,
    Stage,
    instances_of,
    type_of,
)
from peagle_learn.core.spec import LearnSpec
from peagle_learn.core.training_request import role_arn
from peagle_learn.facts import hourly_price, quota_findings, role_findings
from peagle_learn.processing.beginnings import PromptFile, check_beginnings
from peagle_learn.prompts import target_texts
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.s3 import exists, listed_objects, split_uri
from peagle_sm.core.errors import PeagleError, SpecError
from peagle_sm.core.words import Finding, error_finding
from peagle_sm.service.heads.checking import Sources
from peagle_sm.traffic.reading import SUFFIXES

PREPARE_IMAGE = "peagle-prepare"
"""The local SageMaker's name for the image of preparation jobs."""


def read_preparation_facts(
    spec: LearnSpec, session: Session, sources: Sources | None = None
) -> PreparationFacts:
    """Read all that a plan needs; what is wrong with prompts, role, bucket or quota becomes a finding.

    Raises:
        SpecError: no prompts are named, or not all are in S3, or a source has no files or empty ones alone.
        CredentialsError, ServiceFault: AWS refuses, or does not answer.
    """
    data = spec.data
    if not data.prompts:
        raise SpecError("data.prompts is empty", next_step="Name s3:// prefixes of prompts.")
    found, files = list[SourceFacts](), list[PromptFile]()
    places = [(place, PROMPTS) for place in data.prompts]
    for place, of in [*places, *([(data.general, GENERAL)] if data.general is not None else [])]:
        one, own = _source(session, place, of)
        found.append(one)
        files += own
    texts, notes = target_texts(sources or Sources(lambda: session), spec.target.model, spec.target.revision)
    faults, checked = check_beginnings(session, files, spec, texts)
    prices: dict[Stage, float | None] = {}
    told: list[str] = []
    for stage in STAGES:
        prices[stage], source = hourly_price(
            session,
            type_of(spec, stage),
            "Processing",
            data.processing.usd_per_hour,
            "data.processing.usd_per_hour",
        )
        told.append(source)
    local = session.local
    facts = PreparationFacts(
        account=session.account(),
        region=session.region,
        now=session.now(),
        local=local is not None,
        sources=tuple(found),
        target=texts,
        image=data.processing.image or (dict(local.image_uris).get(PREPARE_IMAGE) if local else None),
        role_arn=local.role_arn if local else None,
        prices=prices,
        price_source="; ".join(dict.fromkeys(told)),
        notes=(*notes, *([checked] if checked else [])),
    )
    findings = (
        *faults,
        *_bucket_findings(spec, session),
        *role_findings(session, role_arn(spec, facts)),
        *quota_findings(session, _quotas(spec, facts), "Lower data.processing.instance_count, or request"),
    )
    return PreparationFacts(**{**vars(facts), "findings": findings})


def _source(session: Session, place: str, of: str) -> tuple[SourceFacts, list[PromptFile]]:
    what = "data.general" if of == GENERAL else "data.prompts"
    if not place.startswith("s3://"):
        raise SpecError(
            f"{what}: found {place}; allowed with --processing: s3:// prefixes, since the jobs read S3",
            next_step=f"Copy it: aws s3 cp {place} s3://BUCKET/PREFIX/, and give that prefix.",
        )
    bucket, prefix = split_uri(place)
    if prefix and not prefix.endswith(("/", *SUFFIXES)):
        prefix += "/"  # traffic is not traffic-2
    above = prefix
    rows = listed_objects(session, bucket, prefix)
    if not rows and prefix.endswith(SUFFIXES):  # one object, whose key is the whole prefix
        folder, _, name = prefix.rpartition("/")
        above = f"{folder}/" if folder else ""
        rows = [row for row in listed_objects(session, bucket, above) if row[0] == name]
    files = sorted(row for row in rows if row[0].endswith(SUFFIXES))
    if not files:
        raise SpecError(
            f"{what}: no objects ending with {' or '.join(SUFFIXES)} exist below {place}",
            next_step=f"List them with aws s3 ls --recursive {place}, and correct the prefix.",
        )
    size = sum(row[1] for row in files)
    if not size:
        raise SpecError(
            f"{what}: all {len(files):,} files below {place} are empty",
            next_step=f"List them with aws s3 ls --recursive {place}, and write prompts there.",
        )
    digest = hashlib.sha256(json.dumps(files).encode()).hexdigest()[:16]
    facts = SourceFacts(f"s3://{bucket}/{prefix}", digest, size, len(files), of)
    return facts, [PromptFile(of, bucket, above + name, length) for name, length, _ in files]


def _bucket_findings(spec: LearnSpec, session: Session) -> Iterator[Finding]:
    bucket, _ = split_uri(spec.bucket)
    try:
        if exists(session, bucket):
            return
        said = "it does not exist"
    except PeagleError as error:
        said = error.message
    step = f"Create it in the jobs' region: aws s3 mb s3://{bucket}"
    yield error_finding("bucket", f"bucket: {bucket} cannot be used: {said}", step)


def _quotas(spec: LearnSpec, facts: PreparationFacts) -> Counter[str]:
    """The jobs run one after the other, so each type needs the larger of its counts."""
    wanted: Counter[str] = Counter()
    for stage in STAGES:
        name = f"{type_of(spec, stage)} for processing job usage"
        wanted[name] = max(wanted[name], instances_of(spec, facts, stage))
    return wanted
