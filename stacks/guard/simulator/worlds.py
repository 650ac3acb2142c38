"""What a world is made of: endpoints with their traffic and lives, and what goes wrong around them.

Times are seconds since 1970 (UTC); ``*_s`` are lengths in seconds; shares are between 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stacks.guard.simulator.traffic import Traffic

Interval = tuple[int, int]
"""From (inclusive) to (exclusive)."""


@dataclass(frozen=True, slots=True)
class Flap:
    """A time in which the endpoint is not InService although it serves: an update, AWS's own patching."""

    begin: int
    end: int
    status: str


@dataclass(frozen=True, slots=True)
class Hours:
    """A timetable: its text in the spec, and when it is open, worked out by the world's maker."""

    text: str
    open: tuple[Interval, ...]

    def is_open(self, moment: int) -> bool:
        """Say whether the endpoint shall run at a moment."""
        return any(begin <= moment < end for begin, end in self.open)


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
    stale: tuple[Interval, ...] = ()
    """Times in which no new datapoint appears; afterwards the missing ones do."""
    errors: tuple[Interval, ...] = ()
    """Times in which GetMetricData fails."""
    skew_s: int = 0
    """CloudWatch's clock minus the guard's."""

    @property
    def works(self) -> bool:
        """Say whether the metrics are complete, on time and readable throughout."""
        return not (self.gaps or self.stale or self.errors or self.skew_s) and self.lag_s <= 120


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

    @property
    def works(self) -> bool:
        """Say whether every sweep runs."""
        return not (self.dead or self.failing_share or self.outages)


@dataclass(frozen=True, slots=True)
class Lease:
    """Somebody says ``peagle-sm keep NAME``; a lost one never reaches the register."""

    at: int
    endpoint: str
    until: int
    lost: bool = False


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
    faults: frozenset[str] = field(default_factory=frozenset)
    """The names of what is wrong in this world, for the report."""

    @property
    def metrics_work(self) -> bool:
        """Say whether the waste bound is promised: metrics, functions and calls all work."""
        return self.cloudwatch.works and self.lambdas.works and not self.throttled_share
