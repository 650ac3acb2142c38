"""check_head(): all that is wrong with a head, wherever it is, before it costs an endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peagle_sm.core.errors import SpecError
from peagle_sm.core.heads import HeadFault, HeadReport, inspect_head
from peagle_sm.service.heads.places import Place, Sources, config_of

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session

MODES = ("eagle3", "p-eagle")


def check_head(
    head: str | Path,
    *,
    target: str | Path | Mapping[str, Any] | None = None,
    mode: str | None = None,
    num_speculative_tokens: int | None = None,
    revision: str | None = None,
    session: Session | None = None,
    sources: Sources | None = None,
) -> HeadReport:
    """Look at a draft head and say all that is wrong with it; nothing is loaded, and nothing is changed.

    Of a head on the hub or in S3 only configs, headers and the vocabulary's map are read.

    Args:
        head: a folder, ``s3://bucket/prefix/``, a hub id, or a head or model of the catalogue.
        target: the target's folder, prefix, hub id, model of the catalogue, or config; None takes the
            catalogue's for a head that it has, and otherwise leaves those checks out.
        mode: "eagle3" or "p-eagle"; None takes what the head is.
        num_speculative_tokens: how many tokens it is to propose at once; None leaves that check out.
        revision: a commit, branch or tag on the hub.
        session: for ``s3://``; None makes one from the environment.
        sources: other ways to reach the hub, S3 and the catalogue.

    Raises:
        SpecError: the head, target or mode is named wrongly.
        NotFound, CredentialsError, ServiceFault: it is not there, or cannot be reached.
    """
    if mode not in (None, *MODES):
        raise SpecError(f"mode: found {mode!r}; allowed: {', '.join(MODES)}", next_step="Give one of these.")
    opened = sources or Sources(lambda: session or _default_session())
    place = opened.head(str(head), revision, mode)
    return inspect_place(opened, place, target, mode=mode, num_speculative_tokens=num_speculative_tokens)


def inspect_place(
    sources: Sources,
    place: Place,
    target: str | Path | Mapping[str, Any] | None,
    *,
    mode: str | None = None,
    num_speculative_tokens: int | None = None,
) -> HeadReport:
    """Look at a head that has been opened; errors as `check_head`."""
    config, name = _target_config(sources, place, target)
    report = inspect_head(
        place.folder,
        target=config,
        mode=mode or (place.head.method if place.head else None),
        num_speculative_tokens=num_speculative_tokens,
        trained_k=place.head.trained_depth if place.head else None,
        target_name=name,
    )
    if place.directory is not None:
        report = replace(report, files=_with_sums(report, place.directory))
    return replace(report, faults=(*report.faults, *_unknown(report, num_speculative_tokens)))


def _target_config(
    sources: Sources, place: Place, target: str | Path | Mapping[str, Any] | None
) -> tuple[Mapping[str, Any] | None, str | None]:
    if isinstance(target, Mapping):
        return target, str(target.get("_name_or_path") or "") or None
    if target is None:
        target = place.head.target if place.head else None
    if target is None:
        return None, None
    opened = sources.target(str(target))
    return config_of(opened), opened.model or opened.name


def _unknown(report: HeadReport, asked: int | None) -> list[HeadFault]:
    found = []
    if report.format is not None and not report.target_known:
        message = "it was not held against a target's config"
        found.append(HeadFault("target-unknown", "info", message, "Name the target: --target."))
    if asked is not None and report.trained_k is None:
        message = f"how many tokens it was trained to propose is not known; {asked} are asked for"
        found.append(HeadFault("trained-k", "info", message, "Its card may say."))
    return found


def _with_sums(report: HeadReport, directory: Path) -> Any:
    from peagle_sm.aws.storage.uploads import digests

    return tuple(replace(file, sha256=digests(directory / file.name).whole) for file in report.files)


def _default_session() -> Session:
    from peagle_sm.aws.session.session import make_session

    return make_session()
