"""`peagle.lock`: what JumpStart resolved to, for which model, and how two locks differ.

With a lock, deploy and synth need no look-up in JumpStart.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from peagle_sm.core.changes import Change, leaves
from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.validation import explain, show

Place = Literal["aws", "local"]
LOCK_VERSION = 1
_HEAD = """\
# Written by `peagle-sm lock`: what JumpStart resolved to, for plan, deploy and cdk synth.
# Commit it; do not edit it.
# `peagle-sm lock --upgrade` moves it to JumpStart's newest version and shows what changes.
"""
UNREADABLE_STEP = "Write it again with `peagle-sm lock SPEC`; it has no content of your own."


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LockInput(_Part):
    """What the spec and the command line select; ``config`` None: the best config."""

    model: str
    instance_types: tuple[str, ...] = ()
    config: str | None = None


class LockedSource(_Part):
    """Source document of the facts."""

    place: Place
    region: str
    bucket: str
    spec_key: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class LockedModel(_Part):
    """JumpStart model, version and config; ``ranking`` is AWS's order of configs."""

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
    """Licence: whether it must be accepted (``gated``), its terms, and acceptance."""

    name: str | None = None
    gated: bool
    eula_uris: tuple[str, ...] = ()
    accepted: bool


class LockedHead(_Part):
    """Draft head, mounted as a channel."""

    channel: str
    uri: str
    artifact_version: str | None = None


class LockedInstance(_Part):
    """Image of one instance type; ``environment`` overrides the common one."""

    image: str
    target_uri: str
    environment: Mapping[str, str] = Field(default_factory=dict)


class Lock(_Part):
    """Content of a lock file."""

    lock_version: Literal[1]
    written_by: str
    written_at: str
    asked: LockInput
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
        """Return the fields for a comparison: those that are set, without writer and time."""
        left_out = {"written_by": True, "written_at": True}
        return self.model_dump(mode="json", exclude=left_out, exclude_none=True)


def dump_lock(lock: Lock) -> str:
    """Format a lock as YAML for `parse_lock`."""
    return _HEAD + yaml.safe_dump(lock.model_dump(mode="json"), sort_keys=False, width=200)


def parse_lock(text: str, origin: str = "peagle.lock") -> Lock:
    """Parse a lock; ``origin`` (such as a file name) starts each message.

    Raises:
        SpecError: it is not a lock, or a newer version of this program wrote it.
    """
    try:
        data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise SpecError(
            f"{origin}: not YAML{where}: {getattr(error, 'problem', error)}", next_step=UNREADABLE_STEP
        ) from error
    if not isinstance(data, dict):
        raise SpecError(f"{origin}: found {show(data)}; allowed: a lock", next_step=UNREADABLE_STEP)
    if data.get("lock_version") != LOCK_VERSION:
        raise SpecError(
            f"{origin}: lock_version: found {show(data.get('lock_version'))}; allowed: {LOCK_VERSION}",
            next_step="Upgrade peagle-sm, or write it again with `peagle-sm lock SPEC`.",
        )
    try:
        return Lock.model_validate(data)
    except ValidationError as error:
        problem = explain(error, origin=origin, model=Lock)
        raise SpecError(problem.message, next_step=UNREADABLE_STEP, details=problem.details) from error


def lock_path(spec_path: Path, place: Place) -> Path:
    """The path of a spec's lock: `peagle.lock` beside `peagle.yaml`, `peagle.local.lock` with --local."""
    return spec_path.with_suffix(".lock" if place == "aws" else ".local.lock")


def mismatches(
    lock: Lock, *, model: str, instance_types: tuple[str, ...], region: str, place: Place
) -> list[str]:
    """Return the mismatches between a lock and a plan's input."""
    reasons = []
    if lock.asked.model != model:
        reasons.append(f"it is for model {lock.asked.model}, but the spec has {model}")
    if lock.source.place != place:
        reasons.append(
            "it was read from the local server, but this plan is for AWS"
            if place == "aws"
            else "it was read from AWS, but this plan is for the local server"
        )
    if lock.source.region != region:
        reasons.append(f"it is for region {lock.source.region}, but the plan is for {region}")
    missing = [name for name in instance_types if name not in lock.instances]
    if missing:
        reasons.append(f"it has {', '.join(lock.instances)}, but the spec needs {', '.join(missing)}")
    return reasons


def changes(before: Lock | None, after: Lock) -> tuple[Change, ...]:
    """Return the differences in the file's order, without writer and time."""
    old = dict(leaves(before.facts())) if before else {}
    new = dict(leaves(after.facts()))
    return tuple(
        Change(field, old.get(field), new.get(field))
        for field in dict.fromkeys([*new, *old])
        if old.get(field) != new.get(field)
    )
