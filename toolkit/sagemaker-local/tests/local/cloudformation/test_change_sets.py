"""Change sets: what they say will happen, and what comes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.cloudformation.world import World, arn, body, ref, thing


def draft(world: World, resources: dict[str, Any], kind: str = "UPDATE", **more: Any) -> dict[str, Any]:
    """Make a change set and describe it."""
    sections = {key: more.pop(key) for key in ("Outputs",) if key in more}
    created = world.call(
        "CreateChangeSet",
        StackName="s",
        ChangeSetName="c",
        ChangeSetType=kind,
        TemplateBody=body(resources, **sections),
        **more,
    )
    return world.call("DescribeChangeSet", ChangeSetName=created["Id"], IncludePropertyValues=True)


def changes(described: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    rows = [row["ResourceChange"] for row in described["Changes"]]
    return {row["LogicalResourceId"]: (row["Action"], row.get("Replacement")) for row in rows}


def test_a_new_stack_waits_in_review_until_its_change_set_is_executed(world: World) -> None:
    described = draft(world, {"A": {}, "B": {"On": ref("A")}}, "CREATE")
    assert described["Status"] == "CREATE_COMPLETE"
    assert described["ExecutionStatus"] == "AVAILABLE"
    assert changes(described) == {"A": ("Add", None), "B": ("Add", None)}
    assert world.status() == "REVIEW_IN_PROGRESS"
    assert world.cloud.calls == []
    assert world.call("GetTemplate", StackName="s")["TemplateBody"] == ""
    world.call("ExecuteChangeSet", ChangeSetName="c", StackName="s")
    assert world.rest("s") == "CREATE_COMPLETE"


def test_it_tells_what_is_added_modified_replaced_and_removed(world: World) -> None:
    world.create({"A": {"Size": 1}, "B": {"Name": "b1"}, "C": {"Uses": ref("B")}, "D": {}, "E": {}})
    described = draft(
        world, {"A": {"Size": 2}, "B": {"Name": "b2"}, "C": {"Uses": ref("B")}, "D": {}, "New": {}}
    )
    assert changes(described) == {
        "A": ("Modify", "False"),
        "B": ("Modify", "True"),
        "C": ("Modify", "False"),
        "E": ("Remove", None),
        "New": ("Add", None),
    }
    assert world.cloud.things[world.physical_ids()["A"]]["properties"] == {"Size": 1}
    rows = {row["ResourceChange"]["LogicalResourceId"]: row["ResourceChange"] for row in described["Changes"]}
    assert rows["B"]["PolicyAction"] == "ReplaceAndDelete"
    target = rows["A"]["Details"][0]["Target"]
    assert (target["Name"], target["BeforeValue"], target["AfterValue"]) == ("Size", "1", "2")
    assert rows["C"]["Details"][0]["Evaluation"] == "Dynamic"
    after = json.loads(rows["C"]["AfterContext"])
    assert after["Properties"]["Uses"] == "{{changeSet:KNOWN_AFTER_APPLY}}"


def test_a_name_that_hangs_on_a_replacement_may_replace(world: World) -> None:
    world.create({"A": {"Name": "a1"}, "B": {"Name": arn("A")}})
    described = draft(world, {"A": {"Name": "a2"}, "B": {"Name": arn("A")}})
    assert changes(described)["B"] == ("Modify", "Conditional")


def test_an_arn_stays_when_its_resource_is_changed_in_place(world: World) -> None:
    world.create({"A": {"Size": 1}, "B": {"On": arn("A")}})
    assert changes(draft(world, {"A": {"Size": 2}, "B": {"On": arn("A")}})) == {"A": ("Modify", "False")}


def test_no_changes_make_it_fail_as_the_cdk_expects(world: World) -> None:
    world.create({"A": {"Size": 1}})
    described = draft(world, {"A": {"Size": 1}})
    assert described["Status"] == "FAILED"
    assert described["StatusReason"].startswith("The submitted information didn't contain changes.")
    with pytest.raises(ClientError) as raised:
        world.call("ExecuteChangeSet", ChangeSetName="c", StackName="s")
    assert raised.value.response["Error"]["Code"] == "InvalidChangeSetStatus"


def test_outputs_alone_are_a_change(world: World) -> None:
    world.create({"A": {}})
    described = draft(world, {"A": {}}, Outputs={"O": {"Value": "x"}})
    assert (described["Status"], described["Changes"]) == ("CREATE_COMPLETE", [])
    world.call("ExecuteChangeSet", ChangeSetName="c", StackName="s")
    world.rest("s")
    assert world.outputs() == {"O": "x"}


def test_an_unsupported_property_is_found_before_anything_is_made(world: World) -> None:
    described = draft(world, {"A": {"Bogus": 1}}, "CREATE")
    assert described["Status"] == "FAILED"
    assert "AWS::EarlyValidation::PropertyValidation" in described["StatusReason"]
    (event,) = world.call("DescribeEvents", StackName="s", ChangeSetName="c")["OperationEvents"]
    assert event["EventType"] == "VALIDATION_ERROR"
    assert event["ValidationStatusReason"] == "Encountered unsupported property Bogus"
    assert event["ValidationPath"] == "/Resources/A/Properties"


def test_a_missing_export_makes_it_fail(world: World) -> None:
    described = draft(world, {"A": {"On": {"Fn::ImportValue": "nobody-s"}}}, "CREATE")
    assert described["StatusReason"] == "No export named nobody-s found"


def test_a_change_set_of_an_existing_stack_cannot_create_it(world: World) -> None:
    world.create({"A": {}})
    with pytest.raises(ClientError, match="already exists and cannot be created again with the changeSet"):
        draft(world, {"A": {}}, "CREATE")


def test_one_of_a_stack_that_is_not_there_needs_the_type_create(world: World) -> None:
    with pytest.raises(ClientError, match=r"Stack \[s\] does not exist"):
        draft(world, {"A": {}})


def test_a_template_that_is_wrong_leaves_no_stack_behind(world: World) -> None:
    with pytest.raises(ClientError, match="Unresolved resource dependencies"):
        draft(world, {"A": {"On": ref("Nobody")}}, "CREATE")
    with pytest.raises(ClientError, match="Stack with id s does not exist"):
        world.stack()


def test_a_name_is_taken_until_its_change_set_is_deleted(world: World) -> None:
    draft(world, {"A": {}}, "CREATE")
    with pytest.raises(ClientError) as raised:
        draft(world, {"A": {}}, "CREATE")
    assert raised.value.response["Error"]["Code"] == "AlreadyExistsException"
    world.call("DeleteChangeSet", StackName="s", ChangeSetName="c")
    with pytest.raises(ClientError) as raised:
        world.call("DescribeChangeSet", StackName="s", ChangeSetName="c")
    assert raised.value.response["Error"]["Code"] == "ChangeSetNotFound"
    world.call("DeleteChangeSet", StackName="s", ChangeSetName="c")  # as the CDK does before each deployment
    draft(world, {"A": {}}, "CREATE")


def test_a_stack_in_review_is_deleted_at_once(world: World) -> None:
    described = draft(world, {"A": {}}, "CREATE")
    world.call("DeleteStack", StackName="s")
    assert world.status(described["StackId"]) == "DELETE_COMPLETE"


def test_a_failed_execution_is_rolled_back(world: World) -> None:
    world.cloud.fail("create", "A")
    draft(world, {"A": {}}, "CREATE")
    world.call("ExecuteChangeSet", ChangeSetName="c", StackName="s")
    assert world.rest("s") == "ROLLBACK_COMPLETE"


def test_a_policy_that_changes_is_a_modification(world: World) -> None:
    world.create({"A": {}})
    described = draft(world, {"A": thing(DeletionPolicy="Retain")})
    assert described["Changes"][0]["ResourceChange"]["Scope"] == ["DeletionPolicy"]
