"""List of all security rules with their subjects. Pure; the other modules have the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from peagle_sm.core import guard
from peagle_sm.core.catalog import load_catalog
from scripts.lib.security import files, iam, image, templates
from scripts.lib.security.subjects import Subjects

Broken = Iterator[str]
_ALONE = frozenset({guard.SWEEPER, guard.SWITCH})


@dataclass(frozen=True)
class Rule:
    """One rule: its ``id``, ``what`` a violation is, and ``look``, which yields violations."""

    id: str
    what: str
    look: Callable[[Subjects], Broken]


def _of_templates(check: Callable[[Mapping[str, Any]], list[str]]) -> Callable[[Subjects], Broken]:
    def look(subjects: Subjects) -> Broken:
        for stack, template in subjects.templates.items():
            yield from (f"{stack}: {found}" for found in check(template))

    return look


def _of_dockerfiles(check: Callable[[str], list[str]]) -> Callable[[Subjects], Broken]:
    def look(subjects: Subjects) -> Broken:
        for path, text in subjects.dockerfiles.items():
            yield from (f"{path}: {found}" for found in check(text))

    return look


def _has_local_disks(instance_type: str) -> bool:
    entry = load_catalog().instances.get(instance_type)
    return entry is not None and entry.local_storage


def _version(uri: str) -> tuple[int, ...] | None:
    return load_catalog().images.describe(uri).version


def _keys(template: Mapping[str, Any]) -> list[str]:
    return templates.volumes_without_key(template, _has_local_disks)


def _crowds(template: Mapping[str, Any]) -> list[str]:
    return templates.crowds(template, _ALONE)


def _floor(template: Mapping[str, Any]) -> list[str]:
    return templates.old_engines(template, load_catalog().images.advisory_floor.version, _version)


def _locks(subjects: Subjects) -> Broken:
    for path, pins in subjects.unhashed.items():
        yield from (f"{path}: {pin}" for pin in pins)


def _weights(subjects: Subjects) -> Broken:
    for path, folder in subjects.weights.items():
        yield from (f"{path}: {found}" for found in files.unsafe_weights(folder))


def _refusals(subjects: Subjects) -> Broken:
    if subjects.refuses is not None:
        yield from (f"container: {found}" for found in image.missing_refusals(*subjects.refuses))


RULES: tuple[Rule, ...] = (
    Rule(
        "network-isolation", "a container that may make network calls", _of_templates(templates.open_networks)
    ),
    Rule("volume-key", "a volume without a key of one's own, where it would take one", _of_templates(_keys)),
    Rule("broad-policy", "a managed policy that allows everything", _of_templates(iam.broad_policies)),
    Rule(
        "wildcard-resource",
        "`*` as the resource of what deletes, changes or passes a role",
        _of_templates(iam.wildcards_that_destroy_or_pass),
    ),
    Rule("wildcard-action", "`*` in an action", _of_templates(iam.wildcard_actions)),
    Rule("pass-role", "PassRole that is not one role to one service", _of_templates(iam.loose_pass_role)),
    Rule(
        "untagged-delete", "deletion without our tag as its condition", _of_templates(iam.untagged_deletion)
    ),
    Rule("untagged-create", "creation without our tag", _of_templates(iam.untagged_creation)),
    Rule(
        "unwatched-function",
        "a function without dead-letter queue, log group or alarm",
        _of_templates(templates.unwatched_functions),
    ),
    Rule("concurrency", "a sweeper or switch that may run twice at once", _of_templates(_crowds)),
    Rule("log-retention", "a log group that keeps everything", _of_templates(templates.eternal_logs)),
    Rule("image-digest", "an image that is not named by digest", _of_templates(templates.images_by_tag)),
    Rule(
        "image-moves",
        "an image without a tag, or with one made to move",
        _of_templates(templates.movable_images),
    ),
    Rule("files-pinned", "weights named by a prefix alone", _of_templates(templates.unpinned_files)),
    Rule("eula", "a licence that is accepted without saying so", _of_templates(templates.tacit_licences)),
    Rule("forbidden-setting", "a setting that opens the engine", _of_templates(templates.forbidden_settings)),
    Rule("raised-limit", "a request limit beyond the engine's own", _of_templates(templates.raised_limits)),
    Rule(
        "sequences",
        "no limit of the sequences of one request",
        _of_templates(templates.no_limit_of_sequences),
    ),
    Rule("engine-floor", "an engine below the floor of its advisories", _of_templates(_floor)),
    Rule("template-secrets", "a secret in a template or an environment", _of_templates(templates.secrets)),
    Rule("base-digest", "a base image that is not named by digest", _of_dockerfiles(image.bases_by_tag)),
    Rule("root", "an image that runs as root", _of_dockerfiles(image.runs_as_root)),
    Rule("image-hashes", "packages installed without hashes", _of_dockerfiles(image.unhashed_installs)),
    Rule("image-downloads", "a download without a checksum", _of_dockerfiles(image.unchecked_downloads)),
    Rule("image-settings", "an image that opens the engine", _of_dockerfiles(image.forbidden_settings)),
    Rule("image-secrets", "a secret in an image file", _of_dockerfiles(image.secrets)),
    Rule("image-refusals", "what the toolkit forbids and the container would start with", _refusals),
    Rule("lock-hashes", "a pinned package without a hash", _locks),
    Rule("safetensors", "weights that can run code", _weights),
    Rule(
        "head-revision",
        "a head of the catalogue without a commit",
        lambda subjects: (f"catalogue: {name}" for name in files.unpinned_heads(load_catalog().heads)),
    ),
    Rule("secrets", "a secret in any file", lambda subjects: iter(files.secrets(subjects.texts))),
)
