"""Cases of the checks in `peagle_sm.core.checks.engine_settings`: draft settings, K tables, arguments."""

from __future__ import annotations

from peagle_sm.core.checks.base import GenerationDefaults
from tests.core.checks.cases import Case, error, warning
from tests.core.support import CONTAINER, GPT, LOCAL, TINY

_VLLM = "image: 763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm"
_MINE = "image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:0.32.0"
_EAGLE3 = "mode: eagle3, draft_head: mine"
_TABLE = "num_speculative_tokens_per_batch_size: [[1, 4, 7], [5, 8, 3]]"
_ZERO_ROW = "num_speculative_tokens_per_batch_size: [[1, 4, 7], [5, 8, 0]]"
_SEVEN = "num_speculative_tokens: 7"

_MIN_P = "serving: {extra_args: {override_generation_config: {temperature: 0.7, min_p: 0.05}}}"
_STAGES = "serving: {extra_args: {pipeline_parallel_size: 2}}"
_BESIDE = GenerationDefaults("s3://bucket/target/generation_config.json", {"min_p": 0.05})

_REFUSED = {
    "{dtype: bf16}": "dtype: found 'bf16'; allowed: auto, bfloat16, float, float16, float32, half",
    "{gpu_memory_utilization: 95}": "gpu_memory_utilization: found 95; allowed: a number above 0, at most 1",
    "{max_num_seqs: 0}": "max_num_seqs: found 0; allowed: a number at least 1",
    "{kv_cache_memory_bytes: 2.5G}": "kv_cache_memory_bytes: found '2.5G'; allowed: a whole number",
    "{mamba_cache_mode: all}": "mamba_cache_mode: found 'all'; allowed: align, none",
    "{max_lora_rank: 24}": "max_lora_rank: found 24; allowed: ",
    "{scheduling_policy: lifo}": "scheduling_policy: found 'lifo'; allowed: fcfs, priority",
    "{tool_call_parser: hermess}": "tool_call_parser: found 'hermess'; allowed: ",
    "{compilation_config: fast}": "compilation_config: found 'fast'; allowed: a JSON object",
    "{enable_auto_tool_choice: true}": "enable_auto_tool_choice: found true without tool_call_parser",
    "{enable_log_outputs: true}": "enable_log_outputs: found true without enable_log_requests",
    "{enable_per_request_metrics: true, disable_log_stats: true}": "found true with disable_log_stats",
    "{max_logprobs: -2}": "max_logprobs: found -2; allowed: a number at least -1",
    "{attention_backend: flashinfre}": "attention_backend: found 'flashinfre'; allowed: ",
    "{quantization: awq_marlin2}": "quantization: found 'awq_marlin2'; allowed: ",
    "{safetensors_load_strategy: slow}": "safetensors_load_strategy: found 'slow'; allowed: eager",
    "{compilation_config: 3}": "compilation_config: found 3; allowed: a JSON object",
    "{compilation_config: {modes: 3}}": "compilation_config.modes: vLLM has no such field",
    "{structured_outputs_config: {backend: xgramar}}": "backend: found 'xgramar'; allowed: auto, guidance",
    "{override_generation_config: {temperature: '0.5'}}": "temperature: found '0.5'; allowed: a number",
    "{override_generation_config: {top_p: 0}}": "top_p: found 0; allowed: a number above 0",
    "{override_generation_config: {max_new_tokens: 0}}": "override_generation_config.max_new_tokens: found 0",
    "{seed: yes}": "seed: found true; allowed: a whole number",
    "{optimization_level: 5}": "optimization_level: found 5; allowed: 0, 1, 2, 3",
    "{attention_config: {backend: fast}}": "attention_config.backend: found 'fast'; allowed: AMX_MLA",
}
_TAKEN = (
    "{dtype: bfloat16, gpu_memory_utilization: 0.95, max_num_batched_tokens: 8k, max_lora_rank: 32}",
    "{enable_auto_tool_choice: true, tool_call_parser: hermes}",
    "{enable_auto_tool_choice: false, compilation_config: {mode: 3}, moe_backend: Deep-GEMM}",
    "{tool_call_parser: mine, tool_parser_plugin: /opt/ml/model/parser.json}",
    "{attention_backend: flash_attn}",
    "{attention_backend: auto}",
    "{compilation_config: {mode: 3, cudagraph_mode: NONE}}",
    "{structured_outputs_config: {backend: xgrammar}}",
    "{override_generation_config: {top_k: -1, top_p: 1}}",
    "{quantization: fp8}",
)
_PIECEWISE = "serving: {extra_args: {compilation_config: {cudagraph_mode: PIECEWISE}}}"

