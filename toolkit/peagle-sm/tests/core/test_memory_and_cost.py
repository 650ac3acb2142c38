from dataclasses import replace

import pytest

from peagle_sm.core.catalog import AttentionGroup, kv_cache_gb
from peagle_sm.core.planning import make_plan
from tests.core.support import AWS, CONTAINER, GPT, LOCAL, TINY, plan_of, spec_of


def test_a_sliding_window_caps_the_cache() -> None:
    full = AttentionGroup(layers=1, kv_heads=8, head_dim=64)
    sliding = AttentionGroup(layers=1, kv_heads=8, head_dim=64, window=128)
    assert kv_cache_gb((full,), 1000) == pytest.approx(1000 * 2 * 8 * 64 * 2 / 1e9)
    assert kv_cache_gb((sliding,), 1000) == kv_cache_gb((full,), 128)
    assert kv_cache_gb((full, sliding), 100) == 2 * kv_cache_gb((full,), 100)


def test_the_sum_is_shown() -> None:
    memory = plan_of(GPT).memory
    assert memory is not None
    assert memory.lines == (
        "weights         13.74 GB  GPT-OSS 20B",
        "draft head       3.60 GB  gpt-oss-20b-p-eagle",
        "KV cache         0.20 GB  one sequence of 8192 tokens (the drafter's own cache is not counted)",
        "overhead        11.60 GB  10% that vLLM keeps free + 2 GB a GPU for activations (assumed)",
        "available       96.00 GB  1 x 96 GB (RTX PRO 6000 Blackwell) of ml.g7e.2xlarge",
        "left            66.86 GB  fits: room for 328 sequences of full length",
    )


def test_a_head_that_the_catalogue_lacks_counts_as_the_models_largest() -> None:
    memory = plan_of(GPT, "head_uri: s3://bucket/h/\nspeculation: {draft_head: mine}").memory
    assert memory is not None
    assert (memory.head_gb, memory.head_estimated) == (3.6, True)
    assert "size unknown" in memory.lines[1]


def test_what_is_small_is_shown_in_megabytes() -> None:
    memory = plan_of(TINY, context=LOCAL).memory
    assert memory is not None
    assert 0 < memory.head_gb < 0.1
    assert memory.lines[1] == f"draft head   {memory.head_gb * 1000:8.2f} MB  tiny-code-p-eagle"
    assert not any(" 0.0" in line and "GB" in line for line in memory.lines)


def test_tensor_parallelism_pools_memory() -> None:
    extra = "placement: {{instance_types: [ml.g6.12xlarge]}}\nserving: {{tensor_parallel_size: {}}}"
    one, four = plan_of(GPT, extra.format(1)).memory, plan_of(GPT, extra.format(4)).memory
    assert one is not None
    assert four is not None
    assert (one.available_gb, four.available_gb) == (24, 96)


def test_the_share_of_the_gpu_that_the_spec_asks_for_counts() -> None:
    memory = plan_of(GPT, "serving: {env: {SM_VLLM_GPU_MEMORY_UTILIZATION: 0.5}}").memory
    assert memory is not None
    assert memory.overhead_gb == pytest.approx(50.0)


def test_the_tightest_of_several_types_counts() -> None:
    memory = plan_of(CONTAINER, "placement: {instance_types: [ml.g7e.2xlarge, ml.g6.xlarge]}").memory
    assert memory is not None
    assert memory.available_gb == 24
    assert "ml.g6.xlarge" in memory.lines[-2]


def test_price_per_hour_per_day_and_for_the_whole_life() -> None:
    plan = plan_of(GPT, "placement: {instance_count: 2}\nlifecycle: {max_lifetime_hours: 10}")
    assert (plan.usd_per_hour, plan.usd_per_day, plan.max_usd) == (8.4, 201.6, 84.0)
    assert "ml.g7e.2xlarge in us-east-1: SageMaker on demand" in plan.price_source
    assert "2026-11-20" in plan.price_source


def test_a_price_of_another_region_is_not_taken() -> None:
    plan = make_plan(spec_of(GPT), replace(AWS, region="eu-west-1"))
    assert plan.usd_per_hour is None
    assert plan.max_usd is None
    assert plan.price_source == "no price known for ml.g7e.2xlarge in eu-west-1"


def test_the_dearest_of_several_types_counts() -> None:
    plan = plan_of(CONTAINER, "placement: {instance_types: [ml.g7e.2xlarge, ml.g6e.12xlarge]}")
    assert plan.usd_per_hour == 13.12


def test_unused_gpus_are_counted() -> None:
    big = "placement: {instance_types: [ml.p6-b200.48xlarge]}\n"
    assert plan_of(GPT, big).unused_gpus == 7
    assert plan_of(GPT, big + "serving: {data_parallel_size: 8}").unused_gpus == 0
