"""compare(): which of several endpoints is faster, and whether the data can tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import SpecError
from peagle_sm.measure.bench_counters import engine_source
from peagle_sm.measure.compare import run as comparing
from peagle_sm.measure.compare.arms import parse_arms
from peagle_sm.measure.compare.contest import Setup
from peagle_sm.measure.compare.rounds import existing_rounds
from peagle_sm.measure.endpoint_arm import look_at
from peagle_sm.measure.load import make_target
from peagle_sm.measure.needs import need_packages, results_file
from peagle_sm.measure.notebook.places import EndpointLike, Place, chosen, demanded, name_of
from peagle_sm.measure.notebook.results import CompareResult
from peagle_sm.measure.notebook.running import blocking
from peagle_sm.measure.provenance import origin
from peagle_sm.measure.records import ArmRecord, Load
from peagle_sm.measure.workloads import Workload
from peagle_sm.service.events import Progress
from peagle_sm.service.notebook.notebook import Local
from peagle_sm.service.notebook.progress import followed


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
        around = comparing.Around(
            progress=follow,
            target_of=lambda arm: make_target(opened, arm),
            look=lambda arm: look_at(opened, arm),
            drafts_of=lambda arm: _drafts(opened, arm),
            provenance=lambda: origin(seed),
        )
        outcome = blocking(
            lambda: comparing.compare(rounds, setup, work, path, around, control=control, config=config)
        )
    return CompareResult(outcome.path, outcome.results, outcome.notes)


def _drafts(session: Session | None, arm: ArmRecord) -> bool | None:
    """Of an endpoint of SageMaker the mode is read from its model; of a bare server it is only claimed."""
    source = engine_source(session, arm) if arm.transport == "http" else None
    return source.drafts if source is not None else None
