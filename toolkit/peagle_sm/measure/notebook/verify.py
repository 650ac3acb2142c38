"""verify(): are the answers of an endpoint with speculation the target's own?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import SpecError
from peagle_sm.measure.needs import need_packages, results_file
from peagle_sm.measure.notebook.places import EndpointLike, Place, name_of
from peagle_sm.measure.notebook.results import VerifyResult
from peagle_sm.measure.notebook.running import blocking
from peagle_sm.measure.result_file import ResultWriter, read
from peagle_sm.measure.verify.names import CHECKS
from peagle_sm.service.events import Event, Progress
from peagle_sm.service.notebook.notebook import Local
from peagle_sm.service.notebook.progress import followed


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
    `peagle_sm.measure.verify.names` (all where none is given); ``quick`` asks a fifth of the tokens, so that
    detects only larger faults. Nothing is raised for a fault: ``VerifyResult.passed`` tells, and a
    check that cannot tell says so.

    Raises:
        NotFound: the extra ``measure`` is not installed, or there is no such endpoint.
        SpecError: an unknown check, a baseline that speculates, or a results file that is there already.
        ServiceFault: an endpoint stopped answering.
    """
    need_packages()
    from peagle_sm.measure.verify import setup
    from peagle_sm.measure.verify.lab import Lab, Options
    from peagle_sm.measure.verify.run import verify as run

    wanted = _wanted(checks)
    path = Path(out) if out is not None else results_file("verify", name_of(endpoint))
    usual = setup.QUICK if quick else Options()
    options = replace(usual, max_tokens=max_tokens or usual.max_tokens, concurrency=concurrency, seed=seed)
    at_most = setup.QUICK_PROMPTS if quick else setup.PROMPTS
    source, bodies = setup.load_prompts(workload, prompts, seed, at_most)
    place = Place(session, local, profile, region).open(endpoint, baseline)
    plain = setup.open_side(place, name_of(baseline), baseline_component)
    setup.demand_plain(plain.described)
    mine = setup.open_side(place, name_of(endpoint), component)
    began = time.monotonic()

    def work(follow: Progress) -> None:
        def say(text: str) -> None:
            follow(Event("verify", text, text, time.monotonic() - began))

        with ResultWriter(path) as writer:
            for line in (
                setup.header(mine.described, plain.described, source, options, wanted),
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
