"""`tune --synthetic` from its options to its file: deploy, measure step times, delete.

vLLM's synthetic acceptance replaces the verdict of verification by chance, so the answers are wrong. The
endpoints are named and tagged so, every other command refuses them, and all are deleted at the end. The file
has no requests and no rate of a mode: its windows are the input of `step_times`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from peagle_bench.benchmark.endpoint_arm import describe_endpoint, targets_of
from peagle_bench.compare.deployments import Fleet
from peagle_bench.load import WorkItem
from peagle_bench.results.provenance import origin
from peagle_bench.results.records import Header, Reading, Record, RequestRecord
from peagle_bench.results.result_file import ResultWriter
from peagle_bench.step_times import COMMAND, REASON, ROUNDS, StepTimes, demand_served, read_step_times
from peagle_bench.tune.arms import arm_spec, synthetic_spec
from peagle_bench.tune.estimate import (
    SLOW_STEP_S,
    STARTUP_MINUTES_AWS,
    STARTUP_MINUTES_LOCAL,
    Estimate,
    highest_price,
)
from peagle_bench.tune.limits import too_deep
from peagle_bench.tune.run import total
from peagle_bench.tune.windows import (
    EndpointReader,
    WindowProgress,
    demand_prompts,
    failures,
    requests_of,
)
from peagle_bench.workloads import Workload
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import Interrupted, ServiceFault, SpecError
from peagle_sm.core.planning import Plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.spec.modes import SPECULATING, Mode, facts_of
from peagle_sm.service import plan_for
from peagle_sm.service.progress import Event, Progress

BASELINE = "none"


@dataclass(frozen=True)
class SyntheticJob:
    """Options of a measurement of step times; the drafter is that of the spec's mode."""

    spec: EndpointSpec
    ks: tuple[int, ...]
    concurrencies: tuple[int, ...]
    runtime: bool  #: K changes inside the engines; else each K has endpoints of its own
    requests: int  #: the least number of a window
    workload: Workload
    max_tokens: int
    out: Path
    unguarded: bool = False

    @property
    def mode(self) -> Mode:
        """The drafter's mode."""
        return self.spec.speculation.mode

    @property
    def fleets(self) -> list[tuple[int, ...]]:
        """The K of each group of endpoints that are deployed together."""
        return [self.ks] if self.runtime else [(k,) for k in self.ks]


@dataclass(frozen=True)
class SyntheticDone:
    """Result: the step times, their file, and the cost (None if a price is unknown)."""

    times: StepTimes
    out: Path
    usd: float | None
    minutes: float


def demand_drafter(mode: Mode) -> None:
    """Refuse a mode without a drafter, and one that drafts only where text repeats.

    Raises:
        SpecError: as said.
    """
    if facts_of(mode).speculates and facts_of(mode).always_drafts:
        return
    able = ", ".join(mode for mode in SPECULATING if facts_of(mode).always_drafts)
    why = (
        "synthetic acceptance replaces the acceptance, and not the time of the drafter, so it needs a head"
        if not facts_of(mode).speculates
        else "it drafts only where text repeats, so a given acceptance length is not reached"
    )
    raise SpecError(
        f"speculation.mode: found {mode}: {why}; allowed with --synthetic: {able}",
        next_step="Use a spec with a head of the size that you plan; how well it drafts does not matter.",
        details={"found": mode},
    )


def specs_of(job: SyntheticJob, ks: Sequence[int], *, baseline: bool) -> dict[str, EndpointSpec]:
    """Derive the endpoints of one fleet, by arm: no draft accepted, all accepted, perhaps no speculation."""
    most = max(ks)
    specs = {
        _arm(most, length): synthetic_spec(job.spec, job.mode, most, length, runtime=job.runtime)
        for length in (1.0, most + 1.0)
    }
    return specs | ({BASELINE: arm_spec(job.spec, "none", None)} if baseline else {})


def _arm(k: int, length: float) -> str:
    return f"synthetic K={k} acceptance length {length:g}"


