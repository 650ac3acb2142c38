"""Plan of `bench`: the loads, the number of requests and their bodies; and the probe request.

The probe checks before any measurement that the longest prompt fits into the context, and shows which mode
the engine's answers point to.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle, islice
from typing import Any

from peagle_bench.benchmark.endpoint_arm import Described
from peagle_bench.load import LoadOptions, Target, WorkItem
from peagle_bench.load.points import Objective
from peagle_bench.results.records import Load, Mode, RequestRecord
from peagle_bench.workloads import Workload, limit_of, rounds, salted, size_of
from peagle_sm.core.errors import ServiceFault, SpecError


@dataclass(frozen=True)
class BenchPlan:
    """The loads of a benchmark in order, and the settings that all loads share.

    ``requests`` are measured in each load, or as many as are sent in ``seconds``; with neither, every prompt
    of the workload once. Prompts repeat if a load needs more requests than there are prompts.
    """

    loads: tuple[Load, ...]
    requests: int | None = None
    seconds: float | None = None
    seed: int = 0
    objective: Objective | None = None


def loads_of(concurrencies: Sequence[int], rates: Sequence[float]) -> tuple[Load, ...]:
    """Build closed loops for each concurrency, then open loops for each rate.

    Raises:
        SpecError: there is no load, or one appears twice.
    """
    loads = (
        *(Load("closed", concurrency=concurrency) for concurrency in concurrencies),
        *(Load("open", rate_per_s=rate) for rate in rates),
    )
    if not loads or len(set(loads)) < len(loads):
        labels = ", ".join(load.label for load in loads)
        raise SpecError(
            f"loads: found {labels or 'none'}; allowed: one or more, each once",
            next_step="give for example --concurrency 1,8,32 or --rate 2,4",
        )
    return loads


USUAL_CONCURRENCIES = (1, 8)


def plan_of(
    workload: Workload,
    concurrencies: Sequence[int],
    rates: Sequence[float],
    requests: int | None,
    seconds: float | None,
    *,
    seed: int,
    objective: Objective | None,
) -> BenchPlan:
    """Plan a benchmark and check it; without a load, concurrency 1 and 8, as far as the prompts suffice.

    Raises:
        SpecError: as `loads_of` and `check_plan`.
    """
    if not concurrencies and not rates:
        most = requests or len(workload.items)
        concurrencies = [each for each in USUAL_CONCURRENCIES if seconds or each <= most]
    plan = BenchPlan(loads_of(concurrencies, rates), requests, seconds, seed, objective)
    check_plan(plan, workload)
    return plan


def check_plan(plan: BenchPlan, workload: Workload) -> None:
    """Refuse a plan that cannot be measured.

    Raises:
        SpecError: the workload is empty, both ``requests`` and ``seconds`` are given, or a load has fewer
            requests than its concurrency.
    """
    prompts = len(workload.items)
    if not prompts:
        raise SpecError(f"the workload {workload.name} has no prompts", next_step="give one with prompts")
    if plan.requests is not None and plan.seconds is not None:
        raise SpecError("--requests and --seconds were both given", next_step="give only one of them")
    most = max((load.concurrency or 0 for load in plan.loads), default=0)
    requests = measured_of(plan, workload)
    if requests is not None and most > requests:
        raise SpecError(
            f"concurrency {most} with {requests} requests: this concurrency is never reached",
            next_step=f"use --concurrency up to {requests}, or more --requests",
            details={"found": most, "allowed": requests},
        )


def items_of(plan: BenchPlan, workload: Workload, load: Load, salt: str) -> Iterator[WorkItem]:
    """Return the requests of one load: its warm-up, then the prompts, all with a salt of this load.

    The warm-up sends the last prompts with another salt: no prompt is lost for the measurement, and no
    measured prompt is in the prefix cache.
    """
    mine = f"{salt}/{load.label}"
    spare = [
        replace(salted(item, f"{mine}/warm-up"), prompt_id=f"{item.prompt_id}#warm-up", then=None)
        for item in reversed(workload.items)
    ]
    warm_up = islice(cycle(spare), warm_up_of(load))
    repeat = plan.seconds is not None or (plan.requests or 0) > len(workload.items)
    return chain(warm_up, rounds([salted(item, mine) for item in workload.items], repeat=repeat))


def warm_up_of(load: Load) -> int:
    """Return the number of warm-up requests of one load: its concurrency, or a second's arrivals."""
    return load.concurrency or math.ceil(load.rate_per_s or 0.0)


