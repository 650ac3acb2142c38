"""Stack PeagleGuard: one per account and region; endpoint stacks import its exports.

It has the register (DynamoDB), the topic for notices, the dead-letter queue, and alarms on failed sweeps,
on missing sweeps and on dead letters. ``python -m stacks.guard.guard_stack`` (scripts/lib/guard-template)
writes the template that `peagle-sm guard install` sends into the toolkit, so that an installation needs no
Node. Run it after every change of the stack; a test compares the file with the stack.
"""

from __future__ import annotations

import json
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from aws_cdk import (
    App,
    CfnMapping,
    CfnOutput,
    RemovalPolicy,
    Stack,
    Tags,
)
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from peagle_sm.core import guard
from peagle_sm.core.catalog import load_catalog
from stacks.endpoint import add_checked
from stacks.guard import functions, policies
from stacks.guard.functions import Inputs, cdk_asset, code_parameters
from stacks.guard.policies import REGISTRIES, execution_statements
from stacks.metrics import stat
from stacks.stack import PeagleStack

_DEAD_LETTERS_LAST_S = 14 * 24 * 3600
"""SQS's longest retention of a message."""


def add_register(stack: Stack, inputs: Inputs) -> dynamodb.CfnTable:
    """Add the register: the DynamoDB table with marks, leases and owners of the endpoints."""
    table = dynamodb.CfnTable(
        stack,
        "Register",
        table_name=guard.TABLE,
        attribute_definitions=[
            dynamodb.CfnTable.AttributeDefinitionProperty(attribute_name="pk", attribute_type="S")
        ],
        key_schema=[dynamodb.CfnTable.KeySchemaProperty(attribute_name="pk", key_type="HASH")],
        billing_mode="PAY_PER_REQUEST",
        time_to_live_specification=dynamodb.CfnTable.TimeToLiveSpecificationProperty(
            attribute_name="ttl", enabled=True
        ),
        point_in_time_recovery_specification=dynamodb.CfnTable.PointInTimeRecoverySpecificationProperty(
            point_in_time_recovery_enabled=True
        ),
    )
    # Without it AWS encrypts with its own key.
    key = {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": inputs.key.value_as_string}
    table.add_property_override("SSESpecification", inputs.if_key(key))
    # The next sweeps restore its content, and the next installation needs its name.
    table.apply_removal_policy(RemovalPolicy.DESTROY)
    return table


def add_notices(stack: Stack, inputs: Inputs) -> sns.CfnTopic:
    """Add the SNS topic for notices, with its first subscriber if one was given."""
    topic = sns.CfnTopic(stack, "Notices", topic_name=guard.TOPIC, display_name="peagle-sm guard")
    topic.add_property_override("KmsMasterKeyId", inputs.if_key(inputs.key.value_as_string))
    sns.CfnTopicPolicy(
        stack,
        "NoticesPolicy",
        topics=[topic.ref],
        policy_document=policies.document(
            policies.only_by_tls("sns:Publish", topic.ref),
            policies.alarms_publish(
                topic.ref, {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
            ),
        ),
    )
    mail = sns.CfnSubscription(
        stack, "NoticesMail", topic_arn=topic.ref, protocol="email", endpoint=inputs.email.value_as_string
    )
    mail.cfn_options.condition = inputs.has_email
    return topic


def add_dead_letters(stack: Stack, inputs: Inputs) -> sqs.CfnQueue:
    """Add the dead-letter queue for events that could not be delivered or handled."""
    queue = sqs.CfnQueue(
        stack,
        "DeadLetters",
        queue_name=guard.DEAD_LETTERS,
        message_retention_period=_DEAD_LETTERS_LAST_S,
    )
    queue.add_property_override("KmsMasterKeyId", inputs.if_key(inputs.key.value_as_string))
    queue.add_property_override("SqsManagedSseEnabled", inputs.if_key(False, True))
    queue.apply_removal_policy(RemovalPolicy.DESTROY)
    sqs.CfnQueuePolicy(
        stack,
        "DeadLettersPolicy",
        queues=[queue.ref],
        policy_document=policies.document(policies.only_by_tls("sqs:*", queue.attr_arn)),
    )
    return queue


_PERIOD_S = 60 * guard.SWEEP_MINUTES
_TAGS = {"peagle-sm:part": "guard"}


def add_alarms(stack: Stack, notices_arn: str) -> None:
    """Add the three alarms; each notifies the topic when it starts and when it ends."""

    def alarm(construct_id: str, name: str, description: str, rest: dict[str, Any]) -> None:
        properties = {"AlarmName": name, "AlarmDescription": description, **rest}
        actions = {"AlarmActions": [notices_arn], "OKActions": [notices_arn]}
        add_checked(stack, construct_id, "AWS::CloudWatch::Alarm", {**properties, **actions}, _TAGS)

    above_zero = {
        "ComparisonOperator": "GreaterThanThreshold",
        "Threshold": 0,
        "EvaluationPeriods": 1,
        "TreatMissingData": "notBreaching",
    }
    errors = [_lambda(f"m{number}", name, "Errors") for number, name in enumerate(guard.FUNCTIONS)]
    total = "+".join(f"FILL({query['Id']}, 0)" for query in errors)
    alarm(
        "ErrorsAlarm",
        guard.ALARM_ERRORS,
        "A Lambda of the peagle-sm guard failed. Read the logs /aws/lambda/peagle-guard-*.",
        {
            "Metrics": [*errors, {"Id": "errors", "Expression": total, "Label": "errors of the guard"}],
            **above_zero,
        },
    )
    ran, failed = _lambda("ran", guard.SWEEPER, "Invocations"), _lambda("failed", guard.SWEEPER, "Errors")
    done = {"Id": "done", "Expression": "ran - FILL(failed, 0)", "Label": "sweeps that ended well"}
    alarm(
        "NoSweepAlarm",
        guard.ALARM_NO_SWEEP,
        "No sweep of the peagle-sm guard succeeded in two periods: idle endpoints are not turned off. "
        "Their lifetime schedules still work.",
        {
            "Metrics": [ran, failed, done],
            "ComparisonOperator": "LessThanThreshold",
            "Threshold": 1,
            "EvaluationPeriods": 2,
            "DatapointsToAlarm": 2,
            "TreatMissingData": "breaching",  # of a Lambda's metrics: nothing ran
        },
    )
    alarm(
        "DeadLettersAlarm",
        guard.ALARM_DEAD_LETTERS,
        "An event of the peagle-sm guard could not be handled. Read the queue peagle-guard-dead-letters, "
        "and check with `peagle-sm list` for endpoints that should not exist.",
        {
            "Namespace": "AWS/SQS",
            "MetricName": "ApproximateNumberOfMessagesVisible",
            "Dimensions": [{"Name": "QueueName", "Value": guard.DEAD_LETTERS}],
            "Statistic": "Maximum",
            "Period": _PERIOD_S,
            **above_zero,
        },
    )


def _lambda(query_id: str, function: str, metric: str) -> dict[str, Any]:
    return stat(query_id, "AWS/Lambda", metric, {"FunctionName": function}, "Sum", _PERIOD_S)


DESCRIPTION = "peagle-sm: turns off unused SageMaker endpoints and sends notices (one per region)"


class GuardStack(PeagleStack):
    """Stack of the guard: sweeper, switch, two providers and their resources.

    ``shipped`` makes the template that `peagle-sm guard install` deploys without Node: parameters give the
    location of the Lambdas' package. Otherwise the CDK CLI uploads it.
    """

    def __init__(
        self, scope: Construct, construct_id: str = guard.GUARD_STACK, *, shipped: bool = False, **more: Any
    ) -> None:
        super().__init__(scope, construct_id, DESCRIPTION, **more)
        code = code_parameters(self) if shipped else cdk_asset(self)
        inputs = Inputs(self)
        regions = load_catalog().regions
        accounts = {name: {"Account": regions[name].account} for name in sorted(regions)}
        CfnMapping(self, REGISTRIES, mapping=accounts, lazy=False)
        table = add_register(self, inputs)
        topic = add_notices(self, inputs)
        queue = add_dead_letters(self, inputs)
        switches = functions.role(
            self,
            "SchedulerRole",
            "peagle-scheduler-",
            "scheduler",
            "Lifetime schedules of peagle-sm: turn off and delete endpoints at the end of their lifetime.",
            policies.schedule_role(),
        )
        containers = functions.role(
            self,
            "ExecutionRole",
            "peagle-execution-",
            "sagemaker",
            "Permissions of the containers of peagle-sm's endpoints.",
            execution_statements(),
        )
        environment = {
            "PEAGLE_TABLE": table.ref,
            "PEAGLE_TOPIC_ARN": topic.ref,
            "PEAGLE_SWITCH_FUNCTION": guard.SWITCH,
            "PEAGLE_LIFETIME_FUNCTION": guard.LIFETIME_PROVIDER,
            "PEAGLE_SCHEDULER_ROLE_ARN": switches.attr_arn,
            "PEAGLE_DEAD_LETTERS_ARN": queue.attr_arn,
        }
        by_name = {
            job.name: functions.make(self, job, inputs, code, environment, queue.attr_arn)
            for job in functions.jobs()
        }
        self._sweep_schedule(by_name[guard.SWEEPER], queue.attr_arn)
        add_alarms(self, topic.ref)
        exported = {
            guard.EXPORT_MODEL_PROVIDER: by_name[guard.MODEL_PROVIDER].attr_arn,
            guard.EXPORT_LIFETIME_PROVIDER: by_name[guard.LIFETIME_PROVIDER].attr_arn,
            guard.EXPORT_EXECUTION_ROLE: containers.attr_arn,
            guard.EXPORT_SCHEDULER_ROLE: switches.attr_arn,
            guard.EXPORT_NOTICES_TOPIC: topic.ref,
            guard.EXPORT_DEAD_LETTERS: queue.attr_arn,
            guard.EXPORT_SWITCH: by_name[guard.SWITCH].attr_arn,
        }
        for export, value in exported.items():
            CfnOutput(self, export.partition("-")[2], value=value, export_name=export)
        CfnOutput(self, "Version", value=version("peagle-sm"), description="The version of peagle-sm.")
        for key, value in _TAGS.items():
            Tags.of(self).add(key, value)

    def _sweep_schedule(self, sweeper: lambda_.CfnFunction, queue_arn: str) -> None:
        may = functions.role(
            self,
            "SweepRole",
            "peagle-guard-sweep-",
            "scheduler",
            "Starts the sweeps of the peagle-sm guard.",
            policies.sweep_role(),
        )
        scheduler.CfnSchedule(
            self,
            "Sweep",
            name=guard.SWEEP_SCHEDULE,
            description="A sweep of the peagle-sm guard.",
            schedule_expression=f"rate({guard.SWEEP_MINUTES} minutes)",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=sweeper.attr_arn,
                role_arn=may.attr_arn,
                # No time: a late sweep uses the current time, which it takes from AWS's responses.
                input="{}",
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_retry_attempts=2, maximum_event_age_in_seconds=60 * guard.SWEEP_MINUTES
                ),
                dead_letter_config=scheduler.CfnSchedule.DeadLetterConfigProperty(arn=queue_arn),
            ),
        )


TEMPLATE = Path(__file__).parents[2] / "toolkit/peagle-sm/peagle_sm/guard_assets/template.json"


def template(*, shipped: bool = True) -> dict[str, Any]:
    """Synthesise the stack for any account and region, and return its template."""
    with tempfile.TemporaryDirectory() as folder:
        app = App(outdir=folder, analytics_reporting=False)
        GuardStack(app, shipped=shipped)
        document = app.synth().get_stack_by_name(guard.GUARD_STACK).template
    assert isinstance(document, dict)
    return document


def text(document: dict[str, Any]) -> str:
    """Return compact JSON: CloudFormation accepts at most 51,200 bytes without an upload."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n"


def main() -> None:
    """Write the template to the toolkit."""
    TEMPLATE.parent.mkdir(exist_ok=True)
    TEMPLATE.write_text(text(template()), encoding="utf-8")


if __name__ == "__main__":
    main()