def plans_of(job: SyntheticJob, session: Session) -> dict[str, Plan]:
    """Plan every endpoint; creates nothing.

    Raises:
        SpecError: a K is beyond the depth that the head was trained for.
    """
    plans = {}
    for number, ks in enumerate(job.fleets):
        for arm, spec in specs_of(job, ks, baseline=number == 0).items():
            plan = plans[arm] = plan_for(spec, session)
            if (reason := too_deep(plan)) is not None:
                raise SpecError(
                    f"--k: found {max(ks)}, too many: {reason}.",
                    next_step="Give --k the head's trained depth or less.",
                )
    return plans


def price_of(job: SyntheticJob, plans: Mapping[str, Plan], session: Session) -> Estimate:
    """Estimate time and cost; the endpoints of a fleet start together."""
    hourly = highest_price(plans.values())
    startup = STARTUP_MINUTES_LOCAL if session.is_local else STARTUP_MINUTES_AWS
    token_s = {c: SLOW_STEP_S * (requests_of(job.requests, c) + c) / c for c in job.concurrencies}
    answers_s = job.max_tokens * sum(token_s.values())
    minutes, endpoint_minutes = 0.0, 0.0
    for number, ks in enumerate(job.fleets):
        endpoints = 2 if number else 3
        # Steps without an accepted draft are as many as tokens; the other ends are K + 1 times as fast.
        steps = sum(1 + 1 / (k + 1) for k in ks) + (number == 0)
        lasts = startup + ROUNDS * steps * answers_s / 60
        minutes += lasts
        endpoint_minutes += endpoints * lasts
    usd = None if hourly is None else round(endpoint_minutes / 60 * hourly, 2)
    hours = job.spec.lifecycle.max_lifetime_hours
    most = None if hourly is None else round(len(plans) * hourly * hours, 2)
    return Estimate(len(plans), _windows(job), minutes, hourly, usd, most)


def _windows(job: SyntheticJob) -> int:
    return ROUNDS * len(job.concurrencies) * (2 * len(job.ks) + 1)


def run(
    job: SyntheticJob,
    session: Session,
    *,
    progress: Progress | None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    monotonic: Callable[[], float] = time.monotonic,
    token: Callable[[], str] = lambda: secrets.token_hex(4),
    every_s: float = 0.5,
) -> SyntheticDone:
    """Deploy, measure, write the file, and delete, also after an error.

    ``every_s`` is the minimum time in seconds between two progress events of a window.

    Raises:
        SpecError: the results file already exists, there are no prompts, or the image has no K by request.
        ServiceFault: an endpoint stopped answering, or did not serve the acceptance that was set.
        Interrupted: Ctrl-C; the endpoints are deleted, and the file is of no use.
        PeagleError: a deployment failed.
    """
    demand_prompts(job.workload.items)
    began, started = monotonic(), now()
    costs: list[float | None] = []
    windows = WindowProgress(progress, _windows(job), every_s=every_s, monotonic=monotonic)

    def tell(message: str) -> None:
        if progress is not None:
            progress(Event("check", message, elapsed_s=monotonic() - began))

    with ResultWriter(job.out) as writer:
        writer.append(_header(job, session, started, token()))
        try:
            for number, ks in enumerate(job.fleets):
                drafts = ", ".join(map(str, ks))
                tell(f"K={drafts}: endpoints with SYNTHETIC acceptance, whose answers are wrong")
                specs = specs_of(job, ks, baseline=number == 0)
                since, price = monotonic(), 0.0 if session.is_local else None
                try:
                    with Fleet(specs, session, unguarded=job.unguarded, progress=progress) as fleet:
                        readers = {
                            arm: _reader(job, session, arm, endpoint, token(), windows)
                            for arm, endpoint in fleet.endpoints.items()
                        }
                        price = next(iter(readers.values())).arm.usd_per_hour
                        for reader in readers.values():
                            if reader.runtime:
                                reader.demand_runtime_k(max(ks))
                        for record in measured(job, ks, readers):
                            writer.append(record)
                finally:
                    hours = (monotonic() - since) / 3600  # from CreateEndpoint to the deletion
                    costs += [None if price is None else hours * price] * len(specs)
        except KeyboardInterrupt:
            raise Interrupted(
                f"interrupted; {job.out} is not complete, and no command reads it",
                next_step="run the same command again with another --out",
            ) from None
    return SyntheticDone(read_step_times(job.out), job.out, total(costs), (monotonic() - began) / 60)


