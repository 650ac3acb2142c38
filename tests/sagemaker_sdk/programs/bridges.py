"""The SDK and this package on the same endpoints; prints the results as JSON."""

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


results: dict[str, object] = {}
# What follows finds its way by the objects alone, unless a line says otherwise.
url = os.environ.pop("AWS_ENDPOINT_URL")
os.environ.pop("AWS_ENDPOINT_URL_STS")

session = peagle_sm.make_session(local=target)
sdk = SdkSession(
    boto_session=session.to_boto3(),
    sagemaker_config={
        "SchemaVersion": "1.0",
        "SageMaker": {"PythonSDK": {"Modules": {"TelemetryOptOut": True}}},
    },
)
results["account"] = sdk.account_id()
results["bucket"] = sdk.default_bucket()

spec = {
    "name": NAME,
    "model": "gpt-oss-20b",
    "source": "jumpstart",
    "placement": {"instance_types": ["ml.g7e.2xlarge"]},
    "execution_role_arn": status["role_arn"],
}
endpoint = peagle_sm.deploy(spec, session=session, yes=True, unguarded=True)
theirs = SdkEndpoint.get(endpoint_name=NAME, session=session.to_boto3(), region=session.region)
results["theirs_status"] = theirs.endpoint_status
answer = theirs.invoke(body=json.dumps(BODY), content_type="application/json").body.read()
results["theirs_answered"] = bool(answer)
results["text"] = text_of(peagle_sm.connect(theirs.endpoint_name, session=session))

os.environ["AWS_ENDPOINT_URL"] = url
own = boto3.Session(region_name=status["region"])
results["text_by_session"] = text_of(
    peagle_sm.connect(NAME, session=peagle_sm.make_session(boto3_session=own))
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
results["text_by_hand"] = text_of(peagle_sm.connect(by_hand))
request = urllib.request.Request(
    f"{url}/endpoints/{by_hand}/openai/v1/chat/completions",
    data=b'{"model": "", "messages": [{"role": "user", "content": "hi"}]}',
    headers={
        "Authorization": f"Bearer {generate_token(region=status['region'])}",
        "Content-Type": "application/json",
    },
)
with urllib.request.urlopen(request) as response:
    results["by_token"] = response.status
resource.delete()
resource.wait_for_delete(poll=1)
EndpointConfig.get(endpoint_config_name=by_hand).delete()
Model.get(model_name=by_hand).delete()
results["gone"] = endpoint.delete().__class__.__name__
results["tried"] = sorted(TRIED)
print("\n" + json.dumps(results))
