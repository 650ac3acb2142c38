"""bench(), compare(), tune() and verify() as Python calls."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from peagle_bench import results_file
from peagle_bench.benchmark import run as benchmark
from peagle_bench.benchmark.endpoint_arm import describe_arm
from peagle_bench.benchmark.plan import plan_of
from peagle_bench.compare import run as comparison
from peagle_bench.compare.arms import parse_arms
from peagle_bench.compare.deployments import existing_rounds
from peagle_bench.compare.measurement import setup_of
from peagle_bench.load import make_target
from peagle_bench.load.points import Objective
from peagle_bench.notebook.endpoints import (
    EndpointLike,
    SessionSource,
    blocking,
    chosen,
    demanded,
    name_of,
)
from peagle_bench.notebook.results import Measured, TuneResult
from peagle_bench.results.result_file import read
from peagle_bench.workloads import Workload
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import Declined, SpecError
from peagle_sm.core.spec.modes import Mode
from peagle_sm.service.notebook import Local, SpecLike, as_spec
from peagle_sm.service.progress import Event, Progress, agreed, followed

By = Literal["auto", "runtime", "deployments"]


def bench(
    endpoint: EndpointLike,
    *,
    workload: Workload | str = "humaneval",
    prompts: int | None = None,
    concurrency: Sequence[int] = (),
    rate: Sequence[float] = (),
    requests: int | None = None,
    seconds: float | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    objective: Objective | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    session: Session | None = None,
    local: Local | None = None,
    profile: str | None = None,
    region: str | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Measure an endpoint under load, as `peagle-sm bench` does.

    ``endpoint`` is an `Endpoint`, a name, or the http(s) URL of a bare vLLM. ``concurrency`` gives closed
    loops (default 1 and 8 if ``rate`` is not given either), ``rate`` open loops in arrivals per second. Each
    load measures ``requests``, or as many as fit into ``seconds``, else each prompt once; prompts repeat if a
    load needs more. ``temperature`` (default 0) and ``max_tokens`` (default 256) apply to the workload.
    Every request is written to ``out`` (results/bench-NAME-TIME.jsonl) as it ends.

    Raises:
        NotFound: there is no such endpoint.
        SpecError: the workload, the loads or the context does not fit.
        ServiceFault: the endpoint stopped answering; the message says what was saved.
        Interrupted: Ctrl-C; the message says what was saved.
    """
    sessions = SessionSource(session, local, profile, region)
    work = chosen(
        workload, prompts, seed, max_tokens, temperature=temperature, session=sessions.for_workload(endpoint)
    )
    plan = plan_of(work, concurrency, rate, requests, seconds, seed=seed, objective=objective)
    opened = sessions.open(endpoint)
    described = describe_arm(opened, name_of(endpoint))
    arm = described.arm
    path = Path(out) if out is not None else results_file("bench", arm.name)
    with followed(progress) as follow:
        dependencies = benchmark.BenchDependencies.of(opened, arm, follow, seed=seed)
        target = make_target(opened, arm)
        outcome = blocking(lambda: benchmark.bench(described, target, work, plan, path, dependencies))
    return Measured(outcome.path, outcome.results, outcome.notes)


