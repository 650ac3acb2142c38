"""Run by the engine's Python: ``draft_check.py TARGET PROMPTS K HEAD...``; each HEAD a folder, or ``none``.

Prints one JSON object by head: the tokens that vLLM answered with, and what it counted of the drafts. In one
process, since importing vLLM takes longer than everything else here.
"""

import gc
import json
import os
import sys
from pathlib import Path
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

from vllm import LLM, SamplingParams

TOKENS = 96


def ask(target: str, prompts: list[list[int]], head: str, k: int) -> dict[str, Any]:
    speculation: dict[str, Any] = {"method": "eagle3", "model": head, "num_speculative_tokens": k}
    speculation["parallel_drafting"] = True
    llm = LLM(
        model=target,
        dtype="float32",
        enforce_eager=True,
        max_model_len=512,
        max_num_seqs=1,
        seed=0,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=64 << 20,
        disable_log_stats=False,
        speculative_config=None if head == "none" else speculation,
    )
    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    given: list[Any] = [{"prompt_token_ids": each} for each in prompts]
    answers = llm.generate(given, params, use_tqdm=False)
    counted = {metric.name: getattr(metric, "value", 0) for metric in llm.get_metrics()}
    drafts = counted.get("vllm:spec_decode_num_drafts", 0)
    accepted = counted.get("vllm:spec_decode_num_accepted_tokens", 0)
    llm.llm_engine.engine_core.shutdown()
    del llm
    gc.collect()
    return {
        "tokens": [list(answer.outputs[0].token_ids) for answer in answers],
        "drafts": drafts,
        "acceptance_length": 1 + accepted / drafts if drafts else 1.0,
    }


def main(target: str, prompts: str, k: str, *heads: str) -> None:
    document = json.loads(Path(prompts).read_text())
    print(json.dumps({head: ask(target, document, head, int(k)) for head in heads}))


if __name__ == "__main__":
    main(*sys.argv[1:])
