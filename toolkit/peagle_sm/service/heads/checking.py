"""check_head(): report everything that is wrong with a draft head before it costs an endpoint.

A head or a target is a folder, a prefix in S3, a model on the Hugging Face hub, or an entry of the
catalogue. The local SageMaker calls `refused_head` before it starts an engine (entry point in
pyproject.toml), since a bad head would draft nonsense without an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peagle_sm.aws.session.local_server import stand_in_weights
from peagle_sm.core.catalog import Catalog, HeadEntry, Vocabulary, load_catalog
from peagle_sm.core.errors import NotFound, SpecError
from peagle_sm.core.heads.inspect import inspect_head
from peagle_sm.core.heads.layout import HeadFault, HeadReport
from peagle_sm.core.heads.reading import REPOSITORY, Folder, local_folder
from peagle_sm.core.plan.environment import MODEL_MOUNT, SPECULATIVE_CONFIG
from peagle_sm.core.spec.validation import suggest

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.aws.storage.downloads import Hub, Snapshot


@dataclass(frozen=True)
class Place:
    """An opened place; ``directory`` on this machine, ``snapshot`` on the hub, ``public`` at an address.

    ``name`` is what a manifest calls it, ``head`` and ``model`` what the catalogue does.
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
    """Opens places; what reaches a network is made when it is first needed."""

    def __init__(
        self,
        session: Callable[[], Session],
        hub: Callable[[], Hub] | None = None,
        catalog: Catalog | None = None,
        shipped: Path | None = None,
    ) -> None:
        """Take how to make a session and a hub; ``shipped`` holds the small stand-in weights."""
        self._make_session, self._make_hub = session, hub or _default_hub
        self.catalog = catalog or load_catalog()
        self._shipped = shipped or stand_in_weights()
        self._hub: Hub | None = None

    @property
    def session(self) -> Session:
        """The session, made when it is first asked for."""
        return self._make_session()

    @property
    def hub(self) -> Hub:
        """The hub, made when it is first asked for.

        Raises:
            NotFound: the extra ``hub`` is not installed.
        """
        if self._hub is None:
            self._hub = self._make_hub()
        return self._hub

    def head(self, what: str, revision: str | None = None, mode: str | None = None) -> Place:
        """Open a head: a folder, s3://…, a hub id, a head or a model (its default head) of the catalogue.

        Raises:
            SpecError: it is none of these.
            NotFound, CredentialsError, ServiceFault: it is not there, or cannot be reached.
        """
        models = self.catalog.models
        if what in models and not Path(what).is_dir():
            return self._catalogued_head(self._default_head(what, mode), revision)
        if what in self.catalog.heads and not Path(what).is_dir():
            return self._catalogued_head(what, revision)
        place = self._elsewhere(what, revision, [*models, *self.catalog.heads])
        known = next((n for n, h in self.catalog.heads.items() if h.hub_id and h.hub_id == what), None)
        if known is None:
            return place
        entry = self.catalog.heads[known]
        return Place(place.name, place.folder, None, place.snapshot, entry, known, entry.target)

    def target(self, what: str, revision: str | None = None) -> Place:
        """Open a target: a folder, s3://…, a hub id, or a model of the catalogue; errors as `head`."""
        entry = self.catalog.models.get(what)
        if entry is None or Path(what).is_dir():
            return self._elsewhere(what, revision, list(self.catalog.models))
        place = self._artifact(entry.artifact, f"the shipped target of {what}") if entry.artifact else None
        if place is None:
            if entry.hub_id is None:
                raise SpecError(
                    f"where the weights of {what} are is not known", next_step="Give a folder, or a hub id."
                )
            place = self._on_hub(entry.hub_id, revision)
        return Place(place.name, place.folder, place.directory, place.snapshot, model=what)

    def vocabulary(self, target: Place) -> Place | None:
        """Return the file that a catalogued target lacks to chat; None where it lacks none."""
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
        found = named or next((name for name, head in heads.items() if head.method == wanted), None)
        if found is None:
            raise SpecError(
                f"no {wanted} head of {model} is in the catalogue"
                + (f"; it has: {', '.join(heads)}" if heads else ""),
                next_step="Give the head itself: a folder, s3://…, or OWNER/NAME on the hub.",
            )
        return str(found)

    def _catalogued_head(self, head_id: str, revision: str | None) -> Place:
        entry = self.catalog.heads[head_id]
        if entry.hub_id is not None:
            place = self._on_hub(entry.hub_id, revision or entry.revision)
        else:
            place = self._artifact(str(entry.artifact), f"the shipped head {head_id}")
        return Place(place.name, place.folder, place.directory, place.snapshot, entry, head_id, entry.target)

    def _artifact(self, artifact: str, what: str) -> Place:
        directory = self._shipped / artifact
        if not (directory / "config.json").is_file():
            raise NotFound(f"{what} is not there ({directory})", next_step="Install the package again.")
        return Place(f"peagle-sm {artifact}", local_folder(directory), directory)

    def _elsewhere(self, what: str, revision: str | None, known: list[str]) -> Place:
        if what.startswith("s3://"):
            from peagle_sm.aws.storage.s3 import s3_folder

            return Place(what, s3_folder(self.session, what))
        directory = Path(what)
        if directory.is_dir():
            return Place(directory.resolve().name, local_folder(directory), directory)
        if REPOSITORY.fullmatch(what) and not what.startswith((".", "/")):
            return self._on_hub(what, revision)
        raise SpecError(
            f"{what!r} is no folder, no s3://BUCKET/PREFIX, no OWNER/NAME on the hub, and not in the "
            "catalogue: "
            f"{', '.join(sorted(known))}.{suggest(what, known)}",
            next_step="Give one of these; `peagle-sm heads list` shows the catalogue's heads.",
        )

    def _on_hub(self, repository: str, revision: str | None) -> Place:
        snapshot = self.hub.snapshot(repository, revision)
        return Place(repository, self.hub.folder(snapshot), None, snapshot)