def measured_of(plan: BenchPlan, workload: Workload) -> int | None:
    """Return the number of prompts that each load measures; None when ``seconds`` decides."""
    if plan.seconds is not None:
        return None
    return plan.requests or len(workload.items)


def options_of(plan: BenchPlan, workload: Workload, load: Load, began: float) -> LoadOptions:
    """Build the load client's options for one load; ``began`` is the run's start on its clock."""
    return LoadOptions(
        requests=measured_of(plan, workload),
        seconds=plan.seconds,
        warm_up_requests=warm_up_of(load),
        seed=plan.seed,
        began=began,
    )


#: Error texts of vLLM (several versions) and SageMaker for a prompt or body that is too long.
_TOO_LONG = re.compile(
    r"context length|max_model_len|maximum model length|longer than the max|too large", re.I
)


def probed(
    target: Target,
    workload: Workload,
    described: Described,
    salt: str,
    measure: Any,
    *,
    drafts_of: Callable[[], bool | None] = lambda: None,
    expected: Mode | None = None,
) -> Described:
    """Send the longest prompt once, with its own salt; return the arm with its K, if the answer reports it.

    ``drafts_of`` reads whether the engine speculates, by its counters; None if they do not show it.

    Raises:
        SpecError: the prompt does not fit into the context, or the engine drafts in mode none, or does not
            draft in another expected mode.
        ServiceFault: the request failed.
    """
    longest, arm = max(workload.items, key=size_of), described.arm
    refuse_too_long(longest, described.context)
    item = replace(salted(longest, f"{salt}/probe"), then=None)
    options = LoadOptions(requests=1, warm_up_requests=0, give_up_after=2)
    (record, *_), _ = measure(target, Load("closed", concurrency=1), [item], options)
    _demand_answer(record, longest)
    tokens = len(record.histogram) - 1 if record.histogram else 0 if record.drafts else None
    drafts = drafts_of() if tokens is None else tokens > 0 or None
    if expected is not None and drafts is not None and drafts != (expected != "none"):
        behaviour = "drafts" if drafts else "does not draft"
        raise SpecError(
            f"{arm.name}: expected mode {expected}, but its engine {behaviour}",
            next_step="check the server's --speculative-config, or correct the expected mode",
            details={"expected": expected, "drafts": drafts},
        )
    if arm.num_speculative_tokens is not None or not tokens:
        return described
    return replace(described, arm=replace(arm, num_speculative_tokens=tokens))


def refuse_too_long(item: WorkItem, context: int | None) -> None:
    """Raise SpecError for a prompt of token ids that is known to be longer than the context."""
    prompt = item.body.get("prompt")
    if context is None or not isinstance(prompt, list):
        return
    wanted = len(prompt) + (limit_of(item) or 1)
    if wanted > context:
        raise _too_long(item, f"{wanted:,} tokens with its answer; the context length is {context:,}")


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
        next_step="send it by hand with `peagle-sm invoke`, and check the endpoint with `peagle-sm status`",
    )


def _too_long(item: WorkItem, message: str) -> SpecError:
    return SpecError(
        f"the longest prompt ({item.prompt_id}) does not fit into the endpoint's context: {message}",
        next_step="remove it from the workload, lower --max-tokens, or deploy with a larger"
        " serving.max_model_len; nothing was measured",
        details={"prompt_id": item.prompt_id, "characters": size_of(item)},
    )
