"""Cases of the checks in `peagle_sm.core.checks.environment`: container's environment."""

from __future__ import annotations

from tests.core.checks.cases import Case
from tests.core.support import CONTAINER, GPT, LOCAL, TINY

_VLLM = "image: 763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm"
_LONG = "x" * 1025
_V30 = f"{_VLLM}:0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker"
_V15 = f"{_VLLM}:0.15.0-gpu-py312-cu129-ubuntu22.04-sagemaker"
_MANY = ", ".join(f"A{i}: x" for i in range(16))


def _env(name: str, value: str) -> str:
    return f"serving: {{env: {{{name}: '{value}'}}}}"


CASES = [
    Case(
        "environment-unread",
        CONTAINER,
        f"{_V30}\n{_env('VLLM_ATTENTION_BACKEND', 'FLASHINFER')}",
        severity="warning",
        text="serving.env.VLLM_ATTENTION_BACKEND: vLLM 0.30.0 does not read it",
    ),
    Case(
        "environment-unread",
        CONTAINER,
        f"{_V30}\n{_env('VLLM_USE_V1', '1')}",
        severity="warning",
        text="serving.env.VLLM_USE_V1: vLLM 0.30.0 does not read it",
    ),
    Case("environment-unread", CONTAINER, f"{_V30}\n{_env('VLLM_LOGGING_LEVEL', 'DEBUG')}"),
    Case(
        "environment-unread",
        CONTAINER,
        f"{_V30}\n{_env('vllm_logging_level', 'DEBUG')}",
        severity="warning",
        text="serving.env.vllm_logging_level: vLLM does not read it; write it in capitals",
    ),
    Case(
        "environment-unread",
        CONTAINER,
        f"{_V30}\n{_env('TENSOR_PARALLEL_SIZE', '2')}",
        severity="warning",
        text="serving.env.TENSOR_PARALLEL_SIZE: not read; only SM_VLLM_TENSOR_PARALLEL_SIZE would be",
    ),
    Case("environment-unread", CONTAINER, f"{_V30}\n{_env('LOG_LEVEL', 'info')}"),
    Case("environment-unread", CONTAINER, f"{_V30}\n{_env('MASTER_PORT', '29500')}"),
    Case(
        "environment-limits",
        GPT,
        f"serving: {{env: {{SM_VLLM_X: {_LONG}}}}}",
        severity="error",
        text="found 1025 bytes",
    ),
    Case(
        "environment-limits",
        GPT,
        f"serving: {{env: {{SM_VLLM_X: {'é' * 513}}}}}",
        severity="error",
        text="found 1026 bytes",
    ),
    Case(
        "environment-limits",
        TINY,
        f"serving: {{env: {{{', '.join(f'A{i}: x' for i in range(95))}}}}}",
        LOCAL,
        severity="error",
        text="102 entries",
    ),
    Case(
        "environment-limits",
        TINY,
        f"serving: {{env: {{{', '.join(f'A{i}: {_LONG[1:]}' for i in range(32))}}}}}",
        LOCAL,
        severity="error",
        text="bytes in all",
    ),
    Case("environment-limits", GPT, f"serving: {{env: {{SM_VLLM_X: {_LONG[1:]}}}}}"),
    Case(
        "environment-owned",
        GPT,
        "serving: {env: {SM_VLLM_MAX_MODEL_LEN: 1}}",
        severity="error",
        text="serving.max_model_len",
    ),
    Case("environment-owned", GPT, "serving: {env: {SM_VLLM_MAX_NUM_SEQS: 64}}"),
    Case(
        "environment-owned",
        TINY,
        "serving: {extra_args: {tensor_parallel_size: 2}}",
        LOCAL,
        severity="error",
        text=(
            "serving.extra_args.tensor_parallel_size: not allowed here; the field "
            "serving.tensor_parallel_size sets it"
        ),
    ),
    Case(
        "environment-owned",
        TINY,
        "serving: {env: {SM_VLLM_KV_CACHE_DTYPE: fp8}}",
        LOCAL,
        severity="error",
        text="serving.env.SM_VLLM_KV_CACHE_DTYPE: not allowed here; the field serving.kv_cache_dtype sets it",
    ),
    Case(
        "environment-owned",
        TINY,
        "serving: {extra_args: {max_num_seqs: 8}, env: {SM_VLLM_MAX_NUM_SEQS: 9}}",
        LOCAL,
        severity="error",
        text="serving.extra_args.max_num_seqs sets it",
    ),
    Case(
        "environment-owned",
        TINY,
        "serving: {extra_args: {compilation_config: {cudagraph_mode: NONE}}}",
        LOCAL,
    ),
    Case("environment-port", GPT, "serving: {env: {SM_VLLM_PORT: 8000}}", severity="error", text="port 8080"),
    Case("environment-port", GPT, "serving: {env: {SM_VLLM_MAX_NUM_SEQS: 64}}"),
    Case(
        "environment-port",
        TINY,
        "serving: {extra_args: {port: 1}}",
        LOCAL,
        severity="error",
        text="port 8080",
    ),
    Case(
        "environment-empty",
        GPT,
        "serving: {env: {SM_VLLM_X: ''}}",
        severity="error",
        text="an empty value",
    ),
    Case("environment-empty", GPT, "serving: {env: {SM_VLLM_ENFORCE_EAGER: true}}"),
    Case(
        "environment-empty",
        TINY,
        "serving: {extra_args: {dtype: ''}}",
        LOCAL,
        severity="error",
        text="an empty value",
    ),
    Case(
        "environment-unread",
        CONTAINER,
        _env("SM_VLLM_max_num_seqs", "8"),
        severity="warning",
        text="in capitals",
    ),
    Case(
        "environment-unread",
        CONTAINER,
        _env("SM_VLM_MAX_NUM_SEQS", "8"),
        severity="warning",
        text="did you mean SM_VLLM_",
    ),
    Case(
        "environment-unread",
        CONTAINER,
        _env("OPTION_DTYPE", "bf16"),
        severity="warning",
        text="only the LMI image reads OPTION_*",
    ),
    Case("environment-unread", CONTAINER, _env("VLLM_LOGGING_LEVEL", "INFO")),
    Case(
        "environment-json",
        CONTAINER,
        _env("SM_VLLM_COMPILATION_CONFIG", "{level: 3}"),
        severity="error",
        text="not JSON",
    ),
    Case(
        "environment-json",
        CONTAINER,
        _env("SM_VLLM_LORA_MODULES", "[]"),
        severity="warning",
        text="drops the argument",
    ),
    Case("environment-json", CONTAINER, _env("SM_VLLM_COMPILATION_CONFIG", '{"level": 3}')),
    Case(
        "hub-model-id",
        CONTAINER,
        _env("HF_MODEL_ID", "openai/gpt-oss-20b"),
        severity="error",
        text="found 'openai/gpt-oss-20b'",
    ),
    Case("hub-model-id", CONTAINER, _env("HF_MODEL_ID", "/opt/ml/model")),
    Case(
        "v2-model-runner",
        CONTAINER,
        _env("VLLM_USE_V2_MODEL_RUNNER", "1"),
        severity="error",
        text="found '1' with mode p-eagle",
    ),
    Case("v2-model-runner", CONTAINER, _env("VLLM_USE_V2_MODEL_RUNNER", "0")),
    Case(
        "environment-secrets",
        CONTAINER,
        _env("X", "AKIA" + "A" * 16),
        severity="error",
        text="looks like a key",
    ),
    Case(
        "environment-secrets",
        CONTAINER,
        _env("HF_TOKEN", "x"),
        severity="warning",
        text="its name suggests a secret",
    ),
    Case("environment-secrets", CONTAINER, _env("SM_VLLM_MAX_NUM_BATCHED_TOKENS", "8192")),
    Case(
        "forbidden-flags",
        CONTAINER,
        _env("SM_VLLM_TRUST_REMOTE_CODE", "true"),
        severity="error",
        text="runs Python that comes with the weights",
    ),
    Case(
        "forbidden-flags",
        CONTAINER,
        _env("VLLM_SERVER_DEV_MODE", "1"),
        severity="error",
        text="opens routes",
    ),
    Case("forbidden-flags", CONTAINER, _env("SM_VLLM_TRUST_REMOTE_CODE", "false")),
    Case(
        "forbidden-flags",
        TINY,
        "serving: {extra_args: {trust_remote_code: true}}",
        LOCAL,
        severity="error",
        text="serving.extra_args.trust_remote_code: not allowed: it runs Python that comes with the weights",
    ),
    Case(
        "forbidden-flags",
        GPT,
        "serving: {extra_args: {enable_log_requests: true}}",
        severity="error",
        text=(
            "serving.extra_args.enable_log_requests: not allowed: the gate in the container refuses "
            "it: it writes the users' prompts to the log"
        ),
    ),
    Case(
        "forbidden-flags",
        GPT,
        "serving: {extra_args: {scheduler_cls: evil.Scheduler}}",
        severity="error",
        text="serving.extra_args.scheduler_cls: not allowed: it runs Python by its name",
    ),
    Case(
        "forbidden-flags",
        GPT,
        "serving: {env: {SM_VLLM_MIDDLEWAR: evil.App}}",
        severity="error",
        text="serving.env.SM_VLLM_MIDDLEWAR: not allowed: it runs Python by its name",
    ),
    Case(
        "forbidden-flags",
        GPT,
        "serving: {extra_args: {kv_transfer_config: {kv_connector_module_path: evil}}}",
        severity="error",
        text="not allowed with kv_connector_module_path or module_path or spec_module_path: it runs",
    ),
    Case(
        "forbidden-flags",
        GPT,
        "serving: {env: {PYTHONPATH: /opt/ml/model}}",
        severity="error",
        text="serving.env.PYTHONPATH: not allowed: it runs code from the model's folder",
    ),
    Case(
        "forbidden-flags",
        TINY,
        "serving: {env: {VLLM_API_KEY: x}}",
        LOCAL,
        severity="error",
        text="serving.env.VLLM_API_KEY: not allowed: the gate in the container refuses it",
    ),
    Case(
        "forbidden-flags",
        TINY,
        "serving: {env: {SM_VLLM_UDS: mine}}",
        LOCAL,
        severity="error",
        text="the gate in the container refuses it: it listens on a socket that SageMaker does not use",
    ),
    Case("forbidden-flags", TINY, "serving: {extra_args: {trust_remote_code: false}}", LOCAL),
    Case("forbidden-flags", GPT, "serving: {extra_args: {distributed_executor_backend: mp}}"),
    Case("forbidden-flags", GPT, "serving: {env: {LD_LIBRARY_PATH: /usr/local/cuda/compat}}"),
    Case("forbidden-flags", GPT, "serving: {env: {VLLM_API_KEY: x}}"),
    Case("forbidden-flags", GPT, "serving: {env: {SM_VLLM_ENABLE_LOG_REQUESTS: true}}"),
    Case(
        "api-key",
        CONTAINER,
        _env("SM_VLLM_API_KEY", "x"),
        severity="warning",
        text="has no effect on SageMaker",
    ),
    Case("api-key", CONTAINER),
    Case(
        "v2-model-runner",
        TINY,
        "speculation: {mode: none}\nserving: {env: {VLLM_USE_V2_MODEL_RUNNER: 1}}",
        LOCAL,
        severity="error",
        text="found '1' on a CPU; allowed: 0",
    ),
]
