"""Run by the engine's Python: what the plugin peagle_cpu_fixes changed, against vLLM's own. Prints one JSON.

In one process, since importing vLLM takes longer than everything else here: each engine answers with the
straight layers, then vLLM's own are put back in the same engine, and it answers again.
"""

import gc
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_HOST_IP="127.0.0.1",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_NO_USAGE_STATS="1",
    HF_HUB_OFFLINE="1",
    OMP_NUM_THREADS="1",
)

import torch
import vllm.v1.spec_decode.llm_base_proposer as proposer
from vllm import LLM, SamplingParams, ir
from vllm.platforms.cpu import CpuPlatform

NAMES = [
    "total",
    "median",
    "merge",
    "parse",
    "split",
    "count",
    "rotate",
    "invert",
    "find",
    "sort",
    "join",
    "sum",
]
PROMPTS = [f"def {name}({argument}):\n    " for name in NAMES for argument in ("values", "text, width")]


def start(weights: str, head: str) -> LLM:
    speculation = {
        "method": "eagle3",
        "model": f"{weights}/{head}",
        "num_speculative_tokens": 5,
        "parallel_drafting": head == "p-eagle",
    }
    return LLM(
        model=f"{weights}/target",
        dtype="float32",
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=8,
        seed=0,
        disable_log_stats=False,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=64 << 20,
        speculative_config=speculation,
    )


def answers(llm: LLM) -> tuple[list[list[int]], dict[str, int]]:
    """The greedy tokens, alone and in batches, and what the engine counted of drafts meanwhile."""
    before = counters(llm)
    params = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
    found = llm.generate(PROMPTS, params, use_tqdm=False)
    found += [llm.generate([prompt], params, use_tqdm=False)[0] for prompt in PROMPTS[:4]]
    after = counters(llm)
    return [list(one.outputs[0].token_ids) for one in found], {
        name: after[name] - before[name] for name in after
    }


def counters(llm: LLM) -> dict[str, int]:
    return {m.name: m.value for m in llm.get_metrics() if "spec_decode" in m.name and hasattr(m, "value")}


def modules(llm: LLM) -> list[torch.nn.Module]:
    runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    return [*runner.model.modules(), *runner.drafter.model.modules()]


def try_out(llm: LLM) -> dict[str, Any]:
    straight = [module for module in modules(llm) if "forward" in vars(module)]
    with counting_rows() as rows:
        tokens, drafts = answers(llm)
    for module in straight:
        del module.forward
    with vllms_own_rows(), counting_rows() as stock_rows:
        stock_tokens, stock_drafts = answers(llm)
    return {
        "rows": rows,
        "stock rows": stock_rows,
        "layers": sum(type(module).__name__ == "LlamaDecoderLayer" for module in modules(llm)),
        "straight": sum(type(module).__name__ == "LlamaDecoderLayer" for module in straight),
        "same tokens": tokens == stock_tokens,
        "same drafts": drafts == stock_drafts,
        "drafts": drafts["vllm:spec_decode_num_drafts"],
        "rejected": drafts["vllm:spec_decode_num_draft_tokens"]
        - drafts["vllm:spec_decode_num_accepted_tokens"],
    }


@contextmanager
def counting_rows() -> Iterator[dict[str, int]]:
    """Count the rows that enter the first passes of a draft head."""
    counted = {"in": 0}
    of_head = proposer.SpecDecodeBaseProposer.build_model_inputs_first_pass

    def count(self: Any, num_tokens: int, *args: Any) -> Any:
        counted["in"] += num_tokens
        return of_head(self, num_tokens, *args)

    proposer.SpecDecodeBaseProposer.build_model_inputs_first_pass = count
    try:
        yield counted
    finally:
        proposer.SpecDecodeBaseProposer.build_model_inputs_first_pass = of_head


@contextmanager
def vllms_own_rows() -> Iterator[None]:
    """Put back the first pass of a draft head as vLLM prepares it, with the rejected rows."""
    base = proposer.SpecDecodeBaseProposer
    ours = base.propose, base.build_per_group_and_layer_attn_metadata
    base.propose, base.build_per_group_and_layer_attn_metadata = (one.__wrapped__ for one in ours)
    try:
        yield
    finally:
        base.propose, base.build_per_group_and_layer_attn_metadata = ours


