"""`peagle-sm bench --managed`: what differs from a run of the built-in client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from peagle_sm.cli.output import note
from peagle_sm.cli.state import State

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from peagle_sm.measure.bench import Outcome
    from peagle_sm.measure.bench_plan import BenchPlan
    from peagle_sm.measure.endpoint_arm import Described
    from peagle_sm.measure.workloads import Workload

# What an AI benchmark job has no counterpart for.
_NOT_MANAGED = {"ramp": 0.0, "keep_text": False}


def run_managed(
    state: State,
    session: Session | None,
    described: Described,
    workload: Workload,
    plan: BenchPlan,
    path: Path,
    options: dict[str, Any],
) -> Outcome:
    """Show the price, run the jobs and follow them.

    Raises:
        SpecError: a bare vLLM, or an option that the jobs cannot honour.
    """
    import secrets
    from datetime import UTC, datetime

    from peagle_sm.cli.progress import follower
    from peagle_sm.cli.signals import termination_is_ctrl_c
    from peagle_sm.core.errors import SpecError
    from peagle_sm.measure import managed
    from peagle_sm.measure.managed_place import find_place
    from peagle_sm.measure.provenance import origin
    from peagle_sm.service.events import Pacing

    if session is None:
        raise SpecError(
            "--managed measures an endpoint of SageMaker, and a URL was given",
            next_step="give an endpoint's name, or leave --managed out",
        )
    asked = [name for name, unset in _NOT_MANAGED.items() if options[name] != unset]
    if asked:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in asked)
        raise SpecError(
            f"--managed goes without {words}: an AI benchmark job has no such thing",
            next_step=f"leave {words} out",
        )
    place = find_place(
        session,
        described.arm.endpoint,
        stand_in_weights=described.stand_in_weights,
        role_arn=options["role_arn"],
        s3=options["s3_output"],
        tokenizer=options["tokenizer"],
    )
    note(state, f"jobs        {managed.price_note(described.arm, plan)}\n")
    with termination_is_ctrl_c(), follower(state) as follow:
        around = managed.Surroundings(
            progress=follow,
            pacing=Pacing.for_session(session),
            provenance=lambda: origin(plan.seed),
            now=lambda: datetime.now(UTC),
            token=lambda: secrets.token_hex(4),
        )
        resume = options["resume"] is not None
        return managed.run_managed(session, described, workload, plan, place, path, around, resume=resume)
