"""The catalogue as a spec sees it: the packaged one, the user's file and the spec's own model. Pure.

`peagle_sm.service.own_models` reads the files; here their content becomes entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from peagle_sm.core.catalog import AttentionGroup, Catalog, HeadEntry, ModelEntry, Provenance, load_catalog
from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, Mode
from peagle_sm.core.spec.own_model import OwnFacts, OwnModel
from peagle_sm.core.spec.validation import explain, show

if TYPE_CHECKING:
    from peagle_sm.core.model_config import ConfigFacts

_Entry = TypeVar("_Entry", bound=BaseModel)
_LONGEST_DEFAULT = 16384
"""Default context. As for the catalogue's models it is below what most models can, since it costs memory."""
# As for Gemma 4, for which no card names a K either: assumed.
_DRAFT_TOKENS = {"p-eagle": 3, "eagle3": 3}


def catalog_for(spec: EndpointSpec, catalog: Catalog | None = None) -> Catalog:
    """Return the catalogue with the spec's own entries.

    The sizes of an own model are None until its config is read.

    Raises:
        SpecError: an entry of the catalogue file, or the config of the model, is not acceptable.
    """
    base, own_model, facts = catalog or load_catalog(), spec.own_model, spec.own_facts
    if own_model is None and spec.catalog is None:
        return base
    if spec.catalog is not None and facts is None:
        raise SpecError(
            f"catalog: {spec.catalog} was not read",
            next_step="Read the spec with peagle_sm.load_spec(FILE), or plan it with peagle_sm.plan_for.",
        )
    facts = facts or OwnFacts()
    models = dict(base.models) | {
        name: _model_entry(name, entry, spec) for name, entry in facts.models.items()
    }
    heads = dict(base.heads) | {name: _head_entry(name, entry, spec) for name, entry in facts.heads.items()}
    if own_model is not None:
        if own_model.name in models and not models[own_model.name].own:
            raise SpecError(
                f"model.name: found {own_model.name!r}, which a catalogue has; allowed: a name of its own",
                next_step=f"Write model: {own_model.name} for the catalogue's model, or change model.name.",
            )
        models[own_model.name] = own_entry(own_model, facts)
    return base.model_copy(update={"models": models, "heads": heads})


def own_entry(own_model: OwnModel, facts: OwnFacts) -> ModelEntry:
    """Return the entry of a spec's own model.

    Raises:
        SpecError: its config.json is not acceptable.
    """
    from peagle_sm.core.model_config import read_config  # few specs need it

    config = read_config(facts.config, facts.place) if facts.place else None
    parameters = facts.parameters / 1e9 if facts.parameters is not None else None
    weights = own_model.weights_gb
    if weights is None and config is not None and facts.weights_bytes is not None:
        weights = facts.weights_bytes / 1e9 / config.shrinks_by
    longest = config.max_context if config else None
    return ModelEntry(
        title=own_model.name
        if parameters is None
        else f"{own_model.name}, {_size_text(parameters)} parameters",
        hub_id=_hub_id(own_model),
        jumpstart_model_id=own_model.jumpstart,
        sources=("jumpstart", "container") if own_model.jumpstart else ("container",),
        parameters_b=parameters,
        weights_gb=weights,
        licence=own_model.license or facts.licence,
        own=True,
        architecture=config.architecture if config else None,
        config_place=facts.place or None,
        number_type=config.number_type if config else None,
        most_head_gb=_most_head_gb(config) if config else {},
        attention=tuple(AttentionGroup(**group) for group in config.attention)
        if config and config.attention is not None
        else None,
        attention_heads=config.heads if config else None,
        max_context=longest,
        default_max_model_len=min(longest, _LONGEST_DEFAULT) if longest else None,
        default_num_speculative_tokens=_DRAFT_TOKENS,
        provenance={"weights_gb": Provenance(source=facts.place or "the spec", date="")},
    )


_HEAD_LAYERS: Mapping[Mode, int] = {"eagle3": 1, "p-eagle": 4}
"""Most layers of a head in the catalogue."""


def _most_head_gb(config: ConfigFacts) -> dict[Mode, float]:
    """Estimate the largest draft head of a target in GB, with 16 bits a number.

    Embeddings and output rows of the whole vocabulary, the projection of three hidden states, and layers
    with twice the hidden size at their input and up to five times that size inside: 22 h^2 (assumed).
    """
    hidden = config.hidden_size
    ends = 2 * config.vocabulary * hidden + 3 * hidden**2
    return {mode: 2 * (ends + layers * 22 * hidden**2) / 1e9 for mode, layers in _HEAD_LAYERS.items()}


def _size_text(billions: float) -> str:
    return f"{billions:.3g} billion" if billions >= 0.1 else f"{billions * 1000:.3g} million"


def _hub_id(own_model: OwnModel) -> str | None:
    """Return the repository that the config names, for advice on where the weights are."""
    place = own_model.config or ""
    return place if place.count("/") == 1 and not place.startswith((".", "/", "s3:")) else None


def _model_entry(name: str, entry: Any, spec: EndpointSpec) -> ModelEntry:
    fields = _mapping(entry, f"models.{name}", spec)
    defaults = {
        "title": name,
        "sources": ["container"],
        "default_num_speculative_tokens": _DRAFT_TOKENS,
        "provenance": {},
    }
    return _validated(ModelEntry, {**defaults, **fields, "own": True}, f"models.{name}", spec)


def _head_entry(name: str, entry: Any, spec: EndpointSpec) -> HeadEntry:
    fields = _mapping(entry, f"heads.{name}", spec)
    return _validated(HeadEntry, {"source": str(spec.catalog), "date": "", **fields}, f"heads.{name}", spec)


def _mapping(entry: Any, place: str, spec: EndpointSpec) -> Mapping[str, Any]:
    if isinstance(entry, Mapping):
        return entry
    raise SpecError(
        f"{spec.catalog}: {place}: found {show(entry)}; allowed: a mapping of fields",
        next_step="Write the entry as in core/data/models.yaml or heads.yaml of peagle-sm.",
    )


def _validated(kind: type[_Entry], data: Mapping[str, Any], place: str, spec: EndpointSpec) -> _Entry:
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise explain(error, origin=f"{spec.catalog}: {place}", model=kind) from error
