"""Bridges to the SageMaker Python SDK, which is optional.

Its objects are recognized by their attributes, so reading one imports nothing of the SDK; only returning one
does. These attributes are read: of v3's ``Session`` ``boto_session``; of its ``Endpoint`` ``endpoint_name``,
``_session`` and ``_region`` (its boto3 session and region, if given); of its ``ModelBuilder``
``sagemaker_session``; of v2's ``Predictor`` ``endpoint_name`` and ``sagemaker_session``. ``session.py`` reads
the sessions. Source: packages sagemaker-core 2.27.0 and sagemaker-serve 1.27.0 (``sagemaker`` 3.27.0), and
``sagemaker`` 2.257.

`spec_from_builder` converts what ``ModelBuilder.from_jumpstart_config`` sets (``serve/model_builder.py`` of
sagemaker-serve) to a spec.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from peagle_sm.aws.session.errors import aws_errors
from peagle_sm.core.catalog import SPECULATIVE_CONFIG, load_catalog
from peagle_sm.core.errors import NotFound, SpecError
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.spec.own_model import OwnModel
from peagle_sm.core.spec.validation import show, suggest
from peagle_sm.core.words import install_command

EXTRA = install_command("sagemaker")
# The SDK reports each call of ModelBuilder to a bucket of AWS; for local calls this is turned off.
_NO_TELEMETRY = {
    "SchemaVersion": "1.0",
    "SageMaker": {"PythonSDK": {"Modules": {"TelemetryOptOut": True}}},
}


def endpoint_name_of(endpoint: Any) -> str:
    """Return the name of an SDK endpoint: v3's ``Endpoint`` or v2's ``Predictor``.

    Raises:
        SpecError: it is neither of these.
    """
    name = getattr(endpoint, "endpoint_name", None)
    if not isinstance(name, str):
        raise SpecError(
            f"endpoint: found {type(endpoint).__name__}; allowed: a name, or an Endpoint of the SageMaker "
            "Python SDK (sagemaker.core.resources.Endpoint, or v2's Predictor).",
            next_step="Give the endpoint's name.",
        )
    return name


def sdk_session(boto3_session: Any, *, telemetry: bool) -> Any:
    """Return an SDK Session that creates its clients with ``boto3_session``.

    Raises:
        NotFound: the SDK, version 3, is not installed.
    """
    helper = _sdk("sagemaker.core.helper.session_helper")
    config = {} if telemetry else {"sagemaker_config": _NO_TELEMETRY}
    return helper.Session(boto_session=boto3_session, **config)


def sdk_endpoint(boto3_session: Any, name: str, *, region: str, local_url: str | None) -> Any:
    """Return the SDK's ``sagemaker.core.resources.Endpoint`` for an endpoint.

    Raises:
        NotFound: the SDK, version 3, is not installed, or the endpoint does not exist.
    """
    resources = _sdk("sagemaker.core.resources")
    with aws_errors("DescribeEndpoint", local_url):
        return resources.Endpoint.get(endpoint_name=name, session=boto3_session, region=region)


def _sdk(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise NotFound(
            f"This needs the SageMaker Python SDK, version 3, which is not installed here ({error}).",
            next_step=EXTRA,
        ) from error


# Variables for which a spec has a field of its own, so that memory fit and cost are reckoned with them.
_FIELDS = {
    "SM_VLLM_MAX_MODEL_LEN": "max_model_len",
    "SM_VLLM_TENSOR_PARALLEL_SIZE": "tensor_parallel_size",
    "SM_VLLM_DATA_PARALLEL_SIZE": "data_parallel_size",
    "SM_VLLM_STREAM_INTERVAL": "stream_interval",
    "SM_VLLM_KV_CACHE_DTYPE": "kv_cache_dtype",
}
_DRAFT_FIELDS = (
    "num_speculative_tokens",
    "draft_tensor_parallel_size",
    "draft_sample_method",
    "num_speculative_tokens_per_batch_size",
)
_BEFORE = "Pass the builder to peagle_sm before build(), as from_jumpstart_config() returned it."
_OF_ONES_OWN = "Write a spec instead (`peagle-sm init`), with source: container if it needs its own image."


def is_builder(thing: object) -> bool:
    """Return whether it is a ModelBuilder, by its class name and attributes."""
    named = any(base.__name__ == "ModelBuilder" for base in type(thing).__mro__)
    return named and hasattr(thing, "model") and hasattr(thing, "env_vars")


def spec_from_builder(builder: Any, *, name: str | None = None, **fields: Any) -> EndpointSpec:
    """Return the spec of a JumpStart ModelBuilder's deployment, with P-EAGLE.

    It uses the builder's model, instance type and count, role, EULA, image, VPC and environment variables.
    ``name`` is the endpoint's name, by default the model's; ``fields`` are other fields of EndpointSpec, such
    as ``lifecycle`` and ``speculation``, and override the builder's. For a model that the catalogue does not
    have, give ``model`` as a spec has it: ``{"name": …, "config": …}``, or with its id in ``jumpstart``.

    Raises:
        SpecError: the builder is built, has a setting that specs lack, or its model is neither in the
            catalogue nor given as ``model``.
    """
    _refuse_what_no_spec_has(builder)
    model = fields.pop("model", None) or _model_id(builder)
    if isinstance(model, OwnModel):
        model = model.model_dump(exclude_none=True)
    of_jumpstart = isinstance(model, str) or "jumpstart" in model
    serving, speculation = _environment(builder.env_vars or {})
    said: dict[str, Any] = {
        "name": name or (model if isinstance(model, str) else str(model.get("name"))).replace(".", "-"),
        "model": model,
        "source": "jumpstart" if of_jumpstart else "container",
        "serving": serving,
        "speculation": speculation,
        "placement": _placement(builder),
        "accept_eula": bool(getattr(builder, "accept_eula", False)),
        "execution_role_arn": builder.role_arn,
        "image": builder.image_uri,
    }
    vpc = getattr(builder, "vpc_config", None)
    if vpc:
        ids = {"subnet_ids": vpc["Subnets"], "security_group_ids": vpc["SecurityGroupIds"]}
        said["security"] = {"vpc": ids}
    return EndpointSpec(**{**{key: value for key, value in said.items() if value}, **fields})


def _refuse_what_no_spec_has(builder: Any) -> None:
    if getattr(builder, "built_model", None) is not None:
        raise SpecError(
            "ModelBuilder: found one after build(); allowed: one before build(), which replaces its "
            "environment variables with JumpStart's and creates a model.",
            next_step=_BEFORE,
        )
    mode = getattr(getattr(builder, "mode", None), "name", "SAGEMAKER_ENDPOINT")
    if mode != "SAGEMAKER_ENDPOINT":
        raise SpecError(
            f"ModelBuilder.mode: found {mode}; allowed: SAGEMAKER_ENDPOINT.",
            next_step="For this machine, start `peagle-sm local up` and deploy with local=True.",
        )
    for attribute in ("hub_name", "resource_requirements", "model_kms_key"):
        if getattr(builder, attribute, None):
            raise SpecError(
                f"ModelBuilder.{attribute}: found {show(getattr(builder, attribute))}; "
                "allowed: none, since a spec has no such field.",
                next_step=f"Leave {attribute} out.",
            )


def _model_id(builder: Any) -> str:
    """Return the catalogue id of the builder's model; refuse unknown versions."""
    catalog = load_catalog()
    ids = {
        entry.jumpstart_model_id: name for name, entry in catalog.models.items() if entry.jumpstart_model_id
    }
    asked = builder.model
    if not isinstance(asked, str) or asked not in ids:
        near = suggest(asked, ids) if isinstance(asked, str) else ""
        raise SpecError(
            f"ModelBuilder.model: found {show(asked)}; allowed: a JumpStart id of a model with a P-EAGLE "
            f"head: {', '.join(sorted(ids))}.{near}",
            next_step='Give model={"name": …, "config": …} or {"name": …, "jumpstart": …}. ' + _OF_ONES_OWN,
        )
    known = catalog.jumpstart.get(ids[asked])
    for attribute, only in (("model_version", "version"), ("config_name", "config_name")):
        wanted = getattr(builder, attribute, None)
        if wanted in (None, "*") or (known is not None and wanted == getattr(known, only)):
            continue
        allowed = f"{getattr(known, only)}, or left out" if known else "left out"
        raise SpecError(
            f"ModelBuilder.{attribute}: found {show(wanted)}; allowed: {allowed}.",
            next_step=f"Leave {attribute} out, or deploy with the builder itself.",
        )
    return ids[asked]


