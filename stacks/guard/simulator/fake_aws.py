"""The guard's own view of AWS (``peagle_guard.aws``), answered by a simulated account with faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from peagle_guard.aws import Component, Page, Query, Result, Tagged
from peagle_guard.records import Endpoint, Record
from stacks.guard.simulator.account import MANAGED_BY, Account
from stacks.guard.simulator.cloudwatch import Points
from stacks.guard.simulator.errors import AwsFault, NoSuchEndpoint
from stacks.guard.simulator.sagemaker import Life

PAGE = 100
MOST_QUERIES = 500
VARIANT = "AllTraffic"

_moments: dict[int, datetime] = {}


def moment(seconds: int) -> datetime:
    """Return seconds since 1970 as an aware datetime; remembered, since a world asks for few, often."""
    found = _moments.get(seconds)
    if found is None:
        if len(_moments) > 20_000:
            _moments.clear()
        found = _moments[seconds] = datetime.fromtimestamp(seconds, UTC)
    return found


def seconds(at: datetime) -> int:
    """Return a datetime as whole seconds since 1970."""
    return int(at.timestamp())


@dataclass(slots=True)
class FakeRegister:
    """The table: records by name, each write conditional on the version that was read."""

    account: Account
    records: dict[str, Record] = field(default_factory=dict)
    locked_until: datetime | None = None
    last_sweep_at: datetime | None = None

    def scan(self, token: str | None) -> Page[Record]:
        """Return all records, a page at a time."""
        self.account.call("Scan")
        return _page(sorted(self.records.values(), key=lambda record: record.name), token)

    def get(self, name: str) -> Record:
        """Read one record."""
        self.account.call("GetItem")
        return self.records.get(name, Record(name))

    def put(self, record: Record, now: datetime) -> bool:
        """Write one record as its next version."""
        self.account.call("PutItem")
        known = self.records.get(record.name)
        if (known.version if known else 0) != record.version:
            return False
        self.records[record.name] = replace(record, version=record.version + 1)
        return True

    def forget(self, record: Record) -> bool:
        """Remove one record."""
        self.account.call("DeleteItem")
        known = self.records.get(record.name)
        if known is None or known.version != record.version:
            return False
        del self.records[record.name]
        return True

    def lock(self, now: datetime, until: datetime) -> bool:
        """Take the lock of the sweep."""
        self.account.call("UpdateItem")
        if self.locked_until is not None and self.locked_until > now:
            return False
        self.locked_until = until
        return True

    def unlock(self, now: datetime, *, finished: bool = True) -> None:
        """Give the lock back."""
        self.account.call("UpdateItem")
        self.locked_until = None
        if finished:
            self.last_sweep_at = now


@dataclass(slots=True)
class FakeAws:
    """One method per call; each is counted, and each may fail."""

    account: Account
    register: FakeRegister
    functions: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]]
    notices: list[tuple[int, str, str]] = field(default_factory=list)

    @property
    def calls(self) -> Mapping[str, int]:
        """How often each operation was called, since the world began."""
        return self.account.calls

    def list_endpoints(self, token: str | None) -> Page[Endpoint]:
        """ListEndpoints, 100 a page."""
        now = self.account.call("ListEndpoints")
        return _page([_listed(life, now) for life in self.account.sagemaker.live.values()], token)

    def describe_endpoint(self, name: str) -> Endpoint | None:
        """DescribeEndpoint."""
        now = self.account.call("DescribeEndpoint")
        life = self.account.sagemaker.live.get(name)
        return None if life is None else described(life, now)

    def list_components(self, token: str | None) -> Page[Component]:
        """ListInferenceComponents of all endpoints."""
        self.account.call("ListInferenceComponents")
        lives = self.account.sagemaker.live.values()
        found = [Component(name, life.plan.name, VARIANT) for life in lives for name in life.components]
        return _page(found, token)

    def tagged_endpoints(self, token: str | None) -> Page[Tagged]:
        """GetResources: as things were some time ago, endpoints that are gone included."""
        then = self.account.call("GetResources") - self.account.world.tag_lag_s
        found: dict[str, Tagged] = {}
        for life in self.account.sagemaker.lives:
            if life.created_at <= then and (life.gone_at is None or life.gone_at > then):
                found.pop(life.arn, None)
                if life.tags.get(MANAGED_BY):
                    found[life.arn] = Tagged(life.arn, life.tags)
        return _page(list(found.values()), token)

    def endpoint_tags(self, arn: str) -> Mapping[str, str]:
        """ListTags: the truth."""
        self.account.call("ListTags")
        for life in self.account.sagemaker.live.values():
            if life.arn == arn:
                return life.tags
        raise NoSuchEndpoint(f"Could not find {arn}")

    def stack_exists(self, name: str) -> bool:
        """DescribeStacks."""
        self.account.call("DescribeStacks")
        return name in self.account.cloudformation.stacks

    def metric_data(
        self, queries: Sequence[Query], start: datetime, end: datetime, token: str | None
    ) -> Page[Result]:
        """GetMetricData by minute."""
        now = self.account.call("GetMetricData")
        if self.account.metrics.failing(now):
            raise AwsFault("GetMetricData: Internal failure")
        if len(queries) > MOST_QUERIES:
            raise AwsFault(
                f"The collection MetricDataQueries must not have a size greater than {MOST_QUERIES}."
            )
        begin, stop = seconds(start), seconds(end)
        return Page(tuple(self._result(query, begin, stop, now) for query in queries))

    def invoke(self, function: str, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """Invoke one of the guard's functions."""
        now = self.account.call("Invoke")
        if not self.account.functions_run(now):
            raise AwsFault(f"{function}: Service exception")
        return self.functions[function](event)

    def publish(self, subject: str, text: str) -> None:
        """Publish a notice."""
        now = self.account.call("Publish")
        self.notices.append((now, subject, text))

    def _result(self, query: Query, begin: int, stop: int, now: int) -> Result:
        points = self._points(query, begin, stop, now)
        return Result(query.id, {_moments.get(minute) or moment(minute): value for minute, value in points})

    def _points(self, query: Query, begin: int, stop: int, now: int) -> Points:
        metrics, dimensions = self.account.metrics, dict(query.dimensions)
        component = dimensions.get("InferenceComponentName")
        if component is not None:
            name, lane = component.rpartition("-copy-")[0], component
        elif "VariantName" in dimensions:
            name, lane = dimensions["EndpointName"], dimensions["VariantName"]
        else:
            return []
        if "Utilization" in query.metric:
            return metrics.utilisation(name, begin, stop, now)
        if query.metric == "Invocations":
            return metrics.invocations(name, lane, begin, stop, now)
        if query.metric in ("ConcurrentRequestsPerModel", "ConcurrentRequestsPerCopy"):
            return metrics.concurrency(name, lane, begin, stop, now)
        return []


def _page(items: list[Any], token: str | None) -> Page[Any]:
    first = int(token or 0)
    more = first + PAGE < len(items)
    return Page(tuple(items[first : first + PAGE]), str(first + PAGE) if more else None)


def _listed(life: Life, now: int) -> Endpoint:
    return Endpoint(
        name=life.plan.name,
        arn=life.arn,
        created_at=moment(life.created_at),
        modified_at=moment(life.modified_at(now)),
        status=life.status(now),
    )


def described(life: Life, now: int) -> Endpoint:
    """Return an endpoint as DescribeEndpoint shows it."""
    variants = (VARIANT,) if life.plan.components else tuple(name for name, _ in life.plan.traffic)
    return replace(
        _listed(life, now), config_name=life.config_name, variants=variants, instances=len(variants)
    )
