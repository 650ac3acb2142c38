"""One request before anything is measured: whether the longest prompt fits, and what the engine tells."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from peagle_sm.core.errors import ServiceFault, SpecError
from peagle_sm.measure.endpoint_arm import Described
from peagle_sm.measure.load import LoadOptions, Target, WorkItem
from peagle_sm.measure.records import ArmRecord, Load, Mode, RequestRecord
from peagle_sm.measure.workloads import Workload, limit_of, salted, size_of

#: How vLLM says that a prompt does not fit (several versions), and SageMaker that a body does not.
_TOO_LONG = re.compile(
    r"context length|max_model_len|maximum model length|longer than the max|too large", re.I
)


@dataclass(frozen=True)
class Evidence:
    """What one answer showed: ``tokens`` is its num_speculative_tokens, None where it says nothing.

    ``engine_drafts``: whether the engine's counters say that it speculates, None where they do not tell.
    """

    tokens: int | None
    engine_drafts: bool | None = None


def probe(target: Target, workload: Workload, described: Described, salt: str, measure: Any) -> Evidence:
    """Send the longest prompt once, under a salt of its own.

    Raises:
        SpecError: it does not fit into the context, or is refused for another fault of its own.
        ServiceFault: it was not answered.
    """
    longest = max(workload.items, key=size_of)
    refuse_too_long(longest, described.context)
    item = replace(salted(longest, f"{salt}/probe"), then=None)
    options = LoadOptions(requests=1, warm_up_requests=0, give_up_after=2)
    (record, *_), _ = measure(target, Load("closed", concurrency=1), [item], options)
    _demand_answer(record, longest)
    tokens = len(record.histogram) - 1 if record.histogram else 0 if record.drafts else None
    return Evidence(tokens)


def refuse_too_long(item: WorkItem, context: int | None) -> None:
    """Raise SpecError for a prompt of token ids that is known to be longer than the context."""
    prompt = item.body.get("prompt")
    if context is None or not isinstance(prompt, list):
        return
    wanted = len(prompt) + (limit_of(item) or 1)
    if wanted > context:
        raise _too_long(item, f"{wanted:,} tokens with its answer, and the context holds {context:,}")


def check_evidence(arm: ArmRecord, evidence: Evidence, expected: Mode | None) -> None:
    """Compare what the engine shows with the mode that was expected of it.

    Raises:
        SpecError: it drafts and should not, or should and does not.
    """
    drafts = True if evidence.tokens else evidence.engine_drafts
    if expected is None or drafts is None or drafts == (expected != "none"):
        return
    raise SpecError(
        f"{arm.name} was expected to run mode {expected}, and its engine"
        f" {'drafts' if drafts else 'does not draft at all'}",
        next_step="look at how the server was started (--speculative-config), or correct --expect-mode",
        details={"expected": expected, "drafts": drafts},
    )


def _demand_answer(record: RequestRecord, item: WorkItem) -> None:
    if record.error is None:
        return
    message = record.error_message or ""
    if _TOO_LONG.search(message):
        raise _too_long(item, message)
    raise ServiceFault(
        f"the first request ({item.prompt_id}) failed: {record.error}: {message}",
        operation="bench",
        code=record.error,
        next_step="send it by hand with `peagle-sm invoke`, and look at the endpoint with `peagle-sm status`",
    )


def _too_long(item: WorkItem, message: str) -> SpecError:
    return SpecError(
        f"the longest prompt ({item.prompt_id}) does not fit into the endpoint's context: {message}",
        next_step="take it out of the workload, lower --max-tokens, or deploy with a larger"
        " serving.max_model_len; nothing was measured",
        details={"prompt_id": item.prompt_id, "characters": size_of(item)},
    )