def compare(
    *endpoints: EndpointLike,
    arms: Mapping[str, EndpointLike] | None = None,
    workload: Workload | str = "humaneval",
    prompts: int | None = None,
    concurrency: Sequence[int] = (1,),
    max_tokens: int | None = None,
    temperature: float | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    session: Session | None = None,
    local: Local | None = None,
    profile: str | None = None,
    region: str | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Compare endpoints in service, in turns, as `peagle-sm compare` does; ratios have 95% intervals.

    An arm is an endpoint, its name, or the http(s) URL of a bare vLLM; ``arms`` gives them names
    (``arms={"eagle3": old, "p-eagle": new}``; if the name is a mode, the endpoint must run it). At
    concurrency 1 arms are paired by prompt, at higher ones in blocks of time. The first arm is measured
    twice, as an A/A pair with a true ratio of 1.

    Raises:
        NotFound: there is no such endpoint.
        SpecError: fewer than two arms, a repeated arm, another mode than the arm's name says, or a workload
            that does not fit.
        ServiceFault: an arm stopped answering; the message says what was saved.
        Interrupted: Ctrl-C; the message says what was saved.
    """
    named = [*((None, endpoint) for endpoint in endpoints), *(arms or {}).items()]
    if any(label is not None and set(label) & set("=,") for label, _ in named):
        raise SpecError("arms: a name contains = or ,", next_step="give each arm a name without = and ,")
    texts = [
        name_of(endpoint) if label is None else f"{label}={name_of(endpoint)}" for label, endpoint in named
    ]
    parsed = parse_arms(texts)
    sessions = SessionSource(session, local, profile, region)
    opening = sessions.for_workload(*(endpoint for _, endpoint in named))
    work = chosen(workload, prompts, seed, max_tokens, temperature=temperature, session=opening)
    setup = setup_of(work, concurrency)
    opened = sessions.open(*(endpoint for _, endpoint in named))
    rounds = existing_rounds(parsed, lambda: demanded(opened))
    path = Path(out) if out is not None else results_file("compare")
    config = {"arms": texts, "seed": seed, "max_tokens": max_tokens, "temperature": temperature}
    with followed(progress) as follow:
        dependencies = comparison.CompareDependencies.of(opened, follow, seed=seed)
        outcome = blocking(lambda: comparison.compare(rounds, setup, work, path, dependencies, config=config))
    return Measured(outcome.path, outcome.results, outcome.notes)


def tune(
    spec: SpecLike,
    *,
    modes: Sequence[Mode] = (),
    concurrency: Sequence[int] = (1, 8),
    max_k: int | None = None,
    by: By = "auto",
    workload: Workload | str = "humaneval",
    requests: int = 24,
    max_tokens: int = 128,
    write: bool = True,
    yes: bool = False,
    unguarded: bool = False,
    out: str | Path | None = None,
    session: Session | None = None,
    local: Local | None = None,
    profile: str | None = None,
    region: str | None = None,
    progress: Progress | None = None,
) -> TuneResult:
    """Find the best K for each concurrency and one for all, as `peagle-sm tune` does.

    It deploys the model with and without speculation, measures a few K, predicts the others, measures the
    most promising, and deletes everything. It shows the price and asks for confirmation, unless ``yes``. If
    ``spec`` is a file, the K and its evidence are written into it, unless ``write`` is False. ``max_k`` is 11
    by default, or what the head was trained for if that is less.

    Raises:
        Declined: the user did not confirm.
        PlanRefused: an endpoint cannot be deployed.
        SpecError, NotFound, ServiceFault, Interrupted, BillableLeft: as `peagle_bench.tune.job.run`.
    """
    from peagle_bench.tune import job as tuning
    from peagle_bench.tune.estimate import Settings, is_runtime
    from peagle_bench.tune.limits import largest_k

    base = as_spec(spec)
    opened = demanded(SessionSource(session, local, profile, region, base.placement.region).open())
    tuned = tuning.modes_of(base, tuple(modes) or None)
    job = tuning.Job(
        spec=base,
        spec_path=Path(spec) if isinstance(spec, str | Path) else None,
        settings=Settings(
            modes=tuned,
            concurrencies=tuple(dict.fromkeys(concurrency)),
            max_k=max_k or largest_k(base, tuned),
            runtime=is_runtime(by, opened.is_local, tuned),
            requests=requests,
            unguarded=unguarded,
        ),
        workload=chosen(workload, None, 0, max_tokens, first_turn_only=True, session=lambda: opened),
        max_tokens=max_tokens,
        out=Path(out) if out is not None else results_file("tune", base.name),
    )
    tuning.check(job)
    plans = tuning.plans_of(job, opened)
    for plan in plans.values():
        plan.refuse_errors()
    if not yes:
        print(f"Estimate: {tuning.price_of(job, plans, opened).words()}", file=sys.stderr)
        if not agreed("Continue?"):
            raise Declined(
                "Not confirmed: nothing was tuned.", next_step="Run it again and confirm, or give yes=True."
            )
    with followed(progress) as follow:
        done = blocking(lambda: tuning.run(job, opened, progress=follow, write=write))
    return TuneResult(
        done.out,
        done.results,
        tuple(f"do not publish: {line}" for line in done.tuned.untrusted),
        k={result.mode: result.common.k for result in done.tuned.results},
        reasons=tuple(result.common.reason for result in done.tuned.results),
        written=done.written,
        minutes=done.tuned.minutes,
        usd=done.tuned.usd,
    )


def verify(
    endpoint: EndpointLike,
    *,
    baseline: EndpointLike,
    checks: Sequence[str] = (),
    workload: str = "humaneval",
    prompts: int | None = None,
    max_tokens: int | None = None,
    quick: bool = False,
    out: str | Path | None = None,
    session: Session | None = None,
    local: Local | None = None,
    profile: str | None = None,
    region: str | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Check that an endpoint's answers are its target's own, as `peagle-sm verify` does.

    ``baseline`` is the same target without speculation. ``checks`` are names in
    `peagle_bench.verify` (default: all). ``quick`` uses a fifth of the tokens and detects only larger
    faults. A fault raises no error: see ``Measured.passed``, which is None for undecided checks.

    Raises:
        NotFound: there is no such endpoint.
        SpecError: an unknown check, a baseline that speculates, or a results file that already exists.
        ServiceFault: an endpoint stopped answering.
    """
    from peagle_bench.verify.run import prepared

    path = Path(out) if out is not None else results_file("verify", name_of(endpoint))
    sessions = SessionSource(session, local, profile, region)
    verification = prepared(
        name_of(endpoint),
        name_of(baseline),
        lambda: sessions.open(endpoint, baseline),
        workload=workload,
        prompts=prompts,
        max_tokens=max_tokens,
        quick=quick,
        checks=checks,
        workload_session=sessions.for_workload(endpoint, baseline),
    )
    began = time.monotonic()

    def work(follow: Progress) -> None:
        verification.run(path, lambda text: follow(Event("verify", text, text, time.monotonic() - began)))

    with followed(progress) as follow:
        blocking(lambda: work(follow))
    return Measured(path, read(path))
