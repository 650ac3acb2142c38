"""The SDK's own JumpStart path, unmodified, by environment variables; nothing of this project is imported.

Prints what happened as JSON, the failures that docs/how-to/sagemaker-sdk.md tells of among it.
"""

from __future__ import annotations

import json
import os
import urllib.request

from offline import TRIED  # type: ignore[import-not-found]  # isort: skip

import boto3
from sagemaker.core.jumpstart.configs import JumpStartConfig
from sagemaker.core.resources import Endpoint
from sagemaker.core.training.configs import Compute
from sagemaker.serve.model_builder import ModelBuilder

ROLE = json.loads(os.environ["STATUS"])["role_arn"]
NAME = os.environ["NAME"]
BODY = os.environ.get(
    "BODY", '{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "temperature": 0}'
)
MODEL = JumpStartConfig(model_id="openai-reasoning-gpt-oss-20b")


def builder(instance_type: str = "ml.g7e.2xlarge", **more: object) -> ModelBuilder:
    compute = Compute(instance_type=instance_type, instance_count=1)
    return ModelBuilder.from_jumpstart_config(MODEL, compute=compute, role_arn=ROLE, **more)


def failure(call: object, *args: object, **options: object) -> str:
    try:
        call(*args, **options)  # type: ignore[operator]
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def container(model: object) -> dict[str, object]:
    described = boto3.client("sagemaker").describe_model(ModelName=model.model_name)  # type: ignore[attr-defined]
    return dict(described["PrimaryContainer"])


def reach_sts() -> None:
    """The SDK writes STS's address itself; this sends the call where the environment says."""
    boto3.setup_default_session()
    url = os.environ["AWS_ENDPOINT_URL"] + "/"
    assert boto3.DEFAULT_SESSION is not None
    boto3.DEFAULT_SESSION.events.register("before-call.sts", lambda params, **_: params.update(url=url))


found: dict[str, object] = {}
if "BROKEN" in os.environ:
    found["without_sts"] = failure(builder().build)
reach_sts()
if "BROKEN" in os.environ:
    found["tried"] = sorted(TRIED)

mine = builder(env_vars={"SM_VLLM_MAX_MODEL_LEN": "4096", "SM_VLLM_SEED": "7"})
if "BROKEN" in os.environ:
    listed = [row["DeploymentArgs"] for row in mine.list_deployment_configs()]
    found["listed"] = [row["ImageUri"] for row in listed]
found["container"] = container(mine.build())
if "BROKEN" in os.environ:
    found["on_g5"] = container(builder("ml.g5.12xlarge").build())

# By default the SDK looks again after 30 s, which a test with a scripted engine need not wait for.
endpoint = mine.deploy(endpoint_name=NAME, wait="PATIENT" in os.environ)
endpoint.wait_for_status("InService", poll=1)
found["type"] = f"{type(endpoint).__module__}.{type(endpoint).__name__}"
found["status"] = endpoint.endpoint_status
answer = endpoint.invoke(body=BODY, content_type="application/json")
found["answer"] = answer.body.read().decode()
found["stream"] = failure(
    Endpoint.get(endpoint_name=NAME).invoke_with_response_stream, body=BODY, content_type="application/json"
)
if "OURS" in os.environ:
    import peagle_sm

    with peagle_sm.connect(endpoint.endpoint_name).stream(json.loads(BODY)) as stream:
        found["ours"] = "".join(chunk.text for chunk in stream)
if "METRICS" in os.environ:
    with urllib.request.urlopen(os.environ["METRICS"]) as page:
        lines = [
            line for line in page.read().decode().splitlines() if "spec_decode_num_drafts_total{" in line
        ]
    found["drafts"] = sum(float(line.rpartition(" ")[2]) for line in lines)
endpoint.delete()
endpoint.wait_for_delete(poll=1)
client = boto3.client("sagemaker")
found["left"] = {
    "endpoints": [row["EndpointName"] for row in client.list_endpoints(NameContains=NAME)["Endpoints"]],
    "configs": [
        row["EndpointConfigName"]
        for row in client.list_endpoint_configs(NameContains=NAME)["EndpointConfigs"]
    ],
    "models": [row["ModelName"] for row in client.list_models(NameContains=mine.model_name)["Models"]],
}
print("\n" + json.dumps(found))
