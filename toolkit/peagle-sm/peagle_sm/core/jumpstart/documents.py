"""Typed records of JumpStart's documents: manifest and model specs. Pure.

The manifest lists the versions of each model and the key of each version's spec. A spec has configs, their
ranking, and each config's fields. Errors name the document and the field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from peagle_sm.core.errors import NotFound, ServiceFault, SpecError
from peagle_sm.core.spec.validation import explain, show, suggest

AnyRecord = TypeVar("AnyRecord", bound=BaseModel)

_STEP = (
    "AWS has changed the format of its document: report it as an issue of this project, and meanwhile set "
    "source: container, model_uri and head_uri."
)


class Record(BaseModel):
    """A part of a document; unneeded fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class CatalogueDamaged(ServiceFault):
    """A JumpStart manifest or spec cannot be parsed: a fault of AWS."""


def load_json(content: bytes, origin: str) -> Any:
    """Parse JSON; ``origin`` (such as an S3 URI) starts the message.

    Raises:
        CatalogueDamaged: not UTF-8, or not JSON.
    """
    try:
        return json.loads(content)
    except UnicodeDecodeError as error:
        raise CatalogueDamaged(f"{origin}: not UTF-8 text: {error.reason}", next_step=_STEP) from error
    except json.JSONDecodeError as error:
        raise CatalogueDamaged(
            f"{origin}: not JSON at line {error.lineno}, column {error.colno}: {error.msg}", next_step=_STEP
        ) from error
    except RecursionError as error:
        raise CatalogueDamaged(f"{origin}: nested too deeply", next_step=_STEP) from error


def check_record(model: type[AnyRecord], data: Any, origin: str) -> AnyRecord:
    """Convert JSON data to a record.

    Raises:
        CatalogueDamaged: a field is missing or has a wrong type; the message names each.
    """
    try:
        # strict as JSON is: a list stands for a tuple, and a text never for a number
        return model.model_validate_json(json.dumps(data))
    except ValidationError as error:
        problem: SpecError = explain(error, origin=origin, model=model)
        raise CatalogueDamaged(problem.message, next_step=_STEP, details=problem.details) from error


def damaged(origin: str, value: Any, allowed: str) -> CatalogueDamaged:
    """Return the error for a wrong value."""
    return CatalogueDamaged(f"{origin}: found {show(value)}; allowed: {allowed}", next_step=_STEP)


MANIFEST_KEY = "models_manifest.json"


class Row(Record):
    """A model's version; ``min_version`` is the oldest SageMaker SDK for it."""

    model_id: str = Field(min_length=1)
    version: str = Field(min_length=1)
    min_version: str
    spec_key: str = Field(min_length=1)


def parse_manifest(content: bytes, origin: str = MANIFEST_KEY) -> tuple[Row, ...]:
    """Parse a manifest.

    Raises:
        CatalogueDamaged: it is not a list of rows; the message names the row and the field.
    """
    data = load_json(content, origin)
    if not isinstance(data, list):
        raise damaged(origin, data, "a list of rows")
    return tuple(check_record(Row, row, f"{origin}: row {number}") for number, row in enumerate(data, 1))


def order_of(version: str) -> tuple[tuple[int, ...], str]:
    """Return the sort key of a version: its numbers, then its suffix."""
    numbers = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return (tuple(int(part) for part in numbers[1].split(".")) if numbers else (), version)


def row_of(rows: Sequence[Row], model_id: str, version: str | None = None) -> Row:
    """Return the row of a model's version; by default of its newest.

    Raises:
        NotFound: the model or the version does not exist; the message lists the versions.
    """
    of_model = sorted(
        (row for row in rows if row.model_id == model_id), key=lambda row: order_of(row.version)
    )
    if not of_model:
        raise NotFound(
            f"JumpStart's manifest has no model {model_id!r}."
            f"{suggest(model_id, {row.model_id for row in rows})}",
            next_step="Check that the region has JumpStart, or give another --region.",
        )
    chosen = [row for row in of_model if version in (None, row.version)]
    if not chosen:
        raise NotFound(
            f"JumpStart no longer has version {version} of {model_id}; it has "
            f"{', '.join(row.version for row in of_model)}",
            next_step="Run `peagle-sm lock --upgrade SPEC` to use the newest; it shows the changes.",
        )
    return chosen[-1]


# What a config may not change (JumpStartConfigComponent.OVERRIDING_DENY_LIST of the SDK).
_NOT_OVERRIDDEN = frozenset(
    {
        "model_id",
        "url",
        "version",
        "min_sdk_version",
        "deprecated",
        "deprecated_message",
        "deprecate_warn_message",
        "resource_name_base",
        "gated_bucket",
        "training_supported",
        "incremental_training_supported",
    }
)
RANKING = "overall"
PLAIN = "default"
"""Name for the only config of a spec without configs."""


class Variable(Record):
    """One variable of the container's environment."""

    name: str = Field(min_length=1)
    default: str | int | float | bool


class Properties(Record):
    """Properties of one instance type or family."""

    environment_variables: Mapping[str, str | int | float | bool] | None = None
    prepacked_artifact_key: str | None = None
    artifact_key: str | None = None
    image_uri: str | None = None


class Regional(Record):
    """Regional properties of a type or family, as an alias name: "$gpu_ecr_uri_2"."""

    image_uri: str | None = None


class Variant(Record):
    """One instance type (ml.g5.12xlarge) or family (g5)."""

    properties: Properties | None = None
    regional_properties: Regional | None = None


class Variants(Record):
    """Instance types and families, and their aliases by region."""

    regional_aliases: Mapping[str, Mapping[str, str]] | None = None
    variants: Mapping[str, Variant] = Field(default_factory=dict)