CASES = [
    error("flag-versions", "0.16.0", CONTAINER, f"{_VLLM}:0.15.0-gpu-py312-cu129-ubuntu22.04-sagemaker"),
    error("flag-versions", "SM_VLLM_MODEL needs vLLM 0.13.0", CONTAINER, f"{_VLLM}:0.12.0-gpu-py312-cu129"),
    error(
        "flag-versions",
        "0.29.0 or newer",
        GPT,
        "serving: {env: {SM_VLLM_PER_REQUEST_SPEC_DECODE_METRICS: summary}}",
    ),
    Case("flag-versions", CONTAINER, f"{_VLLM}:0.16.0-gpu-py312-cu129-ubuntu22.04-sagemaker"),
    error(
        "extra-arguments",
        "only with speculation on",
        TINY,
        "speculation: {mode: none}\nserving: {env: {SM_VLLM_PER_REQUEST_SPEC_DECODE_METRICS: summary}}",
        LOCAL,
    ),
    *(
        error("extra-arguments", message, CONTAINER, f"{_MINE}\nserving: {{extra_args: {arguments}}}")
        for arguments, message in _REFUSED.items()
    ),
    *(Case("extra-arguments", CONTAINER, f"{_MINE}\nserving: {{extra_args: {each}}}") for each in _TAKEN),
    Case(
        "extra-arguments",
        CONTAINER,
        f"{_MINE.replace('0.32.0', '0.31.0')}\nserving: {{extra_args: {{mamba_cache_mode: all}}}}",
    ),
    error(
        "extra-arguments",
        "serving.env.SM_VLLM_DTYPE: found 'bf16'",
        CONTAINER,
        f"{_MINE}\nserving: {{env: {{SM_VLLM_DTYPE: bf16}}}}",
    ),
    error(
        "extra-arguments",
        "serving.env.SM_VLLM_FOO: --foo is not a known argument",
        CONTAINER,
        f"{_MINE}\nserving: {{env: {{SM_VLLM_FOO: 1}}}}",
    ),
    warning(
        "extra-arguments",
        "Did you mean 'max_num_seqs'?",
        CONTAINER,
        f"{_MINE}\nserving: {{env: {{SM_VLLM_MAX_NUM_SEQ: 1}}}}",
    ),
    error(
        "flag-versions",
        "serving.env.SM_VLLM_DISABLE_LOG_REQUESTS needs vLLM 0.16.0 or older",
        CONTAINER,
        f"{_MINE}\nserving: {{env: {{SM_VLLM_DISABLE_LOG_REQUESTS: true}}}}",
    ),
    error(
        "speculation-conflicts",
        "serving.extra_args.override_generation_config.min_p: found 0.1",
        CONTAINER,
        "serving: {extra_args: {override_generation_config: '{\"min_p\": 0.1}'}}",
    ),
    error(
        "generation-defaults",
        "config.json: found min_p 0.05",
        CONTAINER,
        "serving: {extra_args: {generation_config: /opt/ml/model}}",
        fact=_BESIDE,
    ),
    error(
        "generation-defaults",
        "config.json: found top_p 0; allowed: a number above 0",
        CONTAINER,
        "speculation: {mode: none}",
        fact=GenerationDefaults("s3://bucket/target/generation_config.json", {"top_p": 0}),
    ),
    error(
        "speculation-conflicts",
        "override_generation_config.min_p: found 0.05 with mode p-eagle; allowed: 0",
        CONTAINER,
        _MIN_P,
    ),
    error(
        "speculation-conflicts",
        "serving.env.SM_VLLM_OVERRIDE_GENERATION_CONFIG.min_p: found 0.1",
        CONTAINER,
        "serving: {env: {SM_VLLM_OVERRIDE_GENERATION_CONFIG: '{\"min_p\": 0.1}'}}",
    ),
    warning(
        "speculation-conflicts",
        "logit_bias",
        CONTAINER,
        "serving: {extra_args: {override_generation_config: {logit_bias: {'5': 3}}}}",
    ),
    error(
        "speculation-conflicts",
        "logits_processors: found with mode p-eagle",
        CONTAINER,
        "serving: {extra_args: {logits_processors: [mine]}}",
    ),
    error(
        "speculation-conflicts",
        "kv_sharing_fast_prefill: found true",
        CONTAINER,
        "serving: {extra_args: {kv_sharing_fast_prefill: true}}",
    ),
    Case("speculation-conflicts", CONTAINER, f"speculation: {{mode: none}}\n{_MIN_P}"),
    Case("speculation-conflicts", CONTAINER, _MIN_P.replace("0.05", "0.0")),
    error("generation-defaults", "config.json: found min_p 0.05", CONTAINER, fact=_BESIDE),
    Case("generation-defaults", CONTAINER, _MIN_P.replace("0.05", "0.0"), fact=_BESIDE),
    Case("generation-defaults", CONTAINER, "serving: {extra_args: {generation_config: vllm}}", fact=_BESIDE),
    Case("generation-defaults", CONTAINER, "speculation: {mode: none}", fact=_BESIDE),
    error(
        "pipeline-stages", "pipeline_parallel_size: found 2 with mode p-eagle; allowed: 1", CONTAINER, _STAGES
    ),
    error(
        "pipeline-stages",
        "allowed below vLLM 0.30.0: 1; the image has 0.29.0",
        CONTAINER,
        f"{_VLLM}:0.29.0-gpu-py312-cu130\nspeculation: {{{_EAGLE3}, {_SEVEN}}}\n{_STAGES}",
    ),
    error(
        "pipeline-stages",
        "VLLM_USE_V2_MODEL_RUNNER 0, the V1 model runner: 1",
        CONTAINER,
        f"{_VLLM}:0.30.0-gpu-py312-cu130\nspeculation: {{{_EAGLE3}, {_SEVEN}}}\n{_STAGES}",
    ),
    Case(
        "pipeline-stages",
        CONTAINER,
        f"{_VLLM}:0.30.0-gpu-py312-cu130\nspeculation: {{{_EAGLE3}, {_SEVEN}}}\nserving: {{env: "
        "{VLLM_USE_V2_MODEL_RUNNER: 1, SM_VLLM_PIPELINE_PARALLEL_SIZE: 2}}",
    ),
    Case("pipeline-stages", CONTAINER, f"speculation: {{mode: none}}\n{_STAGES}"),
    error(
        "flag-versions",
        "speculation.num_speculative_tokens_per_batch_size needs vLLM 0.24.0 or newer; the image has 0.23.0",
        CONTAINER,
        f"{_VLLM}:0.23.0-gpu-py312-cu130\nspeculation: {{{_EAGLE3}, {_SEVEN}, {_TABLE}}}",
    ),
    error(
        "flag-versions",
        "speculation.draft_sample_method: probabilistic needs vLLM 0.22.0 or newer; the image has 0.21.0",
        CONTAINER,
        f"{_VLLM}:0.21.0-gpu-py312-cu130\nspeculation: {{{_EAGLE3}, draft_sample_method: probabilistic}}",
    ),
    error(
        "flag-versions",
        "serving.extra_args.shutdown_timeout needs vLLM 0.18.0 or newer; the image has 0.17.0",
        CONTAINER,
        f"{_VLLM}:0.17.0-gpu-py312-cu129\nserving: {{extra_args: {{shutdown_timeout: 5}}}}",
    ),
    Case(
        "flag-versions",
        CONTAINER,
        f"{_VLLM}:0.24.0-gpu-py312-cu130\nspeculation: {{{_EAGLE3}, {_SEVEN}, {_TABLE}}}",
    ),
    Case(
        "flag-versions",
        CONTAINER,
        f"{_VLLM}:0.18.0-gpu-py312-cu129\nserving: {{kv_cache_dtype: float16, "
        f"extra_args: {{stream_interval: 4, shutdown_timeout: 5}}}}",
    ),
    warning(
        "extra-arguments",
        "not an argument of vLLM 0.16.0 to 0.33.0",
        CONTAINER,
        f"{_MINE.replace('0.32.0', '0.34.0')}\nserving: {{extra_args: {{from_the_future: 1}}}}",
    ),
    error(
        "extra-arguments",
        "serving.extra_args.enable_prefix_caching: found 1; allowed: true or false",
        TINY,
        "serving: {extra_args: {enable_prefix_caching: 1}}",
        LOCAL,
    ),
    error(
        "extra-arguments",
        "allowed only with speculation on",
        TINY,
        "speculation: {mode: none}\nserving: {extra_args: {per_request_spec_decode_metrics: summary}}",
        LOCAL,
    ),
    warning(
        "extra-arguments",
        "serving.env.SM_VLLM_MAX_NUM_SEQ: --max-num-seq is not a known argument",
        TINY,
        "serving: {env: {SM_VLLM_MAX_NUM_SEQ: 8}}",
        LOCAL,
    ),
    Case(
        "extra-arguments",
        TINY,
        "serving: {extra_args: {max_num_seqs: 8, enable_prefix_caching: false, enforce_eager: "
        "true, no_async_scheduling: true, hf_overrides: {a: 1}, per_request_spec_decode_metrics: "
        "detailed}}",
        LOCAL,
    ),
    error(
        "k-table",
        "found K 7 in the row [1, 4, 7]; allowed: 0 to 5",
        TINY,
        "speculation: {num_speculative_tokens: 5, " + _TABLE + "}",
        LOCAL,
    ),
    error(
        "k-table",
        "found a table with serving.data_parallel_size 2",
        CONTAINER,
        f"{_MINE}\nspeculation: {{{_EAGLE3}, {_SEVEN}, {_TABLE}}}\nserving: {{data_parallel_size: 2}}",
    ),
    error(
        "k-table",
        "found a table with mode p-eagle on image vllm:0.30.0-gpu-py312-cu130",
        CONTAINER,
        f"{_VLLM}:0.30.0-gpu-py312-cu130\nspeculation: {{{_SEVEN}, {_TABLE}}}",
    ),
    error("k-table", "found a table with mode p-eagle", GPT, f"speculation: {{{_SEVEN}, {_TABLE}}}"),
    Case("k-table", TINY, f"speculation: {{{_SEVEN}, {_TABLE}}}", LOCAL),
    Case("k-table", CONTAINER, f"{_MINE}\nspeculation: {{{_SEVEN}, {_TABLE}}}"),
    Case(
        "k-table",
        CONTAINER,
        f"{_VLLM}:0.30.0-gpu-py312-cu130\nspeculation: {{{_EAGLE3}, {_SEVEN}, {_TABLE}}}",
    ),
    warning(
        "k-table",
        "plugin for tables was run with vLLM 0.30.0, 0.31.0, 0.32.0; the image has 0.33.0",
        CONTAINER,
        f"{_MINE.replace('0.32.0', '0.33.0')}\nspeculation: {{{_SEVEN}, {_TABLE}}}",
    ),
    # EAGLE-3 follows a table by vLLM's own means: the plugin is not on.
    Case(
        "k-table",
        CONTAINER,
        f"{_MINE.replace('0.32.0', '0.33.0')}\nspeculation: {{{_EAGLE3}, {_SEVEN}, {_TABLE}}}",
    ),
    warning(
        "k-table-graphs",
        "about 14% slower at concurrency 1",
        CONTAINER,
        f"{_MINE}\nspeculation: {{{_SEVEN}, {_TABLE}}}",
    ),
    warning(
        "k-table-graphs",
        "the row [5, 8, 0] has K 0, where vLLM issue 49548 saw the throughput collapse",
        CONTAINER,
        f"{_MINE}\nspeculation: {{{_SEVEN}, {_ZERO_ROW}}}\n{_PIECEWISE}",
    ),
    Case("k-table-graphs", TINY, f"speculation: {{{_SEVEN}, {_ZERO_ROW}}}", LOCAL),
    Case("k-table-graphs", CONTAINER, f"{_MINE}\nspeculation: {{{_SEVEN}, {_TABLE}}}\n{_PIECEWISE}"),
    error(
        "tensor-parallel-heads",
        "found 3; gpt-oss-20b has 8 KV heads",
        GPT,
        "serving: {tensor_parallel_size: 3}",
    ),
    Case("tensor-parallel-heads", GPT, "serving: {tensor_parallel_size: 4}"),
    error(
        "slice-counts",
        "allowed: only with an image of your own, since AWS's images do not have the gate",
        GPT,
        "metrics: {slices: [format]}",
    ),
    error(
        "slice-counts",
        "found format, script with mode none; allowed: only with speculation on",
        TINY,
        "speculation: {mode: none}\nmetrics: {slices: [format, script]}",
        LOCAL,
    ),
    error(
        "slice-counts",
        "metrics.slices: found with vLLM 0.28.0; allowed: 0.29.0 or later",
        CONTAINER,
        f"{_MINE.replace('0.32.0', '0.28.0')}\nmetrics: {{slices: [format]}}",
    ),
    Case("slice-counts", TINY, "metrics: {slices: ['script=latin,han', format]}", LOCAL),
    Case("slice-counts", CONTAINER, f"{_MINE}\nmetrics: {{slices: ['label:team=search']}}"),
]
