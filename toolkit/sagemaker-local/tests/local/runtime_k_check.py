"""Run by the engine's Python: K by request against engines started with that K. Prints one JSON object.

The engines of the reference come first: once the plugin is installed, it is there for all that follow. Their
greedy answers, which both heads must share, are the target's own (test_engine_real.py).
"""

import json
import os
import sys
from typing import Any

from tests.local.in_process_engine import engine  # isort: skip  (it sets vLLM's environment)
from vllm import LLM, SamplingParams

NAMES = ["total", "median", "merge", "parse"]
PROMPTS = [f"def {name}(values):\n    " for name in NAMES]
MIXTURE = [7, 0, 3, None]
TOKENS, LARGEST = 24, 9


def speculation(head: str, k: int) -> dict[str, Any]:
    return {"method": "eagle3", "num_speculative_tokens": k, "parallel_drafting": head == "p-eagle"}


def ask(llm: LLM, ks: list[Any], *, together: bool = False) -> tuple[list[list[int]], dict[str, Any]]:
    """The tokens of each answer, and what the engine has counted meanwhile."""
    before = counters(llm)
    params = [
        SamplingParams(
            temperature=0,
            max_tokens=TOKENS,
            ignore_eos=True,
            extra_args=None if k is None else {"num_speculative_tokens": k},
        )
        for k in ks
    ]
    if together:
        answers = llm.generate(PROMPTS, params, use_tqdm=False)
    else:
        pairs = zip(PROMPTS, params, strict=True)
        answers = [llm.generate([prompt], one, use_tqdm=False)[0] for prompt, one in pairs]
    after = counters(llm)
    return (
        [list(answer.outputs[0].token_ids) for answer in answers],
        {name: after[name] - before[name] for name in after},
    )


def counters(llm: LLM) -> dict[str, int]:
    by_name: dict[str, int] = {}
    for metric in llm.get_metrics():
        if "spec_decode" in metric.name and hasattr(metric, "values"):
            by_name |= {f"accepted at {index}": value for index, value in enumerate(metric.values)}
        elif "spec_decode" in metric.name:
            by_name[metric.name] = metric.value
    return by_name


def refused(llm: LLM, k: Any) -> str:
    try:
        ask(llm, [k] * len(PROMPTS))
    except Exception as error:
        return str(error)
    return ""


def try_out(
    llm: LLM, expected: list[list[int]], real: tuple[list[list[int]], dict[str, Any]]
) -> dict[str, Any]:
    tokens, counted = ask(llm, [7] * len(PROMPTS))
    mixed, _ = ask(llm, MIXTURE, together=True)
    none, without = ask(llm, [0] * len(PROMPTS), together=True)
    return {
        "real": {name: value for name, value in real[1].items() if value},
        "by request": {name: value for name, value in counted.items() if value},
        "tokens": tokens == expected == real[0],
        "mixture": mixed == expected,
        "none": none == expected and not any(without.values()),
        "refused": [refused(llm, k) for k in (LARGEST + 1, -1, "3", True)],
        "afterwards": ask(llm, [3] * len(PROMPTS))[0] == expected,
    }


def main(weights: str) -> None:
    import peagle_runtime_k  # in the engine's environment only

    heads = ("p-eagle", "eagle3")
    real = {}
    for head in heads:
        with engine(weights, head, speculation(head, 7)) as llm:
            real[head] = ask(llm, [None] * len(PROMPTS))
    os.environ["PEAGLE_SM_RUNTIME_K"] = "1"
    peagle_runtime_k.register()
    peagle_runtime_k.register()  # vLLM does so in each of its processes
    report: dict[str, Any] = {}
    for head in heads:
        with engine(weights, head, speculation(head, LARGEST)) as llm:
            report[head] = try_out(llm, real["p-eagle"][0], real[head])
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1])
