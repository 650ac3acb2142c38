"""Staging of a head in S3: the plan with files, destinations and cost, and stage(), which carries it out.

stage() downloads files from the hub, uploads missing ones, and verifies them. A killed run can be resumed:
downloaded or uploaded files with the right checksum are kept. The manifest is written last. `spec_fields`
returns the fields of a spec that point to the staged files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage import downloads
from peagle_sm.aws.storage.s3 import list_sizes, read_range, split_uri
from peagle_sm.aws.storage.uploads import (
    PART_BYTES,
    Digests,
    Incomplete,
    abort,
    checksum_of,
    digests,
    incomplete_uploads,
    put_bytes,
    put_file,
)
from peagle_sm.core.errors import BillableLeft, Interrupted, PeagleError, PlanRefused, ServiceFault, SpecError
from peagle_sm.core.heads.inspect import inspect_files
from peagle_sm.core.heads.layout import FileRecord, HeadRefused, HeadReport
from peagle_sm.core.heads.reading import (
    HEAD_FOLDER,
    MANIFEST,
    HeadFacts,
    Manifest,
    ManifestPart,
    parse_manifest,
    selected,
    usd_per_month,
)
from peagle_sm.service.heads.checking import Place, Sources, config_of, inspect_place

_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()/ +@:=-]+")


@dataclass(frozen=True)
class StagedPart:
    """A target or head to stage: ``names`` of its files, ``folder`` below the prefix."""

    kind: str
    place: Place
    folder: str
    names: tuple[str, ...]
    left_out: tuple[str, ...]
    licence: str | None

    @property
    def size(self) -> int:
        """Total size of its files in bytes."""
        return sum(self.place.folder.sizes[name] for name in self.names)


@dataclass(frozen=True)
class StagingPlan:
    """Files to stage below ``uri``; ``there`` has the sizes of files that exist."""

    uri: str
    parts: tuple[StagedPart, ...]
    head: HeadReport
    there: Mapping[str, int]
    incomplete: tuple[Incomplete, ...]

    @property
    def sizes(self) -> dict[str, int]:
        """File sizes by name below the prefix."""
        return {p.folder + n: p.place.folder.sizes[n] for p in self.parts for n in p.names}

    @property
    def size(self) -> int:
        """Total size in bytes."""
        return sum(self.sizes.values())

    @property
    def to_send(self) -> int:
        """Total size of the files that the prefix lacks, in bytes."""
        return sum(size for name, size in self.sizes.items() if name not in self.there)

    @property
    def usd_per_month(self) -> float:
        """Cost of storing it in S3."""
        return usd_per_month(self.size)

    def part(self, kind: str) -> StagedPart | None:
        """Return the target or the head."""
        return next((each for each in self.parts if each.kind == kind), None)


def plan_staging(
    what: str,
    uri: str,
    *,
    sources: Sources,
    head: str | None = None,
    mode: str | None = None,
) -> StagingPlan:
    """Check the head and the prefix, and plan the staging.

    With ``head``, ``what`` is a model, and the head is staged below it. Without, ``what`` is a model of the
    catalogue, which is staged with its head, or a head alone.

    Raises:
        HeadRefused: the head must not be deployed.
        PlanRefused: the prefix holds other files, or a target's files must not be deployed.
        SpecError: an argument is invalid.
        NotFound, CredentialsError, ServiceFault: something does not exist, or cannot be reached.
    """
    bucket, prefix = _prefix(uri)
    has_target = head is not None or (what in sources.catalog.models and not Path(what).is_dir())
    opened = sources.head(head or what, mode)
    whole = sources.target(what) if has_target else None
    config = None if whole is None else config_of(whole)
    report = inspect_place(sources, opened, config, mode=mode)
    report.raise_for_faults()
    parts = [] if whole is None else [_target_part(whole)]
    vocabulary = None if whole is None else sources.vocabulary(whole)
    if vocabulary is not None:
        parts.append(StagedPart("vocabulary", vocabulary, "", tuple(vocabulary.folder.sizes), (), None))
    names = tuple(sorted(opened.folder.sizes))
    folder = HEAD_FOLDER if parts else ""
    parts.append(StagedPart("head", opened, folder, names, (), report.licence))
    existing = list_sizes(sources.session, bucket, prefix)
    begun = tuple(incomplete_uploads(sources.session, bucket, prefix))
    plan = StagingPlan(f"s3://{bucket}/{prefix}", tuple(parts), report, existing, begun)
    _refuse_other_files(plan)
    return plan


def _target_part(place: Place) -> StagedPart:
    kept, left_out = selected(place.folder.sizes)
    folder = place.folder.only(kept)
    report = inspect_files(folder)
    if not report.ok:
        errors = [fault for fault in report.faults if fault.severity == "error"]
        raise HeadRefused(
            f"the target at {place.folder.place} must not be deployed:\n"
            + "\n".join(f"{fault.check}: {fault.message}" for fault in errors),
            next_step="Use a model that consists of safetensors files and configs only.",
            details={"findings": [fault.to_dict() for fault in errors]},
        )
    return StagedPart("target", place, "", tuple(kept), tuple(left_out), report.licence)


def _prefix(uri: str) -> tuple[str, str]:
    bucket, prefix = split_uri(uri if uri.endswith("/") else uri + "/")
    if prefix in ("", "/") or not _PREFIX.fullmatch(prefix) or "//" in prefix:
        raise SpecError(
            f"--to: found {uri!r}; allowed: s3://BUCKET/PREFIX/, of letters, digits and !_.*'()-",
            next_step="Give a prefix of its own, such as s3://BUCKET/models/gpt-oss-20b/.",
        )
    return bucket, prefix


def _refuse_other_files(plan: StagingPlan) -> None:
    wanted = plan.sizes
    strangers = sorted(n for n, size in plan.there.items() if n != MANIFEST and wanted.get(n) != size)
    if strangers:
        raise strange(plan.uri, strangers)


def strange(uri: str, names: list[str]) -> PlanRefused:
    """Return the error that refuses to overwrite other files."""
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return PlanRefused(
        f"{uri} holds other files: {shown}. Nothing was changed.",
        next_step=f"Give another --to, or empty it first: aws s3 rm --recursive {uri}",
        details={"uri": uri, "found": names},
    )


Step = Callable[[str, str, int, int], None]
"""Callback: step ("fetch", "hash", "send" or "verify"), file, bytes done, bytes in all."""


@dataclass(frozen=True)
class Staged:
    """Result of a staging; ``sent`` counts the files that this run uploaded."""

    uri: str
    manifest: Manifest
    sent: int
    skipped: int

    @property
    def model_uri(self) -> str | None:
        """Prefix of the target; None if only a head was staged."""
        return self.uri if self.manifest.target else None

    @property
    def head_uri(self) -> str:
        """Prefix of the head."""
        return self.uri + (HEAD_FOLDER if self.manifest.target else "")

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(file.size for file in self.manifest.files)


@dataclass(frozen=True)
class _Item:
    name: str
    path: Path
    sums: Digests


def stage(
    plan: StagingPlan,
    *,
    sources: Sources,
    cache: Path,
    version: str,
    progress: Step = lambda step, name, done, size: None,
    part_bytes: int = PART_BYTES,
) -> Staged:
    """Carry out a plan; a repeated run uploads only what is missing.

    Args:
        plan: the result of `plan_staging`.
        sources: the same as for the plan.
        cache: directory for downloads from the hub, by repository and commit.
        version: this program's version, for the manifest.
        progress: called at each step.
        part_bytes: the size of an upload's parts (S3 takes 5 MiB and more).

    Raises:
        PlanRefused: the prefix holds other files, or other content under the same names.
        Interrupted: Ctrl-C; no incomplete upload is left, and the message lists what is left.
        BillableLeft: Ctrl-C, and an incomplete upload may be left.
        SpecError, NotFound, CredentialsError, ServiceFault: from any step; uploaded files are kept, and the
            next run continues with them.
    """
    try:
        return _stage(plan, sources, cache, version, progress, part_bytes)
    except KeyboardInterrupt:
        raise _interrupted(plan, sources.session) from None
    except PeagleError as error:
        if _incomplete(plan, sources.session):
            command = f"peagle-sm heads stage --to {plan.uri} --abort{sources.session.command_flags()}"
            left = f"Incomplete uploads are left and billed; `{command}` deletes them."
            error.next_step = f"{error.next_step} {left}" if error.next_step else left
        raise


def abort_staging(uri: str, session: Session) -> list[Incomplete]:
    """Abort every incomplete upload below ``uri`` and return them.

    Raises:
        SpecError: it is not an S3 URI.
        NotFound, CredentialsError, ServiceFault: S3 refuses, or does not answer.
    """
    bucket, prefix = split_uri(uri if uri.endswith("/") else uri + "/")
    uploads = incomplete_uploads(session, bucket, prefix)
    for upload in uploads:
        abort(session, bucket, upload)
    return uploads


def _stage(
    plan: StagingPlan, sources: Sources, cache: Path, version: str, progress: Step, part_bytes: int
) -> Staged:
    session = sources.session
    bucket, prefix = split_uri(plan.uri)
    items = [item for part in plan.parts for item in _items(part, sources, cache, progress, part_bytes)]
    missing = _missing(session, bucket, prefix, plan, items)
    manifest = _manifest(plan, items, version)
    _no_other_manifest(session, bucket, prefix, plan, manifest)
    for item in missing:
        sent = _Counter(item, progress)
        put_file(session, bucket, prefix + item.name, item.path, item.sums, sent)
    _verify(session, bucket, prefix, missing, progress)
    text = manifest.to_json().encode()
    if (
        not missing
        and plan.there.get(MANIFEST) == len(text)
        and _read_manifest(session, bucket, prefix, len(text)) == text
    ):
        return Staged(plan.uri, manifest, 0, len(items))
    put_bytes(session, bucket, prefix + MANIFEST, text)
    return Staged(plan.uri, manifest, len(missing), len(items) - len(missing))


class _Counter:
    """Counter of one file's uploaded bytes."""

    def __init__(self, item: _Item, progress: Step) -> None:
        self._item, self._progress, self._done = item, progress, 0

    def __call__(self, count: int) -> None:
        self._done += count
        self._progress("send", self._item.name, self._done, self._item.sums.size)


