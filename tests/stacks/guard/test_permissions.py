"""Least privilege, beyond what cdk-nag and checkov look at."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any

import pytest

from peagle_sm.core import guard
from peagle_sm.core.plan.tags_and_schedules import hard_schedule_name, schedule_name
from tests.stacks.guard import policies

Template = dict[str, Any]


TAG = "peagle-sm:managed-by"


def _untagged(template: Template) -> list[str]:
    """Deletions in SageMaker of what may lack peagle-sm's tag, and creations without it."""
    return [
        f"{role}: {action}"
        for role, statement in policies.statements(template)
        for action in policies.actions(statement)
        if (
            action.startswith("sagemaker:Delete")
            and policies.equal_to(statement, f"aws:ResourceTag/{TAG}") != ["peagle-sm"]
        )
        or (
            action.startswith(("sagemaker:Create", "sagemaker:AddTags"))
            and ["peagle-sm"]
            not in [
                policies.equal_to(statement, f"aws:{kind}/{TAG}") for kind in ("RequestTag", "ResourceTag")
            ]
        )
    ]


def _loose_pass_role(template: Template) -> list[str]:
    """Roles that may pass another than one named role to one service."""
    return [
        role
        for role, statement in policies.statements(template)
        if "iam:PassRole" in policies.actions(statement)
        and (
            len(policies.resources(statement)) != 1
            or not re.search(r":role/peagle-[^*]*$", policies.resources(statement)[0])
            or len(policies.equal_to(statement, "iam:PassedToService")) != 1
        )
    ]


def _first(template: Template, action: str) -> dict[str, Any]:
    return next(
        statement for _, statement in policies.statements(template) if action in policies.actions(statement)
    )


def test_what_deletes_or_creates_asks_for_the_tag(template: Template) -> None:
    assert _untagged(template) == []


@pytest.mark.parametrize(
    "action", ["sagemaker:DeleteEndpoint", "sagemaker:DeleteModel", "sagemaker:CreateModel"]
)
def test_a_deletion_or_creation_without_the_tag_is_found(template: Template, action: str) -> None:
    del _first(template, action)["Condition"]
    assert any(action in each for each in _untagged(template))


def test_one_role_is_passed_to_one_service(template: Template) -> None:
    assert _loose_pass_role(template) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"Resource": "*"},
        {"Condition": {}},
        {
            "Condition": {
                "StringEquals": {"iam:PassedToService": ["sagemaker.amazonaws.com", "ec2.amazonaws.com"]}
            }
        },
    ],
)
def test_a_role_that_may_be_passed_to_anybody_is_found(template: Template, changes: dict[str, Any]) -> None:
    _first(template, "iam:PassRole").update(changes)
    assert _loose_pass_role(template) == ["LifetimeProviderRole"]


def test_only_the_switch_changes_stacks_and_only_endpoint_stacks(template: Template) -> None:
    changing = tuple(f"cloudformation:{verb}" for verb in ("Update", "Create", "Delete", "Exec", "*"))
    assert {
        role
        for role, statement in policies.statements(template)
        for action in policies.actions(statement)
        if action.startswith(changing)
    } == {"SwitchRole"}
    update = _first(template, "cloudformation:UpdateStack")
    assert policies.actions(update) == ["cloudformation:UpdateStack"]
    (resource,) = policies.resources(update)
    assert resource.endswith(":stack/Peagle-*/*")
    assert guard.GUARD_STACK not in resource
    assert update["Condition"] == {
        "Null": {"cloudformation:TemplateUrl": "true", "cloudformation:RoleArn": "true"}
    }


def test_the_switch_passes_no_role_and_the_sweeper_deletes_nothing(template: Template) -> None:
    sweeper = policies.granted(template, "SweeperRole")
    assert "iam:PassRole" not in policies.granted(template, "SwitchRole") | sweeper
    changing = {"Delete", "Create", "Update", "Stop"}
    assert not {
        action
        for action in sweeper
        if action.startswith(("sagemaker:", "cloudformation:", "scheduler:"))
        and any(verb in action for verb in changing)
    }


def test_the_dead_mans_switch_needs_nothing_of_ours_to_delete(template: Template) -> None:
    role = template["Resources"]["SchedulerRole"]["Properties"]
    assert role["RoleName"] == {"Fn::Sub": "peagle-scheduler-${AWS::Region}"}
    trusted = role["AssumeRolePolicyDocument"]["Statement"]
    assert [statement["Principal"] for statement in trusted] == [{"Service": "scheduler.amazonaws.com"}]
    granted = policies.granted(template, "SchedulerRole")
    assert {"sagemaker:DeleteEndpoint", "sagemaker:DeleteInferenceComponent", "sqs:SendMessage"} <= granted


def test_services_take_roles_only_for_this_account(template: Template) -> None:
    for name, resource in template["Resources"].items():
        if resource["Type"] == "AWS::IAM::Role":
            (trusted,) = resource["Properties"]["AssumeRolePolicyDocument"]["Statement"]
            if trusted["Principal"]["Service"] != "lambda.amazonaws.com":
                assert "aws:SourceAccount" in trusted["Condition"]["StringEquals"], name


def test_no_role_carries_a_policy_that_others_change(template: Template) -> None:
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::IAM::Role":
            assert "ManagedPolicyArns" not in resource["Properties"]


def test_the_execution_role_reads_models_and_writes_none(template: Template) -> None:
    granted = policies.granted(template, "ExecutionRole")
    s3 = {action for action in granted if action.startswith("s3:")}
    assert s3 == {"s3:GetObject", "s3:ListBucket"}
    assert not {
        action for action in granted if action.startswith(("sagemaker:", "iam:", "ssm:", "secretsmanager:"))
    }


def test_no_function_can_touch_the_guards_own_sweep(template: Template) -> None:
    own = f"schedule/default/{guard.SWEEP_SCHEDULE}"
    patterns = {
        resource.partition(":${AWS::AccountId}:")[2]
        for _, statement in policies.statements(template)
        for resource in policies.resources(statement)
        if ":schedule/" in resource
    }
    assert patterns
    assert not [pattern for pattern in patterns if fnmatchcase(own, pattern)]
    for each in (schedule_name("demo"), hard_schedule_name("e" * 63), hard_schedule_name("e" * 63, 12)):
        assert any(fnmatchcase(f"schedule/default/{each}", pattern) for pattern in patterns)
