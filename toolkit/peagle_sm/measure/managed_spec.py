"""From a load and a workload to what an AI benchmark job is given: a specification and a dataset. Pure.

The specification is that of "Set up a workload configuration for generative AI inference recommendations"
(SageMaker developer guide); the dataset is AIPerf's ``single_turn``: a prompt, and how many tokens to answer.
AIPerf takes its lines in order and its warm-up from the front, so the warm-up's prompts stand there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from typing import Any

from peagle_sm.core.errors import SpecError
from peagle_sm.measure.bench_plan import BenchPlan, items_of, measured_of, warm_up_of
from peagle_sm.measure.load import WorkItem
from peagle_sm.measure.load.points import Objective
from peagle_sm.measure.records import Load
from peagle_sm.measure.workloads import Workload, limit_of

# Where a job finds its input channels ("Workload specification reference", ``input_file``).
CHANNELS = "/opt/ml/input/data"
DATASET = "dataset"
TOKENIZER = "tokenizer"
PROMPTS = "prompts.jsonl"
# AIPerf sets these itself, from the line or from the specification.
_OWN = frozenset(
    ("prompt", "messages", "max_tokens", "max_completion_tokens", "model", "stream", "stream_options")
)


def workload_spec(load: Load, plan: BenchPlan, workload: Workload, tokenizer: str) -> dict[str, Any]:
    """The document that CreateAIWorkloadConfig takes as ``WorkloadSpec.Inline``."""
    parameters: dict[str, Any] = {
        "tokenizer": tokenizer,
        "streaming": True,
        "random_seed": plan.seed,
        "custom_dataset_type": "single_turn",
        "input_file": f"{CHANNELS}/{DATASET}/{PROMPTS}",
        "dataset_sampling_strategy": "sequential",
    }
    if load.kind == "closed":
        parameters["concurrency"] = load.concurrency
    else:
        parameters |= {"request_rate": load.rate_per_s, "request_rate_mode": "poisson"}
    requests = measured_of(plan, workload)
    if requests is not None:
        parameters["request_count"] = requests
    elif plan.seconds is not None:
        parameters["benchmark_duration"] = max(1, round(plan.seconds))  # an Integer, by AWS's reference
    warm_up = warm_up_of(plan, load)
    if warm_up:
        parameters["warmup_request_count"] = warm_up
    if workload.temperature is not None:
        parameters["extra_inputs"] = f"temperature:{workload.temperature:g}"
    goodput = _goodput(plan.objective)
    if goodput:
        parameters["goodput"] = goodput
    return {
        "benchmark": {"type": "aiperf"},
        "parameters": parameters,
        "tooling": {"api_standard": "openai"},
    }


def _goodput(objective: Objective | None) -> str:
    if objective is None:
        return ""
    limits = {
        "time_to_first_token": objective.ttft_ms,
        "inter_token_latency": objective.tpot_ms,
        "request_latency": objective.e2e_ms,
    }
    return " ".join(f"{name}:{limit:g}" for name, limit in limits.items() if limit is not None)


def dataset(load: Load, plan: BenchPlan, workload: Workload, salt: str) -> bytes:
    """The requests of one load as AIPerf's lines: its warm-up, then the measured ones.

    Raises:
        SpecError: a request is more than a single user message.
    """
    measured = measured_of(plan, workload) or len(workload.items)
    items = islice(items_of(plan, workload, load, salt), warm_up_of(plan, load) + measured)
    return _lines(items)


def _lines(items: Iterable[WorkItem]) -> bytes:
    lines = []
    for number, item in enumerate(items):
        # AIPerf groups lines of one id, so a prompt that is asked again needs another.
        line: dict[str, Any] = {"session_id": f"{number}:{item.prompt_id}", "text": _text(item)}
        longest = limit_of(item)
        if longest:
            line["output_length"] = longest
        extra = {name: value for name, value in item.body.items() if name not in _OWN}
        if extra:  # the salt of the prefix cache among them
            line["extra"] = extra
        lines.append(json.dumps(line, ensure_ascii=False).encode() + b"\n")
    return b"".join(lines)


def prompt_id(conversation: str) -> str:
    """The prompt's own id in what AIPerf calls a conversation's."""
    number, colon, name = conversation.partition(":")
    return name if colon and number.isdigit() else conversation


def _text(item: WorkItem) -> str:
    prompt, messages = item.body.get("prompt"), item.body.get("messages")
    if isinstance(prompt, str):
        return prompt
    if (
        isinstance(messages, list)
        and len(messages) == 1
        and messages[0].get("role") == "user"
        and isinstance(messages[0].get("content"), str)
    ):
        return str(messages[0]["content"])
    raise SpecError(
        f"prompt {item.prompt_id} is more than one user message, which a managed job does not send",
        next_step="leave --managed out: the built-in client sends any body",
    )


def notes(workload: Workload) -> list[str]:
    """What is otherwise than with the built-in client, for whoever compares the figures."""
    found = []
    if any("prompt" in item.body for item in workload.items):
        found.append("the jobs speak chat only: completion prompts were sent as a user's message")
    if any(item.then is not None for item in workload.items):
        found.append("of each conversation the first turn alone was asked")
    return found
