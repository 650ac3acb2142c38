"""Cases of the checks in `peagle_sm.core.checks.image`: image and its engine."""

from __future__ import annotations

from datetime import UTC, datetime

from peagle_sm.core.plan.resolve import Context
from tests.core.checks.cases import Case
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
    Case("image-version", CONTAINER, f"{_VLLM}:latest", severity="warning", text="is not known"),
    Case("image-version", CONTAINER, f"{_VLLM}:0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker"),
    Case(
        "flag-versions",
        CONTAINER,
        f"{_VLLM}:0.15.0-gpu-py312-cu129-ubuntu22.04-sagemaker",
        severity="error",
        text="0.16.0",
    ),
    Case(
        "flag-versions",
        CONTAINER,
        f"{_VLLM}:0.12.0-gpu-py312-cu129",
        severity="error",
        text="SM_VLLM_MODEL needs vLLM 0.13.0",
    ),
    Case(
        "flag-versions",
        GPT,
        "serving: {env: {SM_VLLM_PER_REQUEST_SPEC_DECODE_METRICS: summary}}",
        severity="error",
        text="0.29.0 or newer",
    ),
    Case("flag-versions", CONTAINER, f"{_VLLM}:0.16.0-gpu-py312-cu129-ubuntu22.04-sagemaker"),
    Case(
        "json-quotes",
        CONTAINER,
        f"{_VLLM}:0.22.1-gpu-py312-cu130",
        severity="warning",
        text="strips quotes",
    ),
    Case(
        "json-quotes",
        CONTAINER,
        f"{_VLLM}:server-sagemaker-cuda-v2.0",
        severity="warning",
        text="strips quotes",
    ),
    Case(
        "json-quotes",
        CONTAINER,
        f"{_VLLM}:0.22.1-gpu-py312-cu130\nserving: {{env: {{PROCESS_AUTO_RECOVERY: true}}}}",
        severity="error",
        text="must be false",
    ),
    Case("json-quotes", CONTAINER, f"{_VLLM}:0.24.0-gpu-py312-cu130-ubuntu22.04-sagemaker"),
    Case(
        "supervisor-characters",
        CONTAINER,
        "serving: {env: {SM_VLLM_X: '50%'}}",
        severity="warning",
        text="SM_VLLM_X",
    ),
    Case(
        "supervisor-characters",
        CONTAINER,
        "serving: {env: {SM_VLLM_X: '50%', PROCESS_AUTO_RECOVERY: 'false'}}",
    ),
    Case(
        "draft-dropped",
        GPT,
        "placement: {instance_types: [ml.g5.12xlarge]}",
        severity="error",
        text="silently off",
    ),
    Case("draft-dropped", GPT, "placement: {instance_types: [ml.g6.12xlarge]}"),
    Case(
        "draft-dropped",
        CONTAINER,
        _VLLM.replace("/vllm", "/djl-inference:0.36.0-lmi28.0.0-cu130"),
        severity="error",
        text="/djl-inference:0.36.0-lmi28.0.0-cu130 is an LMI image",
    ),
    Case("known-faults", CONTAINER, _V30, severity="warning", text="gpt-oss-tool-streams"),
    Case(
        "known-faults",
        CONTAINER,
        f"{_VLLM}:0.23.0-gpu-py312-cu130",
        severity="warning",
        text="gpt-oss-tool-arguments",
    ),
    Case(
        "known-faults",
        _GEMMA,
        f"{_VLLM}:0.23.0-gpu-py312-cu130{_SPECULATION}",
        severity="warning",
        text="gemma-tool-streams",
    ),
    Case("advisories", GPT, severity="warning", text="0.18.0 is below 0.33.0"),
    Case("advisories", CONTAINER, f"{_VLLM}:0.33.0-gpu-py312-cu130-ubuntu24.04-sagemaker"),
    Case("advisories", GPT, severity="warning", text="through InvokeEndpoint"),
    Case("advisories", GPT, severity="warning", text="valid until 2027-01-31"),
    Case(
        "advisories",
        CONTAINER,
        f"{_OWN}:0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker",
        severity="info",
        text="this project's gate refuses what is known",
    ),
    Case(
        "advisories",
        CONTAINER,
        f"{_VLLM}:0.32.0-gpu-py312-cu130-ubuntu24.04-sagemaker",
        severity="warning",
        text="nests tens of thousands of groups ends the engine (no release with a fix is known)",
    ),
    Case(
        "advisories",
        CONTAINER,
        f"{_VLLM}:0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker",
        severity="warning",
        text="excessive min_tokens can stall the engine (fixed in 0.31.0)",
    ),
    Case("advisories", GPT, context=_LATER, severity="warning", text="expired on 2027-01-31"),
    Case(
        "advisories",
        CONTAINER,
        _V15,
        severity="warning",
        text="large n can exhaust the engine (fixed in 0.19.0)",
    ),
    Case("known-faults", CONTAINER, _V33, _LATER, severity="warning", text="gpt-oss-kv-groups"),
    Case("known-faults", CONTAINER, _V33, severity="warning", text="gpt-oss-kv-groups"),
    Case("known-faults", _GEMMA, _V33 + _SPECULATION, severity="warning", text="gemma-json-schema"),
    Case(
        "known-faults",
        CONTAINER,
        f"{_V33}\nserving: {{max_model_len: 65536}}",
        severity="warning",
        text="acceptance-beyond-32k",
    ),
    Case("known-faults", CONTAINER, f"{_V33}\nspeculation: {{mode: none}}"),
    Case(
        "image-registry",
        CONTAINER,
        "image: public.ecr.aws/deep-learning-containers/vllm:0.30.0",
        severity="error",
        text="is not an ECR image",
    ),
    Case(
        "image-registry",
        CONTAINER,
        _V30.replace("us-east-1", "eu-west-1"),
        severity="error",
        text="is in eu-west-1",
    ),
    Case(
        "image-registry",
        CONTAINER,
        _V30.replace("763104351884", "626614931356"),
        severity="error",
        text="found account 626614931356; AWS's registry in us-east-1 is account 763104351884",
    ),
    Case("image-registry", CONTAINER, _V30),
    Case(
        "image-tag",
        CONTAINER,
        f"{_VLLM}:0.99.0-gpu-py312-cu130-ubuntu24.04-sagemaker",
        severity="warning",
        text="vLLM 0.99.0 is not a known",
    ),
    Case(
        "image-tag",
        CONTAINER,
        f"{_VLLM}:0.30.0-gpu-py312-cu129-ubuntu22.04-sagemaker",
        severity="warning",
        text="the published tag",
    ),
    Case(
        "image-tag",
        CONTAINER,
        f"{_VLLM}:server-sagemaker-cuda-v9.9",
        severity="warning",
        text="known server images",
    ),
    Case("image-tag", CONTAINER, _V30),
    Case("image-tag", CONTAINER, f"{_VLLM}:server-sagemaker-cuda-v2.3"),
    Case("image-digest", CONTAINER, _V33, severity="info", text="named by a tag"),
    Case("image-digest", CONTAINER, _DIGEST),
    Case(
        "other-engine",
        CONTAINER,
        _V30.replace("/vllm", "/sglang"),
        severity="error",
        text="has no p-eagle",
    ),
    Case("other-engine", CONTAINER, _V30.replace("/vllm", "/sglang") + "\nspeculation: {mode: none}"),
    Case(
        "no-gpu",
        CONTAINER,
        "placement: {instance_types: [ml.inf2.xlarge]}",
        severity="error",
        text="ml.inf2.xlarge has no NVIDIA GPU",
    ),
    Case(
        "no-gpu",
        CONTAINER,
        "placement: {instance_types: [ml.m7i.2xlarge]}",
        severity="error",
        text="ml.m7i.2xlarge has no NVIDIA GPU",
    ),
    Case(
        "no-gpu",
        CONTAINER,
        "placement: {instance_types: [ml.c5.xlarge]}",
        severity="error",
        text="ml.c5.xlarge has no NVIDIA GPU",
    ),
    Case("no-gpu", CONTAINER, "placement: {instance_types: [ml.g6.xlarge]}"),
    Case(
        "engine-known",
        CONTAINER,
        f"{_OWN}:0.34.0",
        severity="warning",
        text="assumed: model runner and settings as in 0.33.0",
    ),
    Case("engine-known", CONTAINER, _V15, severity="warning", text="as in 0.16.0, the nearest"),
    Case("engine-known", CONTAINER, _V33),
]
