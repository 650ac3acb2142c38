"""How many there are: instances by requests in flight, or copies of a component down to none and back."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnCondition, CfnResource
from aws_cdk import aws_applicationautoscaling as autoscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from peagle_sm.core.plan.plan import Plan, bodies
from peagle_sm.core.spec.endpoint_spec import AutoscalingSpec
from stacks.properties import properties
from stacks.watched import INVOCATIONS, Watched

_NAMESPACE = "sagemaker"
_SCALE_OUT_S = 60


def add_scaling(
    scope: Construct, plan: Plan, endpoint: Watched, after: CfnResource, is_on: CfnCondition
) -> list[CfnResource]:
    """Add target and policies where the spec scales; ``after`` is the endpoint, or its component."""
    settings = plan.spec.autoscaling
    if endpoint.component is not None:
        made = _by_component(scope, plan, endpoint, settings or AutoscalingSpec(max_instances=_count(plan)))
    elif settings is not None:
        made = _by_instance(scope, plan, endpoint, settings)
    else:
        return []
    made[0].add_resource_dependency(after)
    for resource in made:
        resource.cfn_options.condition = is_on
    return made


def _count(plan: Plan) -> int:
    return plan.spec.placement.instance_count


def _by_instance(
    scope: Construct, plan: Plan, endpoint: Watched, settings: AutoscalingSpec
) -> list[CfnResource]:
    least, most = plan.spec.instance_bounds
    target = _target(
        scope,
        f"endpoint/{endpoint.name}/variant/{endpoint.variant}",
        "sagemaker:variant:DesiredInstanceCount",
        (least, most),
    )
    metric = "SageMakerVariantConcurrentRequestsPerModelHighResolution"
    return [target, _tracking(scope, endpoint, target, metric, settings.target_concurrency, settings)]


def _by_component(
    scope: Construct, plan: Plan, endpoint: Watched, settings: AutoscalingSpec
) -> list[CfnResource]:
    """Scale the copies, and SageMaker's managed scaling the instances under them."""
    component = bodies(plan).component or {}
    copies = int(component["RuntimeConfig"]["CopyCount"]) // _count(plan)  # on one instance
    _, most = plan.spec.instance_bounds
    target = _target(
        scope,
        f"inference-component/{endpoint.component}",
        "sagemaker:inference-component:DesiredCopyCount",
        (0, most * copies),
    )
    metric = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
    per_copy = settings.target_concurrency / copies
    tracking = _tracking(scope, endpoint, target, metric, per_copy, settings)
    return [target, tracking, *_from_zero(scope, endpoint, target)]


def _target(
    scope: Construct, resource_id: str, dimension: str, bounds: tuple[int, int]
) -> autoscaling.CfnScalableTarget:
    return autoscaling.CfnScalableTarget(
        scope,
        "ScalableTarget",
        service_namespace=_NAMESPACE,
        resource_id=resource_id,
        scalable_dimension=dimension,
        min_capacity=bounds[0],
        max_capacity=bounds[1],
    )


def _tracking(
    scope: Construct,
    endpoint: Watched,
    target: autoscaling.CfnScalableTarget,
    metric: str,
    aim: float,
    settings: AutoscalingSpec,
) -> CfnResource:
    policy = {
        "PolicyName": f"peagle-{endpoint.name}-requests-in-flight",
        "PolicyType": "TargetTrackingScaling",
        "ScalingTargetId": target.ref,
        "TargetTrackingScalingPolicyConfiguration": {
            "PredefinedMetricSpecification": {"PredefinedMetricType": metric},
            "TargetValue": aim,
            "ScaleInCooldown": settings.scale_in_minutes * 60,
            "ScaleOutCooldown": _SCALE_OUT_S,
        },
    }
    return _policy(scope, "ScalingPolicy", policy)


def _policy(scope: Construct, name: str, payload: dict[str, Any]) -> autoscaling.CfnScalingPolicy:
    fields = properties(autoscaling.CfnScalingPolicy, payload)
    return autoscaling.CfnScalingPolicy(scope, name, **fields)


def _from_zero(
    scope: Construct, endpoint: Watched, target: autoscaling.CfnScalableTarget
) -> list[CfnResource]:
    """At zero copies there are no requests in flight to follow: the first that fails asks for a copy."""
    step = {
        "PolicyName": f"peagle-{endpoint.name}-from-zero",
        "PolicyType": "StepScaling",
        "ScalingTargetId": target.ref,
        "StepScalingPolicyConfiguration": {
            "AdjustmentType": "ChangeInCapacity",
            "MetricAggregationType": "Maximum",
            "Cooldown": _SCALE_OUT_S,
            "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
        },
    }
    policy = _policy(scope, "FromZeroPolicy", step)
    asked = cloudwatch.CfnAlarm(
        scope,
        "FromZeroAlarm",
        alarm_name=f"Peagle-{endpoint.name}-from-zero",
        alarm_description="A request met no copy: this alarm asks for one. It needs no person.",
        namespace=INVOCATIONS,
        metric_name="NoCapacityInvocationFailures",
        dimensions=[
            cloudwatch.CfnAlarm.DimensionProperty(name=name, value=value)
            for name, value in endpoint.invocations.items()
        ],
        statistic="Maximum",
        period=60,
        evaluation_periods=1,
        threshold=1,
        comparison_operator="GreaterThanOrEqualToThreshold",
        treat_missing_data="missing",
        alarm_actions=[policy.attr_arn],
    )
    return [policy, asked]
