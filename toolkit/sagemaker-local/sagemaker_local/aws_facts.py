"""Facts about AWS, with sources: image registries, accelerators, instance types."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import yaml


@cache
def data_file(name: str) -> Mapping[str, Any]:
    """Read a YAML file of this package's ``data/``; the result is shared, so copy it before a change."""
    text = resources.files("sagemaker_local").joinpath("data", name).read_text(encoding="utf-8")
    loaded: Mapping[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return loaded


def registries() -> Mapping[str, str]:
    """The host of AWS's registry of Deep Learning Containers, by region."""
    hosts: Mapping[str, str] = data_file("aws.yaml")["registries"]
    return hosts


def published_by_aws(image: str) -> bool:
    """Whether AWS publishes this image, so that the gate of ``container/`` is not in it."""
    host, _, path = image.partition("/")
    if host == "public.ecr.aws":
        return path.startswith("deep-learning-containers/")
    return host.partition(".")[0] in {registry.partition(".")[0] for registry in registries().values()}


def accelerators_of(instance_type: str) -> int | None:
    """Accelerators of one instance, for example 8 of ml.p6-b200.48xlarge; None when the type is not known."""
    _, _, name = instance_type.partition("ml.")
    family, _, size = name.partition(".")
    count: int | None = data_file("aws.yaml")["accelerators"].get(family, {}).get(size)
    return count


@cache
def instance_types(use: str) -> frozenset[str]:
    """The instance types that botocore's own service model allows, by use.

    ``use`` is ``ProductionVariant``, ``Training`` or ``Processing``.
    """
    from botocore.session import Session  # imported here: it is slow

    shape = Session().get_service_model("sagemaker").shape_for(f"{use}InstanceType")
    return frozenset(shape.metadata["enum"])
