"""Least privilege, and that the rules which say so would find what breaks it."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import pytest

from peagle_sm.core import guard
from peagle_sm.core.plan.tags_and_schedules import hard_schedule_name, schedule_name
from scripts.lib.security import iam as rules

Template = dict[str, Any]


@pytest.mark.parametrize(
    "rule",
    [
        rules.wildcards_that_destroy_or_pass,
        rules.wildcard_actions,
        rules.loose_pass_role,
        rules.untagged_deletion,
        rules.untagged_creation,
    ],
)
def test_the_rules_hold(template: Template, rule: Callable[[Template], list[str]]) -> None:
    assert rule(template) == []


def _first(template: Template, action: str) -> dict[str, Any]:
    return next(found for _, found in rules.statements(template) if action in rules.actions(found))


def test_a_planted_wildcard_pass_role_is_found(template: Template) -> None:
    _first(template, "iam:PassRole")["Resource"] = "*"
    assert rules.wildcards_that_destroy_or_pass(template) == ["LifetimeProviderRole: iam:PassRole"]
    assert rules.loose_pass_role(template) == ["LifetimeProviderRole"]


@pytest.mark.parametrize(
    "conditions",
    [{}, {"StringEquals": {"iam:PassedToService": ["sagemaker.amazonaws.com", "ec2.amazonaws.com"]}}],
)
def test_a_role_that_may_be_passed_to_anybody_is_found(
    template: Template, conditions: dict[str, Any]
) -> None:
    _first(template, "iam:PassRole")["Condition"] = conditions
    assert rules.loose_pass_role(template) == ["LifetimeProviderRole"]


@pytest.mark.parametrize("action", ["sagemaker:DeleteEndpoint", "sagemaker:DeleteModel"])
def test_a_deletion_without_the_tag_is_found(template: Template, action: str) -> None:
    del _first(template, action)["Condition"]
    assert any(action in found for found in rules.untagged_deletion(template))


def test_a_deletion_of_everything_is_found(template: Template) -> None:
    _first(template, "sagemaker:DeleteEndpoint")["Resource"] = ["*"]
    assert "SchedulerRole: sagemaker:DeleteEndpoint" in rules.wildcards_that_destroy_or_pass(template)


def test_only_the_switch_changes_stacks_and_only_endpoint_stacks(template: Template) -> None:
    assert rules.stack_updaters(template) == {"SwitchRole"}
    update = _first(template, "cloudformation:UpdateStack")
    assert rules.actions(update) == ["cloudformation:UpdateStack"]
    (resource,) = rules.resources(update)
    assert resource.endswith(":stack/Peagle-*/*")
    assert guard.GUARD_STACK not in resource
    assert update["Condition"] == {
        "Null": {"cloudformation:TemplateUrl": "true", "cloudformation:RoleArn": "true"}
    }


def test_the_switch_passes_no_role_and_the_sweeper_deletes_nothing(template: Template) -> None:
    by_role: dict[str, set[str]] = {}
    for role, statement in rules.statements(template):
        by_role.setdefault(role, set()).update(rules.actions(statement))
    assert "iam:PassRole" not in by_role["SwitchRole"] | by_role["SweeperRole"]
    changing = {"Delete", "Create", "Update", "Stop"}
    assert not {
        action
        for action in by_role["SweeperRole"]
        if action.startswith(("sagemaker:", "cloudformation:", "scheduler:"))
        and any(verb in action for verb in changing)
    }


def test_the_dead_mans_switch_needs_nothing_of_ours_to_delete(template: Template) -> None:
    role = template["Resources"]["SchedulerRole"]["Properties"]
    assert role["RoleName"] == {"Fn::Sub": "peagle-scheduler-${AWS::Region}"}
    trusted = role["AssumeRolePolicyDocument"]["Statement"]
    assert [one["Principal"] for one in trusted] == [{"Service": "scheduler.amazonaws.com"}]
    granted = {
        one
        for name, found in rules.statements(template)
        if name == "SchedulerRole"
        for one in rules.actions(found)
    }
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
    granted = {
        one
        for name, found in rules.statements(template)
        if name == "ExecutionRole"
        for one in rules.actions(found)
    }
    s3 = {one for one in granted if one.startswith("s3:")}
    assert s3 == {"s3:GetObject", "s3:ListBucket"}
    assert not {one for one in granted if one.startswith(("sagemaker:", "iam:", "ssm:", "secretsmanager:"))}


def test_no_function_can_touch_the_guards_own_sweep(template: Template) -> None:
    own = f"schedule/default/{guard.SWEEP_SCHEDULE}"
    patterns = {
        resource.partition(":${AWS::AccountId}:")[2]
        for _, statement in rules.statements(template)
        for resource in rules.resources(statement)
        if ":schedule/" in resource
    }
    assert patterns
    assert not [pattern for pattern in patterns if fnmatchcase(own, pattern)]
    for made in (schedule_name("demo"), hard_schedule_name("e" * 63), hard_schedule_name("e" * 63, 12)):
        assert any(fnmatchcase(f"schedule/default/{made}", pattern) for pattern in patterns)
