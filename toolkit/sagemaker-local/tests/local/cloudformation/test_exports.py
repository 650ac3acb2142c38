"""Exports: who has them, who uses them, and what that forbids."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.cloudformation.world import World, ref


def exported(value: Any, name: str = "shared") -> dict[str, Any]:
    return {"Outputs": {"O": {"Value": value, "Export": {"Name": name}}}}


def importing(name: str = "shared") -> dict[str, Any]:
    return {"User": {"Uses": {"Fn::ImportValue": name}}}


def test_a_value_goes_from_stack_to_stack(world: World) -> None:
    world.create({"A": {"Name": "a1"}}, name="guard", **exported(ref("A")))
    world.create(importing(), name="user")
    assert world.cloud.things[world.physical_ids("user")["User"]]["properties"] == {"Uses": "a1"}
    assert world.stack("guard")["Outputs"][0]["ExportName"] == "shared"
    (export,) = world.call("ListExports")["Exports"]
    assert (export["Name"], export["Value"]) == ("shared", "a1")
    assert export["ExportingStackId"] == world.stack("guard")["StackId"]
    assert world.call("ListImports", ExportName="shared")["Imports"] == ["user"]
    with pytest.raises(ClientError, match="Export 'other' is not imported by any stack"):
        world.call("ListImports", ExportName="other")


def test_what_is_used_keeps_its_stack_standing(world: World) -> None:
    guard = world.create({"A": {}}, name="guard", **exported("v"))
    user = world.create(importing(), name="user")
    world.call("DeleteStack", StackName="guard")
    assert world.status("guard") == "CREATE_COMPLETE"
    assert world.stack("guard")["StackStatusReason"] == (
        "Export shared cannot be deleted as it is in use by user"
    )
    world.delete(user)
    assert world.delete(guard) == "DELETE_COMPLETE"


@pytest.mark.parametrize(
    ("outputs", "verb"),
    [({}, "deleted"), (exported("other"), "updated"), (exported("v", "renamed"), "deleted")],
)
def test_what_is_used_is_neither_taken_away_nor_changed(
    world: World, outputs: dict[str, Any], verb: str
) -> None:
    world.create({"A": {"Size": 1}}, name="guard", **exported("v"))
    world.create(importing(), name="user")
    assert world.update({"A": {"Size": 2}}, name="guard", **outputs) == "UPDATE_ROLLBACK_COMPLETE"
    reason = world.reasons("guard")["guard UPDATE_ROLLBACK_IN_PROGRESS"]
    assert reason == f"Export shared cannot be {verb} as it is in use by user"
    assert world.outputs("guard") == {"O": "v"}


def test_a_name_is_exported_once(world: World) -> None:
    world.create({"A": {}}, name="guard", **exported("v"))
    world.create({"A": {}}, name="other", **exported("w"))
    assert world.status("other") == "ROLLBACK_COMPLETE"
    assert (
        "Export with name shared is already exported by stack guard"
        in (world.reasons("other")["other ROLLBACK_IN_PROGRESS"])
    )
