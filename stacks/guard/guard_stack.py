"""PeagleGuard: once in an account and region, cheap, and it stays. Endpoint stacks import its exports."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from aws_cdk import CfnMapping, CfnOutput, DefaultStackSynthesizer, Stack, Tags
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from peagle_sm.core.catalog.catalog import load_catalog
from peagle_sm.core.guard import names
from stacks.guard import alarms, asset, functions, messaging, policies
from stacks.guard.execution_role import REGISTRIES, execution_statements
from stacks.guard.inputs import Inputs
from stacks.guard.reasons import acknowledge

DESCRIPTION = "peagle-sm: turns off SageMaker endpoints that nobody uses, and tells people (one per region)"


class GuardStack(Stack):
    """The sweeper, the switch, the two providers and what they need.

    ``shipped`` makes the form that `peagle-sm guard install` sends without Node: the place of the Lambdas'
    package is then given by parameters; otherwise the CDK's command line uploads it.
    """

    def __init__(
        self, scope: Construct, construct_id: str = names.GUARD_STACK, *, shipped: bool = False, **more: Any
    ) -> None:
        """Compose the stack; ``more`` goes to `aws_cdk.Stack`."""
        options: dict[str, Any] = {
            "analytics_reporting": False,
            "description": DESCRIPTION,
            "synthesizer": DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
        }
        super().__init__(scope, construct_id, **{**options, **more})
        code = asset.parameters(self) if shipped else asset.cdk_asset(self)
        inputs = Inputs(self)
        self._registries()
        table = messaging.register(self, inputs)
        topic = messaging.notices(self, inputs)
        queue = messaging.dead_letters(self, inputs)
        switches = functions.role(
            self,
            "SchedulerRole",
            "peagle-scheduler-",
            "scheduler",
            "The dead-man's switch of peagle-sm: turns off and deletes endpoints at the end of their lives.",
            policies.schedule_role(),
        )
        containers = functions.role(
            self,
            "ExecutionRole",
            "peagle-execution-",
            "sagemaker",
            "What the containers of peagle-sm's endpoints may do.",
            execution_statements(),
        )
        environment = {
            "PEAGLE_TABLE": table.ref,
            "PEAGLE_TOPIC_ARN": topic.ref,
            "PEAGLE_SWITCH_FUNCTION": names.SWITCH,
            "PEAGLE_LIFETIME_FUNCTION": names.LIFETIME_PROVIDER,
            "PEAGLE_SCHEDULER_ROLE_ARN": switches.attr_arn,
            "PEAGLE_DEAD_LETTERS_ARN": queue.attr_arn,
            "PEAGLE_SWEEP_MINUTES": str(names.SWEEP_MINUTES),
        }
        around = functions.Surroundings(code, environment, queue.attr_arn)
        made = {job.name: functions.make(self, job, around, inputs) for job in functions.jobs()}
        self._sweep_schedule(made[names.SWEEPER], queue.attr_arn)
        alarms.add(self, topic.ref)
        self._outputs(made, switches, containers, topic.ref, queue.attr_arn)
        Tags.of(self).add("peagle-sm:part", "guard")
        acknowledge(self)

    def _registries(self) -> None:
        regions = load_catalog().regions
        accounts = {name: {"Account": regions[name].account} for name in sorted(regions)}
        CfnMapping(self, REGISTRIES, mapping=accounts, lazy=False)

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
            name=names.SWEEP_SCHEDULE,
            description="A sweep of the peagle-sm guard.",
            schedule_expression=f"rate({names.SWEEP_MINUTES} minutes)",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=sweeper.attr_arn,
                role_arn=may.attr_arn,
                # No time: a late sweep judges by the present, which it takes from AWS's answers.
                input="{}",
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_retry_attempts=2, maximum_event_age_in_seconds=60 * names.SWEEP_MINUTES
                ),
                dead_letter_config=scheduler.CfnSchedule.DeadLetterConfigProperty(arn=queue_arn),
            ),
        )

    def _outputs(
        self,
        made: dict[str, lambda_.CfnFunction],
        switches: iam.CfnRole,
        containers: iam.CfnRole,
        topic_arn: str,
        queue_arn: str,
    ) -> None:
        exported = {
            names.EXPORT_MODEL_PROVIDER: made[names.MODEL_PROVIDER].attr_arn,
            names.EXPORT_LIFETIME_PROVIDER: made[names.LIFETIME_PROVIDER].attr_arn,
            names.EXPORT_EXECUTION_ROLE: containers.attr_arn,
            names.EXPORT_SCHEDULER_ROLE: switches.attr_arn,
            names.EXPORT_NOTICES_TOPIC: topic_arn,
            names.EXPORT_DEAD_LETTERS: queue_arn,
            names.EXPORT_SWITCH: made[names.SWITCH].attr_arn,
        }
        for export, value in exported.items():
            CfnOutput(self, export.partition("-")[2], value=value, export_name=export)
        CfnOutput(self, "Version", value=version("peagle-sm"), description="The version of peagle-sm.")
