"""Scaling policies: target tracking of the requests in flight, and the step that adds the first copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peagle_sm.core.resources.resource import Refer, Request, Resource
from peagle_sm.core.resources.scalable_target import Scaling, identity, scalable_target

_SCALE_OUT_S = 60
_OF_VARIANT = "SageMakerVariantConcurrentRequestsPerModelHighResolution"
_OF_COPY = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"


class ScalingPolicy(Resource):
    """A scaling policy; it goes with its target, so a deletion sends nothing for it."""

    kind, words = "scaling-policy", "scaling policy"
    service, noun, name_field = "application-autoscaling", "scaling_policy", "PolicyName"
    replaces = True
    cloudformation = "AWS::ApplicationAutoScaling::ScalingPolicy"
    template_id = "ScalingPolicy"

    @property
    def logical_id(self) -> str:
        """Return the name in a template, one for each policy."""
        of_zero = (self.parameters or {})["PolicyType"] == "StepScaling"
        return "FromZeroPolicy" if of_zero else self.template_id

    def create(self) -> tuple[Request, ...]:
        """Return PutScalingPolicy."""
        return (Request(self.service, "put_scaling_policy", self.parameters or {}),)

    def describe(self) -> Request:
        """Return DescribeScalingPolicies for the one name."""
        parameters = {"ServiceNamespace": "sagemaker", "PolicyNames": [self.name]}
        return Request(self.service, "describe_scaling_policies", parameters)

    def facts(self, answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the policy, if there is one."""
        return next((row for row in answer["ScalingPolicies"] if row["PolicyName"] == self.name), None)

    def delete(self) -> Request:
        """Return DeleteScalingPolicy."""
        target = identity((self.parameters or {})["ResourceId"])
        return Request(self.service, "delete_scaling_policy", {**target, "PolicyName": self.name})

    def properties(self, refer: Refer) -> dict[str, Any]:
        """Return the properties: CloudFormation takes the target's id in place of its identity."""
        parameters = super().properties(refer)
        own = {key: value for key, value in parameters.items() if key not in identity("")}
        return {**own, "ScalingTargetId": refer(self.needs[0], None)}


def scaling_policies(scaling: Scaling) -> tuple[ScalingPolicy, ...]:
    """Return the policies of these settings; the one from zero only with a component."""
    target = scalable_target(scaling)
    tracking = {
        **identity(target.name),
        "PolicyName": f"peagle-{scaling.endpoint}-requests-in-flight",
        "PolicyType": "TargetTrackingScaling",
        "TargetTrackingScalingPolicyConfiguration": {
            "PredefinedMetricSpecification": {
                "PredefinedMetricType": _OF_VARIANT if scaling.component is None else _OF_COPY
            },
            "TargetValue": scaling.target,
            "ScaleInCooldown": scaling.scale_in_minutes * 60,
            "ScaleOutCooldown": _SCALE_OUT_S,
        },
    }
    from_zero = {
        **identity(target.name),
        "PolicyName": f"peagle-{scaling.endpoint}-from-zero",
        "PolicyType": "StepScaling",
        "StepScalingPolicyConfiguration": {
            "AdjustmentType": "ChangeInCapacity",
            "MetricAggregationType": "Maximum",
            "Cooldown": _SCALE_OUT_S,
            "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
        },
    }
    chosen = [tracking] if scaling.component is None else [tracking, from_zero]
    return tuple(ScalingPolicy(each["PolicyName"], each, needs=(target.label,)) for each in chosen)
