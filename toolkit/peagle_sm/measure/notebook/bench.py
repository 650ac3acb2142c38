"""bench(): one endpoint under load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from peagle_sm.aws.session.session import Session
from peagle_sm.measure import bench as benching
from peagle_sm.measure.bench_counters import engine_source
from peagle_sm.measure.bench_plan import BenchPlan, check_plan, loads_of
from peagle_sm.measure.endpoint_arm import demand_mode, describe_endpoint, describe_url, is_url, look_at
from peagle_sm.measure.load import make_target
from peagle_sm.measure.load.points import Objective
from peagle_sm.measure.needs import need_packages, results_file
from peagle_sm.measure.notebook.places import EndpointLike, Place, chosen, name_of
from peagle_sm.measure.notebook.results import BenchResult
from peagle_sm.measure.notebook.running import blocking
from peagle_sm.measure.provenance import origin
from peagle_sm.measure.records import Mode
from peagle_sm.measure.workloads import Workload
from peagle_sm.service.events import Progress
from peagle_sm.service.notebook.notebook import Local
from peagle_sm.service.notebook.progress import followed

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
        around = benching.Around(
            progress=follow,
            look=lambda: look_at(place, arm),
            provenance=lambda: origin(seed),
            source=engine_source(place, arm),
        )
        target = make_target(place, arm)
        outcome = blocking(
            lambda: benching.bench(described, target, work, plan, path, around, expected=expect_mode)
        )
    return BenchResult(outcome.path, outcome.results, outcome.notes)