def _placement(builder: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"instance_count": getattr(builder, "instance_count", None) or 1}
    if getattr(builder, "instance_type", None):
        found["instance_types"] = [builder.instance_type]
    return found


def _environment(variables: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Convert variables to fields of `serving` and of `speculation`."""
    serving: dict[str, Any] = {}
    for variable, field in _FIELDS.items():
        if variable in variables:
            text = variables[variable]
            serving[field] = text if field == "kv_cache_dtype" else _read(variable, text, int)
    rest = {name: text for name, text in variables.items() if name not in (*_FIELDS, SPECULATIVE_CONFIG)}
    if rest:
        serving["env"] = rest
    if SPECULATIVE_CONFIG not in variables:
        return serving, {}
    given = _read(SPECULATIVE_CONFIG, variables[SPECULATIVE_CONFIG], _speculative)
    speculation = {"mode": "p-eagle" if given.get("parallel_drafting") else "eagle3"}
    return serving, {**speculation, **{name: given[name] for name in _DRAFT_FIELDS if given.get(name)}}


def _speculative(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict) or found.get("method", "eagle3") != "eagle3":
        raise ValueError("not EAGLE-3 or P-EAGLE")
    return found


def _read(variable: str, text: str, reader: Callable[[str], Any]) -> Any:
    try:
        return reader(text)
    except ValueError as error:
        wanted = "a whole number" if reader is int else 'a JSON object of vLLM with method "eagle3"'
        raise SpecError(
            f"ModelBuilder.env_vars.{variable}: found {show(text)}; allowed: {wanted}.",
            next_step=f"Correct {variable}, or leave it out.",
        ) from error
