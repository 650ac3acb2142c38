"""Application Auto Scaling for SageMaker: components, targets that must exist, and target tracking's alarms.

Targets, policies and their alarms are kept and described; the alarms are evaluated. Nothing scales by itself:
instances and copies change only by an API call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from math import inf
from typing import Any
from uuid import uuid4

COPIES = "sagemaker:inference-component:DesiredCopyCount"
_MARK = "peagle_has_target"
_ENDPOINT = ("EndpointName", "VariantName")
_COMPONENT = ("InferenceComponentName",)
# Metric, statistic, period in seconds and dimensions of each predefined metric. Source: PredefinedMetricType
# in the Application Auto Scaling API reference.
_PREDEFINED: dict[str, tuple[str, str, int, tuple[str, ...]]] = {
    "SageMakerVariantInvocationsPerInstance": ("InvocationsPerInstance", "Sum", 60, _ENDPOINT),
    "SageMakerVariantConcurrentRequestsPerModelHighResolution": (
        "ConcurrentRequestsPerModel",
        "Maximum",
        10,
        _ENDPOINT,
    ),
    "SageMakerInferenceComponentInvocationsPerCopy": ("InvocationsPerCopy", "Sum", 60, _COMPONENT),
    "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution": (
        "ConcurrentRequestsPerCopy",
        "Maximum",
        10,
        _COMPONENT,
    ),
}


class _Dimension:
    """Extra member of moto's enumeration; only its value is read."""

    value = COPIES


def lay_sagemaker_scaling(has_target: Callable[[str], bool]) -> None:
    """Add SageMaker's rules to moto; ``has_target``: whether a resource exists."""
    from moto.applicationautoscaling import models, responses

    known: list[Any] = [each for each in models.ScalableDimensionValueSet if each.value != COPIES]
    for module in (models, responses):
        module.ScalableDimensionValueSet = [*known, _Dimension()]
    backend, policy = models.ApplicationAutoscalingBackend, models.FakeApplicationAutoscalingPolicy
    first = not hasattr(backend, _MARK)
    setattr(backend, _MARK, staticmethod(has_target))
    if first:
        _lay_targets(backend)
        _lay_policies(backend, policy)
        _lay_policy_checks(responses.ApplicationAutoScalingResponse)


def _lay_targets(backend: Any) -> None:
    from moto.applicationautoscaling.exceptions import AWSValidationException

    register, deregister = backend.register_scalable_target, backend.deregister_scalable_target

    def register_scalable_target(self: Any, namespace: str, r_id: str, dimension: str, **others: Any) -> Any:
        if namespace == "sagemaker" and not self.peagle_has_target(r_id):
            raise AWSValidationException(f"No SageMaker resource found for resource ID: {r_id}")
        target = self.targets.get(dimension, {}).get(r_id)
        least, most = (
            others[name] if others[name] is not None or target is None else getattr(target, name)
            for name in ("min_capacity", "max_capacity")
        )
        if least is None or most is None:
            raise AWSValidationException(
                "MinCapacity and MaxCapacity are required when a scalable target is registered"
            )
        _check_capacities(least, most)
        return register(self, namespace, r_id, dimension, **others)

    def deregister_scalable_target(self: Any, namespace: str, r_id: str, dimension: str) -> None:
        _check_registered(self, namespace, r_id, dimension, "found")
        deregister(self, namespace, r_id, dimension)
        # "Deregistering a scalable target deletes the scaling policies that are associated with it."
        for key, policy in list(self.policies.items()):
            if (policy.service_namespace, policy.resource_id, policy.scalable_dimension) == (
                namespace,
                r_id,
                dimension,
            ):
                policy.delete_alarms(self.account_id, self.region_name)
                del self.policies[key]

    backend.register_scalable_target = register_scalable_target
    backend.deregister_scalable_target = deregister_scalable_target


