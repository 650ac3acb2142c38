"""`peagle.lock`: what JumpStart resolved to, and how two locks differ.

With a lock, deploy and synth look nothing up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.validation import explain, show

Place = Literal["aws", "local"]
LOCK_VERSION = 1
_HEAD = """\
# Written by `peagle-sm lock`: what JumpStart resolved to, for plan, deploy and cdk synth.
# Commit it; do not edit it.
# `peagle-sm lock --upgrade` moves it to JumpStart's newest version and shows what changes.
"""
_STEP = "Write it anew with `peagle-sm lock SPEC`; nothing in it is yours."


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Asked(_Part):
    """What of the spec and the command line the lock answers; ``config`` None leaves the choice to us."""

    model: str
    instance_types: tuple[str, ...] = ()
    config: str | None = None


class LockedSource(_Part):
    """Which document the facts were read from."""

    place: Place
    region: str
    bucket: str
    spec_key: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    etag: str | None = None
    found_by: Literal["id", "url"]


class LockedModel(_Part):
    """Which model, version and config of JumpStart's; ``ranking`` is AWS's own order of the configs."""

    model_id: str
    version: str
    config: str
    ranking: tuple[str, ...]
    url: str | None = None
    min_sdk_version: str | None = None
    deprecated: bool = False
    vulnerable: bool = False
    vulnerabilities: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()


class LockedLicence(_Part):
    """Whether the licence must be accepted (``gated``), where it stands, and whether the spec accepted it."""

    name: str | None = None
    gated: bool
    eula_uris: tuple[str, ...] = ()
    accepted: bool


class LockedHead(_Part):
    """The draft head, mounted as a channel."""

    channel: str
    uri: str
    artifact_version: str | None = None


class LockedInstance(_Part):
    """What one instance type runs; ``environment`` goes over the common one."""

    image: str
    target_uri: str
    environment: Mapping[str, str] = Field(default_factory=dict)


class Lock(_Part):
    """The whole file."""

    lock_version: Literal[1]
    written_by: str
    written_at: str
    asked: Asked
    source: LockedSource
    jumpstart: LockedModel
    licence: LockedLicence
    head: LockedHead | None = None
    network_isolation: bool
    download_timeout_s: int | None = None
    startup_timeout_s: int | None = None
    default_instance_type: str | None = None
    supported_instance_types: tuple[str, ...] = ()
    environment: Mapping[str, str]
    instances: Mapping[str, LockedInstance] = Field(min_length=1)

    def facts(self) -> dict[str, Any]:
        """What two locks are compared by: not who wrote it and when, nor S3's name of the bytes."""
        return self.model_dump(
            mode="json", exclude={"written_by": True, "written_at": True, "source": {"etag"}}
        )


def dump_lock(lock: Lock) -> str:
    """Write a lock as YAML that `parse_lock` reads back."""
    return _HEAD + yaml.safe_dump(lock.model_dump(mode="json"), sort_keys=False, width=200)


def parse_lock(text: str, origin: str = "peagle.lock") -> Lock:
    """Read a lock; ``origin`` (a file name, say) opens each message.

    Raises:
        SpecError: it is not a lock, or one that a newer version of this program wrote.
    """
    try:
        data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise SpecError(
            f"{origin}: not YAML{where}: {getattr(error, 'problem', error)}", next_step=_STEP
        ) from error
    if not isinstance(data, dict):
        raise SpecError(f"{origin}: found {show(data)}; allowed: a lock", next_step=_STEP)
    if data.get("lock_version") != LOCK_VERSION:
        raise SpecError(
            f"{origin}: lock_version: found {show(data.get('lock_version'))}; allowed: {LOCK_VERSION}",
            next_step="Upgrade peagle-sm, or write it anew with `peagle-sm lock SPEC`.",
        )
    try:
        return Lock.model_validate(data)
    except ValidationError as error:
        told = explain(error, origin=origin, model=Lock)
        raise SpecError(told.message, next_step=_STEP, details=told.details) from error


def lock_path(spec_path: Path, place: Place) -> Path:
    """Where the lock of a spec lies: `peagle.lock` beside `peagle.yaml`, `peagle.local.lock` with --local."""
    return spec_path.with_suffix(".lock" if place == "aws" else ".local.lock")


def locks_beside(spec_path: Path) -> dict[Place, Lock]:
    """Read the locks beside a spec file; nothing where there is none.

    Raises:
        SpecError: a lock is there and cannot be read.
    """
    found: dict[Place, Lock] = {}
    places: tuple[Place, ...] = ("aws", "local")
    for place in places:
        path = lock_path(spec_path, place)
        try:
            found[place] = parse_lock(path.read_text(encoding="utf-8"), str(path))
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"{path}: cannot be read: {error}", next_step=_STEP) from error
    return found


def mismatches(
    lock: Lock, *, model: str, instance_types: tuple[str, ...], region: str, place: Place
) -> list[str]:
    """Say where a lock does not answer what a plan asks; empty where it does."""
    said = []
    if lock.asked.model != model:
        said.append(f"it is of model {lock.asked.model}, and the spec says {model}")
    if lock.source.place != place:
        said.append(
            "it was read from the local server, and this plan is for AWS"
            if place == "aws"
            else "it was read from AWS, and this plan is for the local server"
        )
    if lock.source.region != region:
        said.append(f"it is of region {lock.source.region}, and the plan is for {region}")
    missing = [name for name in instance_types if name not in lock.instances]
    if missing:
        said.append(f"it has {', '.join(lock.instances)}, and the spec asks for {', '.join(missing)}")
    return said


Kind = Literal["added", "removed", "changed"]
_ComparedFacts = Mapping[tuple[str, ...], Any]


@dataclass(frozen=True)
class Change:
    """One field that differs; ``before`` is None where it was added, ``after`` where it was removed."""

    field: str
    kind: Kind
    before: str | None
    after: str | None


def changes(before: Lock | None, after: Lock) -> tuple[Change, ...]:
    """Return what differs, in the order of the file; who wrote the locks and when does not count."""
    old = dict(_flat((), before.facts())) if before else {}
    new = dict(_flat((), after.facts()))
    paths = [*new, *(path for path in old if path not in new)]
    return tuple(
        Change(".".join(path), _kind(path, old, new), old.get(path), new.get(path))
        for path in paths
        if (path in old) != (path in new) or old.get(path) != new.get(path)
    )


def _kind(path: tuple[str, ...], old: _ComparedFacts, new: _ComparedFacts) -> Kind:
    if path not in old:
        return "added"
    return "changed" if path in new else "removed"


def _flat(path: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """Leaves by their path: mappings are entered, lists are one text, and None is as if it were not there."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flat((*path, str(key)), part)
    elif isinstance(value, list):
        yield path, ", ".join(map(str, value))
    elif isinstance(value, bool):
        yield path, str(value).lower()
    elif value is not None:
        yield path, str(value)