def compare_kernels() -> dict[str, bool | None]:
    """Each small function against the one whose place it took, bit for bit; None where it has no place."""
    from peagle_cpu_fixes import kernels, layers  # type: ignore[import-not-found]  # in the engine's environment

    torch.manual_seed(0)
    return {
        "norms": all(same_norms(layers, dtype) for dtype in (torch.float32, torch.bfloat16)),
        "argmax": same_argmax(kernels) if hasattr(torch.ops._C, "greedy_argmax") else None,
        # vLLM 0.30's own cannot be called on a CPU (docs/explanation/engine.md).
        "slots": same_slots(kernels) if hasattr(CpuPlatform, "register_triton_kernel_overrides") else None,
        "products": same_products(kernels),
        "rows": same_rows(kernels),
        "compiled rows": same_compiled_rows(kernels),
        "buffers": same_buffers(kernels),
        "first pass": same_without_rejected(),
    }


def same_norms(layers: Any, dtype: torch.dtype) -> bool:
    x, residual = torch.randn(2, 64, 256).mul(3).to(dtype)
    weight = torch.rand(256).add(0.5).to(dtype)
    norm, add_norm = layers.norms(SimpleNamespace(weight=torch.nn.Parameter(weight), variance_epsilon=1e-5))
    given = x.clone(), residual.clone()
    ours = [norm(x), *add_norm(x, residual)]
    theirs = [ir.ops.rms_norm.impls["native"].impl_fn(x, weight, 1e-5)]
    theirs += ir.ops.fused_add_rms_norm.impls["native"].impl_fn(x, residual, weight, 1e-5)
    untouched = torch.equal(x, given[0]) and torch.equal(residual, given[1])
    return untouched and all(map(torch.equal, ours, theirs))


def same_argmax(kernels: Any) -> bool:
    for dtype in (torch.float32, torch.bfloat16):
        # Rounded, so that the largest occurs more than once.
        logits = torch.randn(64, 2048).mul(2).round().to(dtype)
        drafter = SimpleNamespace(
            use_local_argmax_reduction=False,
            use_heterogeneous_vocab=False,
            model=SimpleNamespace(compute_logits=lambda states: states),
        )
        if not torch.equal(kernels.greedy(drafter, logits), logits.argmax(-1)):
            return False
    return True


def same_slots(kernels: Any) -> bool:
    from vllm.v1.spec_decode.utils import eagle_step_update_slot_mapping_and_metadata as stock

    results = []
    for move in (stock, kernels.next_slots):
        positions, lengths = torch.tensor([3, 40, 255]), torch.tensor([4, 41, 256], dtype=torch.int32)
        table = torch.arange(24, dtype=torch.int32).view(3, 8)
        clamped, slots = torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
        move(positions, table, lengths, 32, 256, clamped, slots, 3)
        results.append(torch.stack([lengths.long(), clamped, slots]))
    return bool(torch.equal(*results))


def same_products(kernels: Any) -> bool:
    import vllm._custom_ops as custom_ops

    handler = custom_ops.create_onednn_mm(torch.randn(96, 64).t(), 32)
    x, bias = torch.randn(5, 64), torch.randn(96)
    same = torch.equal(kernels.onednn_linear(handler, x, bias), kernels._onednn_linear(handler, x, bias))
    stacked = kernels.onednn_linear(handler, x.view(1, 5, 64), None)
    return bool(same and torch.equal(stacked[0], kernels.onednn_linear(handler, x, None)))


def same_rows(kernels: Any) -> bool | None:
    """Whether a row's product is the same beside any number of others; with AMX, vLLM's is not below five.

    None where this processor's build of vLLM packs no weights.
    """
    if not hasattr(torch.ops._C, "convert_weight_packed"):
        return None
    packed, x = bfloat16_product()
    whole = kernels.packed_linear(x, packed, 2048, None)
    stacked = kernels.packed_linear(x.view(2, 480, 256), packed, 2048, None).view(960, 2048)
    return torch.equal(stacked, whole) and same_in_parts(
        lambda rows: kernels.packed_linear(rows, packed, 2048, None), x, whole
    )


def same_compiled_rows(kernels: Any) -> bool | None:
    """The same in a function compiled as vLLM compiles a model: traced for many rows, without guards."""
    if not hasattr(torch.ops._C, "convert_weight_packed"):
        return None
    packed, x = bfloat16_product()
    torch._dynamo.mark_dynamic(x, 0)
    compiled = torch.compile(
        lambda rows: kernels.packed_linear(rows, packed, 2048, None),
        fullgraph=True,
        backend="eager",  # no C++ compiler is needed to see which branch was traced
        options={"guard_filter_fn": torch.compiler.skip_all_guards_unsafe},
    )
    return same_in_parts(compiled, x, compiled(x))


