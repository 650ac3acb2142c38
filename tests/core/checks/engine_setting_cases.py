"""Draft settings, tables of K and extra arguments that are refused, and those that pass."""

from __future__ import annotations

from peagle_sm.core.plan.plan import Context
from tests.core.checks.cases import Case
from tests.core.support import AWS, CONTAINER, GPT, LOCAL, TINY

_VLLM = "image: 763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm"
_OWN = "image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:0.32.0"
_EAGLE3 = "mode: eagle3, draft_head: mine"
_TABLE = "num_speculative_tokens_per_batch_size: [[1, 4, 7], [5, 8, 3]]"
_TO_ZERO = "num_speculative_tokens_per_batch_size: [[1, 4, 7], [5, 8, 0]]"
_SEVEN = "num_speculative_tokens: 7"
_ADAPTIVE = "adaptive_num_speculative_tokens: true"

_TRAPS: list[tuple[str, str, str, str, Context, str]] = [
    (
        "argument-versions",
        "error",
        CONTAINER,
        f"{_VLLM}:0.23.0-gpu-py312-cu130\nspeculation: {{{_EAGLE3}, {_SEVEN}, {_TABLE}}}",
        AWS,
        "speculation.num_speculative_tokens_per_batch_size needs vLLM 0.24.0 or newer; the image has 0.23.0",
    ),
    (
        "argument-versions",
        "error",
        CONTAINER,
        f"{_VLLM}:0.21.0-gpu-py312-cu130\nspeculation: {{{_EAGLE3}, draft_sample_method: probabilistic}}",
        AWS,
        "speculation.draft_sample_method: probabilistic needs vLLM 0.22.0 or newer; the image has 0.21.0",
    ),
    (
        "argument-versions",
        "error",
        CONTAINER,
        f"{_VLLM}:0.17.0-gpu-py312-cu129\nserving: {{extra_args: {{shutdown_timeout: 5}}}}",
        AWS,
        "serving.extra_args.shutdown_timeout needs vLLM 0.18.0 or newer; the image has 0.17.0",
    ),
    (
        "extra-arguments",
        "error",
        TINY,
        "serving: {extra_args: {max_num_seq: 8}}",
        LOCAL,
        "serving.extra_args.max_num_seq: not an argument of vLLM 0.16.0 to 0.32.0. "
        "Did you mean 'max_num_seqs'?",
    ),
    (
        "extra-arguments",
        "warning",
        CONTAINER,
        f"{_OWN.replace('0.32.0', '0.34.0')}\nserving: {{extra_args: {{from_the_future: 1}}}}",
        AWS,
        "not an argument of vLLM 0.16.0 to 0.32.0",
    ),
    (
        "extra-arguments",
        "error",
        TINY,
        "serving: {extra_args: {enable_prefix_caching: 1}}",
        LOCAL,
        "serving.extra_args.enable_prefix_caching: found 1; allowed: true or false",
    ),
    (
        "extra-arguments",
        "error",
        TINY,
        "serving: {extra_args: {max_num_seqs: true}}",
        LOCAL,
        "serving.extra_args.max_num_seqs: found true; allowed: a value other than true or false",
    ),
    (
        "extra-arguments",
        "error",
        TINY,
        "speculation: {mode: none}\nserving: {extra_args: {per_request_spec_decode_metrics: summary}}",
        LOCAL,
        "allowed only with speculation on",
    ),
    (
        "extra-arguments",
        "warning",
        TINY,
        "serving: {env: {SM_VLLM_MAX_NUM_SEQ: 8}}",
        LOCAL,
        "serving.env.SM_VLLM_MAX_NUM_SEQ: --max-num-seq is not a known argument of vLLM. "
        "Did you mean 'max_num_seqs'?",
    ),
    (
        "k-table",
        "error",
        TINY,
        "speculation: {num_speculative_tokens: 5, " + _TABLE + "}",
        LOCAL,
        "speculation.num_speculative_tokens_per_batch_size: found K 7 in the row [1, 4, 7]; allowed: 0 to 5, "
        "the num_speculative_tokens",
    ),
    (
        "k-table",
        "error",
        CONTAINER,
        f"{_OWN}\nspeculation: {{{_EAGLE3}, {_SEVEN}, {_TABLE}}}\nserving: {{data_parallel_size: 2}}",
        AWS,
        "found a table with serving.data_parallel_size 2; allowed: a table only with 1, since vLLM ignores "
        "it otherwise",
    ),
    (
        "k-table",
        "error",
        CONTAINER,
        f"{_VLLM}:0.30.0-gpu-py312-cu130\nspeculation: {{{_SEVEN}, {_TABLE}}}",
        AWS,
        "found a table with mode p-eagle on image vllm:0.30.0-gpu-py312-cu130; allowed: no table, since only "
        "this project's own image can change K with a P-EAGLE head",
    ),
    ("k-table", "error", GPT, f"speculation: {{{_SEVEN}, {_TABLE}}}", AWS, "found a table with mode p-eagle"),
    (
        "k-table-graphs",
        "warning",
        CONTAINER,
        f"{_OWN}\nspeculation: {{{_SEVEN}, {_TABLE}}}",
        AWS,
        "about 14% slower at concurrency 1",
    ),
    (
        "k-table-graphs",
        "warning",
        CONTAINER,
        f"{_OWN}\nspeculation: {{{_SEVEN}, {_TO_ZERO}}}\nserving: {{cudagraph_mode: PIECEWISE}}",
        AWS,
        "the row [5, 8, 0] has K 0, where vLLM issue 49548 saw the throughput collapse",
    ),
    (
        "k-controller",
        "error",
        GPT,
        f"speculation: {{{_SEVEN}, {_ADAPTIVE}}}",
        AWS,
        "allowed: only with an image of your own, since AWS's images do not have the plugin",
    ),
    (
        "k-controller",
        "error",
        CONTAINER,
        f"{_OWN}\nspeculation: {{{_SEVEN}, {_TABLE}, {_ADAPTIVE}}}\nserving: {{data_parallel_size: 2}}",
        AWS,
        "found true with serving.data_parallel_size 2; allowed: only with 1, since the replicas would disagree",
    ),
    (
        "k-controller",
        "error",
        CONTAINER,
        f"{_OWN}\nspeculation: {{{_SEVEN}, {_TABLE}, {_ADAPTIVE}}}\n"
        "serving: {extra_args: {pipeline_parallel_size: 2}}",
        AWS,
        "found true with serving.extra_args.pipeline_parallel_size 2; allowed: only with 1",
    ),
    (
        "k-controller",
        "error",
        CONTAINER,
        f"{_OWN}\nspeculation: {{{_SEVEN}, {_ADAPTIVE}}}",
        AWS,
        "found true with serving.cudagraph_mode left out; allowed: PIECEWISE or NONE",
    ),
    (
        "draft-tensor-parallel",
        "error",
        CONTAINER,
        "speculation: {draft_tensor_parallel_size: 2}\nserving: {tensor_parallel_size: 4}",
        AWS,
        "speculation.draft_tensor_parallel_size: found 2; allowed: 1 or 4, serving.tensor_parallel_size",
    ),
    (
        "draft-tensor-parallel",
        "info",
        CONTAINER,
        "speculation: {draft_tensor_parallel_size: 1}\nserving: {tensor_parallel_size: 4}",
        AWS,
        "has no effect on EAGLE heads",
    ),
    (
        "environment-owned",
        "error",
        TINY,
        "serving: {extra_args: {tensor_parallel_size: 2}}",
        LOCAL,
        "serving.extra_args.tensor_parallel_size: not allowed here; the field serving.tensor_parallel_size "
        "sets it",
    ),
    (
        "environment-owned",
        "error",
        TINY,
        "serving: {env: {SM_VLLM_KV_CACHE_DTYPE: fp8}}",
        LOCAL,
        "serving.env.SM_VLLM_KV_CACHE_DTYPE: not allowed here; the field serving.kv_cache_dtype sets it",
    ),
    (
        "environment-owned",
        "error",
        TINY,
        "serving: {extra_args: {compilation_config: {cudagraph_mode: NONE}}}",
        LOCAL,
        "the field serving.cudagraph_mode sets it",
    ),
    (
        "environment-owned",
        "error",
        TINY,
        "serving: {cudagraph_mode: NONE, env: {SM_VLLM_COMPILATION_CONFIG: '{}'}}",
        LOCAL,
        "not allowed with serving.cudagraph_mode",
    ),
    (
        "environment-owned",
        "error",
        TINY,
        "serving: {extra_args: {max_num_seqs: 8}, env: {SM_VLLM_MAX_NUM_SEQS: 9}}",
        LOCAL,
        "serving.extra_args.max_num_seqs sets it",
    ),
    (
        "forbidden-flags",
        "error",
        TINY,
        "serving: {extra_args: {trust_remote_code: true}}",
        LOCAL,
        "serving.extra_args.trust_remote_code: not allowed: it runs Python that comes with the weights",
    ),
    (
        "forbidden-flags",
        "error",
        GPT,
        "serving: {extra_args: {enable_log_requests: true}}",
        AWS,
        "serving.extra_args.enable_log_requests: not allowed: the gate in the container refuses it: it "
        "writes the users' prompts to the log",
    ),
    (
        "forbidden-flags",
        "error",
        TINY,
        "serving: {env: {SM_VLLM_WORKER_CLS: mine}}",
        LOCAL,
        "the gate in the container refuses it: it runs Python by its name",
    ),
    ("environment-port", "error", TINY, "serving: {extra_args: {port: 1}}", LOCAL, "port 8080"),
    ("environment-empty", "error", TINY, "serving: {extra_args: {dtype: ''}}", LOCAL, "an empty value"),
    (
        "ignored-speculation",
        "info",
        TINY,
        "speculation: {mode: none, draft_sample_method: greedy}",
        LOCAL,
        "speculation.draft_sample_method: 'greedy' has no effect",
    ),
]

