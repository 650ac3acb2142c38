"""Custom::PeagleModel: the exact payload, retries that adopt, and no deletion of what it did not make."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from peagle_guard.cfn_response import ProviderError
from peagle_guard.model_provider import provide
from tests.local.serving import Server

TAGS = [{"Key": "peagle-sm:managed-by", "Value": "peagle-sm"}]
NAMES = ("chat-12345678", "chat-87654321")


@pytest.fixture
def models(server: Server) -> Iterator[Any]:
    """A client of the local SageMaker's models, of which none is left at the end."""
    client = server.client("sagemaker")
    yield client
    for name in _left(client):
        client.delete_model(ModelName=name)


def _left(models: Any) -> list[str]:
    return [row["ModelName"] for row in models.list_models(NameContains="chat-")["Models"]]


@pytest.fixture
def payload(server: Server) -> dict[str, Any]:
    status = server.status
    draft = {"S3Uri": status.artifacts["p-eagle"], "S3DataType": "S3Prefix", "CompressionType": "None"}
    return {
        "ModelName": NAMES[0],
        "PrimaryContainer": {
            "Image": status.image_uris["vllm"],
            "Environment": {"SM_VLLM_MAX_MODEL_LEN": "8192"},
            "AdditionalModelDataSources": [{"ChannelName": "eagle", "S3DataSource": draft}],
        },
        "ExecutionRoleArn": status.role_arn,
        "EnableNetworkIsolation": True,
        "Tags": TAGS,
    }


def event(payload: object, kind: str = "Create", **more: Any) -> dict[str, Any]:
    properties = {"ModelName": NAMES[0], "Payload": json.dumps(payload)}
    return {"RequestType": kind, "ResourceProperties": properties, **more}


def test_create_sends_the_exact_payload(models: Any, payload: dict[str, Any]) -> None:
    created = provide(models, event(payload))
    described = models.describe_model(ModelName=NAMES[0])
    assert payload["PrimaryContainer"].items() <= described["PrimaryContainer"].items()
    for key in ("ExecutionRoleArn", "EnableNetworkIsolation"):
        assert described[key] == payload[key]
    assert models.list_tags(ResourceArn=described["ModelArn"])["Tags"] == TAGS
    assert created.physical_id == created.attributes["ModelName"] == NAMES[0]
    assert created.attributes["ModelArn"] == described["ModelArn"]


def test_a_retry_after_a_lost_answer_adopts_its_own_model(models: Any, payload: dict[str, Any]) -> None:
    first = provide(models, event(payload))
    assert provide(models, event(payload)) == first


def test_other_content_under_that_name_is_refused(models: Any, payload: dict[str, Any]) -> None:
    models.create_model(**{**payload, "EnableNetworkIsolation": False})
    with pytest.raises(ProviderError, match="exists with another EnableNetworkIsolation"):
        provide(models, event(payload))


def test_a_change_is_another_model_and_the_same_model_is_never_replaced(
    models: Any, payload: dict[str, Any]
) -> None:
    old = provide(models, event(payload))
    retagged = {**payload, "Tags": []}
    assert provide(models, event(retagged, "Update", PhysicalResourceId=old.physical_id)) == old
    update = event({**payload, "ModelName": NAMES[1]}, "Update", PhysicalResourceId=old.physical_id)
    update["ResourceProperties"]["ModelName"] = NAMES[1]
    assert provide(models, update).physical_id == NAMES[1]
    for _ in range(2):  # deleting a model that does not exist is done, too
        provide(models, event(payload, "Delete", PhysicalResourceId=old.physical_id))
    assert _left(models) == [NAMES[1]]


def test_rolling_back_a_refused_creation_leaves_the_others_model(
    models: Any, payload: dict[str, Any]
) -> None:
    models.create_model(**payload)
    provide(models, event(payload, "Delete", PhysicalResourceId=f"not-created:{NAMES[0]}"))
    assert _left(models) == [NAMES[0]]


@pytest.mark.parametrize("wrong", [None, [], "text", {"ModelName": "another"}])
def test_a_payload_that_is_none_is_refused(models: Any, wrong: object) -> None:
    with pytest.raises(ProviderError):
        provide(models, event(wrong))
