"""Resolution of a JumpStart config: image, files, environment by instance type.

The buckets are the region's; an environment variable replaces the public one, as in the SageMaker Python SDK.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from peagle_sm.core.errors import NotFound
from peagle_sm.core.jumpstart.documents import (
    Channel,
    Config,
    Document,
    Properties,
    Variant,
    Variants,
    damaged,
)
from peagle_sm.core.spec.lock import LockedInstance

# The SageMaker SDK's own name (sagemaker.core.jumpstart.constants).
PUBLIC_OVERRIDE = "AWS_JUMPSTART_CONTENT_BUCKET_OVERRIDE"


@dataclass(frozen=True)
class Buckets:
    """JumpStart's buckets; ``public`` also has the manifest and the specs, ``neo`` other providers' heads."""

    public: str
    gated: str
    neo: str


def buckets_for(region: str, environ: Mapping[str, str]) -> Buckets:
    """Return a region's buckets, with the names in the SDK's region_config.json.

    Not every region has the bucket of other providers' heads; the check artifacts-readable finds that.
    """
    return Buckets(
        public=environ.get(PUBLIC_OVERRIDE) or f"jumpstart-cache-prod-{region}",
        gated=f"jumpstart-private-cache-prod-{region}",
        neo=f"sagemaker-sd-models-prod-{region}",
    )


_OTHER_REMEDY = "Choose another type in placement.instance_types, or another --region."


@dataclass(frozen=True)
class Head:
    """Draft head of a config."""

    channel: str
    uri: str
    artifact_version: str | None
    gated: bool


@dataclass(frozen=True)
class Resolved:
    """Facts of one config in one region for the Create calls."""

    config: str
    instances: Mapping[str, LockedInstance]
    environment: Mapping[str, str]
    heads: tuple[Head, ...]
    gated: bool
    eula_uris: tuple[str, ...]
    network_isolation: bool
    download_timeout_s: int | None
    startup_timeout_s: int | None
    default_instance_type: str | None
    supported_instance_types: tuple[str, ...]


def choose_config(document: Document, requested: str | None = None) -> str:
    """Return the requested config, else the first with a head, else the first.

    Raises:
        NotFound: no config has the requested name.
    """
    if requested is not None:
        document.config(requested)
        return requested
    with_head = [name for name in document.ranking if document.configs[name].heads]
    return (with_head or list(document.ranking))[0]


def resolve_config(
    document: Document, config_name: str, *, region: str, instance_types: Sequence[str], buckets: Buckets
) -> Resolved:
    """Resolve one config; ``instance_types`` defaults to the config's own.

    Raises:
        CatalogueDamaged: the spec lacks a field that a deployment needs.
        NotFound: the config does not exist, or the region lacks the image of an instance type.
    """
    config = document.config(config_name)
    where = f"{document.origin}: config {config_name}"
    default = config.default_inference_instance_type
    wanted = tuple(instance_types) or ((default,) if default else ())
    if not wanted:
        raise damaged(f"{where}: default_inference_instance_type", default, "an instance type")
    target_bucket = buckets.gated if document.model.gated_bucket else buckets.public
    heads = tuple(_head(channel, buckets) for channel in config.heads)
    keys = [config.hosting_eula_key, *(channel.hosting_eula_key for channel in config.heads)]
    return Resolved(
        config=config_name,
        instances={
            name: LockedInstance(
                image=_image(config, name, region, document),
                target_uri=_uri(target_bucket, _target_key(config, name, where)),
                environment=_texts(_own(config.hosting_instance_type_variants, name)),
            )
            for name in wanted
        },
        environment={
            variable.name: _text(variable.default) for variable in config.inference_environment_variables
        },
        heads=heads,
        # JumpStartModelSpecs.is_gated_model: a gated bucket or a licence to accept
        gated=document.model.gated_bucket or any(keys) or any(head.gated for head in heads),
        eula_uris=tuple(_uri(buckets.public, key) for key in dict.fromkeys(keys) if key),
        network_isolation=config.inference_enable_network_isolation,
        download_timeout_s=config.deploy_kwargs.model_data_download_timeout,
        startup_timeout_s=config.deploy_kwargs.container_startup_health_check_timeout,
        default_instance_type=default,
        supported_instance_types=config.supported_inference_instance_types or (),
    )


def family_of(instance_type: str) -> str:
    """Return "g5" for "ml.g5.12xlarge"; empty if the name has no family."""
    match = re.match(r"^ml[._]([a-z\d\-]+)\.?\w*$", instance_type)
    return match[1] if match else ""


def _pair(variants: Variants | None, instance_type: str) -> tuple[Variant, ...]:
    """Return the variants of an instance type: its own, then its family's."""
    known = variants.variants if variants else {}
    return tuple(known[name] for name in (instance_type, family_of(instance_type)) if name in known)


