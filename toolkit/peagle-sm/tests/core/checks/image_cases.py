"""Cases of the checks in `peagle_sm.core.checks.image`: image and its engine."""

from __future__ import annotations

from datetime import UTC, datetime

from peagle_sm.core.plan.resolve import Context
from tests.core.checks.cases import Case, error, info, warning
from tests.core.support import CONTAINER, GPT

_VLLM = "image: 763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm"
_OWN = "image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/vllm"
_V33 = f"{_OWN}:0.33.0-gpu-py312-cu130-ubuntu24.04-sagemaker"
_V30 = f"{_VLLM}:0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker"
_V15 = f"{_VLLM}:0.15.0-gpu-py312-cu129-ubuntu22.04-sagemaker"
_DIGEST = f"{_OWN}@sha256:{'a' * 64}"
_LATER = Context("123456789012", "us-east-1", datetime(2027, 2, 1, tzinfo=UTC))
_GEMMA = CONTAINER.replace("gpt-oss-20b", "gemma-4-31b-it")
_SPECULATION = "\nspeculation: {draft_head: mine}"

CASES = [
    warning("image-version", "is not known", CONTAINER, f"{_VLLM}:latest"),
    Case("image-version", CONTAINER, f"{_VLLM}:0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker"),
    warning("json-quotes", "strips quotes", CONTAINER, f"{_VLLM}:0.22.1-gpu-py312-cu130"),
    warning("json-quotes", "strips quotes", CONTAINER, f"{_VLLM}:server-sagemaker-cuda-v2.0"),
    error(
        "json-quotes",
        "must be false",
        CONTAINER,
        f"{_VLLM}:0.22.1-gpu-py312-cu130\nserving: {{env: {{PROCESS_AUTO_RECOVERY: true}}}}",
    ),
    Case("json-quotes", CONTAINER, f"{_VLLM}:0.24.0-gpu-py312-cu130-ubuntu22.04-sagemaker"),
    warning("supervisor-characters", "SM_VLLM_X", CONTAINER, "serving: {env: {SM_VLLM_X: '50%'}}"),
    Case(
        "supervisor-characters",
        CONTAINER,
        "serving: {env: {SM_VLLM_X: '50%', PROCESS_AUTO_RECOVERY: 'false'}}",
    ),
    error("draft-dropped", "silently off", GPT, "placement: {instance_types: [ml.g5.12xlarge]}"),
    Case("draft-dropped", GPT, "placement: {instance_types: [ml.g6.12xlarge]}"),
    error(
        "draft-dropped",
        "/djl-inference:0.36.0-lmi28.0.0-cu130 is an LMI image",
        CONTAINER,
        _VLLM.replace("/vllm", "/djl-inference:0.36.0-lmi28.0.0-cu130"),
    ),
    warning("known-faults", "gpt-oss-tool-streams", CONTAINER, _V30),
    warning("known-faults", "gpt-oss-tool-arguments", CONTAINER, f"{_VLLM}:0.23.0-gpu-py312-cu130"),
    warning("known-faults", "gemma-tool-streams", _GEMMA, f"{_VLLM}:0.23.0-gpu-py312-cu130{_SPECULATION}"),
    warning("advisories", "0.18.0 is below 0.33.0", GPT),
    Case("advisories", CONTAINER, f"{_VLLM}:0.33.0-gpu-py312-cu130-ubuntu24.04-sagemaker"),
    warning("advisories", "through InvokeEndpoint", GPT),
    warning("advisories", "valid until 2027-01-31", GPT),
    info(
        "advisories",
        "this project's gate refuses what is known",
        CONTAINER,
        f"{_OWN}:0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker",
    ),
    warning(
        "advisories",
        "nests tens of thousands of groups ends the engine (no release with a fix is known)",
        CONTAINER,
        f"{_VLLM}:0.32.0-gpu-py312-cu130-ubuntu24.04-sagemaker",
    ),
    warning(
        "advisories",
        "excessive min_tokens can stall the engine (fixed in 0.31.0)",
        CONTAINER,
        f"{_VLLM}:0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker",
    ),
    warning("advisories", "expired on 2027-01-31", GPT, context=_LATER),
    warning("advisories", "large n can exhaust the engine (fixed in 0.19.0)", CONTAINER, _V15),
    warning("known-faults", "gpt-oss-kv-groups", CONTAINER, _V33, _LATER),
    warning("known-faults", "gpt-oss-kv-groups", CONTAINER, _V33),
    warning("known-faults", "gemma-json-schema", _GEMMA, _V33 + _SPECULATION),
    warning("known-faults", "acceptance-beyond-32k", CONTAINER, f"{_V33}\nserving: {{max_model_len: 65536}}"),
    Case("known-faults", CONTAINER, f"{_V33}\nspeculation: {{mode: none}}"),
    error(
        "image-registry",
        "is not an ECR image",
        CONTAINER,
        "image: public.ecr.aws/deep-learning-containers/vllm:0.30.0",
    ),
    error("image-registry", "is in eu-west-1", CONTAINER, _V30.replace("us-east-1", "eu-west-1")),
    error(
        "image-registry",
        "found account 626614931356; AWS's registry in us-east-1 is account 763104351884",
        CONTAINER,
        _V30.replace("763104351884", "626614931356"),
    ),
    Case("image-registry", CONTAINER, _V30),
    warning(
        "image-tag",
        "vLLM 0.99.0 is not a known",
        CONTAINER,
        f"{_VLLM}:0.99.0-gpu-py312-cu130-ubuntu24.04-sagemaker",
    ),
    warning(
        "image-tag", "the published tag", CONTAINER, f"{_VLLM}:0.30.0-gpu-py312-cu129-ubuntu22.04-sagemaker"
    ),
    warning("image-tag", "known server images", CONTAINER, f"{_VLLM}:server-sagemaker-cuda-v9.9"),
    Case("image-tag", CONTAINER, _V30),
    Case("image-tag", CONTAINER, f"{_VLLM}:server-sagemaker-cuda-v2.3"),
    info("image-digest", "named by a tag", CONTAINER, _V33),
    Case("image-digest", CONTAINER, _DIGEST),
    error("other-engine", "has no p-eagle", CONTAINER, _V30.replace("/vllm", "/sglang")),
    Case("other-engine", CONTAINER, _V30.replace("/vllm", "/sglang") + "\nspeculation: {mode: none}"),
    error(
        "no-gpu",
        "ml.inf2.xlarge has no NVIDIA GPU",
        CONTAINER,
        "placement: {instance_types: [ml.inf2.xlarge]}",
    ),
    error(
        "no-gpu",
        "ml.m7i.2xlarge has no NVIDIA GPU",
        CONTAINER,
        "placement: {instance_types: [ml.m7i.2xlarge]}",
    ),
    error(
        "no-gpu", "ml.c5.xlarge has no NVIDIA GPU", CONTAINER, "placement: {instance_types: [ml.c5.xlarge]}"
    ),
    Case("no-gpu", CONTAINER, "placement: {instance_types: [ml.g6.xlarge]}"),
    warning("engine-known", "assumed: model runner and settings as in 0.33.0", CONTAINER, f"{_OWN}:0.34.0"),
    warning("engine-known", "as in 0.16.0, the nearest", CONTAINER, _V15),
    Case("engine-known", CONTAINER, _V33),
]
