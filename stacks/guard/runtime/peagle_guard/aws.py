"""AWS calls of the guard, and comparison of endpoint identities.

There is one method per call, so that tests can replace AWS and count calls. Some APIs return ARNs of
endpoints in lower case. An endpoint of the same name that was created later is another endpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

from peagle_guard.records import Endpoint, Record

T = TypeVar("T")
# ListEndpoints and DescribeEndpoint may round a time differently.
_ROUNDING = timedelta(seconds=1)


class Unanswered(Exception):
    """Error: a function did not respond; it may have run, or may still run."""


class NoUpdates(Exception):
    """CloudFormation answered "No updates are to be performed"."""


@dataclass(frozen=True)
class Stack:
    """A stack as CloudFormation describes it."""

    name: str
    status: str
    parameters: Mapping[str, str]


@dataclass(frozen=True)
class Page(Generic[T]):
    """One page of a list, with the token of the next."""

    items: tuple[T, ...]
    token: str | None = None


@dataclass(frozen=True)
class Component:
    """One inference component, and the endpoint it blocks."""

    name: str
    endpoint: str
    variant: str


@dataclass(frozen=True)
class Tagged:
    """Tags of one endpoint from the tagging API; they may lag behind."""

    arn: str
    tags: Mapping[str, str]


@dataclass(frozen=True)
class Job:
    """One training job; ``started_at`` is None before it is billed."""

    name: str
    started_at: datetime | None
    max_runtime: timedelta | None
    spot: bool


@dataclass(frozen=True)
class Query:
    """One metric by minute; ``id`` begins with a small letter."""

    id: str
    namespace: str
    metric: str
    dimensions: tuple[tuple[str, str], ...]
    stat: str


@dataclass(frozen=True)
class Result:
    """Datapoints of one query on one page; ``whole`` is False if CloudWatch returned only a part."""

    id: str
    points: Mapping[datetime, float]
    whole: bool = True


class Register(Protocol):
    """The guard's register; each write is conditional on the version that was read."""

    def scan(self, token: str | None) -> Page[Record]:
        """Return a page of all records."""

    def get(self, name: str) -> Record:
        """Read one record consistently; an empty one of version 0 if it does not exist."""

    def put(self, record: Record, now: datetime) -> bool:
        """Write the record as version + 1; False if it was written since it was read."""

    def forget(self, record: Record) -> bool:
        """Delete the record; False if it was written since it was read."""

    def lock(self, now: datetime, until: datetime) -> bool:
        """Acquire the sweep's lock; False while another sweep holds it."""

    def unlock(self, now: datetime, *, finished: bool) -> None:
        """Release the lock, and record whether the sweep was finished."""


class Aws(Protocol):
    """AWS calls of sweeper and switch; each method is one call and may raise."""

    @property
    def register(self) -> Register:
        """The guard's register."""

    @property
    def calls(self) -> Mapping[str, int]:
        """Number of calls of each operation."""

    @property
    def now(self) -> datetime:
        """The Lambda's clock."""

    def time(self) -> datetime:
        """AWS's clock: the time in a response."""

    def list_endpoints(self, token: str | None) -> Page[Endpoint]:
        """ListEndpoints, 100 a page; without what only a description tells."""

    def describe_endpoint(self, name: str) -> Endpoint | None:
        """DescribeEndpoint; None where there is none of that name."""

    def list_components(self, token: str | None) -> Page[Component]:
        """ListInferenceComponents of all endpoints, 100 a page."""

    def tagged_endpoints(self, token: str | None) -> Page[Tagged]:
        """The tagging API's GetResources for endpoints with our tag, 100 a page."""

    def endpoint_tags(self, arn: str) -> Mapping[str, str]:
        """ListTags: the current tags of one endpoint or job."""

    def running_jobs(self, token: str | None) -> Page[tuple[str, str]]:
        """ListTrainingJobs, those in progress, 100 a page: name and ARN."""

    def describe_job(self, name: str) -> Job:
        """DescribeTrainingJob."""

    def metric_data(
        self, queries: Sequence[Query], start: datetime, end: datetime, token: str | None
    ) -> Page[Result]:
        """GetMetricData by minute, at most 500 queries."""

    def invoke(self, function: str, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """Invoke a Lambda and return its answer; raises when the function failed, Unanswered when it hung."""

    def publish(self, subject: str, text: str) -> None:
        """Send a notice to the topic."""

    def describe_stack(self, name: str) -> Stack | None:
        """DescribeStacks; None where there is none of that name."""

    def update_stack(self, name: str, parameters: Sequence[Mapping[str, Any]]) -> None:
        """UpdateStack with the previous template; raises NoUpdates."""

    def components(self, endpoint: str) -> Sequence[str]:
        """ListInferenceComponents of one endpoint, those that are being deleted included."""

    def scalable_targets(self, resource_ids: Sequence[str]) -> Sequence[tuple[str, str]]:
        """DescribeScalableTargets: resource id and dimension of each."""

    def deregister(self, resource_id: str, dimension: str) -> None:
        """DeregisterScalableTarget; one that is gone is fine."""

    def delete_component(self, name: str) -> None:
        """DeleteInferenceComponent; one that is gone or being deleted is fine."""

    def delete_endpoint(self, name: str) -> None:
        """DeleteEndpoint; the configuration and the model are kept."""

    def stop_job(self, name: str) -> None:
        """StopTrainingJob; one that has ended is fine."""

    def schedule_times(self, name: str) -> tuple[datetime | None, datetime | None] | None:
        """StartDate and LastModificationDate of a schedule; None where there is none of that name."""

    def delete_schedule(self, name: str) -> None:
        """DeleteSchedule; none of that name is fine."""

    def delete_alarms(self, names: Sequence[str]) -> None:
        """DeleteAlarms; those that do not exist are fine."""


def all_pages(call: Callable[[str | None], Page[T]]) -> Iterator[T]:
    """Yield the items of every page."""
    token: str | None = None
    while True:
        page = call(token)
        yield from page.items
        token = page.token
        if token is None:
            return


def same_time(first: datetime | None, second: datetime | None) -> bool:
    """Return whether two timestamps of one resource are equal to the second; None equals nothing."""
    return first is not None and second is not None and abs(first - second) <= _ROUNDING


def arn_key(arn: str) -> str:
    """Return an ARN in the letter case for comparisons."""
    return arn.lower()


def same_arn(first: str, second: str) -> bool:
    """Return whether two ARNs mean the same endpoint."""
    return arn_key(first) == arn_key(second)
