"""Objects of the SDK and of this package, each made into the other; prints what came of it as JSON."""

from __future__ import annotations

import json
import os
import urllib.request

from offline import TRIED  # type: ignore[import-not-found]  # isort: skip

import boto3
from sagemaker.core.helper.session_helper import Session as SdkSession
from sagemaker.core.resources import Endpoint as SdkEndpoint
from sagemaker.core.resources import EndpointConfig, Model
from sagemaker.core.shapes import ContainerDefinition, ProductionVariant
from sagemaker.core.token_generator import generate_token

import peagle_sm

NAME = os.environ["NAME"]
BODY = json.loads(os.environ["BODY"])
status = json.loads(os.environ["STATUS"])
target = peagle_sm.LocalTarget.from_status(status)


def text_of(endpoint: peagle_sm.Endpoint) -> str:
    with endpoint.stream(BODY) as stream:
        return "".join(chunk.text for chunk in stream)


found: dict[str, object] = {}
# What follows finds its way by the objects alone, unless a line says otherwise.
url = os.environ.pop("AWS_ENDPOINT_URL")
os.environ.pop("AWS_ENDPOINT_URL_STS")

ours = peagle_sm.make_session(local=target)
quiet = {"SchemaVersion": "1.0", "SageMaker": {"PythonSDK": {"Modules": {"TelemetryOptOut": True}}}}
sdk = SdkSession(boto_session=ours.to_boto3(), sagemaker_config=quiet)
found["account"] = sdk.account_id()
found["bucket"] = sdk.default_bucket()
back = peagle_sm.make_session(sagemaker_session=sdk)
found["local_again"] = [back.is_local, back.local_url == url]

spec = {
    "name": NAME,
    "model": "gpt-oss-20b",
    "source": "jumpstart",
    "placement": {"instance_types": ["ml.g7e.2xlarge"]},
    "execution_role_arn": status["role_arn"],
}
endpoint = peagle_sm.deploy(spec, sagemaker_session=sdk, yes=True, unguarded=True)
theirs = SdkEndpoint.get(endpoint_name=NAME, session=ours.to_boto3(), region=ours.region)
found["theirs"] = f"{type(theirs).__module__}.{type(theirs).__name__}"
found["theirs_status"] = theirs.endpoint_status
answer = theirs.invoke(body=json.dumps(BODY), content_type="application/json").body.read()
found["theirs_answered"] = bool(answer)
found["local_from_theirs"] = peagle_sm.connect(theirs).session.is_local
found["text"] = text_of(peagle_sm.connect(theirs))
found["text_by_session"] = text_of(peagle_sm.connect(NAME, sagemaker_session=sdk))

# Objects that the SDK made by itself: by the environment, and by a boto3 session of one's own.
os.environ["AWS_ENDPOINT_URL"] = url
found["text_by_environment"] = text_of(peagle_sm.connect(SdkEndpoint.get(endpoint_name=NAME)))
own = boto3.Session(region_name=status["region"])
held = SdkEndpoint.get(endpoint_name=NAME, session=own, region=status["region"])
found["own_session"] = peagle_sm.connect(held).session.to_boto3() is own
found["own_sdk_session"] = (
    peagle_sm.make_session(sagemaker_session=SdkSession(boto_session=own)).to_boto3() is own
)
# An endpoint by the SDK's resource classes alone, from its model to its end.
by_hand = f"{NAME}-by-hand"
container = ContainerDefinition(
    image=status["image_uris"]["vllm-cpu"], environment={"SCRIPT_INVOKE": "openai"}
)
Model.create(model_name=by_hand, primary_container=container, execution_role_arn=status["role_arn"])
variant = ProductionVariant(
    variant_name="AllTraffic", model_name=by_hand, instance_type="ml.g7e.2xlarge", initial_instance_count=1
)
EndpointConfig.create(endpoint_config_name=by_hand, production_variants=[variant])
resource = SdkEndpoint.create(endpoint_name=by_hand, endpoint_config_name=by_hand)
resource.wait_for_status("InService", poll=1)
found["text_by_hand"] = text_of(peagle_sm.connect(resource))
request = urllib.request.Request(
    f"{url}/endpoints/{by_hand}/openai/v1/chat/completions",
    data=b'{"model": "", "messages": [{"role": "user", "content": "hi"}]}',
    headers={
        "Authorization": f"Bearer {generate_token(region=status['region'])}",
        "Content-Type": "application/json",
    },
)
with urllib.request.urlopen(request) as response:
    found["by_token"] = response.status
resource.delete()
resource.wait_for_delete(poll=1)
EndpointConfig.get(endpoint_config_name=by_hand).delete()
Model.get(model_name=by_hand).delete()
found["gone"] = endpoint.delete().__class__.__name__
found["tried"] = sorted(TRIED)
print("\n" + json.dumps(found))