class S3Source(Record):
    """Address of a channel's files: a key in JumpStart's bucket, or a full URI."""

    s3_uri: str = Field(min_length=1)
    s3_data_type: str
    compression_type: str


class Provider(Record):
    """Provider of the files; JumpStart's files are in its own buckets."""

    name: str = ""
    classification: str = "ungated"


class Channel(Record):
    """Additional files of a model, such as its draft head."""

    channel_name: str = Field(min_length=1)
    s3_data_source: S3Source
    artifact_version: str | None = None
    provider: Provider | None = None
    hosting_eula_key: str | None = None


class Channels(Record):
    """Additional files by purpose."""

    speculative_decoding: tuple[Channel, ...] | None = None


class DeployArguments(Record):
    """Timeouts of the download and the container's start, in seconds."""

    model_data_download_timeout: int | None = None
    container_startup_health_check_timeout: int | None = None


class Config(Record):
    """Fields of one config, with the model's fields as defaults."""

    hosting_instance_type_variants: Variants | None = None
    hosting_artifact_key: str | None = None
    hosting_prepacked_artifact_key: str | None = None
    hosting_use_script_uri: bool = True
    hosting_additional_data_sources: Channels | None = None
    hosting_eula_key: str | None = None
    inference_environment_variables: tuple[Variable, ...] = ()
    inference_enable_network_isolation: bool = False
    inference_vulnerable: bool = False
    inference_vulnerabilities: tuple[str, ...] = ()
    default_inference_instance_type: str | None = None
    supported_inference_instance_types: tuple[str, ...] | None = None
    deploy_kwargs: DeployArguments = Field(default_factory=DeployArguments)

    @property
    def heads(self) -> tuple[Channel, ...]:
        """Channels with a draft head."""
        sources = self.hosting_additional_data_sources
        return (sources and sources.speculative_decoding) or ()


class Model(Record):
    """Fields of the model that no config changes."""

    model_id: str = Field(min_length=1)
    version: str = Field(min_length=1)
    min_sdk_version: str | None = None
    url: str | None = None
    license: str | None = None
    gated_bucket: bool = False
    deprecated: bool = False
    deprecated_message: str | None = None
    deprecate_warn_message: str | None = None
    usage_info_message: str | None = None


@dataclass(frozen=True)
class Document:
    """A whole spec; ``ranking`` lists its configs, AWS's first choice first."""

    origin: str
    model: Model
    configs: Mapping[str, Config]
    ranking: tuple[str, ...]

    def config(self, name: str) -> Config:
        """Return one config.

        Raises:
            NotFound: no config has that name.
        """
        if name not in self.configs:
            raise NotFound(
                f"--config: found {name!r}; {self.model.model_id} {self.model.version} has "
                f"{', '.join(self.ranking)}.{suggest(name, self.configs)}",
                next_step="Give one of these, or leave --config out.",
            )
        return self.configs[name]


def parse_document(content: bytes, origin: str = "JumpStart spec") -> Document:
    """Parse a spec.

    Raises:
        CatalogueDamaged: it is not JSON, or a field that a deployment needs is invalid.
    """
    data = load_json(content, origin)
    if not isinstance(data, dict):
        raise damaged(origin, data, "a mapping of fields")
    model = check_record(Model, data, origin)
    configs = {
        name: check_record(Config, fields, f"{origin}: config {name}" if name != PLAIN else origin)
        for name, fields in _merged(data, origin).items()
    }
    return Document(origin, model, configs, _ranking(data, tuple(configs), origin))


def _merged(data: Mapping[str, Any], origin: str) -> dict[str, dict[str, Any]]:
    """Return each config's fields: the model's, overridden by its components'."""
    configs = _mapping(data, "inference_configs", origin)
    if not configs:
        return {PLAIN: dict(data)}
    components = _mapping(data, "inference_config_components", origin)
    merged = {}
    for name, config in configs.items():
        where = f"{origin}: inference_configs.{name}"
        if not isinstance(config, dict):
            raise damaged(where, config, "a mapping of fields")
        fields = dict(data)
        for part in _names(config.get("component_names"), f"{where}.component_names"):
            component = components.get(part)
            if not isinstance(component, dict):
                raise damaged(f"{where}.component_names", part, f"one of {', '.join(components) or 'none'}")
            kept = {key: value for key, value in component.items() if key not in _NOT_OVERRIDDEN}
            fields = _overridden(fields, kept)
        merged[name] = fields
    return merged


def _overridden(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a mapping over another; other values, also lists, are replaced."""
    result = dict(below)
    for key, value in above.items():
        under = result.get(key)
        result[key] = (
            _overridden(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
        )
    return result


def _ranking(data: Mapping[str, Any], names: tuple[str, ...], origin: str) -> tuple[str, ...]:
    """Return the names by the ranking "overall", else sorted, as the SDK does."""
    ranked = _mapping(data, "inference_config_rankings", origin).get(RANKING)
    if ranked is None or names == (PLAIN,):
        return tuple(sorted(names))
    where = f"{origin}: inference_config_rankings.{RANKING}"
    if not isinstance(ranked, dict):
        raise damaged(where, ranked, "a mapping of fields")
    order = _names(ranked.get("rankings"), f"{where}.rankings")
    unknown = [name for name in order if name not in names]
    if unknown:
        raise damaged(f"{where}.rankings", unknown[0], f"one of {', '.join(names)}")
    return (*dict.fromkeys(order), *sorted(set(names) - set(order)))


def _mapping(data: Mapping[str, Any], field: str, origin: str) -> dict[str, Any]:
    value = data.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise damaged(f"{origin}: {field}", value, "a mapping of names to fields")
    return value


def _names(value: Any, origin: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise damaged(origin, value, "a list of names")
    return value
