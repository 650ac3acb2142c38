"""Custom::PeagleModel: the exact payload, retries that adopt, and no deletion of what it did not make."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from peagle_guard.cfn_response import ProviderError
from peagle_guard.model_provider import provide

PAYLOAD: dict[str, Any] = {
    "ModelName": "chat-12345678",
    "PrimaryContainer": {
        "Image": "763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.30.0",
        "Environment": {"SM_VLLM_MAX_MODEL_LEN": "8192"},
        "AdditionalModelDataSources": [{"ChannelName": "eagle", "S3DataSource": {"S3Uri": "s3://b/eagle/"}}],
    },
    "ExecutionRoleArn": "arn:aws:iam::123456789012:role/peagle-execution-us-east-1",
    "EnableNetworkIsolation": True,
    "Tags": [{"Key": "peagle-sm:managed-by", "Value": "peagle-sm"}],
}


def refusal(message: str) -> ClientError:
    return ClientError({"Error": {"Code": "ValidationException", "Message": message}}, "CreateModel")


class FakeModels:
    def __init__(self) -> None:
        self.models: dict[str, dict[str, Any]] = {}
        self.created: list[dict[str, Any]] = []

    def create_model(self, **parameters: Any) -> Any:
        name = parameters["ModelName"]
        if name in self.models:
            raise refusal(f'Cannot create already existing model "arn:.../{name}".')
        self.created.append(parameters)
        self.models[name] = {
            **parameters,
            "ModelArn": f"arn:aws:sagemaker:us-east-1:123456789012:model/{name}",
        }
        return {"ModelArn": self.models[name]["ModelArn"]}

    def describe_model(self, **parameters: Any) -> Any:
        held = {key: value for key, value in self.models[parameters["ModelName"]].items() if key != "Tags"}
        # AWS adds what was left out.
        container = {**held["PrimaryContainer"], "Mode": "SingleModel"}
        return {**held, "PrimaryContainer": container, "CreationTime": "then"}

    def delete_model(self, **parameters: Any) -> Any:
        if self.models.pop(parameters["ModelName"], None) is None:
            raise refusal(f'Could not find model "arn:.../{parameters["ModelName"]}".')
        return {}


def event(kind: str = "Create", payload: object = PAYLOAD, **more: Any) -> dict[str, Any]:
    text = json.dumps(payload)
    return {
        "RequestType": kind,
        "ResourceProperties": {"ModelName": "chat-12345678", "Payload": text},
        **more,
    }


def test_create_sends_the_exact_payload() -> None:
    models = FakeModels()
    created = provide(models, event())
    assert models.created == [PAYLOAD]
    assert created.physical_id == created.attributes["ModelName"] == "chat-12345678"
    assert created.attributes["ModelArn"].endswith("model/chat-12345678")


def test_a_retry_after_a_lost_answer_adopts_its_own_model() -> None:
    models = FakeModels()
    first = provide(models, event())
    assert provide(models, event()) == first
    assert len(models.created) == 1


def test_other_content_under_that_name_is_refused() -> None:
    models = FakeModels()
    models.create_model(**{**PAYLOAD, "EnableNetworkIsolation": False})
    with pytest.raises(ProviderError, match="exists with another EnableNetworkIsolation"):
        provide(models, event())


def test_a_change_is_another_model_and_the_same_model_is_never_replaced() -> None:
    models = FakeModels()
    old = provide(models, event())
    retagged = {**PAYLOAD, "Tags": []}
    assert provide(models, event("Update", retagged, PhysicalResourceId=old.physical_id)) == old
    changed = {**PAYLOAD, "ModelName": "chat-87654321"}
    update = event("Update", changed, PhysicalResourceId=old.physical_id)
    update["ResourceProperties"]["ModelName"] = "chat-87654321"
    assert provide(models, update).physical_id == "chat-87654321"
    provide(models, event("Delete", PhysicalResourceId=old.physical_id))
    assert list(models.models) == ["chat-87654321"]


def test_deleting_a_model_that_is_not_there_is_done() -> None:
    assert provide(FakeModels(), event("Delete", PhysicalResourceId="chat-12345678")).physical_id


def test_rolling_back_a_refused_creation_leaves_the_others_model() -> None:
    models = FakeModels()
    models.create_model(**PAYLOAD)
    provide(models, event("Delete", PhysicalResourceId="not-created:chat-12345678"))
    assert list(models.models) == ["chat-12345678"]


@pytest.mark.parametrize("payload", [None, [], "text", {"ModelName": "another"}])
def test_a_payload_that_is_none_is_refused(payload: object) -> None:
    with pytest.raises(ProviderError):
        provide(FakeModels(), event(payload=payload))