def measured(job: SyntheticJob, ks: Sequence[int], readers: Mapping[str, EndpointReader]) -> Iterator[Record]:
    """Yield the arms of one fleet and its windows: each K, load and end in turns, then all in reverse."""
    for arm, reader in readers.items():
        yield replace(reader.arm, name=arm, mode="unknown")
    most = max(ks)
    turns = [(BASELINE, 0, 1.0)] if BASELINE in readers else []
    for k in ks:
        turns += [(_arm(most, 1.0), k, 1.0), (_arm(most, most + 1.0), k, k + 1.0)]
    for block in range(ROUNDS):
        for concurrency in job.concurrencies:
            for arm, k, length in turns if block % 2 == 0 else reversed(turns):
                window = measure_window(readers[arm], k, concurrency, block)
                demand_served(window, length)
                yield window


def measure_window(reader: EndpointReader, k: int, concurrency: int, block: int) -> Reading:
    """Measure one window; its rate is that of requests which were all sent and answered under full load."""
    requests: list[RequestRecord] = []

    def collect(record: Record) -> None:
        if isinstance(record, RequestRecord) and record.phase == "measured":
            requests.append(record)

    reader.sink = collect
    reading = reader.read(k, concurrency, block)
    otps = rate_of(demand_answered(requests, k, concurrency), concurrency)
    if not otps:
        raise ServiceFault(
            f"no answer has tokens at K={k}, c={concurrency}",
            operation=COMMAND,
            next_step="use an image whose answers have usage: vLLM 0.29 or later",
        )
    return replace(reading, mode="unknown", survival=(), otps=otps)


def demand_answered(requests: Sequence[RequestRecord], k: int, concurrency: int) -> list[RequestRecord]:
    """Return the answered requests of a window.

    Raises:
        ServiceFault: so many requests failed that fewer were in flight than set.
    """
    if why := failures(requests):
        raise ServiceFault(
            f"K={k}, c={concurrency}: {why}",
            operation=COMMAND,
            next_step="use a lower --concurrency, or raise what the engine takes at once "
            "(SM_VLLM_MAX_NUM_SEQS)",
        )
    return [each for each in requests if each.error is None]


def rate_of(requests: Sequence[RequestRecord], concurrency: int) -> float:
    """Compute output tokens/s of a constant load from the requests' own times; 0 without tokens."""
    tokens = sum(request.output_tokens or 0 for request in requests)
    seconds = sum(request.done_s - request.sent_s for request in requests)
    return concurrency * tokens / seconds if seconds > 0 else 0.0


def _reader(
    job: SyntheticJob,
    session: Session,
    arm: str,
    endpoint: Any,
    salt: str,
    windows: WindowProgress,
) -> EndpointReader:
    plain = arm == BASELINE
    return EndpointReader(
        endpoint,
        "none" if plain else job.mode,
        describe_endpoint(session, endpoint.name, synthetic=not plain).arm,
        [of_full_length(item) for item in job.workload.items],
        job.requests,
        lambda record: None,
        runtime=job.runtime and not plain,
        rotate=False,  # each end answers the same prompts
        by_client=True,
        salt=salt,
        window_progress=windows,
    )


def of_full_length(item: WorkItem) -> WorkItem:
    """Return the request with an answer of max_tokens: where a made-up text would end says nothing."""
    body = {name: value for name, value in item.body.items() if name not in ("stop", "stop_token_ids")}
    return replace(item, body={**body, "ignore_eos": True})


def _header(job: SyntheticJob, session: Session, began: datetime, token: str) -> Header:
    return Header(
        run_id=f"synthetic-{began:%Y%m%dT%H%M%SZ}-{token}",
        command=COMMAND,
        config={
            "spec": job.spec.model_dump(mode="json", exclude_defaults=True),
            "target": job.spec.model_name,
            "mode": job.mode,
            "ks": list(job.ks),
            "concurrencies": list(job.concurrencies),
            "by": "runtime" if job.runtime else "deployments",
            "rounds": ROUNDS,
            "requests": job.requests,
            "max_tokens": job.max_tokens,
            "workload": job.workload.describe(),
        },
        provenance={**origin(0), "synthetic": REASON},
        **targets_of([plan_for(job.spec, session).target]),
    )
