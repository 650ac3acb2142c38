"""Draft and engine settings of a spec: the variables that they become, the plan, the memory fit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peagle_bench.compare.arms import spec_of as arm_of
from peagle_sm.core.catalog import AttentionGroup, kv_cache_gb, load_catalog
from peagle_sm.core.engines import Range, load_arguments, load_forbidden, version_of
from peagle_sm.core.forbidden import WHOLE_NAMES
from peagle_sm.core.plan.environment import environment
from peagle_sm.core.plan.resolve import resolve
from peagle_sm.core.planning import engine_settings
from tests.core.support import AWS, CONTAINER, GPT, LOCAL, TINY, plan_of, spec_of

TABLE = "num_speculative_tokens: 7, num_speculative_tokens_per_batch_size: [[1, 4, 7], [5, 8, 3]]"
EAGLE3 = "mode: eagle3, draft_head: tiny-code-eagle3"


def variables(base: str, extra: str, context: Any = LOCAL) -> dict[str, str]:
    return environment(resolve(spec_of(base, extra), context, load_catalog()))


def test_draft_settings_are_fields_of_the_speculative_config() -> None:
    result = variables(TINY, f"speculation: {{{TABLE}, draft_sample_method: probabilistic}}")
    assert json.loads(result["SM_VLLM_SPECULATIVE_CONFIG"]) == {
        "method": "eagle3",
        "model": "/opt/ml/additional-model-data-sources/eagle",
        "num_speculative_tokens": 7,
        "parallel_drafting": True,
        "draft_sample_method": "probabilistic",
        "num_speculative_tokens_per_batch_size": [[1, 4, 7], [5, 8, 3]],
    }
    assert result["PEAGLE_SM_RUNTIME_K"] == "1", "only so a P-EAGLE head may change its K"


def test_the_plugin_is_on_only_for_a_table_with_p_eagle() -> None:
    assert "PEAGLE_SM_RUNTIME_K" not in variables(TINY, "")
    assert "PEAGLE_SM_RUNTIME_K" not in variables(TINY, f"speculation: {{{EAGLE3}, {TABLE}}}")
    assert "PEAGLE_SM_RUNTIME_K" not in variables(GPT, f"speculation: {{{TABLE}}}", AWS)


def test_settings_become_arguments() -> None:
    result = variables(
        TINY,
        "serving: {kv_cache_dtype: fp8, extra_args: {max_num_seqs: 8, stream_interval: 4, "
        "enforce_eager: true, enable_prefix_caching: false, gpu_memory_utilization: 0.8, "
        "served_model_name: [a, b], compilation_config: {mode: 3}}}",
    )
    assert result["SM_VLLM_KV_CACHE_DTYPE"] == "fp8"
    assert result["SM_VLLM_STREAM_INTERVAL"] == "4"
    assert json.loads(result["SM_VLLM_COMPILATION_CONFIG"]) == {"mode": 3}
    assert result["SM_VLLM_MAX_NUM_SEQS"] == "8"
    assert result["SM_VLLM_ENFORCE_EAGER"] == "true"
    assert result["SM_VLLM_NO_ENABLE_PREFIX_CACHING"] == "true", "false would drop the argument"
    assert result["SM_VLLM_GPU_MEMORY_UTILIZATION"] == "0.8"
    assert result["SM_VLLM_SERVED_MODEL_NAME"] == '["a","b"]'


def test_settings_that_are_left_out_change_nothing() -> None:
    names = variables(TINY, "").keys()
    assert not {name for name in names if "CACHE" in name or "STREAM" in name or "COMPILATION" in name}


def test_the_plan_shows_the_settings() -> None:
    plan = plan_of(
        TINY,
        f"speculation: {{{TABLE}, draft_sample_method: greedy}}\n"
        "serving: {kv_cache_dtype: fp8, extra_args: {max_num_seqs: 8, enable_prefix_caching: false}}",
        LOCAL,
    )
    assert engine_settings(plan) == (
        ("K by requests", "7 (1 to 4), 3 (5 and more)"),
        ("draft sampling", "greedy"),
        ("KV cache", "fp8"),
        ("more arguments", "max_num_seqs: 8, enable_prefix_caching: false"),
    )
    assert not plan.refused
    assert "K by requests" in str(plan)


def test_an_fp8_cache_is_half_as_large_on_gpus() -> None:
    group = AttentionGroup(layers=2, kv_heads=8, head_dim=64)
    assert kv_cache_gb((group,), 100, "fp8_e4m3") * 2 == kv_cache_gb((group,), 100, "auto")
    small, large = plan_of(CONTAINER, "serving: {kv_cache_dtype: fp8}"), plan_of(CONTAINER)
    assert small.memory is not None
    assert large.memory is not None
    assert small.memory.kv_cache_gb * 2 == pytest.approx(large.memory.kv_cache_gb, rel=0.01)


def test_an_arm_with_a_k_of_its_own_has_no_table() -> None:
    base = spec_of(TINY, f"speculation: {{{TABLE}, draft_sample_method: probabilistic}}")
    for k, table in ((None, ((1, 4, 7), (5, 8, 3))), (3, None)):
        arm = arm_of(base, "p-eagle", k=k).speculation
        assert arm.num_speculative_tokens_per_batch_size == table
        assert arm.draft_sample_method == "probabilistic"
    assert arm_of(base, "none").speculation.num_speculative_tokens_per_batch_size is None


def test_the_list_of_arguments_is_whole() -> None:
    """Some arguments of each kind, as `vllm serve --help` of 0.32.0 has them."""
    known = load_arguments()
    assert {"max_num_seqs", "no_async_scheduling", "speculative_config", "stream_interval"} <= known.names
    assert "enable_prefix_caching" in known.switches
    assert "disable_log_stats" in known.flags
    assert known.missing_in("max_num_seqs", version_of("0.16.0")) is None
    assert known.missing_in("shutdown_timeout", version_of("0.17.1")) is not None
    assert known.missing_in("shutdown_timeout", version_of("0.18.0")) is None
    assert known.missing_in("shutdown_timeout", version_of("0.99.0")) is None, "not read: nothing is claimed"
    assert version_of(known.oldest) < version_of(known.newest)


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        (f"speculation: {{mode: eagle3, draft_head: a, {TABLE}}}", "num_speculative_tokens_per_batch_size"),
        ("serving: {extra_args: {shutdown_timeout: 5}}", "shutdown_timeout"),
    ],
)
def test_a_setting_that_the_engine_lacks_is_reported_once(extra: str, told: str) -> None:
    image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.17.0-gpu-py312-cu129-ubuntu22.04-sagemaker"
    plan = plan_of(CONTAINER, f"image: {image}\n{extra}", AWS)
    rows = [
        one.message for one in plan.findings if "needs vLLM" in one.message and told in one.message.lower()
    ]
    assert len(rows) == 1, rows


def test_arguments_of_vllm_that_a_forbidden_one_begins_with_are_whole_names() -> None:
    forbidden = load_forbidden().arguments
    begin_one = {
        name
        for name in load_arguments().names - forbidden.keys()
        if any(full.startswith(name) for full in forbidden)
    }
    assert begin_one == WHOLE_NAMES


def test_the_matrix_and_the_list_of_arguments_agree() -> None:
    """Both were read from vLLM's sources, by two programs."""
    known, matrix = load_arguments(), load_catalog().engines
    assert set(matrix.arguments) <= known.names
    for name, span in matrix.arguments.items():
        if version_of(span.since or "0") <= version_of(known.newest):
            assert known.sometimes.get(name, Range()) == span, name
