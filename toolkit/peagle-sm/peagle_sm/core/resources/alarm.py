"""CloudWatch alarms: the one that scales out from zero, and those that roll an update back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peagle_sm.core.plan import tags_and_schedules as keys
from peagle_sm.core.plan.environment import acceptance_namespace
from peagle_sm.core.resources.endpoint_config import VARIANT
from peagle_sm.core.resources.resource import Refer, Request, Resource
from peagle_sm.core.resources.scalable_target import Scaling
from peagle_sm.core.resources.scaling_policy import ScalingPolicy, scaling_policies

ACCEPTANCE_METRIC = "AcceptanceLength"  #: the gate's


class Alarm(Resource):
    """An alarm; AWS chooses the ARN of the policy that it triggers, so the plan has a placeholder."""

    kind, words = "alarm", "alarm"
    service, noun, name_field = "cloudwatch", "alarms", "AlarmName"
    replaces = True
    cloudformation = "AWS::CloudWatch::Alarm"
    template_id = "FromZeroAlarm"

    def create(self) -> tuple[Request, ...]:
        """Return PutMetricAlarm."""
        return (Request(self.service, "put_metric_alarm", self.parameters or {}),)

    def describe(self) -> Request:
        """Return DescribeAlarms for the one name."""
        return Request(self.service, "describe_alarms", {"AlarmNames": [self.name]})

    def facts(self, answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the alarm, if there is one."""
        return next(iter(answer["MetricAlarms"]), None)

    def delete(self) -> Request:
        """Return DeleteAlarms, which succeeds for a missing alarm, too."""
        return Request(self.service, "delete_alarms", {"AlarmNames": [self.name]})

    def properties(self, refer: Refer) -> dict[str, Any]:
        """Return the properties; the action is a reference to the policy."""
        return {**super().properties(refer), "AlarmActions": [refer(label, "Arn") for label in self.needs]}


def policy_placeholder(policy: str) -> str:
    """Return the placeholder for a policy's ARN, which AWS chooses."""
    return f"<ARN of policy {policy}>"


def from_zero_alarm(scaling: Scaling) -> Alarm:
    """Return the alarm of a component: the first failed request triggers the policy from zero."""
    policy: ScalingPolicy = scaling_policies(scaling)[-1]
    name = keys.from_zero_alarm(scaling.endpoint)
    parameters = {
        "AlarmName": name,
        "AlarmDescription": "A request found no copy: this alarm triggers scale-out. No action needed.",
        "Namespace": "AWS/SageMaker",
        "MetricName": "NoCapacityInvocationFailures",
        "Dimensions": [{"Name": "InferenceComponentName", "Value": scaling.component}],
        "Statistic": "Maximum",
        "Period": 60,
        "EvaluationPeriods": 1,
        "Threshold": 1.0,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "TreatMissingData": "missing",
        "AlarmActions": [policy_placeholder(policy.name)],
    }
    return Alarm(name, parameters, needs=(policy.label,))


def update_alarms(endpoint: str, least_acceptance: float | None = None) -> tuple[Alarm, ...]:
    """Return the alarms that exist during an update: any 5xx rolls it back.

    With ``least_acceptance`` a lower acceptance length does, too. The gate in this project's image writes
    that metric, without dimensions, in the endpoint's namespace. While two fleets serve, it is the mean of
    both. Without the gate there is no data, and the alarm stays silent.
    """
    (errors, acceptance), undoes = keys.alarm_names(endpoint), "peagle-sm: undoes"
    requests: list[dict[str, Any]] = [
        {
            "AlarmName": errors,
            "AlarmDescription": f"{undoes} an update of endpoint {endpoint} whose engine fails requests",
            "Namespace": "AWS/SageMaker",
            "MetricName": "Invocation5XXErrors",
            "Dimensions": [
                {"Name": "EndpointName", "Value": endpoint},
                {"Name": "VariantName", "Value": VARIANT},
            ],
            "Statistic": "Sum",
            "Period": 60,
            "EvaluationPeriods": 1,
            "Threshold": 1.0,
            "ComparisonOperator": "GreaterThanOrEqualToThreshold",
            "TreatMissingData": "notBreaching",
        }
    ]
    if least_acceptance is not None:
        requests.append(
            {
                "AlarmName": acceptance,
                "AlarmDescription": f"{undoes} a promotion of endpoint {endpoint} whose head drafts worse",
                "Namespace": acceptance_namespace(endpoint),
                "MetricName": ACCEPTANCE_METRIC,
                "Statistic": "Average",
                "Period": 60,
                "EvaluationPeriods": 3,
                "DatapointsToAlarm": 3,
                "Threshold": round(least_acceptance, 4),
                "ComparisonOperator": "LessThanThreshold",
                "TreatMissingData": "notBreaching",
            }
        )
    return tuple(Alarm(request["AlarmName"], request) for request in requests)


def update_alarms_deletion(endpoint: str) -> Request:
    """Return the request that deletes what an update leaves if it is killed; missing alarms are no error.

    "If you specify any incorrect alarm names, the alarms you specify with correct names are still deleted"
    (CloudWatch's API reference).
    """
    return Request("cloudwatch", "delete_alarms", {"AlarmNames": list(keys.alarm_names(endpoint))})
