"""Specs for the checks on images, settings, exposure and known faults."""

from __future__ import annotations

from datetime import UTC, datetime

from peagle_sm.core.plan.records import Context
from tests.core.checks.cases import Case
from tests.core.support import AWS, CONTAINER, GPT, LOCAL, STACK, TINY

_OWN = "image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm"
_AWS = "image: 763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm"
_V33 = f"{_OWN}:0.33.0-gpu-py312-cu130-ubuntu24.04-sagemaker"
_V30 = f"{_AWS}:0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker"
_V15 = f"{_AWS}:0.15.0-gpu-py312-cu129-ubuntu22.04-sagemaker"
_DIGEST = f"{_OWN}@sha256:{'a' * 64}"
_LATER = Context("123456789012", "us-east-1", datetime(2027, 2, 1, tzinfo=UTC))
_MANY = ", ".join(f"A{i}: x" for i in range(16))
_GEMMA = CONTAINER.replace("gpt-oss-20b", "gemma-4-31b-it")
_SPECULATION = "\nspeculation: {draft_head: mine}"


def _env(name: str, value: str) -> str:
    return f"serving: {{env: {{{name}: '{value}'}}}}"


def _fails(
    check: str,
    said: str,
    extra: str,
    base: str = CONTAINER,
    severity: str = "error",
    context: Context = AWS,
) -> Case:
    return Case(check, base, extra, context, severity=severity, said=said)


def _warns(check: str, said: str, extra: str, base: str = CONTAINER, context: Context = AWS) -> Case:
    return _fails(check, said, extra, base, "warning", context)


