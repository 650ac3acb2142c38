"""check_head(): all faults of a draft head, before it is deployed.

A head or a target is a folder, a prefix in S3, a model on the Hugging Face hub, or an entry of the
catalogue. The local SageMaker calls `refused_head` before it starts an engine (entry point in
pyproject.toml), since an engine with a bad head drafts wrong tokens and reports no error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peagle_sm.aws.session.local_server import artifact_folder, is_installed
from peagle_sm.core.catalog import SPECULATIVE_CONFIG, Catalog, HeadEntry, Vocabulary, load_catalog
from peagle_sm.core.errors import NotFound, SpecError
from peagle_sm.core.heads.inspect import inspect_head
from peagle_sm.core.heads.layout import HeadReport
from peagle_sm.core.heads.reading import CONFIG, REPOSITORY, Folder
from peagle_sm.core.plan.environment import MODEL_MOUNT
from peagle_sm.core.spec.modes import WITH_HEAD, mode_of_config
from peagle_sm.core.spec.validation import suggest
from peagle_sm.core.words import Finding

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.aws.storage.downloads import Hub, Snapshot


@dataclass(frozen=True)
class Place:
    """An opened head or target: local, on the hub, at a public address, or in S3.

    ``name`` is its name in a manifest; ``head`` and ``model`` are its catalogue entry and model.
    """

    name: str
    folder: Folder
    directory: Path | None = None
    snapshot: Snapshot | None = None
    head: HeadEntry | None = None
    head_id: str | None = None
    model: str | None = None
    public: Vocabulary | None = None


class Sources:
    """Opener of heads and targets; creates session and hub client when needed."""

    def __init__(
        self,
        session: Callable[[], Session],
        hub: Callable[[], Hub] | None = None,
        catalog: Catalog | None = None,
        progress: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Take factories of session and hub; ``progress`` gets a line for each step of a model's download."""
        self._progress = progress
        self._make_session, self._make_hub = session, hub or _default_hub
        self.catalog = catalog or load_catalog()
        self._hub: Hub | None = None

    @property
    def session(self) -> Session:
        """Session, created at first use."""
        return self._make_session()

    @property
    def hub(self) -> Hub:
        """Hub client, created at first use.

        Raises:
            NotFound: the extra ``hub`` is not installed.
        """
        if self._hub is None:
            self._hub = self._make_hub()
        return self._hub

    def head(self, what: str, mode: str | None = None) -> Place:
        """Open a head: a folder, s3://…, a hub id, or a catalogue's head or model.

        A hub id may end in @ and a commit, branch or tag.

        Raises:
            SpecError: it is none of these.
            NotFound, CredentialsError, ServiceFault: it does not exist, or cannot be reached.
        """
        models = self.catalog.models
        if what in models and not Path(what).is_dir():
            return self._catalogued_head(self._default_head(what, mode))
        if what in self.catalog.heads and not Path(what).is_dir():
            return self._catalogued_head(what)
        place = self._by_address(what, None, [*models, *self.catalog.heads])
        if place.snapshot is None:
            return place
        for head_id, entry in self.catalog.heads.items():
            if entry.hub_id == place.name:
                return replace(place, head=entry, head_id=head_id, model=entry.target)
        return place

    def target(self, what: str, revision: str | None = None) -> Place:
        """Open a target: a folder, s3://…, a hub id, or a catalogue's model."""
        entry = self.catalog.models.get(what)
        if entry is None or Path(what).is_dir():
            return self._by_address(what, revision, list(self.catalog.models))
        if entry.artifact is not None and (entry.hub_id is None or is_installed()):
            place = self._artifact(entry.artifact, what)
        elif entry.hub_id is not None:
            place = self._on_hub(entry.hub_id, revision)
        else:
            raise _no_address(what)
        return replace(place, model=what)

    def vocabulary(self, target: Place) -> Place | None:
        """Return the tokenizer file that a target lacks for chat, if any."""
        models = self.catalog.models
        name = target.model or next(
            (n for n, m in models.items() if m.hub_id and m.hub_id == target.name), ""
        )
        file = models[name].vocabulary if name in models else None
        if file is None or file.name in target.folder.sizes:
            return None
        folder = Folder(file.url, {file.name: file.size}, lambda *_: b"", {file.name: file.sha256})
        return Place(file.url, folder, public=file)

    def _default_head(self, model: str, mode: str | None) -> str:
        entry = self.catalog.models[model]
        heads = self.catalog.heads_for(model)
        wanted = mode or "p-eagle"
        named = entry.default_heads.get(wanted)  # type: ignore[call-overload]
        head_id = named or next((name for name, head in heads.items() if head.method == wanted), None)
        if head_id is None:
            raise SpecError(
                f"no {wanted} head of {model} is in the catalogue"
                + (f"; it has: {', '.join(heads)}" if heads else ""),
                next_step="Give the head itself: a folder, s3://…, or OWNER/NAME on the hub.",
            )
        return str(head_id)

    def _catalogued_head(self, head_id: str) -> Place:
        entry = self.catalog.heads[head_id]
        if entry.hub_id is not None:
            place = self._on_hub(entry.hub_id, entry.revision)
        else:
            place = self._artifact(str(entry.artifact), head_id)
        return replace(place, head=entry, head_id=head_id, model=entry.target)

    def _artifact(self, artifact: str, what: str) -> Place:
        """Open files that ship with sagemaker-local, or that it downloads."""
        directory = artifact_folder(artifact, self._progress)
        if not (directory / CONFIG).is_file():
            raise NotFound(
                f"the shipped {what} is missing ({directory})", next_step="Install peagle-sm again."
            )
        return Place(f"peagle-sm {artifact}", local_folder(directory), directory)

    def _by_address(self, what: str, revision: str | None, known: list[str]) -> Place:
        if what.startswith("s3://"):
            from peagle_sm.aws.storage.s3 import s3_folder

            return Place(what, s3_folder(self.session, what))
        directory = Path(what)
        if directory.is_dir():
            return Place(directory.resolve().name, local_folder(directory), directory)
        repository, _, commit = what.partition("@")
        if REPOSITORY.fullmatch(repository) and not what.startswith((".", "/")):
            return self._on_hub(repository, commit or revision)
        raise SpecError(
            f"{what!r} is not a folder, s3://BUCKET/PREFIX, OWNER/NAME on the hub, or an entry of the "
            f"catalogue: {', '.join(sorted(known))}.{suggest(what, known)}",
            next_step="Give one of these; `peagle-sm heads list` shows the catalogue's heads.",
        )

    def _on_hub(self, repository: str, revision: str | None) -> Place:
        snapshot = self.hub.snapshot(repository, revision)
        return Place(repository, self.hub.folder(snapshot), None, snapshot)


