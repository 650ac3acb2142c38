"""`peagle-sm lock`: pin what JumpStart resolves a spec to, and check the lock.

A model is found in JumpStart's bucket by its id, or by its Hugging Face URL if the catalogue lacks the id.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from peagle_sm.aws.files import write_file
from peagle_sm.aws.readers.jumpstart import Fetched, read_document
from peagle_sm.aws.session.session import Session
from peagle_sm.core.catalog import ModelEntry, load_catalog
from peagle_sm.core.checks.jumpstart import lock_findings
from peagle_sm.core.errors import CredentialsError, NotFound, SpecError
from peagle_sm.core.jumpstart.documents import (
    MANIFEST_KEY,
    Document,
    Row,
    candidates,
    parse_document,
    parse_manifest,
    row_of,
)
from peagle_sm.core.jumpstart.resolve import Buckets, buckets_for, choose_config, resolve_config
from peagle_sm.core.own_models import catalog_for
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.spec.lock import (
    Lock,
    LockChange,
    LockedHead,
    LockedLicence,
    LockedModel,
    LockedSource,
    LockInput,
    Place,
    changes,
    dump_lock,
    hub_name,
    is_same_model,
    lock_path,
    parse_lock,
)
from peagle_sm.core.words import Finding
from peagle_sm.service.own_models import with_own_entries

By = Literal["id", "url"]


@dataclass(frozen=True)
class Found:
    """A JumpStart spec, how it was found, and its bucket."""

    row: Row
    document: Document
    fetched: Fetched
    by: By
    bucket: str


def find(rows: Sequence[Row], session: Session, bucket: str, entry: ModelEntry, keep: Lock | None) -> Found:
    """Return a model's spec: the version that ``keep`` locked, else the newest.

    The model is found by its id, else by the Hugging Face URL in its spec.

    Raises:
        CatalogueDamaged: a spec cannot be read.
        CredentialsError, ServiceFault: S3 cannot be asked.
        NotFound: the model or version does not exist.
    """
    if keep is not None:
        row = row_of(rows, keep.jumpstart.model_id, keep.jumpstart.version)
        return _open(row, session, bucket, keep.source.found_by)
    known = entry.jumpstart_model_id
    if known is not None and (entry.own or any(row.model_id == known for row in rows)):
        return _open(
            row_of(rows, known), session, bucket, "id"
        )  # raises for an id that the user gave in vain
    if entry.hub_id is None:
        raise NotFound(
            f"{entry.title}: the catalogue has neither a JumpStart id nor a Hugging Face URL for it",
            next_step="Set source: container in the spec.",
        )
    return _by_url(rows, session, bucket, entry.hub_id)


def _by_url(rows: Sequence[Row], session: Session, bucket: str, hub_id: str) -> Found:
    """Return the model whose spec has the repository's URL, best number format first."""
    looked = candidates(rows, hub_id)
    same = []
    for row in looked:
        found = _open(row, session, bucket, "url")
        names = [name for name in (found.document.model.huggingface_id, found.document.model.url) if name]
        if any(hub_name(name) == hub_name(hub_id) for name in names):
            return found
        if any(is_same_model(name, hub_id) for name in names):
            same.append(found)
    if not same:
        near = ", ".join(row.model_id for row in looked[:5]) or "none"
        raise NotFound(
            f"JumpStart has no model for huggingface.co/{hub_id} in this region; nearest names: {near}",
            next_step="Give another --region, or set source: container in the spec.",
        )
    return same[0]


def _open(row: Row, session: Session, bucket: str, by: By) -> Found:
    fetched = read_document(session, bucket, row.spec_key)
    document = parse_document(fetched.content, f"s3://{bucket}/{row.spec_key}")
    return Found(row, document, fetched, by, bucket)


@dataclass(frozen=True)
class Locking:
    """Result of `lock`: the new lock, and its differences from the file at ``path``."""

    path: Path
    before: Lock | None
    lock: Lock
    newest: str
    changes: tuple[LockChange, ...]
    findings: tuple[Finding, ...]
    unreadable: str | None = None

    @property
    def stale(self) -> bool:
        """Return whether the file differs from the new lock."""
        return self.before is None or bool(self.changes)


def resolves_by_jumpstart(spec: EndpointSpec) -> bool:
    """Return whether the spec takes image and weights from JumpStart."""
    model = catalog_for(spec).model(spec.model_name)
    return (spec.source or model.sources[0]) == "jumpstart"