def _check_capacities(least: int, most: int) -> None:
    from moto.applicationautoscaling.exceptions import AWSValidationException

    if least < 0:
        raise AWSValidationException("Minimum capacity cannot be negative")
    if least > most:
        raise AWSValidationException("Maximum capacity cannot be less than minimum capacity")


def _check_registered(backend: Any, namespace: str, r_id: str, dimension: str, verb: str) -> None:
    """Refuse an operation on a scalable target that does not exist, with AWS's code and words."""
    from moto.core.exceptions import JsonRESTError

    if r_id not in backend.targets.get(dimension, {}):
        raise JsonRESTError(
            "ObjectNotFoundException",
            f"No scalable target {verb} for service namespace: {namespace}, resource ID: {r_id}, "
            f"scalable dimension: {dimension}",
        )


def _lay_policies(backend: Any, policy: Any) -> None:
    from moto.core.exceptions import JsonRESTError

    create, put, delete = policy.create_alarms, backend.put_scaling_policy, backend.delete_scaling_policy

    def create_alarms(self: Any) -> None:
        create(self)
        if self.service_namespace == "sagemaker" and self.policy_type == "TargetTrackingScaling":
            self.alarms.extend(_tracking_alarms(self))

    def delete_scaling_policy(
        self: Any, policy_name: str, service_namespace: str, resource_id: str, scalable_dimension: str
    ) -> None:
        place = (service_namespace, resource_id, scalable_dimension)
        if policy.formulate_key(*place, policy_name) not in self.policies:
            raise JsonRESTError(
                "ObjectNotFoundException",
                f"No scaling policy found for service namespace: {service_namespace}, resource ID: "
                f"{resource_id}, scalable dimension: {scalable_dimension}, policy name: {policy_name}",
            )
        delete(self, policy_name, *place)

    def put_scaling_policy(self: Any, **members: Any) -> Any:
        place = (members["service_namespace"], members["resource_id"], members["scalable_dimension"])
        _check_registered(self, *place, "registered")
        before = {
            key: list(known.alarms)
            for key, known in self.policies.items()
            if known.service_namespace == "sagemaker"
        }
        policy_made = put(self, **members)
        replaced = [
            alarm for key, old in before.items() if self.policies.get(key) is policy_made for alarm in old
        ]
        made_names = {alarm.name for alarm in policy_made.alarms}
        from moto.cloudwatch.models import cloudwatch_backends

        names = [alarm.name for alarm in replaced if alarm.name not in made_names]
        cloudwatch_backends[self.account_id][self.region_name].delete_alarms(names)
        return policy_made

    policy.create_alarms = create_alarms
    backend.put_scaling_policy = put_scaling_policy
    backend.delete_scaling_policy = delete_scaling_policy


def _lay_policy_checks(responses: Any) -> None:
    """Have PutScalingPolicy checked before moto, which keeps only one of the two configurations."""
    from moto.applicationautoscaling.exceptions import AWSValidationException

    put = responses.put_scaling_policy

    def put_scaling_policy(self: Any) -> Any:
        wrong = _wrong_policy(self._get_param) if self._get_param("ServiceNamespace") == "sagemaker" else None
        if wrong is not None:
            raise AWSValidationException(wrong)
        return put(self)

    responses.put_scaling_policy = put_scaling_policy


def _wrong_policy(member: Callable[[str], Any]) -> str | None:
    """Check a policy of an endpoint's instances or of a component's copies; the texts are ours."""
    kind = member("PolicyType")
    tracking = member("TargetTrackingScalingPolicyConfiguration")
    stepping = member("StepScalingPolicyConfiguration")
    if kind not in ("TargetTrackingScaling", "StepScaling"):
        return f"PolicyType {kind} is not supported for sagemaker"
    if (tracking is None, stepping is None) != (kind == "StepScaling", kind == "TargetTrackingScaling"):
        return f"A policy of type {kind} needs its own configuration and no other"
    if tracking is None:
        return _wrong_steps(stepping)
    return _wrong_tracking(member("ScalableDimension"), tracking)


