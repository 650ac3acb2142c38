"""Cases of the checks in `peagle_sm.core.checks.environment`: container's environment."""

from __future__ import annotations

from tests.core.checks.cases import Case, error, warning
from tests.core.support import CONTAINER, GPT, LOCAL, TINY

_VLLM = "image: 763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm"
_V30 = f"{_VLLM}:0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker"
_V15 = f"{_VLLM}:0.15.0-gpu-py312-cu129-ubuntu22.04-sagemaker"


def _env(name: str, value: str) -> str:
    return f"serving: {{env: {{{name}: '{value}'}}}}"


CASES = [
    warning(
        "environment-unread",
        "serving.env.VLLM_ATTENTION_BACKEND: vLLM 0.30.0 does not read it",
        CONTAINER,
        f"{_V30}\n{_env('VLLM_ATTENTION_BACKEND', 'FLASHINFER')}",
    ),
    warning(
        "environment-unread",
        "serving.env.VLLM_USE_V1: vLLM 0.30.0 does not read it",
        CONTAINER,
        f"{_V30}\n{_env('VLLM_USE_V1', '1')}",
    ),
    Case("environment-unread", CONTAINER, f"{_V30}\n{_env('VLLM_LOGGING_LEVEL', 'DEBUG')}"),
    warning(
        "environment-unread",
        "serving.env.vllm_logging_level: vLLM does not read it; write it in capitals",
        CONTAINER,
        f"{_V30}\n{_env('vllm_logging_level', 'DEBUG')}",
    ),
    warning(
        "environment-unread",
        "serving.env.TENSOR_PARALLEL_SIZE: not read; only SM_VLLM_TENSOR_PARALLEL_SIZE would be",
        CONTAINER,
        f"{_V30}\n{_env('TENSOR_PARALLEL_SIZE', '2')}",
    ),
    Case("environment-unread", CONTAINER, f"{_V30}\n{_env('LOG_LEVEL', 'info')}"),
    Case("environment-unread", CONTAINER, f"{_V30}\n{_env('MASTER_PORT', '29500')}"),
    error("environment-owned", "serving.max_model_len", GPT, "serving: {env: {SM_VLLM_MAX_MODEL_LEN: 1}}"),
    Case("environment-owned", GPT, "serving: {env: {SM_VLLM_MAX_NUM_SEQS: 64}}"),
    error(
        "environment-owned",
        "serving.env.SM_VLLM_KV_CACHE_DTYPE: not allowed here; the field serving.kv_cache_dtype sets it",
        TINY,
        "serving: {env: {SM_VLLM_KV_CACHE_DTYPE: fp8}}",
        LOCAL,
    ),
    error(
        "environment-owned",
        "serving.extra_args.max_num_seqs sets it",
        TINY,
        "serving: {extra_args: {max_num_seqs: 8}, env: {SM_VLLM_MAX_NUM_SEQS: 9}}",
        LOCAL,
    ),
    Case(
        "environment-owned",
        TINY,
        "serving: {extra_args: {compilation_config: {cudagraph_mode: NONE}}}",
        LOCAL,
    ),
    error("environment-port", "port 8080", GPT, "serving: {env: {SM_VLLM_PORT: 8000}}"),
    Case("environment-port", GPT, "serving: {env: {SM_VLLM_MAX_NUM_SEQS: 64}}"),
    error("environment-empty", "an empty value", GPT, "serving: {env: {SM_VLLM_X: ''}}"),
    Case("environment-empty", GPT, "serving: {env: {SM_VLLM_ENFORCE_EAGER: true}}"),
    error("environment-empty", "an empty value", TINY, "serving: {extra_args: {dtype: ''}}", LOCAL),
    warning("environment-unread", "in capitals", CONTAINER, _env("SM_VLLM_max_num_seqs", "8")),
    warning("environment-unread", "did you mean SM_VLLM_", CONTAINER, _env("SM_VLM_MAX_NUM_SEQS", "8")),
    warning(
        "environment-unread", "only the LMI image reads OPTION_*", CONTAINER, _env("OPTION_DTYPE", "bf16")
    ),
    Case("environment-unread", CONTAINER, _env("VLLM_LOGGING_LEVEL", "INFO")),
    error("environment-json", "not JSON", CONTAINER, _env("SM_VLLM_COMPILATION_CONFIG", "{level: 3}")),
    warning("environment-json", "drops the argument", CONTAINER, _env("SM_VLLM_LORA_MODULES", "[]")),
    Case("environment-json", CONTAINER, _env("SM_VLLM_COMPILATION_CONFIG", '{"level": 3}')),
    error("hub-model-id", "found 'openai/gpt-oss-20b'", CONTAINER, _env("HF_MODEL_ID", "openai/gpt-oss-20b")),
    Case("hub-model-id", CONTAINER, _env("HF_MODEL_ID", "/opt/ml/model")),
    error("v2-model-runner", "found '1' with mode p-eagle", CONTAINER, _env("VLLM_USE_V2_MODEL_RUNNER", "1")),
    Case("v2-model-runner", CONTAINER, _env("VLLM_USE_V2_MODEL_RUNNER", "0")),
    *(
        error("v2-model-runner", f"found {value!r}", CONTAINER, _env("VLLM_USE_V2_MODEL_RUNNER", value))
        for value in ("false", "yes", "2", "")
    ),
    error("environment-secrets", "looks like a key", CONTAINER, _env("X", "AKIA" + "A" * 16)),
    warning("environment-secrets", "its name suggests a secret", CONTAINER, _env("HF_TOKEN", "x")),
    Case("environment-secrets", CONTAINER, _env("SM_VLLM_MAX_NUM_BATCHED_TOKENS", "8192")),
    error(
        "forbidden-flags",
        "runs Python that comes with the weights",
        CONTAINER,
        _env("SM_VLLM_TRUST_REMOTE_CODE", "true"),
    ),
    Case("forbidden-flags", CONTAINER, _env("SM_VLLM_TRUST_REMOTE_CODE", "false")),
    error(
        "forbidden-flags",
        "serving.extra_args.trust_remote_code: not allowed: it runs Python that comes with the weights",
        TINY,
        "serving: {extra_args: {trust_remote_code: true}}",
        LOCAL,
    ),
    error(
        "forbidden-flags",
        "enable_log_requests: not allowed: the gate in the container refuses it",
        GPT,
        "serving: {extra_args: {enable_log_requests: true}}",
    ),
    error(
        "forbidden-flags",
        "serving.env.VLLM_API_KEY: not allowed: the gate in the container refuses it",
        TINY,
        "serving: {env: {VLLM_API_KEY: x}}",
        LOCAL,
    ),
    error(
        "forbidden-flags",
        "the gate in the container refuses it: it listens on a socket that SageMaker does not use",
        TINY,
        "serving: {env: {SM_VLLM_UDS: mine}}",
        LOCAL,
    ),
    Case("forbidden-flags", TINY, "serving: {extra_args: {trust_remote_code: false}}", LOCAL),
    Case("forbidden-flags", GPT, "serving: {extra_args: {distributed_executor_backend: mp}}"),
    Case("forbidden-flags", GPT, "serving: {env: {LD_LIBRARY_PATH: /usr/local/cuda/compat}}"),
    Case("forbidden-flags", GPT, "serving: {env: {VLLM_API_KEY: x}}"),
    Case("forbidden-flags", GPT, "serving: {env: {SM_VLLM_ENABLE_LOG_REQUESTS: true}}"),
    warning("api-key", "has no effect on SageMaker", CONTAINER, _env("SM_VLLM_API_KEY", "x")),
    Case("api-key", CONTAINER),
    error(
        "v2-model-runner",
        "found '1' on a CPU; allowed: 0",
        TINY,
        "speculation: {mode: none}\nserving: {env: {VLLM_USE_V2_MODEL_RUNNER: 1}}",
        LOCAL,
    ),
]
