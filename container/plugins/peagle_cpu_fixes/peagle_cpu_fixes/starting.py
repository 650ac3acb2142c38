"""The engine core as a fork of the API server, where the environment asks for it.

``VLLM_WORKER_MULTIPROC_METHOD=fork`` is vLLM's own default, but its CPU platform always overwrites it by
``spawn``: the OpenMP threads of a worker are bound by settings that only a new program reads. The local
engine binds none (``VLLM_CPU_OMP_THREADS_BIND=nobind``, one thread), and a spawned engine core imports once
more what its parent has imported, which takes 5 s of CPU.
"""

import os
from typing import Any

from vllm.platforms.cpu import CpuPlatform

NAME = "VLLM_WORKER_MULTIPROC_METHOD"


def keep_fork() -> None:
    """Let the platform's own check of the settings pass without losing what was asked for."""
    original = CpuPlatform.check_and_update_config.__func__
    if getattr(original, "by_peagle", False):
        return

    def check(cls: Any, vllm_config: Any) -> None:
        asked = os.environ.get(NAME)
        original(cls, vllm_config)
        if asked == "fork" and os.environ.get("VLLM_CPU_OMP_THREADS_BIND") == "nobind":
            os.environ[NAME] = asked

    check.by_peagle = True  # type: ignore[attr-defined]
    CpuPlatform.check_and_update_config = classmethod(check)
