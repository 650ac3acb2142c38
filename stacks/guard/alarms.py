"""Who watches the guard: an alarm on failures, on silence, and on what could not be delivered."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_cloudwatch as cloudwatch

from peagle_sm.core.guard import names

_PERIOD_S = 60 * names.SWEEP_MINUTES
_Query = cloudwatch.CfnAlarm.MetricDataQueryProperty


def add(stack: Stack, notices_arn: str) -> None:
    """Add the three alarms; each speaks to the topic of the notices, when it starts and when it ends."""
    _errors(stack, notices_arn)
    _no_sweep(stack, notices_arn)
    _dead_letters(stack, notices_arn)


def _errors(stack: Stack, notices_arn: str) -> None:
    each = [_lambda(f"m{number}", name, "Errors") for number, name in enumerate(names.FUNCTIONS)]
    total = _Query(
        id="errors", expression="+".join(f"FILL({one.id}, 0)" for one in each), label="errors of the guard"
    )
    cloudwatch.CfnAlarm(
        stack,
        "ErrorsAlarm",
        alarm_name=names.ALARM_ERRORS,
        alarm_description="A Lambda of the peagle-sm guard failed. Why: logs /aws/lambda/peagle-guard-*.",
        metrics=[*each, total],
        comparison_operator="GreaterThanThreshold",
        threshold=0,
        evaluation_periods=1,
        treat_missing_data="notBreaching",
        alarm_actions=[notices_arn],
        ok_actions=[notices_arn],
    )


def _no_sweep(stack: Stack, notices_arn: str) -> None:
    """Sweeps that ended well; where Lambda reports nothing at all, nothing ran."""
    ran, failed = _lambda("ran", names.SWEEPER, "Invocations"), _lambda("failed", names.SWEEPER, "Errors")
    done = _Query(id="done", expression="ran - FILL(failed, 0)", label="sweeps that ended well")
    cloudwatch.CfnAlarm(
        stack,
        "NoSweepAlarm",
        alarm_name=names.ALARM_NO_SWEEP,
        alarm_description=(
            "No sweep of the peagle-sm guard ended well for two periods: idle endpoints are not turned off. "
            "Their lifetime limits still hold."
        ),
        metrics=[ran, failed, done],
        comparison_operator="LessThanThreshold",
        threshold=1,
        evaluation_periods=2,
        datapoints_to_alarm=2,
        treat_missing_data="breaching",
        alarm_actions=[notices_arn],
        ok_actions=[notices_arn],
    )


def _dead_letters(stack: Stack, notices_arn: str) -> None:
    cloudwatch.CfnAlarm(
        stack,
        "DeadLettersAlarm",
        alarm_name=names.ALARM_DEAD_LETTERS,
        alarm_description=(
            "An event of the peagle-sm guard was given up: look at the queue peagle-guard-dead-letters, "
            "and whether `peagle-sm list` shows an endpoint that should be gone."
        ),
        namespace="AWS/SQS",
        metric_name="ApproximateNumberOfMessagesVisible",
        dimensions=[cloudwatch.CfnAlarm.DimensionProperty(name="QueueName", value=names.DEAD_LETTERS)],
        statistic="Maximum",
        period=_PERIOD_S,
        comparison_operator="GreaterThanThreshold",
        threshold=0,
        evaluation_periods=1,
        treat_missing_data="notBreaching",
        alarm_actions=[notices_arn],
        ok_actions=[notices_arn],
    )


def _lambda(query_id: str, function: str, metric: str) -> _Query:
    return _Query(
        id=query_id,
        return_data=False,
        metric_stat=cloudwatch.CfnAlarm.MetricStatProperty(
            metric=cloudwatch.CfnAlarm.MetricProperty(
                namespace="AWS/Lambda",
                metric_name=metric,
                dimensions=[cloudwatch.CfnAlarm.DimensionProperty(name="FunctionName", value=function)],
            ),
            period=_PERIOD_S,
            stat="Sum",
        ),
    )
