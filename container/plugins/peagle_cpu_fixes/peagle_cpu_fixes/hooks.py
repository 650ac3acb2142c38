"""The hooks of every process of vLLM 0.30 to 0.32: sampling, the start of the engine core, a worker's start.

**Sampling with speculation at a temperature above 0.** When drafts are verified, temperature, top-k and top-p
are expanded from one value per request to one per draft token. The CPU stand-in of the kernel that does it
throws its result away (vllm#55005; a fix is proposed in 55006), so tokens are sampled at whatever the memory
held. Greedy decoding never gets there. Here the Python caller of that kernel is replaced, which needs no
kernel at all. A step in which no request has a draft yet (all of them have just begun) verifies nothing. With
top-k and without top-p its empty tensor has no maximum, and vLLM's CPU path ends the engine with a
RuntimeError.

**The engine core as a fork of the API server.** ``VLLM_WORKER_MULTIPROC_METHOD=fork`` is vLLM's own default,
but its CPU platform always overwrites it by ``spawn``: the OpenMP threads of a worker are bound by settings
that only a new program reads. The local engine binds none (``VLLM_CPU_OMP_THREADS_BIND=nobind``, one thread),
and a spawned engine core imports once more what its parent has imported, which takes 5 s of CPU.

**The worker's process alone** gets `kernels`: they need imports that the API server can do without.
"""

import os
from typing import Any

import torch
import vllm.v1.sample.rejection_sampler as rejection_sampler
from vllm.platforms.cpu import CpuPlatform
from vllm.v1.worker.worker_base import WorkerWrapperBase

NAME = "VLLM_WORKER_MULTIPROC_METHOD"


def install() -> None:
    """Replace vLLM's functions; a second call changes nothing."""
    if getattr(WorkerWrapperBase.init_worker, "by_peagle", False):
        return
    _repair_sampling()
    _keep_fork()
    _hook_worker()


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


def _repair_sampling() -> None:
    rejection_sampler.expand_batch_to_tokens = expand
    original = rejection_sampler.apply_sampling_constraints

    def constrain(logits: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return original(logits, *args, **kwargs) if logits.shape[0] else logits

    rejection_sampler.apply_sampling_constraints = constrain


def _keep_fork() -> None:
    """Let the platform's own check of the settings pass without losing what was asked for."""
    original = CpuPlatform.check_and_update_config.__func__

    def check(cls: Any, vllm_config: Any) -> None:
        method = os.environ.get(NAME)
        original(cls, vllm_config)
        if method == "fork" and os.environ.get("VLLM_CPU_OMP_THREADS_BIND") == "nobind":
            os.environ[NAME] = method

    CpuPlatform.check_and_update_config = classmethod(check)


def _hook_worker() -> None:
    """Install the kernels where a worker begins, before it has a model."""
    original = WorkerWrapperBase.init_worker

    def init_worker(self: Any, *args: Any, **kwargs: Any) -> None:
        from . import kernels

        kernels.install()
        original(self, *args, **kwargs)

    init_worker.by_peagle = True  # type: ignore[attr-defined]
    WorkerWrapperBase.init_worker = init_worker