def _items(part: StagedPart, sources: Sources, cache: Path, progress: Step, part_bytes: int) -> list[_Item]:
    directory = _directory(part, sources, cache, progress)
    items = []
    for name in part.names:
        progress("hash", part.folder + name, 0, part.place.folder.sizes[name])
        items.append(_Item(part.folder + name, directory / name, digests(directory / name, part_bytes)))
    return items


def _directory(part: StagedPart, sources: Sources, cache: Path, progress: Step) -> Path:
    place = part.place
    if place.directory is not None:
        return place.directory
    if place.snapshot is None and place.public is None:
        raise ServiceFault(
            f"{place.name} is already in S3; this command does not copy from S3",
            next_step=f"Use it in the spec (head_uri: {place.name}), or copy it: aws s3 cp --recursive",
        )
    done = 0

    def got(count: int) -> None:
        nonlocal done
        done += count
        progress("fetch", place.name, done, part.size)

    if place.snapshot is not None:
        directory = cache / "hub" / place.snapshot.repository.replace("/", "--") / place.snapshot.commit
        sources.hub.fetch(place.snapshot, list(part.names), directory, got)
    else:
        assert place.public is not None
        directory = cache / "vocabulary"
        downloads.fetch(place.public, directory, got)
    return directory


def _missing(
    session: Session, bucket: str, prefix: str, plan: StagingPlan, items: list[_Item]
) -> list[_Item]:
    """Return the missing items; refuse if other content has their names."""
    missing, strangers = [], []
    for item in items:
        stored = checksum_of(session, bucket, prefix + item.name) if item.name in plan.there else None
        if stored is None:
            missing.append(item)
        elif stored != (item.sums.size, item.sums.s3):
            strangers.append(item.name)
    if strangers:
        raise strange(plan.uri, strangers)
    return missing