def _own(variants: Variants | None, instance_type: str) -> tuple[Properties, ...]:
    return tuple(variant.properties for variant in _pair(variants, instance_type) if variant.properties)


def _image(config: Config, instance_type: str, region: str, document: Document) -> str:
    variants = config.hosting_instance_type_variants
    aliases = variants.regional_aliases if variants else None
    for variant in _pair(variants, instance_type):
        if not aliases:
            named = variant.properties and variant.properties.image_uri
            if named:
                return named
            continue
        alias = variant.regional_properties and variant.regional_properties.image_uri
        if alias:
            uri = aliases.get(region, {}).get(alias.removeprefix("$")) if alias.startswith("$") else None
            if uri is None:
                raise NotFound(
                    f"{document.model.model_id} {document.model.version} has no image {alias} for "
                    f"{instance_type} in {region}",
                    next_step=_OTHER_REMEDY,
                )
            return uri
    families = sorted(variants.variants) if variants else []
    raise NotFound(
        f"{document.model.model_id} {document.model.version} has no image for {instance_type}; "
        f"it has images for {', '.join(families) or 'none'}",
        next_step=_OTHER_REMEDY,
    )


def _target_key(config: Config, instance_type: str, where: str) -> str:
    """Return the key of the target's files: prepacked, unless a script is added."""
    own = _own(config.hosting_instance_type_variants, instance_type)
    prepacked = next(
        (properties.prepacked_artifact_key for properties in own if properties.prepacked_artifact_key), None
    )
    prepacked = prepacked or config.hosting_prepacked_artifact_key
    plain = (
        next((properties.artifact_key for properties in own if properties.artifact_key), None)
        or config.hosting_artifact_key
    )
    if config.hosting_prepacked_artifact_key is None and config.hosting_use_script_uri:
        key = plain
    else:
        key = prepacked or plain
    if key is None:
        raise damaged(f"{where}: hosting_prepacked_artifact_key", None, "the key of the model's files")
    return key


def _head(channel: Channel, buckets: Buckets) -> Head:
    """Return a channel's head and bucket (SDK: get_draft_model_content_bucket)."""
    provider, key = channel.provider, channel.s3_data_source.s3_uri
    gated = provider is not None and provider.name == "JumpStart" and provider.classification == "gated"
    if provider is None or provider.name != "JumpStart":
        bucket = buckets.neo
    else:
        bucket = buckets.gated if gated else buckets.public
    return Head(channel.channel_name, _uri(bucket, key), channel.artifact_version, gated)


def _uri(bucket: str, key: str) -> str:
    return key if key.startswith("s3://") else f"s3://{bucket}/{key}"


def _text(value: str | int | float | bool) -> str:
    return str(value)  # as the SDK does: True becomes "True"


def _texts(properties: Sequence[Properties]) -> dict[str, str]:
    """Merge the environment of an instance type over that of its family."""
    merged: dict[str, str] = {}
    for variant_properties in reversed(properties):
        merged |= {
            name: _text(value) for name, value in (variant_properties.environment_variables or {}).items()
        }
    return merged
