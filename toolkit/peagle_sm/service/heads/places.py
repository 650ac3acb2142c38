"""Where a head or a target is: a folder, a prefix in S3, a model on the hub, or an entry of the catalogue."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peagle_sm.aws.session.local_server import stand_in_weights
from peagle_sm.core.catalog.catalog import Catalog, HeadEntry, Vocabulary, load_catalog
from peagle_sm.core.errors import NotFound, SpecError
from peagle_sm.core.heads import Folder, local_folder
from peagle_sm.core.heads.names import REPOSITORY
from peagle_sm.core.spec.complaints import suggest

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.aws.storage.hub import Hub, Snapshot


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
            from peagle_sm.aws.storage.s3_folder import s3_folder

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
    from peagle_sm.aws.storage.hub import Hub

    return Hub()
