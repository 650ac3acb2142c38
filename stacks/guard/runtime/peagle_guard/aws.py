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
    """The guard's register; each write is conditional on the version that was read: see `DynamoRegister`."""

    def scan(self, token: str | None) -> Page[Record]: ...
    def get(self, name: str) -> Record: ...
    def put(self, record: Record, now: datetime) -> bool: ...
    def forget(self, record: Record) -> bool: ...
    def lock(self, now: datetime, until: datetime) -> bool: ...
    def unlock(self, now: datetime, *, finished: bool) -> None: ...


class Aws(Protocol):
    """AWS calls of sweeper and switch; each method is one call and may raise: see `boto_aws.BotoAws`."""

    @property
    def register(self) -> Register: ...

    @property
    def calls(self) -> Mapping[str, int]: ...

    @property
    def now(self) -> datetime: ...
    def time(self) -> datetime: ...
    def list_endpoints(self, token: str | None) -> Page[Endpoint]: ...
    def describe_endpoint(self, name: str) -> Endpoint | None: ...
    def list_components(self, token: str | None) -> Page[Component]: ...
    def tagged_endpoints(self, token: str | None) -> Page[Tagged]: ...
    def endpoint_tags(self, arn: str) -> Mapping[str, str]: ...
    def running_jobs(self, token: str | None) -> Page[tuple[str, str]]: ...
    def describe_job(self, name: str) -> Job: ...
    def metric_data(
        self, queries: Sequence[Query], start: datetime, end: datetime, token: str | None
    ) -> Page[Result]: ...
    def invoke(self, function: str, event: Mapping[str, Any]) -> Mapping[str, Any]: ...
    def publish(self, subject: str, text: str) -> None: ...
    def describe_stack(self, name: str) -> Stack | None: ...
    def update_stack(self, name: str, parameters: Sequence[Mapping[str, Any]]) -> None: ...
    def components(self, endpoint: str) -> Sequence[str]: ...
    def scalable_targets(self, resource_ids: Sequence[str]) -> Sequence[tuple[str, str]]: ...
    def deregister(self, resource_id: str, dimension: str) -> None: ...
    def delete_component(self, name: str) -> None: ...
    def delete_endpoint(self, name: str) -> None: ...
    def stop_job(self, name: str) -> None: ...
    def schedule_times(self, name: str) -> tuple[datetime | None, datetime | None] | None: ...
    def delete_schedule(self, name: str) -> None: ...
    def delete_alarms(self, names: Sequence[str]) -> None: ...


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
