"""From two names to two engines, and the prompts to put to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import SpecError
from peagle_sm.measure.endpoint_arm import Described, describe_endpoint, describe_url, is_url
from peagle_sm.measure.provenance import origin
from peagle_sm.measure.records import Header
from peagle_sm.measure.verify.engines import EndpointEngine, Engine, UrlEngine
from peagle_sm.measure.verify.lab import Options
from peagle_sm.measure.verify.parameters import CUTS, TEMPERATURES
from peagle_sm.measure.verify.probes import LONG_ANSWER, LONG_PROMPTS
from peagle_sm.measure.workloads import Workload, load_workload

QUICK = Options(
    max_tokens=96,
    samples=64,
    sample_tokens=96,
    features=12,
    seeds=16,
    seeds_noisy=64,
    parameter_samples=8,
    contexts=8,
    repeats=48,
    feature_tokens=32,
    structured=6,
    structured_tokens=128,
    longest_tokens=4096,
)
QUICK_PROMPTS, PROMPTS = 32, 164


@dataclass(frozen=True)
class Side:
    """One of the two: what it is, and how to ask it."""

    described: Described
    engine: Engine


def open_side(session: Session | None, endpoint: str, component: str | None = None) -> Side:
    """An endpoint of SageMaker by name, or a bare vLLM by URL.

    Raises:
        NotFound: there is no such endpoint.
        ServiceFault: it is not in service, or nothing answers at the URL.
    """
    if is_url(endpoint):
        return Side(describe_url(endpoint), UrlEngine(endpoint))
    if session is None:
        raise SpecError(f"{endpoint!r} is the name of an endpoint, and no session was given")
    described = describe_endpoint(session, endpoint, component=component)
    return Side(described, EndpointEngine(session, endpoint, described.arm.component))


def demand_plain(baseline: Described) -> None:
    """Refuse a baseline that speculates: it would judge the answers of another by its own faults.

    Raises:
        SpecError: it runs eagle3 or p-eagle.
    """
    arm = baseline.arm
    if arm.mode in ("eagle3", "p-eagle"):
        raise SpecError(
            f"baseline {arm.name!r} runs mode {arm.mode}; allowed: none, the target without speculation",
            next_step="deploy the same model with `speculation: {mode: none}` and name that endpoint",
            details={"found": arm.mode, "allowed": "none"},
        )


def load_prompts(
    name: str, count: int | None, seed: int, at_most: int = PROMPTS
) -> tuple[Workload, list[tuple[str, Mapping[str, Any]]]]:
    """The workload and the (id, body) of each of its prompts; errors as `load_workload`.

    ``count`` None: all that there are, but no more than ``at_most``.
    """
    workload = load_workload(name, seed=seed, count=count, first_turn_only=True)
    if count is None and len(workload.items) > at_most:
        workload = replace(workload, items=workload.items[:at_most])
    return workload, [(item.prompt_id, item.body) for item in workload.items]


def header(
    candidate: Described, baseline: Described, workload: Workload, options: Options, checks: Sequence[str]
) -> Header:
    """The first line of the results file."""
    where_from = origin(options.seed)
    return Header(
        run_id=f"verify-{candidate.arm.name}-{where_from['date']}",
        command="verify",
        config={
            "endpoint": candidate.arm.endpoint,
            "baseline": baseline.arm.endpoint,
            "workload": workload.describe(),
            "checks": list(checks),
            **asdict(options),
        },
        provenance={
            **where_from,
            "endpoint": dict(candidate.origin),
            "baseline": dict(baseline.origin),
        },
        stand_in_weights=candidate.stand_in_weights or baseline.stand_in_weights,
    )


def tokens_asked(options: Options, prompts: int, checks: Sequence[str]) -> int:
    """About how many output tokens ``checks`` ask of the endpoint, at most: for a notice before the start.

    The greedy answers are among them in any case: the other checks build on them.
    """
    features = min(options.features, prompts) * options.max_tokens
    structured = options.structured * options.structured_tokens
    each = {
        "sampled": options.samples * options.sample_tokens + 3 * options.contexts * options.repeats,
        "parameters": (len(CUTS) + len(TEMPERATURES)) * options.parameter_samples * options.sample_tokens,
        "logprobs": features,
        "stop-strings": 2 * features,  # whole and streamed, as the structured ones
        "seeds": 3 * max(options.seeds * options.feature_tokens, options.seeds_noisy * options.seed_tokens),
        "streaming": features,
        "json-schema": 2 * structured,
        "tool-calls": 2 * structured,
        "long-context": LONG_PROMPTS * LONG_ANSWER,
    }
    return prompts * options.max_tokens + sum(each.get(check, 0) for check in checks)
