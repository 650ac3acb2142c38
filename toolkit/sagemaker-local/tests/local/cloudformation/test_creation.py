"""A stack from its creation to its end, with fake resources."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.cloudformation.world import ROLE, World, arn, body, ref, thing
from tests.local.serving import eventually


def test_a_stack_is_made_in_the_order_of_its_references(world: World) -> None:
    resources = {
        "Third": {"A": arn("Second"), "B": {"Fn::Sub": "${First}-x"}},
        "Second": {"On": ref("First")},
        "First": {},
        "Last": thing(DependsOn=["Third"]),
    }
    world.create(resources, Outputs={"Where": {"Value": arn("Third")}})
    assert world.status() == "CREATE_COMPLETE"
    assert [name for _, name in world.cloud.calls] == ["First", "Second", "Third", "Last"]
    ids = world.physical_ids()
    assert world.cloud.things[ids["Third"]]["properties"] == {
        "A": f"arn:{ids['Second']}",
        "B": f"{ids['First']}-x",
    }
    assert world.outputs() == {"Where": f"arn:{ids['Third']}"}


def test_the_answer_comes_before_the_work_is_done(world: World) -> None:
    gate = world.cloud.hold("create", "A")
    stack = world.call("CreateStack", StackName="s", TemplateBody=body({"A": {}}))["StackId"]
    assert world.status() == "CREATE_IN_PROGRESS"
    assert world.physical_ids() in ({}, {"A": ""})
    gate.set()
    assert world.rest(stack) == "CREATE_COMPLETE"
    assert world.history() == [
        "s CREATE_IN_PROGRESS",
        "A CREATE_IN_PROGRESS",
        "A CREATE_IN_PROGRESS",
        "A CREATE_COMPLETE",
        "s CREATE_COMPLETE",
    ]


def test_independent_resources_are_made_side_by_side(world: World) -> None:
    gates = [world.cloud.hold("create", name) for name in "AB"]
    world.call("CreateStack", StackName="s", TemplateBody=body({"A": {}, "B": {}}))
    eventually(lambda: len(world.cloud.calls) == 2)
    for gate in gates:
        gate.set()
    assert world.rest("s") == "CREATE_COMPLETE"


def test_a_failed_creation_is_rolled_back(world: World) -> None:
    world.cloud.fail("create", "B", "no such colour")
    world.create({"A": {}, "B": {"On": ref("A")}, "C": {"On": ref("B")}})
    assert world.status() == "ROLLBACK_COMPLETE"
    assert world.cloud.things == {}
    assert world.reasons()["B CREATE_FAILED"] == "no such colour"
    assert world.reasons()["s ROLLBACK_IN_PROGRESS"] == (
        "The following resource(s) failed to create: [B]. Rollback requested by user."
    )
    assert ("create", "C") not in world.cloud.calls


def test_a_stack_that_was_rolled_back_cannot_be_updated(world: World) -> None:
    world.cloud.fail("create", "A")
    stack = world.create({"A": {}})
    with pytest.raises(ClientError, match="is in ROLLBACK_COMPLETE state and can not be updated"):
        world.update({"A": {}, "B": {}})
    assert world.delete(stack) == "DELETE_COMPLETE"


def test_what_a_failed_creation_left_half_made_is_taken_down(world: World) -> None:
    world.cloud.fail("create", "A")
    world.cloud.half_made.add("A")
    world.create({"A": {}})
    assert world.status() == "ROLLBACK_COMPLETE"
    assert world.cloud.things == {}


def test_a_rollback_that_cannot_delete_says_so(world: World) -> None:
    world.cloud.fail("create", "B")
    world.cloud.fail("delete", "A", "still in use")
    world.create({"A": {}, "B": {"On": ref("A")}})
    assert world.status() == "ROLLBACK_FAILED"
    assert "failed to delete: [A]" in world.stack()["StackStatusReason"]


@pytest.mark.parametrize(
    "how", [{"OnFailure": "DO_NOTHING"}, {"OnFailure": "DELETE"}, {"DisableRollback": True}]
)
def test_a_failure_is_always_rolled_back(world: World, how: dict[str, Any]) -> None:
    with pytest.raises(ClientError, match="leave DisableRollback out"):
        world.create({"A": {}}, **how)


def test_an_unknown_attribute_fails_the_resource_that_asks_for_it(world: World) -> None:
    world.create({"A": {}, "B": {"On": {"Fn::GetAtt": ["A", "Colour"]}}})
    assert world.status() == "ROLLBACK_COMPLETE"
    assert "does not support attribute type Colour" in world.reasons()["B CREATE_FAILED"]


def test_an_unsupported_property_fails_its_resource(world: World) -> None:
    world.create({"A": {"Bogus": 1}})
    assert world.reasons()["A CREATE_FAILED"] == "Encountered unsupported property Bogus"
    assert world.cloud.calls == []


def test_a_missing_export_rolls_the_stack_back_at_once(world: World) -> None:
    world.create({"A": {}, "B": {"On": {"Fn::ImportValue": "nobody-s"}}})
    assert world.reasons()["s ROLLBACK_IN_PROGRESS"] == (
        "No export named nobody-s found. Rollback requested by user."
    )
    assert world.cloud.calls == []


def test_a_stack_is_deleted_in_reverse_order(world: World) -> None:
    stack = world.create({"A": {}, "B": {"On": ref("A")}, "C": {"On": ref("B")}})
    assert world.delete(stack) == "DELETE_COMPLETE"
    assert [call for call in world.cloud.calls if call[0] == "delete"] == [
        ("delete", "C"),
        ("delete", "B"),
        ("delete", "A"),
    ]
    with pytest.raises(ClientError, match="Stack with id s does not exist"):
        world.stack()
    assert world.status(stack) == "DELETE_COMPLETE"
    world.create({"A": {}})  # the name is free again


def test_deleting_a_stack_that_is_not_there_is_no_error(world: World) -> None:
    assert "Stacks" not in world.call("DeleteStack", StackName="nobody")


def test_a_retained_resource_outlives_its_stack(world: World) -> None:
    stack = world.create({"A": thing(DeletionPolicy="Retain"), "B": {}})
    world.delete(stack)
    assert world.status(stack) == "DELETE_COMPLETE"
    assert [name.split("-")[0] for name in world.cloud.things] == ["A"]
    assert "A DELETE_SKIPPED" in world.history(stack)


def test_what_stands_on_an_undeletable_resource_goes_and_what_it_stands_on_stays(world: World) -> None:
    stack = world.create({"A": {}, "B": {"On": ref("A")}, "C": {"On": ref("B")}})
    world.cloud.fail("delete", "B", "an endpoint uses it")
    assert world.delete(stack) == "DELETE_FAILED"
    assert set(world.physical_ids(stack)) == {"A", "B"}
    assert world.stack(stack)["StackStatusReason"] == "The following resource(s) failed to delete: [B]. "
    with pytest.raises(ClientError, match="DELETE_FAILED state and can not be updated"):
        world.update({"A": {"New": 1}})
    with pytest.raises(ClientError, match="leave RetainResources out"):
        world.delete(stack, RetainResources=["B"])
    world.cloud.failures.clear()
    assert world.delete(stack) == "DELETE_COMPLETE"


def test_a_deletion_calls_a_creation_off(world: World) -> None:
    gate = world.cloud.hold("create", "A")
    stack = world.call("CreateStack", StackName="s", TemplateBody=body({"A": {}, "B": {"On": ref("A")}}))
    eventually(lambda: world.cloud.calls)
    world.call("DeleteStack", StackName=stack["StackId"])
    assert world.status(stack["StackId"]) == "DELETE_IN_PROGRESS"
    gate.set()
    assert world.rest(stack["StackId"]) == "DELETE_COMPLETE"
    assert world.cloud.things == {}
    assert ("create", "B") not in world.cloud.calls


def test_a_name_is_taken_until_its_stack_is_gone(world: World) -> None:
    world.create({"A": {}})
    with pytest.raises(ClientError) as raised:
        world.create({"A": {}})
    assert raised.value.response["Error"]["Code"] == "AlreadyExistsException"


@pytest.mark.parametrize("name", ["", "1st", "under_score", "x" * 129])
def test_a_name_that_no_stack_can_have_is_refused(world: World, name: str) -> None:
    with pytest.raises(ClientError, match="failed to satisfy constraint"):
        world.create({"A": {}}, name=name)


@pytest.mark.parametrize(
    ("properties", "given", "missing"),
    [
        ({}, [], "CAPABILITY_IAM"),
        ({}, ["CAPABILITY_IAM"], None),
        ({}, ["CAPABILITY_NAMED_IAM"], None),
        ({"RoleName": "r"}, ["CAPABILITY_IAM"], "CAPABILITY_NAMED_IAM"),
        ({"RoleName": "r"}, ["CAPABILITY_NAMED_IAM"], None),
    ],
)
def test_iam_resources_need_leave(
    world: World, properties: dict[str, Any], given: list[str], missing: str | None
) -> None:
    role = {"R": thing(kind="AWS::IAM::Role", properties=properties)}
    if missing is None:
        world.create(role, Capabilities=given)
        return
    with pytest.raises(ClientError) as raised:
        world.create(role, Capabilities=given)
    assert raised.value.response["Error"]["Code"] == "InsufficientCapabilitiesException"
    assert raised.value.response["Error"]["Message"] == f"Requires capabilities : [{missing}]"


def test_a_stack_remembers_its_role(world: World) -> None:
    stack = world.create({"A": {}}, RoleARN=ROLE)
    world.update({"A": {"New": 1}})
    world.delete(stack)
    assert world.cloud.roles == [ROLE, ROLE, ROLE]


def test_a_role_that_cloudformation_cannot_assume_is_refused(world: World) -> None:
    with pytest.raises(ClientError, match="is invalid or cannot be assumed"):
        world.create({"A": {}}, RoleARN=ROLE.replace("deployer", "nobody"))


def test_an_unknown_type_is_refused_before_anything_is_made(world: World) -> None:
    with pytest.raises(ClientError, match=r"Unrecognized resource types: \[AWS::Moon::Base\]"):
        world.create({"A": {}, "B": thing(kind="AWS::Moon::Base")})
    with pytest.raises(ClientError, match="does not exist"):
        world.stack()


def test_the_server_s_end_interrupts_a_stack(world: World) -> None:
    world.cloud.hold("create", "A")
    world.call("CreateStack", StackName="s", TemplateBody=body({"A": {}}))
    eventually(lambda: world.cloud.calls)
    # The fixture closes the service next, which must not wait for the gate.
    world.cloud.gates.clear()
