"""The simulated DynamoDB answers the shipped register as the table does."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from peagle_guard.records import Record
from tests.guard.simulator.fake_services.account import Account
from tests.guard.simulator.fake_services.dynamodb import TableRegister
from tests.guard.simulator.fake_services.fake_aws import moment
from tests.guard.simulator.making import BEGIN, plan, world

NOW = moment(BEGIN)


@pytest.fixture
def register() -> TableRegister:
    return TableRegister(Account.of(world(plan())).call)


def test_writes_hold_only_on_the_version_that_was_read(register: TableRegister) -> None:
    assert register.put(Record("code", marked_at=NOW), NOW)
    assert not register.put(Record("code"), NOW)
    seen = register.get("code")
    assert (seen.version, seen.marked_at) == (1, NOW)
    assert register.put(replace(seen, marked_at=None), NOW)
    assert register.get("code").marked_at is None
    assert not register.forget(seen)
    assert register.forget(register.get("code"))
    assert register.scan(None).items == ()


def test_the_lock_is_held_until_it_ends(register: TableRegister) -> None:
    until = NOW + timedelta(seconds=250)
    assert register.lock(NOW, until)
    assert not register.lock(NOW + timedelta(seconds=249), until)
    assert register.lock(until, until + timedelta(seconds=250))
    register.unlock(until, finished=True)
    assert register.lock(until, until + timedelta(seconds=250))


def test_an_item_can_be_spoiled(register: TableRegister) -> None:
    assert register.put(Record("code", instances=2), NOW)
    register.spoil("code", "instances", {"N": "1.5"})
    assert register.table.items["endpoint#code"]["instances"] == {"N": "1.5"}


def test_an_unknown_condition_is_refused(register: TableRegister) -> None:
    with pytest.raises(ValueError, match="does not know the condition"):
        register.table.delete_item(
            Key={"pk": {"S": "endpoint#code"}},
            ConditionExpression="size(#v) > :n",
            ExpressionAttributeNames={"#v": "version"},
            ExpressionAttributeValues={":n": {"N": "1"}},
        )