def _no_other_manifest(
    session: Session, bucket: str, prefix: str, plan: StagingPlan, manifest: Manifest
) -> None:
    if MANIFEST not in plan.there:
        return
    try:
        stored = parse_manifest(_read_manifest(session, bucket, prefix, plan.there[MANIFEST]))
    except ValueError:
        raise strange(plan.uri, [MANIFEST]) from None
    # Another version of this program may have staged the same files, or fewer; all were compared above.
    if not set(stored.files) <= set(manifest.files):
        raise strange(plan.uri, [MANIFEST])


def _read_manifest(session: Session, bucket: str, prefix: str, size: int) -> bytes:
    return read_range(session, bucket, prefix + MANIFEST, 0, size)


def _verify(session: Session, bucket: str, prefix: str, items: list[_Item], progress: Step) -> None:
    for item in items:
        stored = checksum_of(session, bucket, prefix + item.name)
        if stored != (item.sums.size, item.sums.s3):
            raise ServiceFault(
                f"s3://{bucket}/{prefix}{item.name} is not the file that was uploaded: found size and "
                f"checksum {stored}, expected {(item.sums.size, item.sums.s3)}",
                next_step="Another program may write to this prefix. Give another --to, and run it again.",
            )
        progress("verify", item.name, item.sums.size, item.sums.size)


