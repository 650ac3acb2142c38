"""The catalogue as a spec sees it: with the spec's own model. Pure.

`peagle_sm.service.own_models` reads the model's config; here it becomes an entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from peagle_sm.core.catalog import AttentionGroup, Catalog, ModelEntry, Provenance, load_catalog
from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.spec.modes import Mode
from peagle_sm.core.spec.own_model import OwnFacts, OwnModel

if TYPE_CHECKING:
    from peagle_sm.core.model_config import ConfigFacts

_LONGEST_DEFAULT = 16384
"""Default context. As for the catalogue's models it is below what most models can, since it costs memory."""
# As for Gemma 4, for which no card names a K either: assumed.
_DRAFT_TOKENS = {"p-eagle": 3, "eagle3": 3}


def catalog_for(spec: EndpointSpec, catalog: Catalog | None = None) -> Catalog:
    """Return the catalogue with the spec's own model, whose sizes are None until its config is read.

    Raises:
        SpecError: the config of the model is not acceptable, or the catalogue has a model of that name.
    """
    base, own_model = catalog or load_catalog(), spec.own_model
    if own_model is None:
        return base
    if own_model.name in base.models and not base.models[own_model.name].own:
        raise SpecError(
            f"model.name: found {own_model.name!r}, which the catalogue has; allowed: a name of its own",
            next_step=f"Write model: {own_model.name} for the catalogue's model, or change model.name.",
        )
    entry = own_entry(own_model, spec.own_facts or OwnFacts())
    return base.model_copy(update={"models": {**base.models, own_model.name: entry}})


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
