"""Updates of a stack: what is touched and what is not, replacement, conditions, and the way back."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.cloudformation.world import World, arn, body, ref, thing
from tests.local.serving import eventually

SWITCH: dict[str, Any] = {
    "Parameters": {"State": {"Type": "String", "Default": "on", "AllowedValues": ["on", "off"]}},
    "Conditions": {"IsOn": {"Fn::Equals": [ref("State"), "on"]}},
}
SWITCHED = {
    "Config": {"Size": 1},
    "Endpoint": thing(properties={"Config": ref("Config")}, Condition="IsOn"),
    "Alarm": {"Watches": "Endpoint"},
}


def state(value: str) -> dict[str, Any]:
    return {"Parameters": [{"ParameterKey": "State", "ParameterValue": value}]}


def test_only_what_changed_is_touched(world: World) -> None:
    world.create({"A": {"Size": 1}, "B": {"Size": 1}, "C": {"On": ref("A")}})
    world.cloud.calls.clear()
    assert world.update({"A": {"Size": 1}, "B": {"Size": 2}, "C": {"On": ref("A")}}) == "UPDATE_COMPLETE"
    assert world.cloud.calls == [("update", "B")]


def test_a_dependent_sees_a_changed_attribute(world: World) -> None:
    size = {"Fn::GetAtt": ["A", "Size"]}
    world.create({"A": {"Size": 1}, "B": {"Of": size}})
    world.cloud.calls.clear()
    world.update({"A": {"Size": 2}, "B": {"Of": size}})
    assert world.cloud.calls == [("update", "A"), ("update", "B")]
    assert world.cloud.things[world.physical_ids()["B"]]["properties"] == {"Of": 2}


def test_an_immutable_property_replaces_and_dependents_follow(world: World) -> None:
    world.create({"Model": {"Name": "m1"}, "Config": {"Uses": ref("Model")}})
    world.cloud.calls.clear()
    assert world.update({"Model": {"Name": "m2"}, "Config": {"Uses": ref("Model")}}) == "UPDATE_COMPLETE"
    assert world.cloud.calls == [("create", "Model"), ("update", "Config"), ("delete", "Model")]
    assert set(world.cloud.things) == {"m2", world.physical_ids()["Config"]}
    tail = world.history()[-4:]
    assert tail == [
        "s UPDATE_COMPLETE_CLEANUP_IN_PROGRESS",
        "Model DELETE_IN_PROGRESS",
        "Model DELETE_COMPLETE",
        "s UPDATE_COMPLETE",
    ]


def test_replaced_resources_are_cleaned_up_in_reverse_order(world: World) -> None:
    def stack(number: int) -> dict[str, Any]:
        return {
            "Model": {"Name": f"m{number}"},
            "Config": {"Name": f"c{number}", "Uses": ref("Model")},
            "Endpoint": {"Uses": ref("Config")},
        }

    world.create(stack(1))
    world.cloud.calls.clear()
    world.update(stack(2))
    assert world.cloud.calls == [
        ("create", "Model"),
        ("create", "Config"),
        ("update", "Endpoint"),
        ("delete", "Config"),
        ("delete", "Model"),
    ]


def test_a_replaced_resource_may_be_retained(world: World) -> None:
    world.create({"A": thing(properties={"Name": "a1"}, UpdateReplacePolicy="Retain")})
    world.update({"A": thing(properties={"Name": "a2"}, UpdateReplacePolicy="Retain")})
    assert set(world.cloud.things) == {"a1", "a2"}
    assert "A DELETE_SKIPPED" in world.history()


def test_a_custom_resource_may_replace_itself(world: World) -> None:
    def stack(token: int) -> dict[str, Any]:
        return {
            "Whim": thing(kind="Custom::Whim", properties={"Token": token}),
            "User": {"Uses": ref("Whim"), "Arn": arn("Whim")},
        }

    world.create(stack(1))
    before = world.physical_ids()["Whim"]
    world.cloud.calls.clear()
    world.update(stack(2))
    assert world.cloud.calls == [("update", "Whim"), ("update", "User"), ("delete", "Whim")]
    assert before not in world.cloud.things
    assert (
        world.cloud.things[world.physical_ids()["User"]]["properties"]["Uses"] == world.physical_ids()["Whim"]
    )


def test_removed_resources_go_in_the_cleanup(world: World) -> None:
    gate = world.cloud.hold("delete", "B")
    world.create({"A": {}, "B": {}})
    world.call("UpdateStack", StackName="s", TemplateBody=body({"A": {}}))
    eventually(lambda: ("delete", "B") in world.cloud.calls)
    assert world.status() == "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"
    with pytest.raises(ClientError, match="UPDATE_COMPLETE_CLEANUP_IN_PROGRESS state and can not be updated"):
        world.update({"A": {"New": 1}})
    gate.set()
    assert world.rest("s") == "UPDATE_COMPLETE"
    assert len(world.cloud.things) == 1


def test_what_cannot_be_cleaned_up_is_given_up_after_three_attempts(world: World) -> None:
    world.create({"A": {}, "B": {}})
    world.cloud.fail("delete", "B", "components are on it")
    assert world.update({"A": {}}) == "UPDATE_COMPLETE"
    assert world.cloud.calls.count(("delete", "B")) == 3
    assert "B" not in world.physical_ids()
    assert world.reasons()["B DELETE_FAILED"] == "components are on it"


def test_the_switch_off_on_and_off_again(world: World) -> None:
    stack = world.create(SWITCHED, **SWITCH)  # moto 5.2.5 leaves the endpoint where it is
    for value, there in (("off", False), ("on", True), ("off", False)):
        world.cloud.calls.clear()
        world.call("UpdateStack", StackName="s", UsePreviousTemplate=True, **state(value))
        assert world.rest(stack) == "UPDATE_COMPLETE"
        assert ("Endpoint" in world.physical_ids()) is there
        assert world.cloud.calls == [("create" if there else "delete", "Endpoint")]
    with pytest.raises(ClientError) as raised:
        world.call("UpdateStack", StackName="s", UsePreviousTemplate=True, **state("off"))
    assert raised.value.response["Error"] == {
        "Type": "Sender",
        "Code": "ValidationError",
        "Message": "No updates are to be performed.",
    }


def test_an_omitted_parameter_falls_back_to_its_default(world: World) -> None:
    world.create(SWITCHED, **SWITCH)
    world.call("UpdateStack", StackName="s", UsePreviousTemplate=True, **state("off"))
    world.rest("s")
    kept = [{"ParameterKey": "State", "UsePreviousValue": True}]
    with pytest.raises(ClientError, match="No updates"):
        world.call("UpdateStack", StackName="s", UsePreviousTemplate=True, Parameters=kept)
    world.call("UpdateStack", StackName="s", UsePreviousTemplate=True)
    assert world.rest("s") == "UPDATE_COMPLETE"
    assert "Endpoint" in world.physical_ids()
    assert world.stack()["Parameters"] == [{"ParameterKey": "State", "ParameterValue": "on"}]


@pytest.mark.parametrize(
    "again",
    [
        {"A": {"Size": 1}},
        {"A": thing(properties={"Size": 1}, DependsOn=[])},
    ],
)
def test_the_same_again_is_refused(world: World, again: dict[str, Any]) -> None:
    world.create({"A": {"Size": 1}})
    with pytest.raises(ClientError, match="No updates are to be performed"):
        world.update(again)
    assert world.status() == "CREATE_COMPLETE"


def test_outputs_metadata_and_tags_are_updates_too(world: World) -> None:
    world.create({"A": {}})
    assert world.update({"A": {}}, Outputs={"O": {"Value": "x"}}) == "UPDATE_COMPLETE"
    assert world.outputs() == {"O": "x"}
    assert world.update({"A": thing(Metadata={"path": "p"})}) == "UPDATE_COMPLETE"
    assert world.cloud.calls == [("create", "A")]
    tags = [{"Key": "team", "Value": "a"}]
    assert world.update({"A": thing(Metadata={"path": "p"})}, Tags=tags) == "UPDATE_COMPLETE"
    assert world.cloud.calls == [("create", "A"), ("update", "A")]
    assert next(iter(world.cloud.things.values()))["tags"] == {"team": "a"}


def test_tags_that_are_not_mentioned_stay(world: World) -> None:
    world.create({"A": {}}, Tags=[{"Key": "team", "Value": "a"}])
    world.update({"A": {"New": 1}})
    assert world.stack()["Tags"] == [{"Key": "team", "Value": "a"}]


def test_a_failed_update_goes_back_to_what_was(world: World) -> None:
    outputs = {"O": {"Value": ref("Model")}}
    world.create({"A": {"Size": 1}, "Model": {"Name": "m1"}, "Z": {"Of": ref("Model")}}, Outputs=outputs)
    before = dict(world.cloud.things)
    template = world.call("GetTemplate", StackName="s")["TemplateBody"]
    world.cloud.fail("create", "New", "no capacity")
    new = {
        "A": {"Size": 2},
        "Model": {"Name": "m2"},
        "Z": {"Of": ref("Model")},
        "Other": {},
        "New": thing(DependsOn=["A", "Z", "Other"]),
    }
    assert world.update(new, Outputs=outputs) == "UPDATE_ROLLBACK_COMPLETE"
    assert world.cloud.things == before
    assert world.outputs() == {"O": "m1"}
    assert world.call("GetTemplate", StackName="s")["TemplateBody"] == template
    assert world.reasons()["New CREATE_FAILED"] == "no capacity"
    assert world.reasons()["s UPDATE_ROLLBACK_IN_PROGRESS"] == (
        "The following resource(s) failed to update: [New]"
    )
    assert set(world.physical_ids()) == {"A", "Model", "Z"}
    cleanup = world.history()[world.history().index("s UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS") :]
    assert {"Model DELETE_COMPLETE", "Other DELETE_COMPLETE"} < set(cleanup)


def test_a_resource_whose_update_failed_gets_its_old_properties_back(world: World) -> None:
    world.create({"A": {"Size": 1}})
    world.cloud.failures_once[("update", "A")] = "the fleet did not start"
    assert world.update({"A": {"Size": 2}}) == "UPDATE_ROLLBACK_COMPLETE"
    assert world.cloud.calls == [("create", "A"), ("update", "A"), ("update", "A")]
    assert world.cloud.things[world.physical_ids()["A"]]["properties"] == {"Size": 1}
    assert world.update({"A": {"Size": 2}}) == "UPDATE_COMPLETE"


def test_a_failed_replacement_leaves_the_old_one_alone(world: World) -> None:
    world.create({"A": {"Name": "a1"}})
    world.cloud.fail("create", "A")
    assert world.update({"A": {"Name": "a2"}}) == "UPDATE_ROLLBACK_COMPLETE"
    assert set(world.cloud.things) == {"a1"}
    assert world.cloud.calls == [("create", "A"), ("create", "A")]


def test_a_rollback_that_fails_leaves_a_stack_that_can_only_be_deleted(world: World) -> None:
    stack = world.create({"A": {"Size": 1}, "B": {}})
    world.cloud.fail("update", "A")
    assert world.update({"A": {"Size": 2}, "B": {"Size": 2}}) == "UPDATE_ROLLBACK_FAILED"
    with pytest.raises(ClientError, match="UPDATE_ROLLBACK_FAILED state and can not be updated"):
        world.update({"A": {"Size": 3}, "B": {}})
    assert world.delete(stack) == "DELETE_COMPLETE"
    assert world.cloud.things == {}


def test_a_stack_in_motion_is_not_updated(world: World) -> None:
    world.create({"A": {"Size": 1}})
    world.cloud.hold("update", "A")
    world.call("UpdateStack", StackName="s", TemplateBody=body({"A": {"Size": 2}}))
    with pytest.raises(ClientError, match="UPDATE_IN_PROGRESS state and can not be updated"):
        world.update({"A": {"Size": 3}})
    with pytest.raises(ClientError, match="cannot be deleted while in status UPDATE_IN_PROGRESS"):
        world.call("DeleteStack", StackName="s")


def test_a_resource_may_not_change_its_type(world: World) -> None:
    world.create({"A": {}})
    with pytest.raises(ClientError, match=r"Update of resource type is not permitted.*\[A\]"):
        world.update({"A": thing(kind="Custom::Whim")})


def test_a_resource_that_becomes_retained_is_kept_when_removed_later(world: World) -> None:
    world.create({"A": {}, "B": {}})
    world.update({"A": thing(DeletionPolicy="Retain"), "B": {}})
    world.update({"B": {}})
    assert len(world.cloud.things) == 2


def test_a_stack_that_is_not_there_cannot_be_updated(world: World) -> None:
    with pytest.raises(ClientError, match="Stack with id s does not exist"):
        world.update({"A": {}})
