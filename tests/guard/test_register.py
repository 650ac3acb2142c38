"""The register in DynamoDB: conditional writes, and no attribute lost that it does not know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_guard.decide import decide
from peagle_guard.records import Evidence, Kind, OffBy, Record, lifecycle_from_tags
from peagle_guard.register import DynamoRegister, read, written
from tests.guard.by_hand import MINUTE, START, tags_for
from tests.guard.simulator.fake_services.dynamodb import Table
from tests.guard.simulator.kinds import BAD_VALUES
from tests.local.serving import Server

TABLE = "register-alone"

FULL = Record(
    name="chat",
    arn="arn",
    created_at=START,
    first_in_service_at=START + MINUTE,
    quiet_since=START + 2 * MINUTE,
    marked_at=START + 3 * MINUTE,
    keep_until=START + 4 * MINUTE,
    expires_at=START + 5 * MINUTE,
    warned_at=START + 6 * MINUTE,
    paused=True,
    parting=True,
    config_name="chat-1",
    tags=tags_for("chat"),
    stack="Peagle-chat",
    spent_usd=12.5,
    spent_at=START,
    instances=2,
    off_at=START + 7 * MINUTE,
    off_by=OffBy.IDLE,
    gone_at=START + 8 * MINUTE,
    woken_for=START,
    wake_tried_at=START,
    wake_tries=2,
    described_at=START,
    variants=("AllTraffic", "canary"),
    unknown_since=START + 9 * MINUTE,
)


@pytest.fixture(params=["moto", "simulator"])
def table(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A DynamoDB client with an empty table: moto's, and the simulator's, which must behave like it.

    Moto runs on the shared server: a second moto in this process would empty that one.
    """
    if request.param == "simulator":
        yield Table(lambda operation: None)
        return
    server: Server = request.getfixturevalue("server")
    client = server.client("dynamodb")
    client.create_table(
        TableName=TABLE,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    yield client
    client.delete_table(TableName=TABLE)


@pytest.fixture
def register(table: Any) -> DynamoRegister:
    return DynamoRegister(table, TABLE)


def test_a_record_reads_back_as_it_was_written(register: DynamoRegister) -> None:
    assert register.get("chat") == Record(name="chat")
    for record in (FULL, Record(name="bare")):
        assert register.put(record, START)
        assert register.get(record.name) == replace(record, version=1)
    assert {record.name for record in register.scan(None).items} == {"chat", "bare"}


def test_of_two_writes_on_one_version_the_second_is_refused(register: DynamoRegister) -> None:
    assert register.put(FULL, START)
    assert not register.put(FULL, START)
    seen = register.get("chat")
    assert register.put(replace(seen, marked_at=None), START)
    assert not register.put(seen, START)
    assert register.get("chat") == replace(FULL, marked_at=None, version=2)


def test_only_what_nobody_wrote_meanwhile_is_forgotten(register: DynamoRegister) -> None:
    register.put(FULL, START)
    seen = register.get("chat")
    register.put(seen, START)
    assert not register.forget(seen)
    assert register.forget(register.get("chat"))
    assert register.get("chat") == Record(name="chat")
    assert not register.forget(seen)


def test_attributes_of_others_are_kept_and_unreadable_ones_do_no_harm(
    register: DynamoRegister, table: Any
) -> None:
    key = {"pk": {"S": "endpoint#chat"}}
    table.put_item(
        TableName=TABLE,
        Item={**key, "note": {"S": "mine"}, "keep_until": {"S": "tomorrow"}, "off_by": {"S": "moonlight"}},
    )
    seen = register.get("chat")
    assert (seen.keep_until, seen.off_by, seen.version) == (None, None, 0)
    assert register.put(seen, START)
    assert table.get_item(TableName=TABLE, Key=key)["Item"]["note"] == {"S": "mine"}


@pytest.mark.parametrize(
    "bad",
    [
        {"tags_json": {"BOOL": True}},
        {"off_by": {"L": []}},
        {"variants": {"S": "[[1]]"}},
        {"created_at": {"S": "9999-12-31T23:59:59-23:59"}},
        {"version": {"S": "seven"}},
        {"version": {"N": "2.5"}},
        *({attribute: {kind: text}} for attribute, (kind, text) in BAD_VALUES),
    ],
    ids=str,
)
def test_one_unreadable_attribute_hides_no_other_and_the_next_write_replaces_it(
    register: DynamoRegister, table: Any, bad: dict[str, Any]
) -> None:
    register.put(Record(name="other"), START)
    item = {"pk": {"S": "endpoint#chat"}, "arn": {"S": "arn"}, "version": {"N": "3"}, **bad}
    table.put_item(TableName=TABLE, Item=item)
    by_name = {record.name: record for record in register.scan(None).items}
    assert set(by_name) == {"other", "chat"}
    assert by_name["chat"].arn == "arn"
    assert register.put(by_name["chat"], START)
    assert register.get("chat") == replace(by_name["chat"], version=by_name["chat"].version + 1)
    assert not register.put(by_name["chat"], START)


ATTRIBUTES = st.recursive(
    st.one_of(
        st.fixed_dictionaries({"S": st.text()}),
        st.fixed_dictionaries({"S": st.sampled_from(["{}", "[1]", "null", "NaN", "2026-02-30", "idle"])}),
        st.fixed_dictionaries({"N": st.floats().map(str) | st.integers().map(str)}),
        st.fixed_dictionaries({"BOOL": st.booleans()}),
        st.just({"NULL": True}),
    ),
    lambda inner: st.fixed_dictionaries({"L": st.lists(inner, max_size=3)}),
    max_leaves=3,
)
NAMES = [*written(FULL, START), "unknown"]


@given(st.dictionaries(st.sampled_from(NAMES), ATTRIBUTES))
def test_every_item_can_be_read_decided_about_and_written_back(item: dict[str, Any]) -> None:
    """Whatever an attribute holds: one bad item must not end the sweep over all endpoints."""
    record = read({**item, "pk": {"S": "endpoint#chat"}})
    assert record.name == "chat"
    decide(None, lifecycle_from_tags(record.tags), record, Evidence(Kind.UNKNOWN), START)
    stored = {key: value for key, value in written(record, START).items() if value is not None}
    # What was spent is kept to a millionth of a dollar.
    kept = replace(record, spent_usd=round(record.spent_usd, 6))
    assert read({**stored, "pk": {"S": "endpoint#chat"}}) == kept


def test_what_is_gone_is_forgotten_in_the_end_but_not_what_can_come_back(
    register: DynamoRegister, table: Any
) -> None:
    def ttl(record: Record) -> bool:
        table.delete_item(TableName=TABLE, Key={"pk": {"S": "endpoint#chat"}})
        register.put(replace(record, version=0), START)
        return "ttl" in table.get_item(TableName=TABLE, Key={"pk": {"S": "endpoint#chat"}})["Item"]

    gone = replace(FULL, paused=False)
    assert ttl(gone)
    assert not ttl(replace(gone, gone_at=None))
    assert not ttl(FULL)
    assert not ttl(replace(gone, tags=tags_for("chat", hours="Mon 08:00-19:00 UTC")))


def test_one_sweep_at_a_time(register: DynamoRegister, table: Any) -> None:
    assert register.lock(START, START + 4 * MINUTE)
    assert not register.lock(START + 3 * MINUTE, START + 9 * MINUTE)
    assert register.lock(START + 4 * MINUTE, START + 9 * MINUTE)
    register.unlock(START + 4 * MINUTE, finished=False)
    assert register.lock(START + 4 * MINUTE, START + 9 * MINUTE)
    register.unlock(START + 4 * MINUTE, finished=True)
    item = table.get_item(TableName=TABLE, Key={"pk": {"S": "sweep"}})["Item"]
    assert item == {"pk": {"S": "sweep"}, "last_sweep_at": {"S": (START + 4 * MINUTE).isoformat()}}
    assert register.scan(None).items == ()
