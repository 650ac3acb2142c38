"""Sampling with speculation at a temperature above 0, on the CPU platform of vLLM 0.30 to 0.32.

When drafts are verified, temperature, top-k and top-p are expanded from one value per request to one per
draft token. The CPU stand-in of the kernel that does it throws its result away (vllm#55005; a fix is
proposed in 55006), so tokens are sampled at whatever the memory held. Greedy decoding never gets there.
Here the Python caller of that kernel is replaced, which needs no kernel at all.

A step in which no request has a draft yet (all of them have just begun) verifies nothing. With top-k and
without top-p its empty tensor has no maximum, and vLLM's CPU path ends the engine with a RuntimeError.
"""

from typing import Any

import torch
import vllm.v1.sample.rejection_sampler as rejection_sampler


def expand(
    x: torch.Tensor,
    cu_num_tokens: torch.Tensor,
    num_tokens: int,
    replace_from: int = 0,
    replace_to: int = 0,
) -> torch.Tensor:
    """Repeat each request's value for each of its tokens: [a, b] and [2, 5] give [a, a, b, b, b].

    The arguments are those of vLLM's ``expand_batch_to_tokens``: cumulative token counts, their total, and a
    value to be replaced on the way (temperature 0, which stands for greedy, must not become a divisor).
    """
    counts = torch.diff(cu_num_tokens.long(), prepend=cu_num_tokens.new_zeros(1).long())
    if replace_from != replace_to:
        x = torch.where(x == replace_from, torch.full_like(x, replace_to), x)
    return torch.repeat_interleave(x, counts, output_size=num_tokens)


def repair() -> None:
    """Replace vLLM's functions; a second call changes nothing."""
    rejection_sampler.expand_batch_to_tokens = expand
    original = rejection_sampler.apply_sampling_constraints
    if getattr(original, "by_peagle", False):
        return

    def constrain(logits: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return original(logits, *args, **kwargs) if logits.shape[0] else logits

    constrain.by_peagle = True  # type: ignore[attr-defined]
    rejection_sampler.apply_sampling_constraints = constrain