def _wrong_tracking(dimension: str, body: Mapping[str, Any]) -> str | None:
    metrics = ("PredefinedMetricSpecification", "CustomizedMetricSpecification")
    if sum(bool(body.get(each)) for each in metrics) != 1:
        return f"A target tracking policy needs either {' or '.join(metrics)}"
    if float(body["TargetValue"]) <= 0:
        return "TargetValue must be more than 0"
    metric = (body.get("PredefinedMetricSpecification") or {}).get("PredefinedMetricType")
    place = _COMPONENT if dimension == COPIES else _ENDPOINT
    if metric is not None and (metric not in _PREDEFINED or _PREDEFINED[metric][3] != place):
        return f"Predefined metric type {metric} is not supported for scalable dimension {dimension}"
    return None


def _wrong_steps(body: Mapping[str, Any]) -> str | None:
    """Check steps: at least one, without overlaps or gaps, and open on at most one side each."""
    if not body.get("AdjustmentType"):
        return "AdjustmentType is required for a step scaling policy"
    steps = [
        (step.get("MetricIntervalLowerBound", -inf), step.get("MetricIntervalUpperBound", inf))
        for step in body.get("StepAdjustments") or ()
    ]
    if not steps:
        return "At least one step adjustment is required for a step scaling policy"
    if any(low >= high for low, high in steps):
        return "MetricIntervalLowerBound must be less than MetricIntervalUpperBound"
    steps.sort()
    if any(high != low for (_, high), (low, _) in pairwise(steps)):
        return "Step adjustment intervals must not overlap, and have no gaps between them"
    return None


def _tracking_alarms(policy: Any) -> list[Any]:
    """Create AlarmHigh (above the target, 3 periods) and AlarmLow (below 90% of it, 15 periods)."""
    from moto.cloudwatch.models import cloudwatch_backends

    cloudwatch = cloudwatch_backends[policy.account_id][policy.region_name]
    body = policy.target_tracking_scaling_policy_configuration
    target = float(body["TargetValue"])
    metric = _tracked(policy.resource_id, body)
    if metric is None:
        return []
    sides = [("AlarmHigh", "GreaterThanThreshold", target, 3)]
    if str(body.get("DisableScaleIn", False)).lower() != "true":
        sides.append(("AlarmLow", "LessThanThreshold", target * 0.9, 15))
    return [
        cloudwatch.put_metric_alarm(
            name=f"TargetTracking-{policy.resource_id}-{side}-{uuid4()}",
            comparison_operator=comparison,
            evaluation_periods=periods,
            threshold=threshold,
            description=f"DO NOT EDIT OR DELETE. For TargetTrackingScaling policy {policy.policy_arn}.",
            alarm_actions=[policy.policy_arn],
            **metric,
        )
        for side, comparison, threshold, periods in sides
    ]


def _tracked(resource_id: str, body: Any) -> dict[str, Any] | None:
    """Return the alarm's metric; None if not supported here (custom metric math)."""
    predefined = (body.get("PredefinedMetricSpecification") or {}).get("PredefinedMetricType")
    if predefined in _PREDEFINED:
        name, statistic, period, dimensions = _PREDEFINED[predefined]
        values = resource_id.split("/")[1::2]
        pairs = [{"Name": key, "Value": value} for key, value in zip(dimensions, values, strict=False)]
        return {
            "namespace": "AWS/SageMaker",
            "metric_name": name,
            "statistic": statistic,
            "period": period,
            "dimensions": pairs,
        }
    own = body.get("CustomizedMetricSpecification") or {}
    if "MetricName" not in own:
        return None
    return {
        "namespace": own.get("Namespace"),
        "metric_name": own["MetricName"],
        "statistic": own.get("Statistic"),
        "period": 60,
        "dimensions": own.get("Dimensions", []),
    }
