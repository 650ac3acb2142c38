"""Verification run: open the two engines, load the prompts, and run the checks in order.

Each check ends in a record, whatever happens to the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from peagle_bench.benchmark.endpoint_arm import Described, describe_arm, targets_of
from peagle_bench.load.work import WorkItem
from peagle_bench.results.provenance import origin
from peagle_bench.results.records import CheckRecord, Header
from peagle_bench.results.result_file import ResultWriter
from peagle_bench.verify import CHECKS, probes
from peagle_bench.verify.answer_format import judge_stops, judge_streaming
from peagle_bench.verify.engines import (
    Engine,
    EnginePair,
    Options,
    SideFailed,
    TokenPrompt,
    engine_of,
    greedy_body,
)
from peagle_bench.verify.forms import TOOL_FORMS, ask_forms, demands, judge_forms, judge_tools
from peagle_bench.verify.greedy import judge_greedy, judge_long_context
from peagle_bench.verify.probabilities import CUTS, TEMPERATURES, judge_logprobs, judge_parameters
from peagle_bench.verify.probes import (
    LONG_ANSWER,
    LONG_PROMPTS,
    Greedy,
)
from peagle_bench.verify.sampling import judge_sampled
from peagle_bench.verify.statistics import ALPHA, LEAST_DELTA, CheckVerdict, undecided
from peagle_bench.workloads import Workload, load_workload
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import PeagleError, ServiceFault, SpecError, StreamError
from peagle_sm.core.spec.modes import SPECULATING

QUICK = Options(
    max_tokens=96,
    samples=64,
    sample_tokens=96,
    features=12,
    parameter_samples=8,
    contexts=8,
    repeats=48,
    structured=6,
    structured_tokens=128,
    longest_tokens=4096,
)
QUICK_PROMPTS, PROMPTS = 32, 164
Say = Callable[[str], None]


@dataclass(frozen=True)
class Verification:
    """Two endpoints with their engines, the prompts, and the checks to run; `prepared` makes one."""

    candidate: Described
    baseline: Described
    engines: tuple[Engine, Engine]  #: of the baseline and of the candidate
    workload: Workload
    options: Options
    checks: tuple[str, ...]

    def run(self, path: Path, say: Say, tick: Callable[[], None] = lambda: None) -> list[CheckRecord]:
        """Run the checks and write ``path``; ``say`` gets a line of progress, ``tick`` is called by answer.

        Raises:
            SpecError: the file exists, or an engine refused the greedy requests.
            ServiceFault: an engine failed or stopped answering.
        """
        records = []
        with ResultWriter(path) as writer:
            for line in (self.header, self.candidate.arm, self.baseline.arm):
                writer.append(line)
            pair = EnginePair(*self.engines, self.options, tick=tick)
            for record in verify(pair, self.workload.items, self.checks, say):
                writer.append(record)
                records.append(record)
        return records

    @cached_property
    def header(self) -> Header:
        """The results file's header."""
        where_from = origin(self.options.seed)
        return Header(
            run_id=f"verify-{self.candidate.arm.name}-{where_from['date']}",
            command="verify",
            config={
                "endpoint": self.candidate.arm.endpoint,
                "baseline": self.baseline.arm.endpoint,
                "workload": self.workload.describe(),
                "checks": list(self.checks),
                **asdict(self.options),
            },
            provenance={
                **where_from,
                "endpoint": dict(self.candidate.origin),
                "baseline": dict(self.baseline.origin),
            },
            **targets_of((self.candidate.target, self.baseline.target)),
        )


def prepared(
    endpoint: str,
    baseline: str,
    session_of: Callable[[], Session | None],
    *,
    workload: str,
    prompts: int | None,
    max_tokens: int | None,
    quick: bool,
    checks: Sequence[str],
    workload_session: Callable[[], Session],
) -> Verification:
    """Load the prompts and open both engines; ``checks`` empty: all of them.

    An endpoint is a name, ``NAME/COMPONENT``, or the URL of a bare vLLM. ``session_of`` returns None if both
    are URLs. ``workload_session`` opens the session of a workload in S3.

    Raises:
        SpecError: an unknown check, a workload that cannot be read, or a baseline that speculates.
        NotFound: an endpoint does not exist.
        ServiceFault: an endpoint is not in service, or no server answers at the URL.
    """
    wanted = checks_of(checks)
    usual = QUICK if quick else Options()
    options = replace(usual, max_tokens=max_tokens or usual.max_tokens)
    at_most = QUICK_PROMPTS if quick else PROMPTS
    source = load_prompts(workload, prompts, options.seed, at_most, workload_session)
    session = session_of()
    plain = describe_arm(session, baseline)
    demand_plain(plain)
    candidate = describe_arm(session, endpoint)
    engines = engine_of(session, plain.arm), engine_of(session, candidate.arm)
    return Verification(candidate, plain, engines, source, options, wanted)


def checks_of(names: Sequence[str]) -> tuple[str, ...]:
    """Return the checks of these names, in the order in which they run; all of them without a name.

    Raises:
        SpecError: an unknown name.
    """
    if unknown := [name for name in names if name not in CHECKS]:
        raise SpecError(
            f"checks: found {', '.join(unknown)}; allowed: {', '.join(CHECKS)}",
            next_step="correct the names, or give none to run all checks",
        )
    return tuple(name for name in CHECKS if name in names or not names)


