"""What a world is made of: endpoints with their traffic and lives, and what goes wrong around them.

Times are seconds since 1970 (UTC); ``*_s`` are lengths in seconds; shares are between 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.guard.simulator.worlds.traffic import Traffic

Interval = tuple[int, int]
"""From (inclusive) to (exclusive)."""


@dataclass(frozen=True, slots=True)
class Flap:
    """A time in which the endpoint is not InService although it serves: an update, AWS's own patching."""

    begin: int
    end: int
    status: str


@dataclass(frozen=True, slots=True)
class Late:
    """A time in which the request metrics alone come late, by a lateness that may grow or shrink."""

    begin: int
    end: int
    first_s: int
    """Lateness of the first minute, on top of ``lag_s``; ``last_s``: of the last one."""
    last_s: int

    def at(self, minute: int) -> int:
        """Return the lateness of a minute inside."""
        return self.first_s + (self.last_s - self.first_s) * (minute - self.begin) // (self.end - self.begin)


@dataclass(frozen=True, slots=True)
class Failing:
    """From its ``nth`` call on, an operation fails for a time."""

    operation: str
    nth: int
    lasting_s: int


@dataclass(frozen=True, slots=True)
class Hang:
    """A time in which the switch does not answer for an endpoint: the call runs into its read timeout."""

    endpoint: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class BadItem:
    """At a moment an attribute of a register item becomes unreadable, whoever wrote it."""

    at: int
    endpoint: str
    attribute: str
    value: tuple[str, str]
    """Type and text, as DynamoDB writes them: ("N", "twelve")."""


