"""Architectures and config fields of heads that each vLLM version can serve. Pure.

The data is ``core/data/head_formats.yaml``. A version that lacks a field of a head's config loads the head
without a message and drafts worse tokens with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal, TypeGuard

from pydantic import Field

from peagle_sm.core.engines import PackagedData, read_data, version_of
from peagle_sm.core.spec.modes import Mode

Kind = Literal["eagle3", "speculators", "peagle"]
_UNSCALED = ("default", "su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")
_CONTEXT_KEYS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length"),
    *("max_sequence_length", "max_seq_length", "seq_len"),
)
_DEFAULT_CONTEXT = {"llama": 2048, "qwen3": 32768}
"""Positions that Transformers assumes for a config without them."""


class HeadArchitecture(PackagedData):
    """An architecture that vLLM loads; ``layout`` None: its weights cannot be checked here."""

    layout: Literal["llama", "qwen3"] | None = None
    since: str | None = None


class DrafterFormats(PackagedData):
    """Names that a config of another mode's drafter may have, each with the first vLLM that has it."""

    architectures: Mapping[str, str] = Field(default_factory=dict)
    speculators: Mapping[str, str] = Field(default_factory=dict)
    model_types: Mapping[str, str] = Field(default_factory=dict)


class HeadFormats(PackagedData):
    """What each vLLM version needs to see in a head's config."""

    source: str
    date: str
    newest: str
    architectures: Mapping[str, HeadArchitecture]
    model_types: tuple[str, ...]
    fields: Mapping[str, Mapping[Kind, str | None]]
    speculators_peagle: str
    speculators_qwen3: str
    aux_states_other_than_3: str
    mask_token_id_alone: str
    positions_extended: str
    drafters: Mapping[Mode, DrafterFormats]

    def loaded_as(self, name: str) -> str:
        """Return the name that vLLM looks up for an architecture of a config."""
        return name if name.startswith("Eagle3") or name.endswith("Eagle3") else f"Eagle3{name}"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the known architectures."""
        return tuple(sorted(self.architectures))


@cache
def load_head_formats() -> HeadFormats:
    """Return the packaged data, which is cached and immutable."""
    return HeadFormats.model_validate(read_data("head_formats"))


def kind_of(config: Mapping[str, Any]) -> Kind:
    """Return the format of a head's config."""
    if "speculators_model_type" not in config:
        return "eagle3"
    return "peagle" if config["speculators_model_type"] == "peagle" else "speculators"


def unread_fields(config: Mapping[str, Any]) -> list[str]:
    """Return fields of the config that are on and that no vLLM version reads."""
    kind = kind_of(config)
    return [
        name for name, since in load_head_formats().fields.items() if config.get(name) and not since[kind]
    ]


def engine_needs(
    config: Mapping[str, Any], family: str, architecture: str, aux_states: int, mask_keys: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    """Yield each reason for a vLLM version, with the first version.

    Args:
        config: the head's whole ``config.json``.
        family: layout of its weights.
        architecture: its name in the config.
        aux_states: number of layers of the target that it reads.
        mask_keys: names of the mask token in the config.
    """
    formats, kind = load_head_formats(), kind_of(config)
    for name, since in formats.fields.items():
        first_version = since[kind]
        if config.get(name) and first_version:
            yield first_version, name
    entry = formats.architectures.get(formats.loaded_as(architecture))
    if entry is not None and entry.since:
        yield entry.since, f"{architecture} heads"
    if kind == "peagle":
        yield formats.speculators_peagle, "speculators_model_type peagle"
    if kind != "eagle3" and family == "qwen3":
        yield formats.speculators_qwen3, "a speculators head with Qwen3's layout"
    if aux_states != 3:
        yield formats.aux_states_other_than_3, f"{aux_states} auxiliary layers"
    if kind == "eagle3" and mask_keys == ("mask_token_id",):
        yield formats.mask_token_id_alone, "mask_token_id without ptd_token_id"


def first_engine(needs: Iterator[tuple[str, str]]) -> tuple[str, str] | None:
    """Return the first version that meets all needs, with its reasons; None for any version."""
    reasons: dict[str, list[str]] = {}
    for version, reason in needs:
        reasons.setdefault(version, []).append(reason)
    if not reasons:
        return None
    newest = max(reasons, key=version_of)
    return newest, ", ".join(reasons[newest])


def context_of(layer: Mapping[str, Any], kind: Kind, family: str) -> int | None:
    """Return the number of positions that vLLM drafts for; None: as many as the target has.

    A scaling factor counts as in vLLM 0.32.0 (config/model.py, _get_and_verify_max_len): only for scalings
    whose ``max_position_embeddings`` is that before scaling.
    """
    lengths = [layer[key] for key in _CONTEXT_KEYS if type(layer.get(key)) is int and layer[key] > 0]
    if not lengths:
        return _DEFAULT_CONTEXT[family] if kind == "eagle3" else None
    factor = 1.0
    for rope in rope_settings(layer):
        scale = rope.get("factor")
        if rope.get("rope_type", rope.get("type", "default")) not in _UNSCALED and _is_factor(scale):
            factor = scale
    return int(min(lengths) * factor)


def rope_settings(layer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the settings of rotary positions, of each kind of layers if they differ."""
    rope = layer.get("rope_scaling") or layer.get("rope_parameters")  # Transformers prefers it, too
    if not isinstance(rope, Mapping):
        return
    by_layer = [settings for settings in rope.values() if isinstance(settings, Mapping)]
    yield from by_layer or [rope]


def _is_factor(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
