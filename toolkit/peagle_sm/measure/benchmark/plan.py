"""What `bench` sends: the loads, the number of requests and their bodies; and one probing request first.

The probe checks before any measurement that the longest prompt fits into the context, and shows which mode
the engine's answers point to.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, cycle, islice
from typing import Any

from peagle_sm.core.errors import ServiceFault, SpecError
from peagle_sm.measure.benchmark.endpoint_arm import Described
from peagle_sm.measure.load import LoadOptions, Target, WorkItem
from peagle_sm.measure.load.points import Objective
from peagle_sm.measure.results.records import ArmRecord, Load, Mode, RequestRecord
from peagle_sm.measure.workloads import Workload, limit_of, rounds, salted, size_of


@dataclass(frozen=True)
class BenchPlan:
    """Every load in its order, and what holds for all of them.

    ``requests`` are measured in each load, or as many as are sent in ``seconds``; with neither, every prompt
    of the workload once. ``warm_up_requests`` None: as many as the concurrency, or a second's arrivals.
    """

    loads: tuple[Load, ...]
    requests: int | None = None
    seconds: float | None = None
    warm_up_requests: int | None = None
    ramp_s: float = 0.0
    repeat: bool = False
    seed: int = 0
    keep_text: bool = False
    objective: Objective | None = None


def loads_of(concurrencies: Sequence[int], rates: Sequence[float]) -> tuple[Load, ...]:
    """Closed loops at each concurrency, then open loops at each rate.

    Raises:
        SpecError: there is none, or one twice.
    """
    loads = (
        *(Load("closed", concurrency=concurrency) for concurrency in concurrencies),
        *(Load("open", rate_per_s=rate) for rate in rates),
    )
    if not loads or len(set(loads)) < len(loads):
        labels = ", ".join(load.label for load in loads)
        raise SpecError(
            f"the loads are {labels or 'none'}; allowed: one or more, each once",
            next_step="give --concurrency 1,8,32 or --rate 2,4, without repetition",
        )
    return loads


def check_plan(plan: BenchPlan, workload: Workload) -> None:
    """Refuse a plan that the workload cannot feed.

    Raises:
        SpecError: an empty workload, more in flight than there are prompts, or more requests than prompts
            where none is to be sent twice.
    """
    prompts = len(workload.items)
    if not prompts:
        raise SpecError(f"the workload {workload.name} holds no prompt", next_step="give one with prompts")
    if plan.requests is not None and plan.seconds is not None:
        raise SpecError("--requests and --seconds were both given", next_step="give one of the two")
    if plan.repeat:
        if plan.requests is None and plan.seconds is None:
            raise SpecError(
                "with --repeat the prompts never end, and nothing says when to stop",
                next_step="say how many requests (--requests) or how long (--seconds)",
            )
        return
    most = max((load.concurrency or 0 for load in plan.loads), default=0)
    if most > prompts:
        raise SpecError(
            f"concurrency {most} with {prompts} prompts: a prompt is never sent twice at one load, so so many"
            " are never in flight",
            next_step=f"use --concurrency up to {prompts}, a larger workload, or --repeat",
            details={"found": most, "allowed": prompts},
        )
    if plan.requests is not None and plan.requests > prompts:
        raise SpecError(
            f"{plan.requests} requests with {prompts} prompts: a prompt is never sent twice at one load",
            next_step=f"use --requests up to {prompts}, a larger workload, or --repeat",
            details={"found": plan.requests, "allowed": prompts},
        )


def config_of(plan: BenchPlan, workload: Workload, arm: ArmRecord) -> dict[str, Any]:
    """All that a resumed run must agree with."""
    described = workload.describe()
    return {
        "endpoint": arm.endpoint,
        "component": arm.component,
        "mode": arm.mode,
        "deployment": arm.deployment,
        "workload": {key: value for key, value in described.items() if key != "notes"},
        "limits": sorted({_limit(item) for item in workload.items}),
        "loads": [load.label for load in plan.loads],
        **{key: value for key, value in asdict(plan).items() if key not in ("loads", "objective")},
        "objective": None if plan.objective is None else asdict(plan.objective),
    }


def _limit(item: WorkItem) -> str:
    limit = limit_of(item)
    return "the engine's" if limit is None else str(limit)


def items_of(plan: BenchPlan, workload: Workload, load: Load, salt: str) -> Iterator[WorkItem]:
    """The requests of one load: its warm-up, then the prompts, all under a salt of this load.

    The warm-up asks the last prompts under another salt, so that it takes none from the measurement and
    leaves nothing of a measured prompt in the prefix cache.
    """
    mine = f"{salt}/{load.label}"
    spare = [
        replace(salted(item, f"{mine}/warm-up"), prompt_id=f"{item.prompt_id}#warm-up", then=None)
        for item in reversed(workload.items)
    ]
    warm_up = islice(cycle(spare), warm_up_of(plan, load))
    return chain(warm_up, rounds([salted(item, mine) for item in workload.items], repeat=plan.repeat))


def warm_up_of(plan: BenchPlan, load: Load) -> int:
    """How many requests of one load are not measured because they come first."""
    if plan.warm_up_requests is not None:
        return plan.warm_up_requests
    return load.concurrency or math.ceil(load.rate_per_s or 0.0)


def measured_of(plan: BenchPlan, workload: Workload) -> int | None:
    """How many prompts each load measures; None where its seconds decide."""
    if plan.seconds is not None:
        return None
    return plan.requests or len(workload.items)


def options_of(plan: BenchPlan, workload: Workload, load: Load, began: float) -> LoadOptions:
    """How the load client is to run one load; ``began`` is the run's beginning by its clock."""
    return LoadOptions(
        requests=measured_of(plan, workload),
        seconds=plan.seconds,
        warm_up_requests=warm_up_of(plan, load),
        ramp_s=plan.ramp_s,
        seed=plan.seed,
        keep_text=plan.keep_text,
        began=began,
    )


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