_FINE: list[tuple[str, str, str, Context]] = [
    (
        "argument-versions",
        CONTAINER,
        f"{_VLLM}:0.24.0-gpu-py312-cu130\nspeculation: {{{_EAGLE3}, {_SEVEN}, {_TABLE}}}",
        AWS,
    ),
    (
        "argument-versions",
        CONTAINER,
        f"{_VLLM}:0.18.0-gpu-py312-cu129\n"
        "serving: {kv_cache_dtype: float16, stream_interval: 4, extra_args: {shutdown_timeout: 5}}",
        AWS,
    ),
    (
        "extra-arguments",
        TINY,
        "serving: {extra_args: {max_num_seqs: 8, enable_prefix_caching: false, enforce_eager: true, "
        "no_async_scheduling: true, hf_overrides: {a: 1}, per_request_spec_decode_metrics: detailed}}",
        LOCAL,
    ),
    ("k-table", TINY, f"speculation: {{{_SEVEN}, {_TABLE}}}", LOCAL),
    ("k-table", CONTAINER, f"{_OWN}\nspeculation: {{{_SEVEN}, {_TABLE}}}", AWS),
    (
        "k-table",
        CONTAINER,
        f"{_VLLM}:0.30.0-gpu-py312-cu130\nspeculation: {{{_EAGLE3}, {_SEVEN}, {_TABLE}}}",
        AWS,
    ),
    ("k-controller", TINY, f"speculation: {{{_SEVEN}, {_ADAPTIVE}}}", LOCAL),
    ("k-controller", CONTAINER, f"{_OWN}\nspeculation: {{{_SEVEN}, {_TABLE}, {_ADAPTIVE}}}", AWS),
    (
        "k-controller",
        CONTAINER,
        f"{_OWN}\nspeculation: {{{_SEVEN}, {_ADAPTIVE}}}\nserving: {{cudagraph_mode: PIECEWISE}}",
        AWS,
    ),
    ("k-table-graphs", TINY, f"speculation: {{{_SEVEN}, {_TO_ZERO}}}", LOCAL),
    (
        "k-table-graphs",
        CONTAINER,
        f"{_OWN}\nspeculation: {{{_SEVEN}, {_TABLE}}}\nserving: {{cudagraph_mode: PIECEWISE}}",
        AWS,
    ),
    (
        "draft-tensor-parallel",
        CONTAINER,
        "speculation: {draft_tensor_parallel_size: 4}\nserving: {tensor_parallel_size: 4}",
        AWS,
    ),
    (
        "environment-owned",
        TINY,
        "serving: {cudagraph_mode: NONE, extra_args: {compilation_config: {}}}",
        LOCAL,
    ),
    ("forbidden-flags", TINY, "serving: {extra_args: {trust_remote_code: false}}", LOCAL),
    ("forbidden-flags", GPT, "serving: {env: {SM_VLLM_ENABLE_LOG_REQUESTS: true}}", AWS),
]

CASES = [
    *(
        Case(check, base, extra, context, None, severity, said)
        for check, severity, base, extra, context, said in _TRAPS
    ),
    *(Case(check, base, extra, context) for check, base, extra, context in _FINE),
]
