"""What there is: endpoints, their components and tags, and the register, in as few calls as pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from peagle_guard import tags
from peagle_guard.aws import Aws, Page, arn_key, same_arn
from peagle_guard.records import Endpoint, Record

T = TypeVar("T")


@dataclass(frozen=True)
class Inventory:
    """One look at the account; ``components`` and ``tags`` are None where they could not be listed."""

    endpoints: Mapping[str, Endpoint]
    components: Mapping[str, tuple[str, ...]] | None
    tags: Mapping[str, Mapping[str, str]] | None
    records: Mapping[str, Record]
    faults: tuple[str, ...] = ()

    def with_components(self, endpoint: Endpoint) -> Endpoint:
        """Return the endpoint with its components."""
        return replace(endpoint, components=(self.components or {}).get(endpoint.name, ()))


def take(aws: Aws) -> Inventory:
    """Look at everything once.

    Without the list of endpoints or the register nothing can be decided, so their errors are raised. Without
    the tagging API the register's tags serve; without the components no quiet is proven.
    """
    faults: list[str] = []
    endpoints = {each.name: each for each in _all(aws.list_endpoints)}
    records = {each.name: each for each in _all(aws.register.scan)}
    tagged = _attempt("GetResources", lambda: list(_all(aws.tagged_endpoints)), faults)
    listed = _attempt("ListInferenceComponents", lambda: list(_all(aws.list_components)), faults)
    components: dict[str, tuple[str, ...]] | None = None
    if listed is not None:
        components = {}
        for each in listed:
            components[each.endpoint] = (*components.get(each.endpoint, ()), each.name)
    return Inventory(
        endpoints=endpoints,
        components=components,
        tags=None if tagged is None else {arn_key(each.arn): each.tags for each in tagged},
        records=records,
        faults=tuple(faults),
    )


def is_foreign(endpoint: Endpoint, found: Mapping[str, str], record: Record | None) -> str | None:
    """Say why an endpoint that wears a tag of ours, or is in the register, is not ours; None where it is."""
    if not tags.is_ours(endpoint.name, found):
        return "its tags do not name it as peagle-sm's"
    if record is not None and record.arn and not same_arn(record.arn, endpoint.arn):
        return f"the register knows this name under another ARN ({record.arn})"
    return None


def _all(call: Callable[[str | None], Page[T]]) -> Iterator[T]:
    token: str | None = None
    while True:
        page = call(token)
        yield from page.items
        token = page.token
        if token is None:
            return


def _attempt(operation: str, call: Callable[[], list[T]], faults: list[str]) -> list[T] | None:
    try:
        return call()
    except Exception as error:
        faults.append(f"{operation}: {type(error).__name__}: {error}")
        return None
