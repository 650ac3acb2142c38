"""Lists: pages of 10, tokens that miss and repeat nothing, filters and orders."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagemaker_local.control import ApiError
from sagemaker_local.control.records import EndpointRecord, Table
from sagemaker_local.control.requests import page
from tests.local.control.conftest import IMAGE, Account

START = datetime(2026, 11, 20, tzinfo=UTC)
STATUSES = ("InService", "Creating", "Failed")


def table(minutes: list[int], statuses: list[str] | None = None) -> Table[EndpointRecord]:
    rows: Table[EndpointRecord] = Table("endpoint", "arn:x")
    for i, minute in enumerate(minutes):
        at = START + timedelta(minutes=minute)
        row = EndpointRecord(f"e{i:03d}", f"arn:x/e{i:03d}", at, at + timedelta(seconds=minute), {}, {})
        row.status = statuses[i] if statuses else "InService"
        rows.add(row)
    return rows


def names(rows: Table[EndpointRecord], **request: Any) -> tuple[list[str], str | None]:
    found, token = page(rows, request, lambda row: {"Name": row.name})
    return [row["Name"] for row in found], token


def every_page(rows: Table[EndpointRecord], **request: Any) -> list[list[str]]:
    pages = []
    for _ in range(100):
        found, token = names(rows, **request)
        pages.append(found)
        if token is None:
            return pages
        request["NextToken"] = token
    raise AssertionError("a list of fewer than 100 rows had 100 pages")


rows_of = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(STATUSES)), max_size=35)


@given(
    rows=rows_of,
    size=st.integers(1, 12),
    sort=st.sampled_from(["Name", "CreationTime", "Status"]),
    order=st.sampled_from(["Ascending", "Descending"]),
    status=st.none() | st.sampled_from(STATUSES),
)
def test_the_pages_together_are_the_list(
    rows: list[tuple[int, str]], size: int, sort: str, order: str, status: str | None
) -> None:
    created = table([minute for minute, _ in rows], [s for _, s in rows])
    request: dict[str, Any] = {"MaxResults": size, "SortBy": sort, "SortOrder": order}
    if status:
        request["StatusEquals"] = status
    pages = every_page(created, **request)
    together = [name for found in pages for name in found]
    wanted = [row for row in created if status in (None, row.status)]
    assert sorted(together) == sorted(row.name for row in wanted)
    assert all(len(found) == size for found in pages[:-1])
    attribute = {"Name": "name", "CreationTime": "created", "Status": "status"}[sort]
    keys = [getattr(created.get(name), attribute) for name in together]
    assert keys == sorted(keys, reverse=order == "Descending")


@given(rows=st.lists(st.integers(0, 5), min_size=12, max_size=30), gone=st.integers(0, 9))
def test_a_row_that_goes_between_two_pages_hides_no_other(rows: list[int], gone: int) -> None:
    created = table(rows)
    first, token = names(created)
    created.remove(first[gone])
    rest = every_page(created, NextToken=token) if token else []
    assert {name for found in [first, *rest] for name in found} >= {row.name for row in created}


def test_ten_a_page_newest_first() -> None:
    pages = every_page(table(list(range(25))))
    assert [len(found) for found in pages] == [10, 10, 5]
    assert pages[0][0] == "e024"


def test_filters_of_name_and_time() -> None:
    created = table(list(range(25)))
    assert names(created, NameContains="E02", MaxResults=100)[0] == ["e024", "e023", "e022", "e021", "e020"]
    at = (START + timedelta(minutes=20)).timestamp()
    assert len(names(created, CreationTimeAfter=at, MaxResults=100)[0]) == 5
    assert len(names(created, CreationTimeBefore=at, MaxResults=100)[0]) == 20
    assert len(names(created, CreationTimeBefore="2026-11-20T00:20:00Z", MaxResults=100)[0]) == 20
    modified = (START + timedelta(minutes=20, seconds=20)).timestamp()
    assert len(names(created, LastModifiedTimeAfter=modified, MaxResults=100)[0]) == 5
    assert names(created, LastModifiedTimeBefore=START.timestamp(), MaxResults=100)[0] == []


@pytest.mark.parametrize("token", ["x", "bm90anNvbg==", "e30=", "WyJhIiwgMV0=", "é"])
def test_a_token_that_is_not_ours(token: str) -> None:
    with pytest.raises(ApiError, match="Invalid NextToken"):
        names(table([1, 2]), NextToken=token)


def test_a_time_that_is_none() -> None:
    with pytest.raises(ApiError, match="Invalid timestamp 'noon'"):
        names(table([1]), CreationTimeAfter="noon")


async def test_the_three_lists_page_through_the_api(aws: Account) -> None:
    for i in range(11):
        await aws.call("CreateModel", ModelName=f"m{i}", PrimaryContainer={"Image": IMAGE})
        await aws.config(f"c{i}", f"m{i}")
    for operation, key in (("ListModels", "Models"), ("ListEndpointConfigs", "EndpointConfigs")):
        first = await aws.call(operation)
        second = await aws.call(operation, NextToken=first["NextToken"])
        assert (len(first[key]), len(second[key])) == (10, 1)
        assert "NextToken" not in second
        assert len((await aws.call(operation, MaxResults=100))[key]) == 11
    with pytest.raises(ApiError, match="Member must have value less than or equal to 100"):
        await aws.call("ListEndpoints", MaxResults=101)


async def test_endpoints_are_listed_by_status(aws: Account) -> None:
    await aws.model(SCRIPT_PING="never")
    await aws.config()
    await asyncio.gather(*(aws.endpoint(f"e{i}") for i in range(3)))
    creating = await aws.call("ListEndpoints", StatusEquals="Creating", SortBy="Name", SortOrder="Ascending")
    assert [row["EndpointName"] for row in creating["Endpoints"]] == ["e0", "e1", "e2"]
    assert (await aws.call("ListEndpoints", StatusEquals="InService"))["Endpoints"] == []
