"""The check on the draft head itself, by its manifest or its files."""

from __future__ import annotations

from collections.abc import Iterator

from peagle_sm.core.checks.base import Check, Note, preflight_check
from peagle_sm.core.heads.fault import HeadLook
from peagle_sm.core.plan.resolve import Draft


@preflight_check(
    "head-whole",
    reads="head",
    why="vLLM loads some broken heads without a word (no d2t, a layer missing, layers out of order): the "
    "answers stay right, and nothing is faster. Others end the engine after minutes of loading.",
    source="vLLM 0.32.0: model_executor/models/llama_eagle3.py, load_weights and compute_logits",
    url="https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/models/llama_eagle3.py",
    remedy="Look at it with `peagle-sm heads check`, and put a whole one there with `peagle-sm heads stage`.",
)
def head_whole(fact: HeadLook, draft: Draft | None) -> Iterator[Note]:
    """A draft head that is not whole, is another target's, or was staged for another spec."""
    for fault in fact.faults:
        if fault.severity != "info":
            message = f"the head at {fact.uri}: {fault.message}"
            yield Note(fault.severity, message, fault.next_step)


CHECKS: tuple[Check, ...] = (head_whole,)
