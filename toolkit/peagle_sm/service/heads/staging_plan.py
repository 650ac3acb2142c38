"""Plan of a staging: files, destinations and cost, without any transfer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from peagle_sm.aws.storage.s3 import list_sizes, split_uri
from peagle_sm.aws.storage.uploads import Incomplete, incomplete_uploads
from peagle_sm.core.errors import PlanRefused, SpecError
from peagle_sm.core.heads.inspect import inspect_files
from peagle_sm.core.heads.layout import HeadRefused, HeadReport, fault_data
from peagle_sm.core.heads.reading import HEAD_FOLDER, MANIFEST, selected, usd_per_month
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
    target: str | None = None,
    head: str | None = None,
    revision: str | None = None,
    target_revision: str | None = None,
    mode: str | None = None,
) -> StagingPlan:
    """Check the head and the prefix, and plan the staging.

    For a model of the catalogue, its head is staged below it (``head`` names another head). Any other head
    is staged alone, unless ``target`` is given.

    Raises:
        HeadRefused: the head must not be deployed.
        PlanRefused: the prefix holds other files, or a target's files must not be deployed.
        SpecError: an argument is invalid.
        NotFound, CredentialsError, ServiceFault: something does not exist, or cannot be reached.
    """
    bucket, prefix = _prefix(uri)
    if what in sources.catalog.models and not Path(what).is_dir():
        target = target or what
    opened = sources.head(head or what, revision, mode)
    whole = None if target is None else sources.target(target, target_revision)
    config = None if whole is None else config_of(whole)
    report = inspect_place(sources, opened, config or target, mode=mode)
    report.raise_for_faults()
    parts = [] if whole is None else [_target_part(whole)]
    vocabulary = None if whole is None else sources.vocabulary(whole)
    if vocabulary is not None:
        parts.append(StagedPart("vocabulary", vocabulary, "", tuple(vocabulary.folder.sizes), (), None))
    names = tuple(sorted(opened.folder.sizes))
    folder = HEAD_FOLDER if parts else ""
    parts.append(StagedPart("head", opened, folder, names, (), report.licence))
    there = list_sizes(sources.session, bucket, prefix)
    begun = tuple(incomplete_uploads(sources.session, bucket, prefix))
    plan = StagingPlan(f"s3://{bucket}/{prefix}", tuple(parts), report, there, begun)
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
            details={"findings": [fault_data(fault) for fault in errors]},
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
