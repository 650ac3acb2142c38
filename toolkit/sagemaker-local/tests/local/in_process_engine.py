"""vLLM without a server, in this process, for the programs that run in the engine's Python.

Importing vLLM takes longer than all that they do with it, so each does everything in one process.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_HOST_IP="127.0.0.1",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_NO_USAGE_STATS="1",
    HF_HUB_OFFLINE="1",
    OMP_NUM_THREADS="1",
    PEAGLE_SM_RUNTIME_K="",
)

from vllm import LLM


@contextmanager
def engine(weights: str, head: str, speculation: dict[str, Any]) -> Iterator[LLM]:
    """One engine at a time: a late end of one would take the process groups of the next with it."""
    llm = LLM(
        model=f"{weights}/target",
        dtype="float32",
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=8,
        seed=0,
        disable_log_stats=False,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=64 << 20,
        speculative_config={**speculation, "model": f"{weights}/{head}"} if speculation else None,
    )
    try:
        yield llm
    finally:
        llm.llm_engine.engine_core.shutdown()
        del llm
        gc.collect()
