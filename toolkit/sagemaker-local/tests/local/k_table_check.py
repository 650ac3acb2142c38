"""Run by the engine's Python: engines with a table of K by batch size. Prints one JSON object.

Each line of stdin is a case: the head's folder, the speculative config, the switch of the plugin, and the
numbers of requests to send at once.
"""

import json
import os
import sys
from typing import Any

from tests.local.in_process_engine import engine  # isort: skip  (it sets vLLM's environment)
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
        with engine(weights, case["head"], case["speculative"]) as llm:
            report.append({str(size): ask(llm, size) for size in case["sizes"]})
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1])
