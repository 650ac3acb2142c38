"""tune(): find the best num_speculative_tokens for the user's own traffic."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from peagle_sm.aws.session.session import Session
from peagle_sm.core.spec.endpoint_spec import Mode
from peagle_sm.measure import PACKAGES, need_packages, results_file
from peagle_sm.measure.notebook.endpoints import SessionSource, blocking, chosen, demanded
from peagle_sm.measure.notebook.results import TuneResult
from peagle_sm.measure.workloads import Workload
from peagle_sm.service.notebook import Local, SpecLike, as_spec
from peagle_sm.service.progress import Progress, agreed, followed

By = Literal["auto", "runtime", "deployments"]


def tune(
    spec: SpecLike,
    *,
    modes: Sequence[Mode] = (),
    heads: Mapping[Mode, str] | None = None,
    concurrency: Sequence[int] = (1, 8),
    loads: Sequence[int] = (),
    max_k: int = 11,
    by: By = "auto",
    max_deployments: int | None = None,
    rounds: int | None = None,
    workload: Workload | str = "humaneval",
    requests: int = 24,
    max_tokens: int = 128,
    sweep_rounds: int = 0,
    write: bool = True,
    yes: bool = False,
    unguarded: bool = False,
    seed: int = 0,
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
    ``spec`` is a file, the K and its evidence are written into it, unless ``write`` is False.
    ``max_deployments`` None: 4, or 6 with ``max_k`` above 12. ``rounds`` None: 4, or 2 with ``loads``.

    ``loads``, in place of ``concurrency``: K is tuned at each load, and a table of K by load is validated and
    written, or one K (docs/how-to/k-by-load.md).

    Raises:
        Declined: the user did not confirm.
        PlanRefused: an endpoint cannot be deployed.
        SpecError, NotFound, ServiceFault, Interrupted, BillableLeft: as `peagle_sm.measure.tune.job.run`.
    """
    need_packages((*PACKAGES, "numpy"))
    from peagle_sm.measure.tune import job as tuning
    from peagle_sm.measure.tune.decide import RUNTIME_ROUNDS, most_deployments
    from peagle_sm.measure.tune.loads import ROUNDS as LOAD_ROUNDS
    from peagle_sm.measure.tune.run import Settings
    from peagle_sm.measure.tune.windows import WindowSize

    base = as_spec(spec)
    opened = demanded(SessionSource(session, local, profile, region, base.placement.region).open())
    asked = tuning.modes_of(base, tuple(modes) or None)
    job = tuning.Job(
        spec=base,
        spec_path=Path(spec) if isinstance(spec, str | Path) else None,
        settings=Settings(
            modes=asked,
            concurrencies=tuple(dict.fromkeys(sorted(loads) if loads else concurrency)),
            max_k=max_k,
            runtime=by == "runtime" or (by == "auto" and (opened.is_local or bool(loads))),
            most_deployments=max_deployments or most_deployments(max_k),
            rounds=rounds or (LOAD_ROUNDS if loads else RUNTIME_ROUNDS),
            size=WindowSize(requests),
            heads={str(mode): head for mode, head in (heads or {}).items()},
            sweep_rounds=sweep_rounds,
            unguarded=unguarded,
            by_load=bool(loads),
        ),
        workload=chosen(workload, None, seed, max_tokens, first_turn_only=True),
        max_tokens=max_tokens,
        out=Path(out) if out is not None else results_file("tune", base.name),
        seed=seed,
    )
    tuning.check(job)
    plans = tuning.plans_of(job, opened)
    for plan in (*plans.values(), *tuning.table_plans(job, opened).values()):
        plan.refuse_errors()
    if not yes:
        _ask(tuning.price_of(job, plans, opened).words())
    with followed(progress) as follow:
        done = blocking(lambda: tuning.run(job, opened, progress=follow, write=write))
    from peagle_sm.measure.results.result_file import read

    return TuneResult(
        done.out,
        read(done.out),
        tuple(f"do not publish: {line}" for line in done.tuned.untrusted),
        k={result.mode: result.common.k for result in done.tuned.results},
        reasons=tuple(result.common.reason for result in done.tuned.results),
        written=done.written,
        minutes=done.tuned.minutes,
        usd=done.tuned.usd,
    )


def _ask(price: str) -> None:
    from peagle_sm.core.errors import Declined

    print(f"Estimate: {price}", file=sys.stderr)
    if not agreed("Continue?"):
        raise Declined(
            "Not confirmed: nothing was tuned.", next_step="Run it again and confirm, or give yes=True."
        )
