"""Records of a results file: one dataclass for each kind of line. Pure.

Every measuring command (bench, compare, tune, verify) writes these records; the report, the costs and the
user's programs read them. Times are seconds since the run began unless a name says otherwise; an unknown
figure is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from peagle_sm.core.served_target import STAND_IN, figures_note
from peagle_sm.core.spec.modes import Mode as SpecMode

SCHEMA = "peagle-sm/results/1"

Mode = Literal[SpecMode, "unknown"]
Phase = Literal["warm-up", "measured", "drain"]
AcceptanceSource = Literal["per-request", "metrics", "cloudwatch"]


@dataclass(frozen=True)
class Header:
    """First line of a results file: the command, its config, and the provenance of the figures."""

    run_id: str
    command: str  #: "bench", "compare", "packs", "tune", "tune --synthetic", "verify" or "quickstart"
    config: dict[str, Any]  #: settings that a resumed run must share: workload, loads, seed, max_tokens …
    provenance: dict[str, Any]
    stand_in_weights: bool
    schema: str = SCHEMA
    figures_of: str | None = None  #: target of figures that say nothing about a GPU; older files lack it

    @property
    def label(self) -> str | None:
        """What the figures must say of their target; None for a model on GPUs."""
        return self.figures_of or (STAND_IN if self.stand_in_weights else None)

    @property
    def notes(self) -> list[str]:
        """Notes that belong below the figures."""
        return [figures_note(self.label)] if self.label else []

    def target_data(self) -> dict[str, Any]:
        """Return what JSON documents say of the target."""
        return {"stand_in_weights": self.stand_in_weights, "figures_of": self.label}


@dataclass(frozen=True)
class ArmRecord:
    """One arm of a measurement: an endpoint, an inference component, or a bare vLLM server."""

    name: str
    mode: Mode
    num_speculative_tokens: int | None
    endpoint: str
    component: str | None = None
    transport: Literal["sagemaker", "http"] = "sagemaker"
    instance_type: str | None = None
    instance_count: int = 1
    usd_per_hour: float | None = None  #: of the whole endpoint; None if unknown
    price_source: str | None = None
    deployment: str | None = None  #: distinguishes deployments of the same arm
    control: bool = False  #: the second arm of an A/A pair
    gpus: int | None = None  #: of one copy of ``component``; None if the arm does not share its instances
    copies: int | None = None  #: of ``component``, which shared the load; None: no component, or unknown


@dataclass(frozen=True)
class Load:
    """Load level: ``closed`` keeps ``concurrency`` in flight, ``open`` sends at ``rate_per_s`` (Poisson)."""

    kind: Literal["closed", "open"]
    concurrency: int | None = None
    rate_per_s: float | None = None

    @property
    def label(self) -> str:
        """``c=8`` or ``2.5 req/s``."""
        return f"c={self.concurrency}" if self.kind == "closed" else f"{self.rate_per_s:g} req/s"


@dataclass(frozen=True)
class RequestRecord:
    """One request as measured by the client.

    ``due_s`` is when it was due (its Poisson arrival; in a closed loop the moment a slot was free),
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
    turn: int = 0  #: index in a conversation of several turns
    block: int = 0  #: time block (ABBA) that the request was sent in
    finish_reason: str | None = None
    error: str | None = None  #: name of the error (`StreamError`, `ThrottlingException` …); None is a success
    error_message: str | None = None
    drafts: int | None = None
    accepted: int | None = None
    histogram: tuple[int, ...] = ()
    output_sha256: str | None = None  #: of the token ids where they are known, else of the text
    text: str | None = None  #: only if the run keeps texts
    client_lag_ms: float | None = None  #: how late the client sent the request
    distinct_4_grams: float | None = None  #: share of distinct 4-grams of its tokens: 1 repeats nothing
    cached_tokens: int | None = None  #: prompt tokens found in the prefix cache; None if not reported
    slices: dict[str, str] = field(default_factory=dict)  #: of its body, by dimension (`request_slices`)
    conversation: str = ""  #: of which it is one turn among several requests; empty if it is alone

    @property
    def unit(self) -> str:
        """What intervals are over: its conversation, which is the prompt itself if it is alone."""
        return self.conversation or self.prompt_id


