"""Run by the engine's Python: the controller of K in real engines, one for each head. Prints one JSON object.

Each engine answers rounds of 1, 4 and 8 requests at once. The engine without speculation is first: once the
plugin is installed, it is there for all that follow.
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

from prometheus_client import REGISTRY, generate_latest
from vllm import LLM, SamplingParams

SIZES = (1, 4, 8) * 3
TOKENS, LARGEST = 48, 7
PROMPTS = [f"def f{number}(values):\n    " for number in range(8)]


def start(weights: str, head: str | None) -> LLM:
    speculation = {
        "method": "eagle3",
        "model": f"{weights}/{head}",
        "num_speculative_tokens": LARGEST,
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
        speculative_config=speculation if head else None,
    )


def stop(llm: LLM) -> None:
    llm.llm_engine.engine_core.shutdown()
    gc.collect()


def ask(llm: LLM) -> list[list[list[int]]]:
    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    rounds = [llm.generate(PROMPTS[:size], params, use_tqdm=False) for size in SIZES]
    return [[list(answer.outputs[0].token_ids) for answer in answers] for answers in rounds]


def hurry() -> None:
    """Change K as often as a short test needs: every 20 ms, through all K."""
    from peagle_runtime_k import controller, following

    class Changing(controller.Controller):
        def _choose(self, running: int) -> None:
            self.k = (self.k + 3) % (LARGEST + 1)

    controller.DWELL_S = controller.DECIDE_S = following.LEARN_S = 0.02
    controller.MOST_NOISE = 10.0
    vars(following)["Controller"] = Changing


def metrics() -> list[str]:
    text = generate_latest(REGISTRY).decode()
    return [line for line in text.splitlines() if line.startswith("peagle:")]


def try_out(weights: str, head: str, expected: list[list[list[int]]]) -> dict[str, Any]:
    llm = start(weights, head)
    follower = llm.llm_engine.engine_core.engine_core.scheduler.peagle_follower
    answers = ask(llm)
    found = {
        "same": answers == expected,
        "switches": follower.controller.switches,
        "ks": sorted({cell.k for cell in follower.controller._cells.values()}),
        "why": follower.controller.why,
        "off": follower.off,
        "metrics": metrics(),
    }
    stop(llm)
    return found


def main(weights: str) -> None:
    llm = start(weights, None)
    expected = ask(llm)
    stop(llm)
    del llm
    os.environ.update(PEAGLE_SM_RUNTIME_K="1", PEAGLE_SM_ADAPTIVE_K="1")
    import peagle_runtime_k

    peagle_runtime_k.register()
    peagle_runtime_k.register()  # vLLM does so in each of its processes
    hurry()
    print(json.dumps({head: try_out(weights, head, expected) for head in ("p-eagle", "eagle3")}))


if __name__ == "__main__":
    main(sys.argv[1])
