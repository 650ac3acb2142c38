"""One verification: open the two engines, load the prompts, and run the checks in their order.

Each check ends in a record, whatever happens to the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import PeagleError, ServiceFault, SpecError, StreamError
from peagle_sm.measure.benchmark.endpoint_arm import Described, describe_endpoint, describe_url, is_url
from peagle_sm.measure.results.provenance import origin
from peagle_sm.measure.results.records import CheckRecord, Header
from peagle_sm.measure.verify import CHECKS, probes
from peagle_sm.measure.verify.answer_format import judge_stops, judge_streaming, judge_structured
from peagle_sm.measure.verify.engines import (
    EndpointEngine,
    Engine,
    Lab,
    Options,
    Prompt,
    SideFailed,
    UrlEngine,
    greedy_body,
)
from peagle_sm.measure.verify.greedy import judge_greedy, judge_long_context
from peagle_sm.measure.verify.probabilities import CUTS, TEMPERATURES, judge_logprobs, judge_parameters
from peagle_sm.measure.verify.probes import (
    LONG_ANSWER,
    LONG_PROMPTS,
    Greedy,
    NoTools,
    probe_json,
    probe_tools,
)
from peagle_sm.measure.verify.sampling import judge_sampled, judge_seeds
from peagle_sm.measure.verify.statistics import LEAST_DELTA, Verdict, not_applicable, undecided
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


Say = Callable[[str], None]


def verify(
    lab: Lab, items: Sequence[tuple[str, Mapping[str, Any]]], checks: Sequence[str], say: Say
) -> Iterator[CheckRecord]:
    """Run ``checks`` on the prompts of ``items`` (id and request body); yield each record as it ends.

    The greedy runs come first in any case: the other checks take their noise floor, end tokens and texts
    from them.

    Raises:
        SpecError, ServiceFault: a side refuses or fails in the greedy runs, where there is nothing to go on
            with, or the candidate stopped answering altogether; the message names the check.
    """
    say(f"greedy: {len(items)} prompts, twice on {lab.baseline.name} and once on {lab.candidate.name}")
    try:
        greedy = probes.probe_greedy(lab, lab.prompts(items))
    except SideFailed as failed:
        raise failed.error from failed
    say(greedy.floor.words)
    for name in CHECKS:
        if name not in checks:
            continue
        if name != "greedy":
            say(f"{name} …")
        yield _verdict(lab, name, greedy).record(name, lab.candidate.name, lab.baseline.name)


def _verdict(lab: Lab, name: str, greedy: Greedy) -> Verdict:
    try:
        return _judged(lab, name, greedy)
    except SideFailed as failed:
        if failed.side == "baseline":
            if failed.refused:
                return undecided(f"the baseline refuses the request: {failed.error}")
            raise failed.error from failed
        _demand_alive(lab, name, greedy.prompts[0], failed.error)
        what = "refuses" if failed.refused else "fails at"
        return Verdict(
            False,
            f"the endpoint {what} a request that the baseline answers",
            "any request of this check that is refused or fails is caught",
            {},
            [str(failed.error)],
        )


def _demand_alive(lab: Lab, name: str, prompt: Prompt, first: PeagleError) -> None:
    if not isinstance(first, ServiceFault | StreamError):
        return
    try:
        lab.ask("candidate", [greedy_body(prompt, 1)])
    except SideFailed as failed:
        raise ServiceFault(
            f"{lab.candidate.name} stopped answering during the check {name!r}: {first}",
            next_step=lab.candidate.log_hint,
            details={"check": name, "after": str(failed.error)},
        ) from failed


def _judged(lab: Lab, name: str, greedy: Greedy) -> Verdict:
    options, exact = lab.options, greedy.floor.exact
    if name == "greedy":
        return judge_greedy(greedy.cases, greedy.floor, options.max_tokens)
    if name == "sampled":
        unseeded, seeded, own = probes.probe_sampled(lab, greedy.prompts)
        repeated = probes.probe_places(lab, greedy)
        return judge_sampled(unseeded, seeded, own, greedy.ends, options.sample_tokens, repeated)
    if name == "parameters":
        noise = max(greedy.floor.delta, LEAST_DELTA)
        return judge_parameters(probes.probe_parameters(lab, greedy.prompts), noise)
    if name == "logprobs":
        return judge_logprobs(*probes.probe_logprobs(lab, greedy))
    if name == "stop-strings":
        return judge_stops(probes.probe_stops(lab, greedy), exact)
    if name == "seeds":
        return judge_seeds(probes.probe_seeds(lab, greedy.prompts, exact), exact)
    if name == "streaming":
        return judge_streaming(probes.probe_streaming(lab, greedy), exact)
    if name == "json-schema":
        return judge_structured(probe_json(lab), exact)
    if name == "tool-calls":
        try:
            return judge_structured(probe_tools(lab), exact)
        except NoTools as refused:
            return not_applicable(f"neither side has a tool parser: {refused}")
    context = probes.context_of(lab, greedy.prompts[0])
    if context is None:
        return undecided("the engine does not say how long its context is")
    return judge_long_context(probes.probe_long_context(lab, greedy, context), greedy.floor)