def config_of(place: Place) -> Mapping[str, Any]:
    """The ``config.json`` of a place.

    Raises:
        NotFound: it has none, or it is no JSON object.
    """
    try:
        text = place.folder.text("config.json")
        config = None if text is None else json.loads(text)
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise NotFound(
            f"{place.folder.place} has no config.json that could be read",
            next_step="Give the folder, prefix or hub id of the target's own files.",
        )
    return config


def _default_hub() -> Hub:
    from peagle_sm.aws.storage.downloads import Hub

    return Hub()


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


_SHOWN = 5


def refused_head(environment: Mapping[str, str], root: Path) -> str | None:
    """Say why the engine must not start with its draft head; None when nothing is wrong with it.

    Args:
        environment: the container's, as CreateModel has it.
        root: the directory in which ``/opt/ml`` lies as ``opt/ml``.
    """
    try:
        wanted = json.loads(environment.get(SPECULATIVE_CONFIG, "{}"))
        head = root / str(wanted["model"]).lstrip("/")
        json.loads((head / "config.json").read_text())
    except (ValueError, KeyError, TypeError, OSError):
        # Not a head in a directory of ours: vLLM says what it thinks of the rest itself.
        return None
    parallel = wanted.get("parallel_drafting") is True
    report = inspect_head(
        local_folder(head),
        target=_config_of(root / MODEL_MOUNT.lstrip("/")),
        mode="p-eagle" if parallel else "eagle3",
    )
    errors = [fault.message for fault in report.faults if fault.severity == "error"]
    if not errors:
        return None
    more = f" (and {len(errors) - _SHOWN} more)" if len(errors) > _SHOWN else ""
    return f"the draft head at {wanted['model']} must not be used: {'; '.join(errors[:_SHOWN])}{more}"


def _config_of(model: Path) -> dict[str, Any] | None:
    try:
        config = json.loads((model / "config.json").read_text())
    except (ValueError, OSError):
        return None
    return config if isinstance(config, dict) else None
