"""bench(), compare() and verify(): the measuring commands as Python calls. tune() is in `tune`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import SpecError
from peagle_sm.measure import need_packages, results_file
from peagle_sm.measure.benchmark import run as benchmark
from peagle_sm.measure.benchmark.acceptance import engine_source
from peagle_sm.measure.benchmark.endpoint_arm import (
    demand_mode,
    describe_endpoint,
    describe_url,
    is_url,
    look_at,
)
from peagle_sm.measure.benchmark.plan import BenchPlan, check_plan, loads_of
from peagle_sm.measure.compare import run as comparison
from peagle_sm.measure.compare.arms import parse_arms
from peagle_sm.measure.compare.deployments import existing_rounds
from peagle_sm.measure.compare.measurement import Setup
from peagle_sm.measure.load import make_target
from peagle_sm.measure.load.points import Objective
from peagle_sm.measure.notebook.endpoints import EndpointLike, Place, blocking, chosen, demanded, name_of
from peagle_sm.measure.notebook.results import BenchResult, CompareResult, VerifyResult
from peagle_sm.measure.results.provenance import origin
from peagle_sm.measure.results.records import ArmRecord, Load, Mode
from peagle_sm.measure.results.result_file import ResultWriter, read
from peagle_sm.measure.verify import CHECKS
from peagle_sm.measure.workloads import Workload
from peagle_sm.service.notebook import Local
from peagle_sm.service.progress import Event, Progress, followed

_USUAL = (1, 8)


def bench(
    endpoint: EndpointLike,
    *,
    workload: Workload | str = "humaneval",
    prompts: int | None = None,
    concurrency: Sequence[int] = (),
    rate: Sequence[float] = (),
    requests: int | None = None,
    seconds: float | None = None,
    repeat: bool = False,
    max_tokens: int | None = None,
    temperature: float | None = None,
    objective: Objective | None = None,
    expect_mode: Mode | None = None,
    component: str | None = None,
    seed: int = 0,
    keep_text: bool = False,
    out: str | Path | None = None,
    session: Session | None = None,
    local: Local | None = None,
    profile: str | None = None,
    region: str | None = None,
    progress: Progress | None = None,
) -> BenchResult:
    """Measure an endpoint, its name, or the http(s) address of a bare vLLM, as `peagle-sm bench` does.

    ``concurrency`` are closed loops (1 and 8 where neither it nor ``rate`` is given), ``rate`` open ones, in
    arrivals a second. At each load ``requests`` are measured, or as many as come in ``seconds``, else each
    prompt once. ``temperature`` and ``max_tokens`` (256) are the workload's; greedy unless they say
    otherwise. Every request goes into ``out`` (results/bench-NAME-TIME.jsonl) as it ends.

    Raises:
        NotFound: the extra ``measure`` is not installed, or there is no such endpoint.
        SpecError: workload, loads, context or mode do not fit.
        ServiceFault: the endpoint stopped answering; the message says what was saved.
        Interrupted: Ctrl-C; the message says what was saved.
    """
    need_packages()
    work = chosen(workload, prompts, seed, max_tokens, temperature=temperature)
    usual = tuple(each for each in _USUAL if each <= len(work.items) or repeat)
    plan = BenchPlan(
        loads=loads_of(tuple(concurrency) or (() if rate else usual), tuple(rate)),
        requests=requests,
        seconds=seconds,
        repeat=repeat,
        seed=seed,
        keep_text=keep_text,
        objective=objective,
    )
    check_plan(plan, work)
    place = Place(session, local, profile, region).open(endpoint)
    name = name_of(endpoint)
    if place is None or is_url(name):
        described = describe_url(name)
    else:
        described = describe_endpoint(place, name, component=component)
    if expect_mode is not None:
        described = demand_mode(described, expect_mode)
    arm = described.arm
    path = Path(out) if out is not None else results_file("bench", arm.name)
    with followed(progress) as follow:
        around = benchmark.Around(
            progress=follow,
            look=lambda: look_at(place, arm),
            provenance=lambda: origin(seed),
            source=engine_source(place, arm),
        )
        target = make_target(place, arm)
        outcome = blocking(
            lambda: benchmark.bench(described, target, work, plan, path, around, expected=expect_mode)
        )
    return BenchResult(outcome.path, outcome.results, outcome.notes)


def compare(
    *endpoints: EndpointLike,
    arms: Mapping[str, EndpointLike] | None = None,
    workload: Workload | str = "humaneval",
    prompts: int | None = None,
    concurrency: Sequence[int] = (1,),
    blocks: int = 6,
    repeat: bool = False,
    max_tokens: int | None = None,
    temperature: float | None = None,
    control: bool = True,
    seed: int = 0,
    out: str | Path | None = None,
    session: Session | None = None,
    local: Local | None = None,
    profile: str | None = None,
    region: str | None = None,
    progress: Progress | None = None,
) -> CompareResult:
    """Compare endpoints that are up, in turns, as `peagle-sm compare` does: each ratio with its 95% interval.

    An arm is an endpoint, its name, or the http(s) address of a bare vLLM; ``arms`` gives them names
    (``arms={"eagle3": old, "p-eagle": new}``: a mode as the name is checked). At concurrency 1 they are
    paired by prompt, above in ``blocks`` of time. ``control`` asks the first arm twice, as a pair
    whose ratio is 1.

    Raises:
        NotFound: the extra ``measure`` is not installed, or there is no such endpoint.
        SpecError: fewer than two arms, one of them twice or in another mode than its name, or a workload that
            does not fit.
        ServiceFault: an arm stopped answering; the message says what was saved.
        Interrupted: Ctrl-C; the message says what was saved.
    """
    need_packages()
    named = [*((None, one) for one in endpoints), *(arms or {}).items()]
    if any(label is not None and set(label) & set("=,") for label, _ in named):
        raise SpecError("arms: a name has = or , in it", next_step="give each arm a plain name")
    texts = [name_of(one) if label is None else f"{label}={name_of(one)}" for label, one in named]
    parsed = parse_arms(texts)
    work = chosen(workload, prompts, seed, max_tokens, temperature=temperature)
    setup = Setup(
        items=work.items,
        loads=tuple(Load("closed", concurrency=number) for number in concurrency),
        blocks=blocks,
        repeat=repeat,
        temperature=work.temperature,
    )
    setup.check()
    opened = Place(session, local, profile, region).open(*(one for _, one in named))
    rounds = existing_rounds(parsed, lambda: demanded(opened))
    path = Path(out) if out is not None else results_file("compare")
    config = {"arms": texts, "seed": seed, "max_tokens": max_tokens, "temperature": temperature}
    with followed(progress) as follow:
        around = comparison.Around(
            progress=follow,
            target_of=lambda arm: make_target(opened, arm),
            look=lambda arm: look_at(opened, arm),
            drafts_of=lambda arm: _drafts(opened, arm),
            provenance=lambda: origin(seed),
        )
        outcome = blocking(
            lambda: comparison.compare(rounds, setup, work, path, around, control=control, config=config)
        )
    return CompareResult(outcome.path, outcome.results, outcome.notes)


def _drafts(session: Session | None, arm: ArmRecord) -> bool | None:
    """Of an endpoint of SageMaker the mode is read from its model; of a bare server it is only claimed."""
    source = engine_source(session, arm) if arm.transport == "http" else None
    return source.drafts if source is not None else None


def verify(
    endpoint: EndpointLike,
    *,
    baseline: EndpointLike,
    checks: Sequence[str] = (),
    workload: str = "humaneval",
    prompts: int | None = None,
    max_tokens: int | None = None,
    concurrency: int = 8,
    quick: bool = False,
    component: str | None = None,
    baseline_component: str | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    session: Session | None = None,
    local: Local | None = None,
    profile: str | None = None,
    region: str | None = None,
    progress: Progress | None = None,
) -> VerifyResult:
    """Check that an endpoint's answers are its target's own, as `peagle-sm verify` does.

    ``baseline`` is the same target without speculation. ``checks`` are names of
    `peagle_sm.measure.verify` (all where none is given); ``quick`` asks a fifth of the tokens, so that
    detects only larger faults. Nothing is raised for a fault: ``VerifyResult.passed`` tells, and a
    check that cannot tell says so.

    Raises:
        NotFound: the extra ``measure`` is not installed, or there is no such endpoint.
        SpecError: an unknown check, a baseline that speculates, or a results file that is there already.
        ServiceFault: an endpoint stopped answering.
    """
    need_packages()
    from peagle_sm.measure.verify import run as verification
    from peagle_sm.measure.verify.engines import Lab, Options
    from peagle_sm.measure.verify.run import verify as run

    wanted = _wanted(checks)
    path = Path(out) if out is not None else results_file("verify", name_of(endpoint))
    usual = verification.QUICK if quick else Options()
    options = replace(usual, max_tokens=max_tokens or usual.max_tokens, concurrency=concurrency, seed=seed)
    at_most = verification.QUICK_PROMPTS if quick else verification.PROMPTS
    source, bodies = verification.load_prompts(workload, prompts, seed, at_most)
    place = Place(session, local, profile, region).open(endpoint, baseline)
    plain = verification.open_side(place, name_of(baseline), baseline_component)
    verification.demand_plain(plain.described)
    mine = verification.open_side(place, name_of(endpoint), component)
    began = time.monotonic()

    def work(follow: Progress) -> None:
        def say(text: str) -> None:
            follow(Event("verify", text, text, time.monotonic() - began))

        with ResultWriter(path) as writer:
            for line in (
                verification.header(mine.described, plain.described, source, options, wanted),
                mine.described.arm,
                plain.described.arm,
            ):
                writer.append(line)
            for record in run(Lab(plain.engine, mine.engine, options), bodies, wanted, say):
                writer.append(record)

    with followed(progress) as follow:
        blocking(lambda: work(follow))
    return VerifyResult(path, read(path))


def _wanted(checks: Sequence[str]) -> tuple[str, ...]:
    unknown = [name for name in checks if name not in CHECKS]
    if unknown:
        raise SpecError(
            f"checks: found {', '.join(unknown)}; allowed: {', '.join(CHECKS)}",
            next_step="correct the names, or leave checks out for all of them",
        )
    return tuple(name for name in CHECKS if name in checks or not checks)
