"""What the template promises to the endpoint stacks, the command line, and whoever gets the bill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from peagle_sm.core import guard

Template = dict[str, Any]


def _of_type(template: Template, kind: str) -> dict[str, dict[str, Any]]:
    return {
        name: resource["Properties"]
        for name, resource in template["Resources"].items()
        if resource["Type"] == kind
    }


def test_the_exports_are_those_that_endpoint_stacks_import(template: Template) -> None:
    exported = {output["Export"]["Name"] for output in template["Outputs"].values() if "Export" in output}
    assert exported == {
        guard.EXPORT_MODEL_PROVIDER,
        guard.EXPORT_LIFETIME_PROVIDER,
        guard.EXPORT_EXECUTION_ROLE,
        guard.EXPORT_SCHEDULER_ROLE,
        guard.EXPORT_NOTICES_TOPIC,
        guard.EXPORT_DEAD_LETTERS,
        guard.EXPORT_SWITCH,
    }


def test_each_function_has_its_handler_log_and_dead_letters(template: Template) -> None:
    functions = {each["FunctionName"]: each for each in _of_type(template, "AWS::Lambda::Function").values()}
    assert set(functions) == set(guard.FUNCTIONS)
    logs = {each["LogGroupName"]: each for each in _of_type(template, "AWS::Logs::LogGroup").values()}
    for name, function in functions.items():
        assert function["Runtime"] == "python3.13"
        assert function["Handler"].startswith("peagle_guard.")
        assert function["Handler"].endswith(".handler")
        assert function["DeadLetterConfig"]["TargetArn"] == {"Fn::GetAtt": ["DeadLetters", "Arn"]}
        assert logs[f"/aws/lambda/{name}"]["RetentionInDays"] > 0


def test_a_log_group_stands_before_its_function(template: Template) -> None:
    for name, resource in template["Resources"].items():
        if resource["Type"] == "AWS::Lambda::Function":
            assert resource["DependsOn"] == [f"{name}Log"]


def test_two_sweeps_or_two_switchings_never_run_at_once(template: Template) -> None:
    alone = {
        each["FunctionName"]: each["ReservedConcurrentExecutions"]["Fn::If"][:2]
        for each in _of_type(template, "AWS::Lambda::Function").values()
        if "ReservedConcurrentExecutions" in each
    }
    assert alone == {
        guard.SWEEPER: ["ReservesConcurrency", 1],
        guard.SWITCH: ["ReservesConcurrency", 1],
    }
    assert template["Parameters"]["ReserveConcurrency"]["Default"] == "yes"


def test_the_environment_is_the_one_that_the_lambdas_check(template: Template) -> None:
    from peagle_guard import settings

    for function in _of_type(template, "AWS::Lambda::Function").values():
        variables = function["Environment"]["Variables"]
        by_name = {
            name: value if isinstance(value, str) else "found-at-deploy" for name, value in variables.items()
        }
        read = settings.load(by_name)
        assert (read.switch_function, read.lifetime_function) == (guard.SWITCH, guard.LIFETIME_PROVIDER)
        assert read.clock_url is None


def test_a_sweep_ends_before_the_next_begins_and_carries_no_time(template: Template) -> None:
    (schedule,) = _of_type(template, "AWS::Scheduler::Schedule").values()
    assert schedule["Name"] == guard.SWEEP_SCHEDULE
    assert schedule["ScheduleExpression"] == f"rate({guard.SWEEP_MINUTES} minutes)"
    assert json.loads(schedule["Target"]["Input"]) == {}
    assert schedule["Target"]["RetryPolicy"] == {"MaximumEventAgeInSeconds": 300, "MaximumRetryAttempts": 2}
    assert schedule["Target"]["DeadLetterConfig"]["Arn"] == {"Fn::GetAtt": ["DeadLetters", "Arn"]}
    timeout_s = template["Resources"]["Sweeper"]["Properties"]["Timeout"]
    assert timeout_s < 60 * guard.SWEEP_MINUTES


def test_a_late_event_is_given_up_instead_of_acting_on_old_news(template: Template) -> None:
    ages = {
        each["FunctionName"]["Ref"]: each["MaximumEventAgeInSeconds"]
        for each in _of_type(template, "AWS::Lambda::EventInvokeConfig").values()
    }
    assert ages["Sweeper"] <= 60 * guard.SWEEP_MINUTES
    assert set(ages) == {"Sweeper", "Switch"}


def test_the_register_has_the_key_and_the_end_of_life_that_the_lambdas_use(template: Template) -> None:
    (table,) = _of_type(template, "AWS::DynamoDB::Table").values()
    assert table["TableName"] == guard.TABLE
    assert table["KeySchema"] == [{"AttributeName": "pk", "KeyType": "HASH"}]
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert table["TimeToLiveSpecification"] == {"AttributeName": "ttl", "Enabled": True}


def test_somebody_is_told_when_the_guard_fails_or_falls_silent(template: Template) -> None:
    alarms = {each["AlarmName"]: each for each in _of_type(template, "AWS::CloudWatch::Alarm").values()}
    assert set(alarms) == set(guard.ALARMS)
    for alarm in alarms.values():
        assert alarm["AlarmActions"] == [{"Ref": "Notices"}]
    silent = alarms[guard.ALARM_NO_SWEEP]
    assert silent["TreatMissingData"] == "breaching"
    assert silent["EvaluationPeriods"] == 2
    periods = {query["MetricStat"]["Period"] for query in silent["Metrics"] if "MetricStat" in query}
    assert periods == {60 * guard.SWEEP_MINUTES}
    watched = {
        query["MetricStat"]["Metric"]["Dimensions"][0]["Value"]
        for query in alarms[guard.ALARM_ERRORS]["Metrics"]
        if "MetricStat" in query
    }
    assert watched == set(guard.FUNCTIONS)


def test_topic_and_queue_refuse_what_is_not_encrypted_on_the_way(template: Template) -> None:
    kinds = ("AWS::SNS::TopicPolicy", "AWS::SQS::QueuePolicy")
    policies = [each for kind in kinds for each in _of_type(template, kind).values()]
    assert len(policies) == 2
    for policy in policies:
        denied = [
            statement for statement in policy["PolicyDocument"]["Statement"] if statement["Effect"] == "Deny"
        ]
        assert [statement["Condition"] for statement in denied] == [
            {"Bool": {"aws:SecureTransport": "false"}}
        ]


def test_nothing_is_left_when_the_stack_goes(template: Template) -> None:
    kept = {
        name: resource["DeletionPolicy"]
        for name, resource in template["Resources"].items()
        if resource.get("DeletionPolicy") not in (None, "Delete")
    }
    assert kept == {}


def test_it_is_sent_without_an_upload_of_the_template(template: Template) -> None:
    assert len(json.dumps(template, separators=(",", ":")).encode()) < 51_200


@pytest.mark.parametrize("name", ["AssetBucket", "AssetKey"])
def test_only_the_place_of_the_package_must_be_given(template: Template, name: str) -> None:
    needed = {name for name, parameter in template["Parameters"].items() if "Default" not in parameter}
    assert name in needed
    assert needed == {"AssetBucket", "AssetKey"}


def test_every_region_of_the_catalogue_has_its_registry(template: Template) -> None:
    accounts = template["Mappings"]["AwsRegistries"]
    assert accounts["us-east-1"] == {"Account": "763104351884"}
    assert accounts["eu-south-1"] == {"Account": "692866216735"}
    assert all(name.replace("-", "").isalnum() for name in accounts)


def _lint(template: Template) -> list[str]:
    from cfnlint.api import lint_all

    return [str(match) for match in lint_all(json.dumps(template)) if match.rule.severity != "informational"]


def test_cfn_lint_finds_nothing(template: Template) -> None:
    assert _lint(template) == []


def test_the_document_explains_each_resource_permission_and_finding(template: Template) -> None:
    from tests.stacks.guard.policies import statements

    text = (Path(__file__).parents[3] / "docs" / "reference" / "stacks-guard.md").read_text(encoding="utf-8")
    names = {*template["Resources"], *template["Parameters"]}
    names |= {statement["Sid"] for _, statement in statements(template)}
    assert sorted(name for name in names if f"`{name}`" not in text) == []