def bfloat16_product() -> tuple[torch.Tensor, torch.Tensor]:
    """A weight in whose shape the kernels differ, in one number of 16,000, and rows enough to meet it."""
    torch.cpu._init_amx()
    packed = torch.ops._C.convert_weight_packed(torch.randn(2048, 256).mul(0.05).to(torch.bfloat16))
    return packed, torch.randn(960, 256).to(torch.bfloat16)


def same_in_parts(product: Any, x: torch.Tensor, whole: torch.Tensor) -> bool:
    parts = [torch.cat([product(part.clone()) for part in x.split(n)]) for n in (1, 2, 3, 4, 5, 9, 33)]
    return all(torch.equal(part, whole) for part in parts)


def same_without_rejected() -> bool:
    """Whether two requests keep their first rows, 5 less 2 and 4 less 0, with everything that says where."""
    from peagle_cpu_fixes import drafting
    from vllm.v1.attention.backend import CommonAttentionMetadata

    starts = torch.tensor([0, 5, 9], dtype=torch.int32)
    meta = CommonAttentionMetadata(
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=torch.tensor([20, 14], dtype=torch.int32),
        num_reqs=2,
        num_actual_tokens=9,
        max_query_len=5,
        max_seq_len=20,
        block_table_tensor=torch.zeros(2, 1, dtype=torch.int32),
        slot_mapping=torch.arange(9) + 100,
    )
    made = drafting.without_rejected(
        {
            "common_attn_metadata": meta,
            "num_rejected_tokens_gpu": torch.tensor([2, 0], dtype=torch.int32),
            **{f"target_{name}": torch.arange(9) for name in ("token_ids", "positions", "hidden_states")},
        }
    )
    kept, now = [0, 1, 2, 5, 6, 7, 8], made["common_attn_metadata"]
    last, distinct, source = drafting.rows_of([0, 6, 13], sampled=4, masks=3)
    return (
        all(made[f"target_{name}"].tolist() == kept for name in ("token_ids", "positions", "hidden_states"))
        and made["num_rejected_tokens_gpu"] is None
        and now.query_start_loc.tolist() == [0, 3, 7]
        and now.seq_lens.tolist() == [18, 14]
        and now.slot_mapping.tolist() == [100 + row for row in kept]
        and (now.num_actual_tokens, now.max_query_len) == (7, 4)
        and meta.seq_lens.tolist() == [20, 14]
        and last.tolist() == [2, 3, 4, 5, 9, 10, 11, 12]
        and distinct.tolist() == [0, 1, 2, 3, 6, 7, 8, 9, 10]
        and source.tolist() == [0, 1, 2, 3, 3, 3, 4, 5, 6, 7, 8, 8, 8]
    )


def same_buffers(kernels: Any) -> bool:
    cpu, gpu = torch.arange(4), torch.zeros(4, dtype=torch.int64)
    one, two = SimpleNamespace(cpu=cpu, gpu=cpu), SimpleNamespace(cpu=cpu, gpu=gpu)
    alike = torch.equal(kernels.copy_to_gpu(one, 2), cpu[:2]) and kernels.copy_to_gpu(one) is cpu
    copied = torch.equal(kernels.copy_to_gpu(two, 3), cpu[:3])
    return bool(alike and copied and torch.equal(gpu, torch.tensor([0, 1, 2, 0])))


def top_k_of_a_step_without_drafts() -> bool:
    """All requests of the step have just begun; vLLM's own function raises RuntimeError here."""
    from vllm.v1.sample import rejection_sampler

    metadata = SimpleNamespace(
        all_greedy=False, temperature=torch.ones(2), top_k=torch.tensor([2, 2]), top_p=None
    )
    counts = torch.zeros(2, dtype=torch.int32)
    logits = rejection_sampler.apply_sampling_constraints(torch.empty(0, 64), counts, metadata)
    return bool(logits.shape == (0, 64))


def main(weights: str) -> None:
    report: dict[str, Any] = {}
    for head in ("p-eagle", "eagle3"):
        llm = start(weights, head)
        report[head] = try_out(llm)
        llm.llm_engine.engine_core.shutdown()
        # A late end of one would take the process groups of the next with it.
        del llm
        gc.collect()
    # vLLM loads another build, which packs no weights, where the processor lacks AVX-512's bfloat16.
    report["packs weights"] = torch.cpu._is_avx512_bf16_supported()
    report["kernels"] = {**compare_kernels(), "top-k without drafts": top_k_of_a_step_without_drafts()}
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1])
