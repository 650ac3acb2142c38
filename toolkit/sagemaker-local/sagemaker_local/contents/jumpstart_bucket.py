"""The documents of the local JumpStart bucket: a manifest, and one spec for each of the four models.

Their shape is that of AWS's bucket, so that the SageMaker SDK's own JumpStart path works against it.
What they say is AWS's own for gpt-oss-20b, and made for the local server for the other three; each made
spec says so in ``usage_info_message``, in its version and in the names of its artifacts.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

from sagemaker_local.aws_facts import data_file, registries

_DATA = "jumpstart.yaml"
MANIFEST_KEY = "models_manifest.json"
MADE_VERSION = "0.0.1+local"
# Where the stand-in weights of the made specs lie, in the public bucket.
MADE_TARGET = "peagle-sm-local/target/"
MADE_HEAD = "peagle-sm-local/p-eagle/"

Spec = dict[str, Any]


def public_bucket(region: str) -> str:
    """The bucket with manifest, specs and artifacts that are not gated."""
    return f"jumpstart-cache-prod-{region}"


def gated_bucket(region: str) -> str:
    """The bucket with gated artifacts."""
    return f"jumpstart-private-cache-prod-{region}"


def _variants(short: Mapping[str, Any]) -> Spec:
    """Expand image aliases for every region, and variants for every family."""
    aliases = {
        region: {alias: f"{registry}/{image}" for alias, image in short["aliases"].items()}
        for region, registry in registries().items()
    }
    families = {
        family: {"regional_properties": {"image_uri": f"${alias}"}}
        for alias, named in short["families"].items()
        for family in named
    }
    instances = {name: {"properties": properties} for name, properties in short["instances"].items()}
    return {"regional_aliases": aliases, "variants": {**families, **instances}}


def known_spec() -> Spec:
    """The spec of gpt-oss-20b, with the facts of AWS's own version 3.38.0."""
    spec: Spec = copy.deepcopy(data_file(_DATA)["known"])
    for component in spec["inference_config_components"].values():
        component["hosting_instance_type_variants"] = _variants(component["hosting_instance_type_variants"])
    return spec


def known_target() -> str:
    """The prefix of gpt-oss-20b's files in the public bucket."""
    return str(data_file(_DATA)["known"]["hosting_prepacked_artifact_key"])


def known_head() -> str:
    """The prefix of its P-EAGLE head in the public bucket."""
    optimized = data_file(_DATA)["known"]["inference_config_components"]["lmi-optimized"]
    [source] = optimized["hosting_additional_data_sources"]["speculative_decoding"]
    return str(source["s3_data_source"]["s3_uri"])


def _environment(variables: list[Spec], tokens: int, max_model_len: int) -> None:
    for variable in variables:
        if variable["name"] == "SM_VLLM_SPECULATIVE_CONFIG":
            config = json.loads(variable["default"])
            variable["default"] = json.dumps({**config, "num_speculative_tokens": tokens})
        elif variable["name"] == "SM_VLLM_MAX_MODEL_LEN":
            variable["default"] = str(max_model_len)


def _made_spec(given: Mapping[str, Any]) -> Spec:
    """A spec for another model, derived from the known spec, with stand-in artifacts."""
    spec = known_spec()
    spec |= {
        "model_id": given["model_id"],
        "resource_name_base": given["model_id"],
        "url": given["url"],
        "huggingface_id": given["url"].removeprefix("https://huggingface.co/"),
        "version": MADE_VERSION,
        "license": None,
        "usage_info_message": (
            "Generated for peagle-sm's local SageMaker: image, environment and artifacts differ from AWS's "
            "spec of this model, and its weights are small stand-ins."
        ),
    }
    for part in (spec, *spec["inference_config_components"].values()):
        part["hosting_artifact_key"] = part["hosting_prepacked_artifact_key"] = MADE_TARGET
        for source in part.get("hosting_additional_data_sources", {}).get("speculative_decoding", []):
            source["s3_data_source"]["s3_uri"] = MADE_HEAD
        _environment(
            part["inference_environment_variables"], given["num_speculative_tokens"], given["max_model_len"]
        )
    return spec


def specs() -> list[Spec]:
    """Every spec of the local bucket, the known one first."""
    return [known_spec(), *(_made_spec(given) for given in data_file(_DATA)["made"])]


def documents() -> dict[str, bytes]:
    """The objects of the public bucket by key: the manifest and each spec, as JSON."""
    rows, objects = [], {}
    for spec in specs():
        key = f"community_models_specs/{spec['model_id']}/specs_v{spec['version']}.json"
        objects[key] = json.dumps(spec).encode()
        rows.append(
            {
                "model_id": spec["model_id"],
                "version": spec["version"],
                "min_version": spec["min_sdk_version"],
                "spec_key": key,
            }
        )
    return {MANIFEST_KEY: json.dumps(rows).encode(), **objects}
