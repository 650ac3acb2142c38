"""Checks on what an endpoint would let others see or do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from peagle_sm.core.checks.base import Check, Note, check
from peagle_sm.core.plan.resolve import Draft

_SECURITY = "https://docs.vllm.ai/en/latest/usage/security/"
SECRET_NAME = re.compile(r"(^|_)(SECRET|PASSWORD|PASSWD|TOKEN|PRIVATE_KEY|ACCESS_KEY)(_|$)")
SECRET_VALUE = re.compile(
    r"\b(AKIA|ASIA)[A-Z0-9]{16}\b|\bhf_[A-Za-z0-9]{20,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_OFF = ("", "0", "false")
# Forbidden whatever their value, unless it turns them off. Each is described in vLLM's security guide or in
# the text of its own option (`vllm serve --help`, vllm/envs.py, both read at 0.32.0).
FORBIDDEN = {
    "SM_VLLM_TRUST_REMOTE_CODE": "runs Python that comes with the weights",
    "SM_VLLM_ENABLE_PROMPT_EMBEDS": "lets requests bring tensors, which have crashed the engine",
    "SM_VLLM_ALLOWED_LOCAL_MEDIA_PATH": "lets requests read files of the container",
    "SM_VLLM_TRUST_REQUEST_CHAT_TEMPLATE": "lets requests bring a template, which is code",
    "SM_VLLM_TRUST_REQUEST_MM_KWARGS": "lets requests reconfigure the media processor (GHSA-h3rc-6mm3-gc2m)",
    "SM_VLLM_TOOL_SERVER": "lets requests run tools",
    "SM_VLLM_TOOL_PARSER_PLUGIN": "runs a Python file, which may come with the weights",
    "SM_VLLM_REASONING_PARSER_PLUGIN": "runs a Python file, which may come with the weights",
    "SM_VLLM_PROFILER_CONFIG": "opens routes that record what the engine does",
    "VLLM_TORCH_PROFILER_DIR": "opens routes that record what the engine does, and writes it to disk",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "unpickles what it is sent",
    "VLLM_SERVER_DEV_MODE": "opens routes that pause and change the engine",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "lets requests load weights",
    "VLLM_DEBUG_LOG_API_SERVER_RESPONSE": "writes what users get into the log",
}


@check(
    "environment-secrets",
    why="DescribeModel shows a model's environment to everybody who may read models, and keeps it.",
    source="SageMaker API: DescribeModel answers ContainerDefinition.Environment",
    remedy="Keep the secret out; an isolated container that reads S3 by its role needs none.",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DescribeModel.html",
)
def environment_secrets(draft: Draft) -> Iterator[Note]:
    """A variable that looks like a secret."""
    for name, value in draft.spec.serving.env.items():
        if SECRET_VALUE.search(value):
            yield Note("error", f"serving.env.{name}: its value looks like a key or token")
        elif value and SECRET_NAME.search(name.upper()) and not name.upper().endswith("TOKENS"):
            yield Note("warning", f"serving.env.{name}: its name says secret")


@check(
    "forbidden-flags",
    why="Each lets a request, or the weights, do more than be answered.",
    source="vLLM: security; security advisories",
    remedy="Remove it from serving.env.",
    url=_SECURITY,
)
def forbidden_flags(draft: Draft) -> Iterator[Note]:
    """Flags of the engine that open it."""
    for name, harm in FORBIDDEN.items():
        value = draft.spec.serving.env.get(name)
        if value is not None and value.strip().lower() not in _OFF:
            yield Note("error", f"serving.env.{name}: not allowed: it {harm}")


@check(
    "api-key",
    why="vLLM asks for the key under /v1 alone; SageMaker sends to /invocations, which it does not guard.",
    source="vLLM: --api-key guards the paths under /v1; /invocations, /pause and others lie outside",
    remedy="Remove it: IAM decides who may invoke an endpoint.",
    severity="warning",
    url=_SECURITY,
)
def api_key(draft: Draft) -> Iterator[Note]:
    """An API key, which guards nothing here."""
    for name in ("SM_VLLM_API_KEY", "VLLM_API_KEY"):
        if draft.spec.serving.env.get(name):
            yield Note("warning", f"serving.env.{name}: guards nothing on SageMaker, and can be read there")


@check(
    "volume-key",
    why="The volume with weights and logs is then encrypted with AWS's key, which you cannot revoke.",
    source="SageMaker API: CreateEndpointConfig.KmsKeyId",
    remedy="Set security.kms_key_id where your rules ask for a key of your own.",
    severity="info",
    url="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateEndpointConfig.html",
)
def volume_key(draft: Draft) -> Iterator[Note]:
    """No key of one's own for a volume that would take one."""
    if draft.spec.security.kms_key_id is not None or draft.context.local:
        return
    for name in draft.instance_types:
        entry = draft.instance(name)
        if entry is not None and not entry.local_storage:
            yield Note("info", f"security.kms_key_id is not set; the volume of {name} would take a key")


CHECKS: tuple[Check, ...] = (environment_secrets, forbidden_flags, api_key, volume_key)