def _no_address(what: str) -> SpecError:
    return SpecError(
        f"no address is known for the weights of {what}",
        next_step="Give a folder, s3://BUCKET/PREFIX, or a hub id.",
    )


def config_of(place: Place) -> Mapping[str, Any]:
    """Return the ``config.json`` of an opened head or target.

    Raises:
        NotFound: it has none, or it is not a JSON object.
    """
    try:
        text = place.folder.text(CONFIG)
        config = None if text is None else json.loads(text)
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise NotFound(
            f"{place.folder.place} has no readable config.json",
            next_step="Give the folder, prefix or hub id that holds the target's files.",
        )
    return config


def _default_hub() -> Hub:
    from peagle_sm.aws.storage.downloads import Hub

    return Hub()


def check_head(
    head: str | Path,
    *,
    target: str | Path | Mapping[str, Any] | None = None,
    mode: str | None = None,
    num_speculative_tokens: int | None = None,
    session: Session | None = None,
    sources: Sources | None = None,
) -> HeadReport:
    """Check a draft head and report all its faults; load and change nothing.

    For a head on the hub or in S3, only configs, headers and the vocabulary map are read; of one on this
    machine, also its weights.

    Args:
        head: a folder, ``s3://bucket/prefix/``, a hub id (also ``owner/name@commit``), or a head or model of
            the catalogue.
        target: the target's folder, prefix, hub id, catalogue model, or config; None takes the
            catalogue's target for a catalogued head, and skips the target checks for others.
        mode: a mode with a head; None takes the head's own mode.
        num_speculative_tokens: number of draft tokens per step; None skips that check.
        session: for ``s3://``; None creates one from the environment.
        sources: replaces the default access to the hub, S3 and the catalogue.

    Raises:
        SpecError: the head, target or mode is invalid.
        NotFound, CredentialsError, ServiceFault: one does not exist, or cannot be reached.
    """
    if mode not in (None, *WITH_HEAD):
        raise SpecError(
            f"mode: found {mode!r}; allowed: {', '.join(WITH_HEAD)}",
            next_step="Give one of these; the other modes have no head to check.",
        )
    opened = sources or Sources(lambda: session or _default_session())
    place = opened.head(str(head), mode)
    return inspect_place(opened, place, target, mode=mode, num_speculative_tokens=num_speculative_tokens)


