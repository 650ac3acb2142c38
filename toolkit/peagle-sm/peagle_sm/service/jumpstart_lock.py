"""`peagle-sm lock`: pin what JumpStart resolves a spec to, and check the lock."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from peagle_sm.aws.files import write_file
from peagle_sm.aws.readers.jumpstart import read_document
from peagle_sm.aws.session.session import Session
from peagle_sm.core.catalog import ModelEntry
from peagle_sm.core.changes import Change
from peagle_sm.core.errors import NotFound, SpecError
from peagle_sm.core.jumpstart.documents import (
    MANIFEST_KEY,
    Row,
    parse_document,
    parse_manifest,
    row_of,
)
from peagle_sm.core.jumpstart.resolve import Buckets, buckets_for, choose_config, resolve_config
from peagle_sm.core.own_models import catalog_for
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.spec.lock import (
    Lock,
    LockedHead,
    LockedLicence,
    LockedModel,
    LockedSource,
    LockInput,
    Place,
    changes,
    dump_lock,
    lock_path,
    parse_lock,
)
from peagle_sm.service.own_models import with_own_entries
from peagle_sm.service.spec_to_plan import require_same_region


def _row(rows: Sequence[Row], entry: ModelEntry, keep: Lock | None) -> Row:
    """Return a model's row in JumpStart's manifest: of the version that ``keep`` locked, else the newest.

    Raises:
        NotFound: the model or version does not exist.
    """
    if keep is not None:
        return row_of(rows, keep.jumpstart.model_id, keep.jumpstart.version)
    if entry.jumpstart_model_id is None:
        raise NotFound(
            f"{entry.title}: the catalogue has no JumpStart id for it",
            next_step="Write model: {name: …, jumpstart: ID} with AWS's id, or set source: container.",
        )
    return row_of(rows, entry.jumpstart_model_id)


@dataclass(frozen=True)
class Locking:
    """Result of `lock`: the new lock, and its differences from the file at ``path``."""

    path: Path
    before: Lock | None
    lock: Lock
    newest: str
    changes: tuple[Change, ...]
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
    row = _row(rows, entry, keep)
    new_lock = _lock(spec, session, row, buckets, config)
    newest = row_of(rows, row.model_id).version
    return Locking(
        path=path,
        before=before,
        lock=new_lock,
        newest=newest,
        changes=changes(before, new_lock),
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
    require_same_region(spec, session)


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


def _lock(spec: EndpointSpec, session: Session, row: Row, buckets: Buckets, config: str | None) -> Lock:
    from importlib.metadata import version

    fetched = read_document(session, buckets.public, row.spec_key)
    document = parse_document(fetched.content, f"s3://{buckets.public}/{row.spec_key}")
    chosen = choose_config(document, config)
    resolved = resolve_config(
        document,
        chosen,
        region=session.region,
        instance_types=spec.placement.instance_types,
        buckets=buckets,
    )
    model = document.model
    own = document.configs[chosen]
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
            bucket=buckets.public,
            spec_key=row.spec_key,
            sha256=fetched.sha256,
        ),
        jumpstart=LockedModel(
            model_id=model.model_id,
            version=model.version,
            config=chosen,
            ranking=document.ranking,
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
