"""Synthetic acceptance on a CPU, which vLLM 0.30 to 0.32 has in its GPU kernels alone.

With ``rejection_sample_method: synthetic`` vLLM accepts draft tokens at given rates, whatever the target
says. Its CPU kernels end the engine with "Synthetic acceptance not supported with CPU sampling". `peagle-sm
tune --synthetic` measures step times with it; the answers of such an engine are wrong by design.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from vllm.utils import cpu_triton_utils

Kernel = Callable[..., None]


def accept(
    output: torch.Tensor,
    ends: torch.Tensor,
    drafts: torch.Tensor,
    others: torch.Tensor,
    bonus: torch.Tensor,
    chosen: torch.Tensor | None,
    uniform: torch.Tensor,
    rates: torch.Tensor,
) -> None:
    """Write each request's tokens into its row of ``output`` ([requests, K + 1]), as vLLM's GPU kernels do.

    Drafts are accepted up to the first position whose uniform number is not below its rate. That position
    gets the token of ``others``; ``bonus`` follows if all were accepted. ``ends`` are cumulative counts of
    drafts. Only the rows that are ``chosen`` are written; None means all.
    """
    start = 0
    rows = [True] * len(ends) if chosen is None else chosen.tolist()
    drafted, instead, drawn, wanted = (each.tolist() for each in (drafts, others, uniform, rates))
    for row, end in enumerate(ends.tolist()):
        tokens: list[int] = []
        accepted = True
        for place in range(start, end) if rows[row] else ():
            accepted = drafted[place] >= 0 and drawn[place] < wanted[place - start]
            tokens.append(drafted[place] if accepted else instead[place])
            if not accepted:
                break
        if accepted:
            tokens.append(int(bonus[row]))
        if rows[row]:
            output[row, : len(tokens)] = torch.tensor(tokens, dtype=output.dtype)
        start = end


def _with_rates(plain: Kernel, instead: str, *, greedy: bool) -> Kernel:
    """Wrap a CPU kernel; ``instead`` names its tokens for rejected drafts, and it writes ``greedy`` rows."""
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def kernel(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs).arguments
        if not given.get("SYNTHETIC_MODE"):
            plain(*args, **kwargs)
            return
        is_greedy = given["is_greedy"]  # None if all requests are
        accept(
            given["output_token_ids"],
            given["cu_num_draft_tokens"],
            given["draft_token_ids"],
            given[instead],
            given["bonus_token_ids"],
            is_greedy if greedy else ~is_greedy,
            given["uniform_probs"],
            given["synthetic_conditional_rates"],
        )

    return kernel


def install() -> None:
    """Replace vLLM's two CPU kernels of verification; without synthetic acceptance they are called."""
    kernels = (
        ("rejection_greedy_sample", "target_argmax", True),
        ("rejection_random_sample", "recovered_token_ids", False),
    )
    for name, instead, greedy in kernels:
        implementation = f"_{name}_kernel_impl"
        kernel = _with_rates(getattr(cpu_triton_utils, implementation), instead, greedy=greedy)
        setattr(cpu_triton_utils, implementation, kernel)
        if wrapper := getattr(cpu_triton_utils, f"{name}_kernel", None):  # vLLM 0.30 calls this one
            wrapper.func = kernel