def inspect_place(
    sources: Sources,
    place: Place,
    target: str | Path | Mapping[str, Any] | None,
    *,
    mode: str | None = None,
    num_speculative_tokens: int | None = None,
) -> HeadReport:
    """Check a head that is already open; errors as in `check_head`."""
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
    return replace(
        report, faults=(*report.faults, *_unknown_facts(report, num_speculative_tokens, place.folder.near))
    )


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


def _unknown_facts(report: HeadReport, draft_tokens: int | None, near: bool) -> list[Finding]:
    findings = []
    if report.format is not None and not near:
        message = "its weights were not read: NaN and zeros are found only in a folder on this machine"
        findings.append(Finding("info", message, "Download it and check the folder.", check="values"))
    if report.format is not None and not report.target_known:
        message = "not compared with a target's config: the target is unknown"
        findings.append(Finding("info", message, "Name the target: --target.", check="target-unknown"))
    if draft_tokens is not None and report.trained_k is None:
        message = f"unknown how many draft tokens it was trained for; {draft_tokens} are requested"
        findings.append(Finding("info", message, "Look at its model card.", check="trained-k"))
    return findings


def _with_sums(report: HeadReport, directory: Path) -> Any:
    from peagle_sm.aws.storage.uploads import digests

    return tuple(replace(file, sha256=digests(directory / file.name).whole) for file in report.files)


def _default_session() -> Session:
    from peagle_sm.aws.session.session import make_session

    return make_session()


def local_folder(directory: Path) -> Folder:
    """A folder on this machine; what hides behind a dot (git's, the hub's own notes) does not count.

    Raises:
        OSError: it cannot be read.
    """
    sizes = {
        path.relative_to(directory).as_posix(): path.stat().st_size
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(directory).parts)
    }

    def read(name: str, start: int, length: int) -> bytes:
        with (directory / name).open("rb") as file:
            file.seek(start)
            return file.read(length)

    return Folder(str(directory), sizes, read, near=True)


_SHOWN = 5


def refused_head(environment: Mapping[str, str], root: Path) -> str | None:
    """Return why the engine must not start with its draft head; None if it may.

    Args:
        environment: the container's environment from CreateModel.
        root: the directory that holds ``/opt/ml`` as ``opt/ml``.
    """
    try:
        wanted = json.loads(environment.get(SPECULATIVE_CONFIG, "{}"))
        head = root / str(wanted["model"]).lstrip("/")
        json.loads((head / "config.json").read_text())
    except (ValueError, KeyError, TypeError, OSError):
        # Not a head in this directory tree: vLLM itself reports faults of others.
        return None
    report = inspect_head(
        local_folder(head),
        target=_config_of(root / MODEL_MOUNT.lstrip("/")),
        mode=mode_of_config(wanted) or "eagle3",
    )
    errors = [fault.message for fault in report.faults if fault.severity == "error"]
    if not errors:
        return None
    more = f" (and {len(errors) - _SHOWN} more)" if len(errors) > _SHOWN else ""
    return f"the draft head at {wanted['model']} is unusable: {'; '.join(errors[:_SHOWN])}{more}"


def _config_of(model: Path) -> dict[str, Any] | None:
    try:
        config = json.loads((model / "config.json").read_text())
    except (ValueError, OSError):
        return None
    return config if isinstance(config, dict) else None
