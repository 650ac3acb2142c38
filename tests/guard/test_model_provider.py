"""Custom::PeagleModel: the exact payload, retries that adopt, and no deletion of what it did not make."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peagle_guard.cfn_response import ProviderError
from peagle_guard.model_provider import provide
from tests.service.fakes import Client, FakeAws

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


@pytest.fixture
def aws() -> FakeAws:
    return FakeAws()


@pytest.fixture
def models(aws: FakeAws) -> Client:
    return aws.client("sagemaker")


def event(kind: str = "Create", payload: object = PAYLOAD, **more: Any) -> dict[str, Any]:
    text = json.dumps(payload)
    return {
        "RequestType": kind,
        "ResourceProperties": {"ModelName": "chat-12345678", "Payload": text},
        **more,
    }


def test_create_sends_the_exact_payload(aws: FakeAws, models: Client) -> None:
    created = provide(models, event())
    assert aws.sent["CreateModel"] == PAYLOAD
    assert created.physical_id == created.attributes["ModelName"] == "chat-12345678"
    assert created.attributes["ModelArn"].endswith("model/chat-12345678")


def test_a_retry_after_a_lost_answer_adopts_its_own_model(aws: FakeAws, models: Client) -> None:
    first = provide(models, event())
    assert provide(models, event()) == first
    assert len(aws.models) == 1


def test_other_content_under_that_name_is_refused(models: Client) -> None:
    models.create_model(**{**PAYLOAD, "EnableNetworkIsolation": False})
    with pytest.raises(ProviderError, match="exists with another EnableNetworkIsolation"):
        provide(models, event())


def test_a_change_is_another_model_and_the_same_model_is_never_replaced(aws: FakeAws, models: Client) -> None:
    old = provide(models, event())
    retagged = {**PAYLOAD, "Tags": []}
    assert provide(models, event("Update", retagged, PhysicalResourceId=old.physical_id)) == old
    changed = {**PAYLOAD, "ModelName": "chat-87654321"}
    update = event("Update", changed, PhysicalResourceId=old.physical_id)
    update["ResourceProperties"]["ModelName"] = "chat-87654321"
    assert provide(models, update).physical_id == "chat-87654321"
    provide(models, event("Delete", PhysicalResourceId=old.physical_id))
    assert list(aws.models) == ["chat-87654321"]


def test_deleting_a_model_that_is_not_there_is_done(models: Client) -> None:
    assert provide(models, event("Delete", PhysicalResourceId="chat-12345678")).physical_id


def test_rolling_back_a_refused_creation_leaves_the_others_model(aws: FakeAws, models: Client) -> None:
    models.create_model(**PAYLOAD)
    provide(models, event("Delete", PhysicalResourceId="not-created:chat-12345678"))
    assert list(aws.models) == ["chat-12345678"]


@pytest.mark.parametrize("payload", [None, [], "text", {"ModelName": "another"}])
def test_a_payload_that_is_none_is_refused(models: Client, payload: object) -> None:
    with pytest.raises(ProviderError):
        provide(models, event(payload=payload))
