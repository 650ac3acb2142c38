"""Run by the engine's Python: the plugin peagle_cpu_fixes, against vLLM's own. Prints one JSON object."""

import json
import os
from types import SimpleNamespace
from typing import Any

os.environ.update(
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_NO_USAGE_STATS="1",
    OMP_NUM_THREADS="1",
)

import torch
from vllm.platforms.cpu import CpuPlatform


def main() -> None:
    import peagle_cpu_fixes  # type: ignore[import-not-found]  # in the engine's environment
    from peagle_cpu_fixes import kernels

    peagle_cpu_fixes.register()
    torch.manual_seed(0)
    report = {
        # vLLM loads another build, which packs no weights, where the processor lacks AVX-512's bfloat16.
        "packs weights": torch.cpu._is_avx512_bf16_supported(),
        # vLLM 0.30's own cannot be called on a CPU (docs/explanation/engine.md).
        "slots": same_slots(kernels) if hasattr(CpuPlatform, "register_triton_kernel_overrides") else None,
        "rows": same_rows(kernels),
        "compiled rows": same_compiled_rows(kernels),
        "top-k without drafts": top_k_of_a_step_without_drafts(),
        # After the stock kernels were compared: from here on vLLM's names are those of the plugin.
        "synthetic": synthetic_acceptance(kernels),
        "dispatched rows": same_dispatched_rows(kernels),
    }
    print(json.dumps(report))


def same_slots(kernels: Any) -> bool:
    from vllm.v1.spec_decode.utils import eagle_step_update_slot_mapping_and_metadata as stock

    CpuPlatform.register_triton_kernel_overrides()  # as a worker does at its start
    results = []
    for move in (stock, kernels.next_slots):
        positions, lengths = torch.tensor([3, 40, 255]), torch.tensor([4, 41, 256], dtype=torch.int32)
        table = torch.arange(24, dtype=torch.int32).view(3, 8)
        clamped, slots = torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
        move(positions, table, lengths, 32, 256, clamped, slots, 3)
        results.append(torch.stack([lengths.long(), clamped, slots]))
    return bool(torch.equal(*results))


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


def same_dispatched_rows(kernels: Any) -> bool | None:
    """The same of a weight that vLLM gives to oneDNN: above 1 MiB, with inputs of very different sizes."""
    from vllm.model_executor.layers import utils

    if not torch.cpu._is_avx512_bf16_supported():
        return None
    kernels.install()
    layer = torch.nn.Linear(1536, 576, bias=False, dtype=torch.bfloat16)
    weight = layer.weight.detach()
    utils.dispatch_cpu_unquantized_gemm(layer, remove_weight=False)
    x = (torch.randn(64, 1536) * torch.exp(2 * torch.randn(64, 1536))).bfloat16()
    whole = layer.cpu_linear(x, weight, None)
    return all(torch.equal(layer.cpu_linear(x[i : i + 1], weight, None), whole[i : i + 1]) for i in range(64))


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


def top_k_of_a_step_without_drafts() -> bool:
    """All requests of the step have just begun; vLLM's own function raises RuntimeError here."""
    from vllm.v1.sample import rejection_sampler

    metadata = SimpleNamespace(
        all_greedy=False, temperature=torch.ones(2), top_k=torch.tensor([2, 2]), top_p=None
    )
    counts = torch.zeros(2, dtype=torch.int32)
    logits = rejection_sampler.apply_sampling_constraints(torch.empty(0, 64), counts, metadata)
    return bool(logits.shape == (0, 64))


def synthetic_acceptance(kernels: Any) -> dict[str, Any]:
    """Which of three requests' drafts (3, 1 and none; K = 3) verification keeps at given rates.

    Drafts are 10 and up, the target's tokens 20 and up, the tokens after the last draft 30 and up; -1 is
    what the engine fills the row with. ``length`` is the mean over 4,000 requests with 3 drafts each.
    """
    from vllm.v1.sample import rejection_sampler

    kernels.install()
    if hasattr(CpuPlatform, "register_triton_kernel_overrides"):
        CpuPlatform.register_triton_kernel_overrides()

    def verify(counts: list[int], rates: list[float], *, greedy: bool) -> list[list[int]]:
        total = sum(counts)
        logits = torch.full((total, 64), -100.0)
        logits[torch.arange(total), 20 + torch.arange(total) % 40] = 100.0
        kept = rejection_sampler.rejection_sample(
            10 + torch.arange(total, dtype=torch.int32) % 10,
            counts,
            max(counts),
            torch.tensor(counts, dtype=torch.int32).cumsum(0).int(),
            None,
            logits,
            (30 + torch.arange(len(counts), dtype=torch.int32) % 10).view(-1, 1),
            SimpleNamespace(
                all_greedy=greedy,
                all_random=not greedy,
                temperature=torch.zeros(len(counts)) if greedy else torch.ones(len(counts)),
                generators={},
            ),
            synthetic_mode=True,
            synthetic_conditional_rates=torch.tensor(rates),
        )
        rows: list[list[int]] = kept.tolist()
        return rows

    many = verify([3] * 4000, [0.5, 0.5, 0.5], greedy=True)
    return {
        "all": [verify([3, 1, 0], [1.0, 1.0, 1.0], greedy=greedy) for greedy in (True, False)],
        "no": [verify([3, 1, 0], [0.0, 0.0, 0.0], greedy=greedy) for greedy in (True, False)],
        "two": verify([3, 1, 0], [1.0, 1.0, 0.0], greedy=True),
        "length": sum(token >= 0 for row in many for token in row) / len(many),
    }


if __name__ == "__main__":
    main()