def _manifest(plan: StagingPlan, items: list[_Item], version: str) -> Manifest:
    head, target, report = plan.part("head"), plan.part("target"), plan.head
    assert head is not None  # a staging without a head is not planned
    facts = None
    if report.format is not None:
        facts = HeadFacts(
            format=report.format,
            method=str(report.method),
            trained_k=report.trained_k,
            vocab_size=int(report.vocab_size or 0),
            target_hidden_size=int(report.target_hidden_size or 0),
            context=report.context,
            vllm=report.vllm,
        )
    return Manifest(
        tool_version=version,
        files=tuple(FileRecord(item.name, item.sums.size, item.sums.whole) for item in items),
        model=(target.place.model if target else None) or head.place.model,
        target=None if target is None else _part(target),
        head=_part(head),
        head_facts=facts,
    )


def _part(part: StagedPart) -> ManifestPart:
    return ManifestPart(part.place.name, part.place.folder.revision, part.licence, part.folder)


def _incomplete(plan: StagingPlan, session: Session) -> list[Incomplete]:
    bucket, prefix = split_uri(plan.uri)
    try:
        return incomplete_uploads(session, bucket, prefix)
    except PeagleError:
        return []  # the first error is the one to report


def _interrupted(plan: StagingPlan, session: Session) -> PeagleError:
    bucket, prefix = split_uri(plan.uri)
    command = f"peagle-sm heads stage --to {plan.uri} --abort{session.command_flags()}"
    try:
        abort_staging(plan.uri, session)
        left = incomplete_uploads(session, bucket, prefix)
        whole_files = {n: size for n, size in list_sizes(session, bucket, prefix).items() if n in plan.sizes}
    except (PeagleError, KeyboardInterrupt) as error:
        return BillableLeft(
            f"Interrupted: incomplete uploads below {plan.uri} may be left and billed ({error}).",
            next_step=command,
            details={"resources": [plan.uri]},
        )
    if left:
        return BillableLeft(
            f"Interrupted: {len(left)} incomplete uploads below {plan.uri} are left and billed.",
            next_step=command,
            details={"resources": [f"{each.key} ({each.upload_id})" for each in left]},
        )
    if not whole_files:
        return Interrupted("Interrupted: nothing is left in S3; the cache keeps the downloaded files.")
    size = sum(whole_files.values())
    return Interrupted(
        f"Interrupted: no incomplete upload is left. {len(whole_files)} whole files ({size / 1e9:.2f} GB, "
        f"{usd_per_month(size):.2f} USD a month) are kept below {plan.uri}; the next run uploads the "
        "others.",
        next_step=f"Run it again, or delete them: aws s3 rm --recursive {plan.uri}",
        details={"resources": [plan.uri + name for name in sorted(whole_files)]},
    )


def spec_fields(plan: StagingPlan, staged: Staged) -> dict[str, str]:
    """Return spec fields by dotted name: addresses, mode, and the head's name."""
    head = plan.part("head")
    assert head is not None  # a staging without a head is not planned
    fields = {} if staged.model_uri is None else {"source": "container", "model_uri": staged.model_uri}
    fields["head_uri"] = staged.head_uri
    if plan.head.method is not None:
        fields["speculation.mode"] = plan.head.method
    fields["speculation.draft_head"] = head.place.head_id or head.place.name.rpartition("/")[2]
    return fields