CASES = [
    _warns("advisories", "valid until 2027-01-31", "", GPT),
    _warns("advisories", "expired on 2027-01-31", "", GPT, context=_LATER),
    _warns("advisories", "large n can exhaust the engine (fixed in 0.19.0)", _V15),
    _warns("known-faults", "gpt-oss-kv-groups", _V33, context=_LATER),
    _warns("known-faults", "gpt-oss-kv-groups", _V33),
    _warns("known-faults", "gemma-json-schema", _V33 + _SPECULATION, _GEMMA),
    _warns("known-faults", "acceptance-beyond-32k", f"{_V33}\nserving: {{max_model_len: 65536}}"),
    Case("known-faults", CONTAINER, f"{_V33}\nspeculation: {{mode: none}}"),
    _fails(
        "image-registry", "is not an ECR image", "image: public.ecr.aws/deep-learning-containers/vllm:0.30.0"
    ),
    _fails("image-registry", "is in eu-west-1", _V30.replace("us-east-1", "eu-west-1")),
    _fails(
        "image-registry",
        "found account 626614931356; AWS's registry in us-east-1 is account 763104351884",
        _V30.replace("763104351884", "626614931356"),
    ),
    Case("image-registry", CONTAINER, _V30),
    _warns("image-tag", "vLLM 0.99.0 is not a known", f"{_AWS}:0.99.0-gpu-py312-cu130-ubuntu24.04-sagemaker"),
    _warns("image-tag", "the published tag", f"{_AWS}:0.30.0-gpu-py312-cu129-ubuntu22.04-sagemaker"),
    _warns("image-tag", "known server images", f"{_AWS}:server-sagemaker-cuda-v9.9"),
    Case("image-tag", CONTAINER, _V30),
    Case("image-tag", CONTAINER, f"{_AWS}:server-sagemaker-cuda-v2.3"),
    _fails("image-digest", "named by a tag", _V33, severity="info"),
    Case("image-digest", CONTAINER, _DIGEST),
    _fails("other-engine", "has no p-eagle", _V30.replace("/vllm", "/sglang")),
    Case("other-engine", CONTAINER, _V30.replace("/vllm", "/sglang") + "\nspeculation: {mode: none}"),
    _fails("no-gpu", "ml.inf2.xlarge has no NVIDIA GPU", "placement: {instance_types: [ml.inf2.xlarge]}"),
    _fails("no-gpu", "ml.m7i.2xlarge has no NVIDIA GPU", "placement: {instance_types: [ml.m7i.2xlarge]}"),
    _fails("no-gpu", "ml.c5.xlarge has no NVIDIA GPU", "placement: {instance_types: [ml.c5.xlarge]}"),
    Case("no-gpu", CONTAINER, "placement: {instance_types: [ml.g6.xlarge]}"),
    _warns("environment-unread", "in capitals", _env("SM_VLLM_max_num_seqs", "8")),
    _warns("environment-unread", "did you mean SM_VLLM_", _env("SM_VLM_MAX_NUM_SEQS", "8")),
    _warns("environment-unread", "only the LMI image reads OPTION_*", _env("OPTION_DTYPE", "bf16")),
    Case("environment-unread", CONTAINER, _env("VLLM_LOGGING_LEVEL", "INFO")),
    _fails("environment-json", "not JSON", _env("SM_VLLM_COMPILATION_CONFIG", "{level: 3}")),
    _warns("environment-json", "drops the argument", _env("SM_VLLM_LORA_MODULES", "[]")),
    Case("environment-json", CONTAINER, _env("SM_VLLM_COMPILATION_CONFIG", '{"level": 3}')),
    _warns("environment-booleans", "passes 'true' as", f"{_V15}\n{_env('SM_VLLM_ENFORCE_EAGER', 'true')}"),
    Case("environment-booleans", CONTAINER, f"{_V30}\n{_env('SM_VLLM_ENFORCE_EAGER', 'true')}"),
    _fails("hub-model-id", "found 'openai/gpt-oss-20b'", _env("HF_MODEL_ID", "openai/gpt-oss-20b")),
    Case("hub-model-id", CONTAINER, _env("HF_MODEL_ID", "/opt/ml/model")),
    _fails("v2-model-runner", "found '1' with mode p-eagle", _env("VLLM_USE_V2_MODEL_RUNNER", "1")),
    Case("v2-model-runner", CONTAINER, _env("VLLM_USE_V2_MODEL_RUNNER", "0")),
    _warns("engine-known", "assumed: model runner and settings as in 0.33.0", f"{_OWN}:0.34.0"),
    _warns("engine-known", "as in 0.16.0, the nearest", _V15),
    Case("engine-known", CONTAINER, _V33),
    _warns("metrics-off", "the acceptance metrics are off", _env("SM_VLLM_DISABLE_LOG_STATS", "true")),
    Case("metrics-off", CONTAINER, _env("SM_VLLM_DISABLE_LOG_STATS", "false")),
    _fails(
        "component-environment",
        "a component with its own container allows 16",
        f"lifecycle: {{idle: scale-to-zero}}\nserving: {{env: {{{_MANY}}}}}",
        severity="info",
        context=STACK,
    ),
    Case("component-environment", CONTAINER, "lifecycle: {idle: scale-to-zero}", STACK),
    _fails(
        "head-context",
        "with a context of 8192 tokens",
        "speculation: {draft_head: gpt-oss-20b-p-eagle-long-context}",
        severity="info",
    ),
    Case(
        "head-context",
        CONTAINER,
        "speculation: {draft_head: gpt-oss-20b-p-eagle-long-context}\nserving: {max_model_len: 65536}",
    ),
    _fails("environment-secrets", "looks like a key", _env("X", "AKIA" + "A" * 16)),
    _warns("environment-secrets", "its name suggests a secret", _env("HF_TOKEN", "x")),
    Case("environment-secrets", CONTAINER, _env("SM_VLLM_MAX_NUM_BATCHED_TOKENS", "8192")),
    _fails(
        "forbidden-flags",
        "runs Python that comes with the weights",
        _env("SM_VLLM_TRUST_REMOTE_CODE", "true"),
    ),
    _fails("forbidden-flags", "opens routes", _env("VLLM_SERVER_DEV_MODE", "1")),
    Case("forbidden-flags", CONTAINER, _env("SM_VLLM_TRUST_REMOTE_CODE", "false")),
    _warns("api-key", "has no effect on SageMaker", _env("SM_VLLM_API_KEY", "x")),
    Case("api-key", CONTAINER, ""),
    _fails(
        "volume-key",
        "the volume of ml.c7i.2xlarge supports one",
        "placement: {instance_types: [ml.c7i.2xlarge]}",
        severity="info",
    ),
    Case("volume-key", TINY, "", LOCAL),
    Case("volume-key", GPT, "", AWS),
]
