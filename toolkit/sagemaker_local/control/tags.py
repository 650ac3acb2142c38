"""AddTags, ListTags, DeleteTags for models, endpoint configurations, endpoints and components."""

from collections.abc import Iterable, Mapping
from typing import Any

from .errors import ApiError, invalid
from .records import Record, Tables
from .shapes import checked

MAX_TAGS = 50  # TagList's maximum length in SageMaker's model


def from_list(tags: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Key -> value.

    Raises:
        ApiError: a key twice, or a key with the prefix that AWS keeps for itself.
    """
    known: dict[str, str] = {}
    for tag in tags:
        if tag["Key"].lower().startswith("aws:"):
            raise invalid("aws: prefixed tag key names are not allowed for external use.")
        if tag["Key"] in known:
            raise invalid(f"Duplicate tag key '{tag['Key']}': tag keys must be unique per resource.")
        known[tag["Key"]] = tag["Value"]
    return known


def as_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """As the API has them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


class Tags:
    """The tag operations."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def add(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """AddTags: adds or overwrites; answers all tags of the resource."""
        request = checked("AddTags", body)
        row = self._row(request["ResourceArn"])
        merged = row.tags | from_list(request["Tags"])
        if len(merged) > MAX_TAGS:
            raise ApiError(
                "ResourceLimitExceeded",
                f"'{row.arn}' would have {len(merged)} tags; at most {MAX_TAGS} are allowed.",
            )
        row.tags = merged
        return {"Tags": as_list(merged)}

    async def listed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """ListTags: always one page, since a resource has at most 50 and a page at least 50."""
        return {"Tags": as_list(self._row(checked("ListTags", body)["ResourceArn"]).tags)}

    async def delete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """DeleteTags: keys that the resource does not have are passed over."""
        request = checked("DeleteTags", body)
        row = self._row(request["ResourceArn"])
        row.tags = {key: value for key, value in row.tags.items() if key not in request["TagKeys"]}
        return {}

    def _row(self, arn: str) -> Record:
        row = self._tables.by_arn(arn)
        if row is None:
            raise invalid(f'Could not find resource "{arn}".')
        return row