@dataclass(frozen=True, slots=True)
class Hours:
    """A timetable: its text in the spec, and when it is open, worked out by the world's maker."""

    text: str
    open: tuple[Interval, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """One endpoint from CreateEndpoint on; two plans may share a name, one after the other."""

    name: str
    owner: str
    """``stack``, ``direct`` (ours, without a stack) or ``foreign`` (somebody else's)."""
    created_at: int
    creating_s: int
    traffic: tuple[tuple[str, Traffic], ...]
    """One lane per variant, or per inference component."""
    idle_minutes: int
    grace_minutes: int
    lifetime_hours: float
    fails: bool = False
    """Creating ends in Failed."""
    components: bool = False
    """The lanes are inference components of one variant; otherwise they are variants."""
    borrowed_tags: bool = False
    """A foreign endpoint that carries our managed-by tag, copied from one of ours."""
    flaps: tuple[Flap, ...] = ()
    lies: int = 0
    """How many DeleteEndpoint calls answer 200 and do nothing."""
    drain_s: int = 60
    """How long Deleting lasts."""
    usd_per_hour: float = 100.0
    budget_usd: float | None = None
    hours: Hours | None = None
    stack_faults: tuple[Interval, ...] = ()
    """When the stack takes no update (somebody else's update is in progress)."""
    stack_tag: str = ""
    """What peagle-sm:stack names, where it does not name the endpoint's own stack."""
    publish_s: int = 60
    """MetricPublishFrequencyInSeconds of its config: the interval of the utilisation metrics."""
    enhanced: bool = False
    """EnableEnhancedMetrics: the request metrics are published at that interval too."""
    async_config: bool = False
    """An operator's endpoint config has AsyncInferenceConfig: no Invocations, a backlog metric instead."""
    instances: tuple[tuple[int, int], ...] = ()
    """(from when, how many instances for each variant); one instance before the first."""
    scales: bool = False
    """Application Auto Scaling has a target for each variant or component."""
    tags: tuple[tuple[str, str], ...] = ()
    """All its tags, where a test writes them; otherwise they follow from the fields above."""

    @property
    def ours(self) -> bool:
        """Say whether the guard may turn it off."""
        return self.owner != "foreign"

    @property
    def idle_s(self) -> int:
        """Return the quiet time after which it counts as idle."""
        return self.idle_minutes * 60

    @property
    def grace_s(self) -> int:
        """Return the time between the mark and the second look."""
        return self.grace_minutes * 60


@dataclass(frozen=True, slots=True)
class CloudWatch:
    """How the metrics behave."""

    lag_s: int = 60
    """A minute's datapoint appears this long after the minute is over."""
    zeros: bool = True
    """Invocations are written as 0 when idle; otherwise nothing is written."""
    concurrency: bool = True
    """ConcurrentRequestsPerModel is written."""
    gaps: tuple[Interval, ...] = ()
    """Minutes of which no datapoint of any metric ever appears."""
    late: tuple[Late, ...] = ()
    """Times of which the request metrics come late; the utilisation, from another publisher, is on time."""
    request_gaps: tuple[Interval, ...] = ()
    """Minutes of which no request metric ever appears; the utilisation does."""
    host_gaps: tuple[Interval, ...] = ()
    """Minutes of which no utilisation ever appears, of CPUs and GPUs; the request metrics do."""
    jitter_every: int = 0
    """Every so many minutes an instance's utilisation sample falls into the next minute; 0: never."""
    stamped_at_end: bool = False
    """Datapoints of an interval above a minute have the interval's last minute, otherwise its first."""
    stale: tuple[Interval, ...] = ()
    """Times in which no new datapoint appears; afterwards the missing ones do."""
    errors: tuple[Interval, ...] = ()
    """Times in which GetMetricData fails."""
    partial: tuple[Interval, ...] = ()
    """Times in which GetMetricData says that it returns only a part (PartialData)."""
    skew_s: int = 0
    """CloudWatch's clock minus the guard's."""

    @property
    def lost(self) -> tuple[Interval, ...]:
        """Return the times of which some metric never appears."""
        return (*self.gaps, *self.request_gaps, *self.host_gaps)

    @property
    def works(self) -> bool:
        """Say whether the metrics are complete, on time and readable throughout."""
        whole = not (self.lost or self.stale or self.errors or self.late or self.partial)
        return whole and not self.skew_s and self.lag_s <= 120


@dataclass(frozen=True, slots=True)
class Lambdas:
    """How the guard's own functions behave."""

    dead: bool = False
    """Neither the sweeper nor the switch ever runs."""
    failing_share: float = 0.0
    """Share of the sweeps that do not run."""
    outages: tuple[Interval, ...] = ()
    """Times in which no function runs."""
    twice_share: float = 0.0
    """Share of the sweeps that EventBridge delivers twice."""
    delays_s: tuple[int, ...] = ()
    """How late the sweeps run after the time in their event, one after the other, again and again."""
    clock_s: int = 0
    """The guard's clock, and the time in its events, minus the clock of SageMaker and CloudWatch."""
    redelivered: bool = False
    """Every event of EventBridge Scheduler and every wake is delivered twice."""

    @property
    def works(self) -> bool:
        """Say whether every sweep runs."""
        return not (self.dead or self.failing_share or self.outages or self.delays_s or self.clock_s)


@dataclass(frozen=True, slots=True)
class Lease:
    """Somebody says ``peagle-sm keep NAME``; a lost one never reaches the register."""

    at: int
    endpoint: str
    until: int
    lost: bool = False
    takes_s: int = 0
    """From reading the register to moving the schedules, and again from there to writing the register."""


@dataclass(frozen=True, slots=True)
class World:
    """One seeded world."""

    seed: int
    begin: int
    end: int
    plans: tuple[Plan, ...]
    cloudwatch: CloudWatch = CloudWatch()
    lambdas: Lambdas = Lambdas()
    throttled_share: float = 0.0
    """Share of the AWS calls that fail with a throttling error."""
    tag_lag_s: int = 0
    """How far tag:GetResources is behind the truth."""
    leases: tuple[Lease, ...] = ()
    failing: tuple[Failing, ...] = ()
    hangs: tuple[Hang, ...] = ()
    bad_items: tuple[BadItem, ...] = ()
    """Where there are any, the register is the shipped one over a simulated DynamoDB."""
    delivery_s: int = 0
    """How late EventBridge Scheduler delivers: within its minute, and a minute of retries."""
    faults: frozenset[str] = field(default_factory=frozenset)
    """The names of what is wrong in this world, for the report."""

    @property
    def metrics_work(self) -> bool:
        """Say whether the waste bound is promised: metrics, functions and calls all work."""
        return self.cloudwatch.works and self.lambdas.works and not self.throttled_share
