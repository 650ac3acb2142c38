"""Custom::PeagleModel: sends a CreateModel request with fields that CloudFormation does not have.

The model's name contains the hash of its content, so a change creates another model, and CloudFormation
deletes the old one afterwards. A retry adopts its own model; other content under that name is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from peagle_guard.boto_aws import client, is_missing
from peagle_guard.cfn_response import Context, Made, ProviderError, respond

# Not a model's id: a failed creation must not lead to the deletion of an existing model of that name.
_NOT_CREATED = "not-created:"


def provide(models: Any, event: Mapping[str, Any]) -> Made:
    """Handle CloudFormation's request for one model.

    Raises:
        ProviderError: the properties are not what they must be, or the name is another model's.
    """
    if event["RequestType"] == "Delete":
        return _delete(models, str(event["PhysicalResourceId"]))
    properties = event["ResourceProperties"]
    name, payload = str(properties.get("ModelName", "")), _payload(properties.get("Payload"))
    if not name or payload.get("ModelName", name) != name:
        raise ProviderError(
            f"ModelName: found {name!r}, and {payload.get('ModelName')!r} in Payload; they differ"
        )
    return _create(models, name, {**payload, "ModelName": name})


def _payload(text: object) -> dict[str, Any]:
    try:
        payload = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        payload = None
    if not isinstance(payload, dict):
        raise ProviderError("Payload: must be the CreateModel request as JSON text")
    return payload


def _create(models: Any, name: str, payload: Mapping[str, Any]) -> Made:
    try:
        arn = models.create_model(**payload)["ModelArn"]
    except ClientError as error:
        if "already existing" not in error.response["Error"].get("Message", "").lower():
            raise
        arn = _adopted(models, name, payload)
    return Made(name, {"ModelName": name, "ModelArn": arn})


def _adopted(models: Any, name: str, payload: Mapping[str, Any]) -> str:
    """Return the ARN of the existing model if it equals the requested one."""
    existing = models.describe_model(ModelName=name)
    wanted = {key: value for key, value in payload.items() if key != "Tags"}
    different = sorted(key for key, value in wanted.items() if not _holds(existing.get(key), value))
    if different:
        raise ProviderError(
            f"model {name} exists with another {', '.join(different)}. A model cannot be changed: "
            f"delete it (aws sagemaker delete-model --model-name {name}) and deploy again."
        )
    return str(existing["ModelArn"])


def _holds(existing: Any, wanted: Any) -> bool:
    """Decide whether a description contains all requested values; AWS adds defaults."""
    if isinstance(wanted, Mapping):
        return isinstance(existing, Mapping) and all(
            _holds(existing.get(key), value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(existing, list)
            and len(existing) == len(wanted)
            and all(_holds(item, requested) for item, requested in zip(existing, wanted, strict=True))
        )
    return bool(existing == wanted)


def _delete(models: Any, name: str) -> Made:
    if not name.startswith(_NOT_CREATED):
        try:
            models.delete_model(ModelName=name)
        except ClientError as error:
            if not is_missing(error):
                raise
    return Made(name)


def handler(event: Mapping[str, Any], context: Context) -> None:
    """Handle one request of CloudFormation."""
    wanted = str(event.get("ResourceProperties", {}).get("ModelName", ""))
    respond(event, context, lambda: provide(client("sagemaker"), event), f"{_NOT_CREATED}{wanted}")
