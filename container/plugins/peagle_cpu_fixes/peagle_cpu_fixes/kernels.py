"""Repairs of a worker: products that do not depend on the number of rows, and the kernels of vLLM 0.30."""

import torch
import vllm._custom_ops as custom_ops
import vllm.model_executor.layers.utils as layers
import vllm.v1.sample.rejection_sampler as rejection_sampler
import vllm.v1.spec_decode.llm_base_proposer as proposer
from vllm.logger import init_logger
from vllm.platforms.cpu import CpuPlatform
from vllm.utils import cpu_triton_utils

from . import synthetic

logger = init_logger("vllm.peagle_cpu_fixes")

#: vLLM's packed product takes AMX from 5 rows on, and below it another kernel that sums in another order
#: (``can_use_brgemm`` in csrc/cpu/sgl-kernels/gemm.h): a token's logits would depend on how many are computed
#: beside it, so that 21 of 96 greedy answers changed with speculation. Without AMX there is one kernel.
FEWEST_ROWS = 5 if torch.cpu._is_amx_tile_supported() else 1


packs_itself = layers.check_cpu_sgl_kernel  #: vLLM's own choice


def packs(n: int, k: int, dtype: torch.dtype) -> bool:
    """Decide whether a weight of ``n`` outputs and ``k`` inputs is packed: in bfloat16, if its shape allows.

    vLLM packs for AMX alone, and only up to 1 MiB; the rest goes to oneDNN. With 1,536 inputs oneDNN sums one
    row in another order than several: half of SmolLM2's greedy answers of 48 tokens changed with speculation.
    The packed product does not, and is faster for few rows with AVX-512.
    """
    bfloat16 = dtype == torch.bfloat16 and torch.cpu._is_avx512_bf16_supported()
    return (bfloat16 and k % 32 == 0 and n % 16 == 0) or packs_itself(n, k, dtype)


def packed_linear(x: torch.Tensor, weight: torch.Tensor, n: int, bias: torch.Tensor | None) -> torch.Tensor:
    """Multiply bfloat16 (``weight_packed_linear_cpu``): a row comes out the same however many there are."""
    if x.dim() != 2:
        return packed_linear(x.reshape(-1, x.size(-1)), weight, n, bias).view(*x.shape[:-1], n)
    rows = x.size(0)
    # Compiled layers are traced for many rows, and vLLM drops the guards: a branch on rows is gone from them.
    if FEWEST_ROWS > 1 and (torch.compiler.is_compiling() or rows < FEWEST_ROWS):
        x, given = x.new_zeros((torch.sym_max(rows, FEWEST_ROWS), x.size(1))), x
        x[:rows] = given
    out = x.new_empty((x.size(0), n))
    torch.ops._C.weight_packed_linear(out, x, weight, bias, True)
    return out[:rows]


def next_slots(
    positions_1d: torch.Tensor,
    block_table_tensor: torch.Tensor,
    seq_lens: torch.Tensor,
    block_size: int,
    max_model_len: int,
    out_clamped_positions: torch.Tensor,
    out_slot_mapping: torch.Tensor,
    input_batch_size: int | None = None,
) -> None:
    """Move to the next drafted token: ``eagle_step_update_slot_mapping_and_metadata`` without dispatcher."""
    torch.ops._C.eagle_step_slot_mapping_metadata_kernel_impl(
        positions_1d,
        block_table_tensor,
        seq_lens,
        out_clamped_positions,
        out_slot_mapping,
        block_size,
        max_model_len,
        proposer.PADDING_SLOT_ID,
    )


def connect() -> None:
    """Give vLLM 0.30 its own CPU kernels where it calls them.

    Its CPU model runner replaces Triton kernels under names that nothing reads any more: the callers keep
    the originals in dispatchers. So the first step with drafts ended the engine ("Cannot inspect kernel
    parameters for function"), as did EAGLE-3's move to the next token. From 0.31 the platform registers its
    kernels with the dispatchers.
    """
    if hasattr(CpuPlatform, "register_triton_kernel_overrides"):
        return
    for name in ("rejection_greedy_sample", "rejection_random_sample", "sample_recovered_tokens"):
        getattr(rejection_sampler, f"_{name}").kernel = getattr(cpu_triton_utils, f"{name}_kernel")
    proposer.eagle_step_update_slot_mapping_and_metadata = next_slots
    logger.info("peagle_cpu_fixes: verification of drafts uses vLLM's CPU kernels, which 0.30 does not call")


def install() -> None:
    """Put each in the place of vLLM's own."""
    synthetic.install()  # before a worker registers its kernels
    connect()
    layers.check_cpu_sgl_kernel = packs
    custom_ops.weight_packed_linear_cpu = packed_linear