def make_lock(
    spec: EndpointSpec,
    spec_path: Path,
    session: Session,
    *,
    upgrade: bool = False,
    config: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Locking:
    """Resolve a spec and compare the result with its lock file; write nothing.

    The locked version is kept, unless ``upgrade``. ``config`` names one of JumpStart's configs; the default
    is the config requested last time, else the first one with a draft head. ``environ`` may redirect
    buckets as for the SageMaker SDK (`core/jumpstart/resolve.py`).

    Raises:
        CatalogueDamaged: a document of JumpStart's cannot be read.
        CredentialsError, ServiceFault: S3 cannot be asked, or the spec names another region.
        NotFound: JumpStart has no such model, version or config, or no image for an instance type.
        SpecError: the spec does not use JumpStart.
    """
    environ = os.environ if environ is None else environ
    spec = with_own_entries(spec, spec_path.parent)
    entry = catalog_for(spec).model(spec.model_name)
    _check(spec, session)
    place: Place = "local" if session.is_local else "aws"
    path = lock_path(spec_path, place)
    before, unreadable = _read(path)
    config = config or (before.asked.config if before else None)
    buckets = buckets_for(session.region, environ)
    manifest = read_document(session, buckets.public, MANIFEST_KEY)
    rows = parse_manifest(manifest.content, f"s3://{buckets.public}/{MANIFEST_KEY}")
    still_valid = before is not None and before.asked.model == spec.model_name and not upgrade
    if before is not None and entry.own and before.jumpstart.model_id != entry.jumpstart_model_id:
        still_valid = False  # the spec's own model has another JumpStart id now
    keep = before if still_valid else None
    found = find(rows, session, buckets.public, entry, keep)
    made = _lock(spec, session, found, buckets, config)
    newest = row_of(rows, found.row.model_id).version
    return Locking(
        path=path,
        before=before,
        lock=made,
        newest=newest,
        changes=changes(before, made),
        findings=lock_findings(made, load_catalog(), newest=newest, hub_id=entry.hub_id),
        unreadable=unreadable,
    )


def write_lock(locking: Locking) -> None:
    """Write the lock file atomically.

    Raises:
        CannotWrite: the file cannot be written.
    """
    write_file(locking.path, dump_lock(locking.lock))


def _check(spec: EndpointSpec, session: Session) -> None:
    if not resolves_by_jumpstart(spec):
        raise SpecError(
            f"{spec.name}: nothing to lock: a spec with source: container names its image and files",
            next_step="Leave the lock out, or set source: jumpstart.",
        )
    wanted = spec.placement.region
    if wanted is not None and not session.is_local and wanted != session.region:
        raise CredentialsError(
            f"placement.region: the spec has {wanted}, but this session uses {session.region}.",
            next_step=f"Give --region {wanted}, or change placement.region.",
            details={"wanted": wanted, "found": session.region},
        )


def _read(path: Path) -> tuple[Lock | None, str | None]:
    """Return the existing lock, and a message if it cannot be read."""
    try:
        return parse_lock(path.read_text(encoding="utf-8"), str(path)), None
    except FileNotFoundError:
        return None, None
    except (OSError, UnicodeDecodeError) as error:
        return None, f"{path}: cannot be read: {error}"
    except SpecError as error:
        return None, error.message


def _lock(spec: EndpointSpec, session: Session, found: Found, buckets: Buckets, config: str | None) -> Lock:
    from importlib.metadata import version

    chosen = choose_config(found.document, config)
    resolved = resolve_config(
        found.document,
        chosen,
        region=session.region,
        instance_types=spec.placement.instance_types,
        buckets=buckets,
    )
    model = found.document.model
    own = found.document.configs[chosen]
    messages = (model.deprecated_message, model.deprecate_warn_message, model.usage_info_message)
    head = resolved.heads[0] if resolved.heads else None
    return Lock(
        lock_version=1,
        written_by=f"peagle-sm {version('peagle-sm')}",
        written_at=session.now().replace(microsecond=0).isoformat(),
        asked=LockInput(
            model=spec.model_name, instance_types=tuple(spec.placement.instance_types), config=config
        ),
        source=LockedSource(
            place="local" if session.is_local else "aws",
            region=session.region,
            bucket=found.bucket,
            spec_key=found.row.spec_key,
            sha256=found.fetched.sha256,
            found_by=found.by,
        ),
        jumpstart=LockedModel(
            model_id=model.model_id,
            version=model.version,
            config=chosen,
            ranking=found.document.ranking,
            url=model.url,
            min_sdk_version=model.min_sdk_version,
            deprecated=model.deprecated,
            vulnerable=own.inference_vulnerable,
            vulnerabilities=own.inference_vulnerabilities,
            messages=tuple(text for text in messages if text),
        ),
        licence=LockedLicence(
            name=model.license,
            gated=resolved.gated,
            eula_uris=resolved.eula_uris,
            accepted=spec.accept_eula,
        ),
        head=LockedHead(channel=head.channel, uri=head.uri, artifact_version=head.artifact_version)
        if head
        else None,
        network_isolation=resolved.network_isolation,
        download_timeout_s=resolved.download_timeout_s,
        startup_timeout_s=resolved.startup_timeout_s,
        default_instance_type=resolved.default_instance_type,
        supported_instance_types=resolved.supported_instance_types,
        environment=dict(resolved.environment),
        instances=resolved.instances,
    )
