"""What a results file says, one dataclass a line kind; `result_file` reads and writes them. Pure.

Every measuring command (bench, compare, tune, verify) writes these, and the report, the costs and any program
of the user read them. Times are seconds since the run began unless a name says otherwise; a figure that
could not be had is None, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA = "peagle-sm/results/1"

Mode = Literal["none", "eagle3", "p-eagle", "unknown"]
Phase = Literal["warm-up", "measured", "drain"]
AcceptanceSource = Literal["per-request", "metrics", "cloudwatch"]


@dataclass(frozen=True)
class Header:
    """The first line: what was run, and where every figure comes from (`provenance.collect`)."""

    run_id: str
    command: str  #: "bench", "compare", "tune", "verify" or "quickstart"
    config: dict[str, Any]  #: all that a resumed run must agree with: workload, loads, seed, max_tokens …
    provenance: dict[str, Any]
    stand_in_weights: bool
    schema: str = SCHEMA


@dataclass(frozen=True)
class ArmRecord:
    """One side of a measurement: an endpoint (or one inference component of it, or a bare vLLM's URL)."""

    name: str
    mode: Mode
    num_speculative_tokens: int | None
    endpoint: str
    component: str | None = None
    transport: Literal["sagemaker", "http"] = "sagemaker"
    instance_type: str | None = None
    instance_count: int = 1
    usd_per_hour: float | None = None  #: of the whole endpoint; None where no price is known
    price_source: str | None = None
    deployment: str | None = None  #: tells one deployment of the same arm from another
    control: bool = False  #: the second arm of an A/A pair
    gpus: int | None = None  #: of one copy of ``component``; None where the arm has its instances to itself


@dataclass(frozen=True)
class Load:
    """``closed`` keeps ``concurrency`` requests in flight, ``open`` sends at ``rate_per_s`` (Poisson)."""

    kind: Literal["closed", "open"]
    concurrency: int | None = None
    rate_per_s: float | None = None

    @property
    def label(self) -> str:
        """``c=8`` or ``2.5 req/s``."""
        return f"c={self.concurrency}" if self.kind == "closed" else f"{self.rate_per_s:g} req/s"


@dataclass(frozen=True)
class RequestRecord:
    """One request as the client saw it.

    ``due_s`` is when it was to be sent (its Poisson arrival; in a closed loop the moment a place was free),
    ``first_s`` and ``last_s`` are the first and last content chunk, ``done_s`` the end of the stream.
    ``gaps_ms`` are the gaps between content chunks (ITL; a chunk may hold several tokens).
    ``histogram[j]`` counts verification steps that accepted exactly j draft tokens.
    """

    arm: str
    load: Load
    prompt_id: str
    phase: Phase
    due_s: float
    sent_s: float
    first_s: float | None
    last_s: float | None
    done_s: float
    input_tokens: int | None
    output_tokens: int | None
    chunks: int
    gaps_ms: tuple[float, ...] = ()
    category: str | None = None
    turn: int = 0  #: of a conversation with several
    block: int = 0  #: time block (ABBA) that the request was sent in
    finish_reason: str | None = None
    error: str | None = None  #: name of the error (`StreamError`, `ThrottlingException` …); None is a success
    error_message: str | None = None
    drafts: int | None = None
    accepted: int | None = None
    histogram: tuple[int, ...] = ()
    output_sha256: str | None = None  #: of the token ids where they are known, else of the text
    text: str | None = None  #: only where the run was asked to keep texts
    client_lag_ms: float | None = None  #: how late the client's own loop was when it sent


@dataclass(frozen=True)
class Percentiles:
    """Of one measure in milliseconds."""

    p50: float
    p95: float
    p99: float
    mean: float
    count: int


@dataclass(frozen=True)
class Acceptance:
    """Acceptance length (1 without speculation) by step and by request, and survival per position."""

    source: AcceptanceSource
    per_step: float | None
    per_request: float | None  #: None where only counters of the whole engine are known
    survival: tuple[float, ...]
    drafts: int
    accepted: int


@dataclass(frozen=True)
class ClientHealth:
    """Whether the client kept up, else why not; `load.points` says what may be shown then."""

    trusted: bool
    reason: str | None
    lag_p99_ms: float | None  #: how late its event loop came; None: it has none
    cpu_share: float | None  #: of one core, over the measured window; None: the client does not tell
    cpu_us_per_chunk: float | None
    bottleneck: bool | None = None  #: it held the load back itself; None in files that do not tell


@dataclass(frozen=True)
class Goodput:
    """Requests that met the objective, a second; ``share`` of all measured requests, errors included."""

    ttft_ms: float | None
    tpot_ms: float | None
    e2e_ms: float | None
    requests_per_s: float
    share: float


@dataclass(frozen=True)
class PointRecord:
    """One arm under one load, over its measured window (warm-up and drain left out).

    ``otps`` is output tokens a second of the window, of all requests together; ``otps_per_request`` the mean
    of each request's own tokens by its seconds. ``usd`` is what the window cost at the arm's price.
    """

    arm: str
    load: Load
    seconds: float
    requests: int
    errors: dict[str, int]
    input_tokens: int | None
    output_tokens: int
    otps: float
    otps_per_request: float | None
    requests_per_s: float
    ttft_ms: Percentiles | None
    tpot_ms: Percentiles | None
    itl_ms: Percentiles | None
    e2e_ms: Percentiles | None
    acceptance: Acceptance | None
    client: ClientHealth
    temperature: float | None
    goodput: Goodput | None = None
    usd: float | None = None
    machine_load: float | None = None  #: 1-minute load average beside it


@dataclass(frozen=True)
class Interval:
    """A value with its 95% interval; ``shown`` when the interval excludes 1 (for ratios)."""

    value: float
    low: float
    high: float

    @property
    def shown(self) -> bool:
        """Whether the data tell the ratio from 1."""
        return not self.low <= 1.0 <= self.high


@dataclass(frozen=True)
class ComparisonRecord:
    """OTPS of ``faster`` over OTPS of ``slower`` under one load."""

    faster: str
    slower: str
    load: Load
    ratio: Interval
    over: Literal["prompts", "blocks", "deployments"]  #: what the interval resamples
    units: int  #: how many of them
    deployments: int  #: 1 is to be read as "this deployment only"
    acceptance_ratio: Interval | None  #: the two factors of ``ratio``
    step_time_ratio: Interval | None  #: of ``slower``'s step time over ``faster``'s
    categories: dict[str, Interval] = field(default_factory=dict)
    control: bool = False  #: an A/A pair: its interval is to cover 1
    identical_outputs: int | None = None  #: prompts answered alike
    compared_outputs: int | None = None


@dataclass(frozen=True)
class KPoint:
    """One num_speculative_tokens under one load: measured, or predicted by the fit."""

    k: int
    acceptance_length: float
    step_ms: float
    otps: float
    measured: bool
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class FitRecord:
    """What the tuner found for one mode under one load."""

    mode: Mode
    load: Load
    points: tuple[KPoint, ...]
    best_k: int
    reason: str
    deployments: int
    usd: float | None


@dataclass(frozen=True)
class CheckRecord:
    """One check of `verify`: ``passed`` None means that it could not be decided, and why.

    ``applicable`` False: neither side is set up for what the check asks, so there was nothing to decide.
    """

    name: str
    arm: str
    baseline: str
    passed: bool | None
    summary: str
    power: str  #: what a fault must be like to be caught, in words with figures
    figures: dict[str, float] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    applicable: bool = True

    @property
    def undecided(self) -> bool:
        """Whether the check applies and could not be decided."""
        return self.passed is None and self.applicable


@dataclass(frozen=True)
class WindowRecord:
    """One whole window of `tune`; the fit rests on these, and a resumed run does not measure them again.

    The fields are those of `peagle_sm.measure.tune.readings.Reading`. ``untrusted``: why the figures are not
    to be published, None where the client kept up.
    """

    mode: Mode
    k: int
    concurrency: int
    block: int
    acceptance_length: float
    survival: tuple[float, ...]
    step_ms: float
    otps: float
    steps: int
    step_source: Literal["metrics", "drafts", "chunks", "simulated"]
    untrusted: str | None = None


Record = (
    Header
    | ArmRecord
    | RequestRecord
    | PointRecord
    | ComparisonRecord
    | FitRecord
    | CheckRecord
    | WindowRecord
)
#: The ``kind`` of each line.
KINDS: dict[str, type[Any]] = {
    "header": Header,
    "arm": ArmRecord,
    "request": RequestRecord,
    "point": PointRecord,
    "comparison": ComparisonRecord,
    "fit": FitRecord,
    "check": CheckRecord,
    "window": WindowRecord,
}