@dataclass(frozen=True)
class Percentiles:
    """Percentiles and mean of one measure in milliseconds."""

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
    per_request: float | None  #: None if only counters of the whole engine are known
    survival: tuple[float, ...]
    drafts: int
    accepted: int


@dataclass(frozen=True)
class ClientHealth:
    """Whether the client kept up, and why not; `load.points` decides what may be shown."""

    trusted: bool
    reason: str | None
    lag_p99_ms: float | None  #: lag of its event loop; None without one
    cpu_share: float | None  #: of one core, over the measured window; None if unknown
    cpu_us_per_chunk: float | None
    bottleneck: bool | None = None  #: whether the client limited the load; None in older files


@dataclass(frozen=True)
class Goodput:
    """Requests per second that met the objective; ``share`` of all measured requests, errors included."""

    ttft_ms: float | None
    tpot_ms: float | None
    e2e_ms: float | None
    requests_per_s: float
    share: float


@dataclass(frozen=True)
class PointRecord:
    """One arm under one load, over its measured window (warm-up and drain left out).

    ``otps`` is the output tokens per second of all requests together; ``otps_per_request`` the mean of each
    request's own rate. ``usd`` is the cost of the window at the arm's price.
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
    machine_load: float | None = None  #: 1-minute load average of the client's machine


@dataclass(frozen=True)
class Interval:
    """A value with its 95% confidence interval."""

    value: float
    low: float
    high: float

    @property
    def shown(self) -> bool:
        """Whether a ratio is significant: its interval excludes 1. One that is not a number shows nothing."""
        return self.low > 1.0 or self.high < 1.0

    def widened(self, other: Interval) -> Interval:
        """Return this ratio with an interval that is at least as wide as the other's, as a factor."""
        wider = max(1.0, (other.high / other.low) / (self.high / self.low)) ** 0.5
        return Interval(self.value, self.low / wider, self.high * wider)


@dataclass(frozen=True)
class ComparisonRecord:
    """OTPS of ``faster`` over OTPS of ``slower`` under one load."""

    faster: str
    slower: str
    load: Load
    ratio: Interval
    over: Literal["prompts", "conversations", "blocks", "deployments"]  #: the units of the interval
    units: int  #: their number
    deployments: int  #: 1 means that the result is valid for this deployment only
    acceptance_ratio: Interval | None  #: first factor of ``ratio``
    step_time_ratio: Interval | None  #: second factor: ``slower``'s step time over ``faster``'s
    control: bool = False  #: an A/A pair, whose interval should cover 1
    identical_outputs: int | None = None  #: prompts with identical answers
    compared_outputs: int | None = None
    conversations: int | None = None  #: of the measured prompts; None in older files
    doubt: str | None = None  #: why there is no verdict; `load.points.separate_withheld` sets it
    arms: tuple[str, ...] = ()  #: both arms in every deployment; older files have those of the first alone

    @property
    def measured_arms(self) -> tuple[str, ...]:
        """The arms whose points the ratio depends on."""
        return self.arms or (self.faster, self.slower)

    @property
    def significant(self) -> bool:
        """Whether one arm may be called faster: the interval excludes 1, and nothing makes it doubtful."""
        return self.ratio.shown and self.doubt is None