def demand_plain(baseline: Described) -> None:
    """Refuse a baseline that speculates: it may have the same faults as the candidate.

    Raises:
        SpecError: it runs a mode with speculation.
    """
    arm = baseline.arm
    if arm.mode in SPECULATING:
        raise SpecError(
            f"baseline {arm.name!r} runs mode {arm.mode}; allowed: none (the target without speculation)",
            next_step="deploy the same model with `speculation: {mode: none}` and give that endpoint",
            details={"found": arm.mode, "allowed": "none"},
        )


def load_prompts(
    name: str,
    count: int | None,
    seed: int,
    at_most: int = PROMPTS,
    session: Callable[[], Session] | None = None,
) -> Workload:
    """Load a workload; errors as `load_workload`. ``count`` None: all prompts, but at most ``at_most``."""
    workload = load_workload(
        name, seed=seed, count=count, first_turn_only=True, default_max_tokens=None, session=session
    )
    if count is None and len(workload.items) > at_most:
        workload = replace(workload, items=workload.items[:at_most])
    return workload


def tokens_asked(options: Options, prompts: int, checks: Sequence[str]) -> int:
    """Estimate the maximum output tokens that ``checks`` request, for a notice before the start.

    The greedy answers are always included: the other checks use them.
    """
    features = min(options.features, prompts) * options.max_tokens
    structured = options.structured * options.structured_tokens
    each = {
        "sampled": options.samples * options.sample_tokens + 3 * options.contexts * options.repeats,
        "parameters": (len(CUTS) + len(TEMPERATURES)) * options.parameter_samples * options.sample_tokens,
        "logprobs": features,
        "stop-strings": 2 * features,  # with and without streaming, as the structured ones
        "streaming": features,
        "json-schema": 2 * structured,
        "tool-calls": 2 * structured,
        "long-context": LONG_PROMPTS * LONG_ANSWER,
    }
    return prompts * options.max_tokens + sum(each.get(check, 0) for check in checks)


def verify(
    engines: EnginePair,
    items: Sequence[WorkItem],
    checks: Sequence[str],
    say: Say,
) -> Iterator[CheckRecord]:
    """Run ``checks`` on the prompts of ``items``; yield each record.

    The greedy runs always come first: the other checks use their noise floor, end tokens and texts.

    Raises:
        SpecError, ServiceFault: an engine refused or failed in the greedy runs, or the candidate stopped
            answering; the message names the check.
    """
    say(
        f"greedy: {len(items)} prompts, twice on {engines.baseline.name} and once on {engines.candidate.name}"
    )
    try:
        prompts = engines.prompts([(item.prompt_id, item.body) for item in items])
        greedy = probes.probe_greedy(engines, prompts)
    except SideFailed as failed:
        raise failed.error from failed
    say(greedy.floor.words)
    for name in CHECKS:
        if name not in checks:
            continue
        if name != "greedy":
            say(f"{name} …")
        yield _verdict(engines, name, greedy).record(name, engines.candidate.name, engines.baseline.name)


def _verdict(engines: EnginePair, name: str, greedy: Greedy) -> CheckVerdict:
    try:
        return _judged(engines, name, greedy)
    except SideFailed as failed:
        if failed.side == "baseline":
            if failed.refused:
                return undecided(f"the baseline refused the request: {failed.error}")
            raise failed.error from failed
        _demand_alive(engines, name, greedy.prompts[0], failed.error)
        what = "refused" if failed.refused else "failed at"
        return CheckVerdict(
            False,
            f"the endpoint {what} a request that the baseline answered",
            "detects any request of this check that is refused or fails",
            {},
            [str(failed.error)],
        )


def _demand_alive(engines: EnginePair, name: str, prompt: TokenPrompt, first: PeagleError) -> None:
    if not isinstance(first, ServiceFault | StreamError):
        return
    try:
        engines.ask("candidate", [greedy_body(prompt, 1)])
    except SideFailed as failed:
        raise ServiceFault(
            f"{engines.candidate.name} stopped answering during the check {name!r}: {first}",
            next_step=engines.candidate.log_hint,
            details={"check": name, "after": str(failed.error)},
        ) from failed


def _judged(engines: EnginePair, name: str, greedy: Greedy) -> CheckVerdict:
    options, exact = engines.options, greedy.floor.exact
    if name == "greedy":
        return judge_greedy(greedy.cases, greedy.floor, options.max_tokens)
    if name == "sampled":
        unseeded, seeded, own = probes.probe_sampled(engines, greedy.prompts)
        repeated = probes.probe_places(engines, greedy)
        return judge_sampled(unseeded, seeded, own, greedy.ends, options.sample_tokens, repeated)
    if name == "parameters":
        noise = max(greedy.floor.delta, LEAST_DELTA)
        return judge_parameters(probes.probe_parameters(engines, greedy.prompts), noise)
    if name == "logprobs":
        return judge_logprobs(*probes.probe_logprobs(engines, greedy))
    if name == "stop-strings":
        return judge_stops(probes.probe_stops(engines, greedy), exact)
    if name == "streaming":
        return judge_streaming(probes.probe_streaming(engines, greedy), exact)
    if name == "json-schema":
        requests = demands(options.seed, options.structured, ("json-schema",))
        return judge_forms(ask_forms(engines, requests, options.structured_tokens), ALPHA)
    if name == "tool-calls":
        requests = demands(options.seed, options.structured, TOOL_FORMS)
        return judge_tools(engines, requests, options.structured_tokens, ALPHA)
    context = probes.context_of(engines, greedy.prompts[0])
    if context is None:
        return undecided("the engine does not report its context length")
    return judge_long_context(probes.probe_long_context(engines, greedy, context), greedy.floor)
