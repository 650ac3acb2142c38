"""Run by the engine's Python: engines with a table of K by batch size. Prints one JSON object.

Each line of stdin is a case: the head's folder, the speculative config, the switch of the plugin, and the
numbers of requests to send at once. All in one process, since importing vLLM takes
longer than everything else here.
"""

import gc
import json
import os
import sys
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
from vllm.v1.core.sched.scheduler import Scheduler

TOKENS = 16
decided: list[tuple[int, int]] = []  #: batch size and K of each step


def note_each_step() -> None:
    """Record what the scheduler decides, below the plugin that may change it."""
    original = Scheduler._update_after_schedule

    def noted(self: Any, output: Any) -> None:
        if output.num_scheduled_tokens:
            decided.append((len(output.num_scheduled_tokens), output.num_spec_tokens_to_schedule))
        original(self, output)

    Scheduler._update_after_schedule = noted


def start(weights: str, head: str, config: dict[str, Any]) -> LLM:
    return LLM(
        model=f"{weights}/target",
        dtype="float32",
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=8,
        seed=0,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=64 << 20,
        disable_log_stats=False,
        speculative_config={**config, "model": f"{weights}/{head}"} if config else None,
    )


def ask(llm: LLM, size: int) -> dict[str, Any]:
    """The tokens of ``size`` requests at once, each K that the scheduler decided, and the drafts."""
    decided.clear()
    before = drafts(llm)
    prompts = [f"def f{number}(values):\n    " for number in range(size)]
    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    answers = llm.generate(prompts, params, use_tqdm=False)
    counted = [now - then for now, then in zip(drafts(llm), before, strict=True)]
    return {
        "tokens": [list(answer.outputs[0].token_ids) for answer in answers],
        "ks": sorted({k for batch, k in decided if batch == size}),
        "drafts": counted[0],
        "drafted": counted[1],
    }


def drafts(llm: LLM) -> list[int]:
    by_name = {metric.name: getattr(metric, "value", 0) for metric in llm.get_metrics()}
    return [by_name.get(f"vllm:spec_decode_num_{name}", 0) for name in ("drafts", "draft_tokens")]


def main(weights: str) -> None:
    import peagle_runtime_k  # in the engine's environment only

    note_each_step()
    report = []
    for line in sys.stdin:
        case = json.loads(line)
        os.environ["PEAGLE_SM_RUNTIME_K"] = case["runtime_k"]
        peagle_runtime_k.register()
        llm = start(weights, case["head"], case["speculative"])
        report.append({str(size): ask(llm, size) for size in case["sizes"]})
        llm.llm_engine.engine_core.shutdown()
        del llm
        gc.collect()
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1])