@dataclass(frozen=True)
class SliceRecord:
    """One slice of the requests of an arm under one load: acceptance, speed-up, and identical answers.

    ``prompts`` and ``requests`` are those of ``arm``. All speed-ups of a run cover their true values together
    in 95% of runs, and so do all acceptance lengths, and all shares of identical answers; ``confidence`` is
    that of each interval alone, which is higher the more slices there are. An interval is None if too few
    prompts are in the slice.
    """

    arm: str
    load: Load
    dimension: str
    value: str
    prompts: int
    requests: int
    acceptance_length: Interval | None
    baseline: str = ""  #: the arm that ``speed_up`` and the answers are compared with
    speed_up: Interval | None = None
    identical_outputs: int | None = None  #: prompts with identical answers
    compared_outputs: int | None = None
    confidence: float = 0.95
    identity: Interval | None = None  #: share of identical answers
    doubt: str | None = None  #: why the comparison of the two arms has no verdict, and so no slice of it

    @property
    def costs_money(self) -> bool:
        """Whether the arm is significantly slower than its baseline in this slice."""
        return self.speed_up is not None and self.speed_up.high < 1 and self.doubt is None


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
    """Result of the tuner for one mode under one load.

    ``chosen_k`` is the K for all loads, which is written into the spec; ``certain``: no other K may be
    faster. Both are None in older files.
    """

    mode: Mode
    load: Load
    points: tuple[KPoint, ...]
    best_k: int
    reason: str
    deployments: int
    usd: float | None
    chosen_k: int | None = None
    certain: bool | None = None


class Judged:
    """What a check is in words; ``passed`` None: not decided. ``applicable`` False: nothing to check."""

    passed: bool | None
    applicable: bool

    @property
    def undecided(self) -> bool:
        """Whether the check applies but could not be decided."""
        return self.passed is None and self.applicable

    @property
    def result(self) -> str:
        """``pass``, ``FAIL``, ``undecided`` or ``not applicable``."""
        if not self.applicable:
            return "not applicable"
        return {True: "pass", False: "FAIL", None: "undecided"}[self.passed]


@dataclass(frozen=True)
class CheckRecord(Judged):
    """One check of `verify`; ``passed`` None: could not be decided, the reason is in ``summary``.

    ``applicable`` False: neither endpoint is configured for the feature, so there was nothing to check.
    """

    name: str
    arm: str
    baseline: str
    passed: bool | None
    summary: str
    power: str  #: which faults the check detects, in words with figures
    figures: dict[str, float] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    applicable: bool = True


def all_passed(checks: Iterable[CheckRecord]) -> bool | None:
    """Decide whether all applicable checks passed; None if undecided, or if none applies."""
    results = [check.passed for check in checks if check.applicable]
    return False if False in results else None if None in results or not results else True


@dataclass(frozen=True)
class Reading:
    """Reading of one complete window of `tune`: one mode at one K and one concurrency.

    The fit uses these. ``survival[i]`` is the share of steps whose draft token i+1 was accepted
    (unconditional), empty without speculation. ``step_ms`` is the time of one verification step of one
    request. ``step_source`` is its source: the engine's own histogram of inter-token latency (``metrics``),
    stream time by verification steps (``drafts``), or the gaps between chunks at the client (``chunks``).
    """

    k: int
    concurrency: int
    acceptance_length: float
    survival: tuple[float, ...]
    step_ms: float
    otps: float  #: measured output tokens per second, with first tokens; not used by the fit
    steps: int  #: number of verification steps; 0 if unknown
    step_source: Literal["metrics", "drafts", "chunks", "simulated"] = "drafts"
    block: int = 0  #: its round
    mode: Mode = "unknown"
    untrusted: str | None = None  #: why the figures must not be published; None if the client kept up

    @property
    def rate(self) -> float:
        """Tokens per second of all requests in flight while they decode."""
        return self.concurrency * self.acceptance_length * 1000 / self.step_ms


@dataclass(frozen=True)
class PackRecord:
    """Result of a workload pack on an arm, a row of the scorecard; ``passed`` None: not measured.

    ``figure`` is the pack's figure in a few words, ``why`` explains the result, and ``checks`` are its parts.
    """

    pack: str
    arm: str
    baseline: str | None  #: the arm without speculation beside it
    passed: bool | None
    figure: str
    why: str
    checks: tuple[CheckRecord, ...] = ()
    notes: tuple[str, ...] = ()
    requests: int = 0
    seconds: float = 0.0
    seed: int = 0
    examples: tuple[str, ...] = ()


Record = (
    Header
    | ArmRecord
    | RequestRecord
    | PointRecord
    | ComparisonRecord
    | FitRecord
    | CheckRecord
    | Reading
    | SliceRecord
    | PackRecord
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
    "window": Reading,
    "slice": SliceRecord,
    "pack": PackRecord,
}
