"""Reader of the config.json of a spec's own model.

A config is in a folder, in S3 or on the Hugging Face hub; only config.json and the index of the weights are
read. `peagle_sm.core.own_models` makes a catalogue entry of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.downloads import Hub
from peagle_sm.aws.storage.s3 import s3_folder
from peagle_sm.core.errors import PeagleError, SpecError
from peagle_sm.core.heads.reading import CARD, CONFIG, INDEX, REPOSITORY, Folder, licence_of, shards
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.spec.modes import facts_of
from peagle_sm.core.spec.own_model import OwnFacts, OwnModel

_ADAPTER = "adapter_config.json"
_MOST_BYTES = 10**15
"""Upper bound on the bytes and parameters of a model; infinity is above it, too."""


def with_own_entries(
    spec: EndpointSpec,
    base: Path,
    session: Session | None = None,
    hub: Callable[[], Hub] = Hub,
) -> EndpointSpec:
    """Return the spec with the facts of its own model; files are relative to ``base``.

    Without a session only local files are read, so a config in S3 or on the hub stays unread, and the size of
    a head in S3 is not known. Nothing is read twice.

    Raises:
        SpecError: a file is missing or unreadable; the message has the field.
        NotFound, CredentialsError, ServiceFault: S3 or the hub lacks it, refuses, or does not answer.
    """
    own_model = spec.own_model
    if own_model is None:
        return spec
    facts = spec.own_facts or OwnFacts()
    if own_model.config is not None and not facts.place:
        try:
            folder = _folder(own_model, base, session, hub)
            if folder is not None:
                facts = _read(own_model, folder, facts)
        except PeagleError as error:
            if not error.message.startswith("model."):
                error.message = f"model.config: {error.message}"
                error.args = (error.message,)
            raise
    spec = spec.with_own_facts(facts)
    return spec if session is None else _with_head_size(spec, session)


def _with_head_size(spec: EndpointSpec, session: Session) -> EndpointSpec:
    """Add the size of the weights at `head_uri`; preflight reports a prefix that cannot be read."""
    facts = spec.own_facts
    if facts is None or facts.head_bytes is not None:
        return spec
    if spec.head_uri is None or not facts_of(spec.speculation.mode).has_weights:
        return spec
    try:
        folder = s3_folder(session, spec.head_uri)
    except PeagleError:
        return spec
    size = sum(folder.sizes[name] for name in shards(folder.sizes))
    return spec.with_own_facts(replace(facts, head_bytes=size or None))


def _folder(
    own_model: OwnModel, base: Path, session: Session | None, hub: Callable[[], Hub]
) -> Folder | None:
    """Open the place of a config; None if it cannot be read without a session."""
    place = own_model.config or ""
    if place.lower().endswith(".gguf"):
        raise _no_gguf(place)
    if place.startswith("s3://"):
        return None if session is None else s3_folder(session, place.removesuffix(f"/{CONFIG}"))
    path = base / place
    if path.is_file():
        if path.suffix != ".json":
            raise SpecError(
                f"model.config: {path} is not a config.json",
                next_step="Give the model's config.json, or its folder.",
            )
        return _files(str(path), {CONFIG: path, INDEX: path.with_name(INDEX)})
    if path.is_dir():
        return _files(str(path), {file.name: file for file in path.iterdir()})
    if REPOSITORY.fullmatch(place) and not place.endswith(".json"):
        if session is None:
            return None
        client = hub()
        return client.folder(client.snapshot(place, own_model.revision))
    raise SpecError(
        f"model.config: found {place!r}; allowed: a folder, a config.json, s3://BUCKET/PREFIX/, or "
        f"OWNER/NAME on the hub (no such file: {path})",
        next_step="Correct the path; it is relative to the spec's file.",
    )


def _files(place: str, paths: Mapping[str, Path]) -> Folder:
    """Return a folder of the files among these paths."""
    sizes = {name: path.stat().st_size for name, path in paths.items() if path.is_file()}
    return Folder(place, sizes, lambda name, start, length: paths[name].read_bytes()[start:][:length])


def _no_gguf(place: str) -> SpecError:
    return SpecError(
        f"model.config: {place} is GGUF; allowed: safetensors with a config.json, which EAGLE-3 and P-EAGLE "
        "heads and AWS's image need",
        next_step="Give the original model from which the GGUF file was made.",
    )


def _read(own_model: OwnModel, folder: Folder, facts: OwnFacts) -> OwnFacts:
    if CONFIG not in folder.sizes:
        if any(name.lower().endswith(".gguf") for name in folder.sizes):
            raise _no_gguf(folder.place)
        if _ADAPTER in folder.sizes:
            raise SpecError(
                f"model.config: {folder.place} is a LoRA adapter ({_ADAPTER}); allowed: a whole model",
                next_step="Merge the adapter into its base model (PEFT: merge_and_unload). "
                "Give the folder of the result.",
            )
        raise SpecError(
            f"model.config: {folder.place} has no {CONFIG}",
            next_step="Give the folder, prefix or hub id of a model in Hugging Face's format.",
        )
    index = _json(folder, INDEX) if INDEX in folder.sizes else None
    return replace(
        facts,
        config=_json(folder, CONFIG),
        place=folder.place if folder.place.endswith(CONFIG) else f"{folder.place.rstrip('/')}/{CONFIG}",
        weights_bytes=_weights_bytes(folder, index),
        parameters=_positive(index, "total_parameters"),
        licence=folder.licence or licence_of(folder.sizes, _card(folder)),
    )


def _card(folder: Folder) -> str | None:
    try:
        text = folder.text(CARD)
    except ValueError:  # too large for a card
        return None
    return None if text is None else text.decode("utf-8", errors="replace")


def _json(folder: Folder, name: str) -> Any:
    try:
        return json.loads((folder.text(name) or b"").decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise SpecError(
            f"model.config: {name} of {folder.place} is not JSON: {error}",
            next_step="Download the file again; it may be a Git LFS pointer or an HTML page.",
        ) from error


def _positive(index: Any, name: str) -> int | None:
    """Return a figure of the index's metadata; None if it has none."""
    metadata = index.get("metadata") if isinstance(index, Mapping) else None
    value = metadata.get(name) if isinstance(metadata, Mapping) else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return int(value) if 0 < value < _MOST_BYTES else None


def _weights_bytes(folder: Folder, index: Any) -> int | None:
    """Return the bytes of the files that the engine loads; None without these files and without an index.

    With an index only its files count: some repositories also have the same weights in another layout.
    """
    if isinstance(index, Mapping):
        files = index.get("weight_map")
        names = {str(name) for name in files.values()} if isinstance(files, Mapping) else set()
        if names and names <= folder.sizes.keys():
            return sum(folder.sizes[name] for name in names)
        total = _positive(index, "total_size")
        if total is not None:
            return total
    loaded = [name for name in shards(folder.sizes) if not name.startswith("consolidated")]
    return sum(folder.sizes[name] for name in loaded) or None
