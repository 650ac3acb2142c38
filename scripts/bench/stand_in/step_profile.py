"""Where the milliseconds of a decoding step go: target, draft head and the engine around them.

    ENGINE_PYTHON -m scripts.bench.stand_in.step_profile PROMPTS TARGET [MODE=HEAD:K ...]

ENGINE_PYTHON is the Python of the local engine's environment. PROMPTS is a file of JSON lines with
``messages``; TARGET and HEAD are folders of weights; MODE is ``p-eagle`` or ``eagle3``. Each mode runs in a
process of its own with one thread, one request at a time. Prints one JSON object per mode: milliseconds per
step (means over decoding steps), tokens per step, and the rate at which this core reads memory, in GB/s.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MAX_TOKENS = 48
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
}


class Timed:
    """A callable that adds its milliseconds to ``spent``."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call, self.spent = call, 0.0

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call, and time it."""
        start = time.perf_counter()
        result = self.call(*args, **named)
        self.spent += 1000 * (time.perf_counter() - start)
        return result

    def taken(self) -> float:
        """Return the milliseconds since the last call of this, and begin again."""
        spent, self.spent = self.spent, 0.0
        return spent


def main(prompts: str, target: str, heads: list[str]) -> int:
    """Measure no speculation and each head, one process after the other."""
    for arm in ("none", *heads):
        program = [
            sys.executable,
            "-m",
            "scripts.bench.stand_in.step_profile",
            "--measure",
            prompts,
            target,
            arm,
        ]
        done = subprocess.run(program, env={**os.environ, **ENVIRONMENT}, check=False)
        if done.returncode:
            return done.returncode
    return 0


def measure(prompts: str, target: str, arm: str) -> dict[str, Any]:
    """Return the figures of one mode."""
    from vllm import LLM, SamplingParams

    mode, _, rest = arm.partition("=")
    head, _, k = rest.rpartition(":")
    method = {"method": "eagle3", "model": head, "num_speculative_tokens": int(k)} if head else None
    if method and mode == "p-eagle":
        method["parallel_drafting"] = True
    llm: Any = LLM(
        target, dtype="bfloat16", enforce_eager=True, max_model_len=2048, speculative_config=method
    )
    engine = llm.llm_engine
    runner = engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    target_pass = runner.model.forward = Timed(runner.model.forward)
    draft_pass = None
    if method:
        draft_pass = runner.drafter.propose = Timed(runner.drafter.propose)
    steps: list[tuple[float, float, float]] = []
    tokens = 0
    answering = SamplingParams(temperature=0, max_tokens=MAX_TOKENS)
    rows = [json.loads(line) for line in Path(prompts).read_text(encoding="utf-8").splitlines()]
    llm.chat(rows[0]["messages"], answering, use_tqdm=False)
    for number, row in enumerate(rows):
        [text] = llm.get_tokenizer().apply_chat_template(
            [row["messages"]], tokenize=False, add_generation_prompt=True
        )
        engine.add_request(str(number), text, answering)
        engine.step()  # the prompt, and the first token
        target_pass.taken(), draft_pass and draft_pass.taken()
        length = 1
        while engine.has_unfinished_requests():
            start = time.perf_counter()
            outputs = engine.step()
            step = 1000 * (time.perf_counter() - start)
            steps.append((step, target_pass.taken(), draft_pass.taken() if draft_pass else 0.0))
            length = len(outputs[0].outputs[0].token_ids) if outputs else length
        tokens += length - 1
    whole, of_target, of_draft = (sum(column) / len(steps) for column in zip(*steps, strict=True))
    return {
        "mode": mode,
        "num_speculative_tokens": int(k) if k else 0,
        "prompts": len(rows),
        "steps": len(steps),
        "tokens_per_step": round(tokens / len(steps), 3),
        "step_ms": round(whole, 2),
        "target_ms": round(of_target, 2),
        "draft_ms": round(of_draft, 2),
        "other_ms": round(whole - of_target - of_draft, 2),
        "memory_gb_per_s": round(memory_rate(), 1),
    }


def memory_rate() -> float:
    """Return how fast one thread reads memory, in GB/s: the fastest of five sums of 512 MB."""
    import torch

    numbers = torch.ones(2**27, dtype=torch.float32)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        numbers.sum()
        seconds.append(time.perf_counter() - start)
    return float(numbers.nbytes) / min(seconds) / 1e9


if __name__ == "__main__":
    if sys.argv[1] == "--measure":
        print(json.dumps(measure(*sys.argv[2:])), flush=True)
        raise SystemExit(0)
    raise SystemExit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
