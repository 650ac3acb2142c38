"""SageMaker models and endpoint configurations, and their autoscaling."""

from __future__ import annotations

from sagemaker_local.cloudformation.resources.base import Properties
from sagemaker_local.cloudformation.resources.by_table import (
    Members,
    OnEach,
    Row,
    Tagging,
)

_PLACE = ("ResourceId", "ScalableDimension", "ServiceNamespace")


def _of_sagemaker(kind: str) -> Row:
    """Return the row of a model or an endpoint configuration: only its tags can change."""
    name, arn = f"{kind}Name", f"{kind}Arn"
    return Row(
        "sagemaker",
        create=f"Create{kind}",
        delete=f"Delete{kind}",
        name=name,
        longest=63,
        lower=True,
        gone=("Could not find",),  # words of a ValidationException
        ref=lambda _, answer, properties: str(answer[arn]),
        address=lambda ref, properties: {name: properties.get(name) or ref.rsplit("/", 1)[-1]},
        attributes=lambda ctx, ref, properties: {
            arn: ref,
            name: properties.get(name) or ref.rsplit("/", 1)[-1],
        },
        role=lambda properties: properties.get("ExecutionRoleArn"),
        passed_to="sagemaker.amazonaws.com",
        tagging=SAGEMAKER_TAGS,
    )


SAGEMAKER_TAGS = Tagging(of=lambda ctx, arn: {"ResourceArn": arn}, tag="AddTags", untag="DeleteTags")


def _place(properties: Properties) -> Members:
    """Return a target's identifiers; a policy may give them as the target's Ref."""
    if "ScalingTargetId" in properties:
        return dict(zip(_PLACE, str(properties["ScalingTargetId"]).split("|"), strict=True))
    return {key: properties[key] for key in _PLACE}


def _scaling_policy(properties: Properties) -> Members:
    return {key: item for key, item in properties.items() if key != "ScalingTargetId"} | dict(
        _place(properties)
    )


ROWS: dict[str, Row | OnEach] = {
    "AWS::SageMaker::Model": _of_sagemaker("Model"),
    "AWS::SageMaker::EndpointConfig": _of_sagemaker("EndpointConfig"),
    "AWS::ApplicationAutoScaling::ScalableTarget": Row(
        "application-autoscaling",
        create="RegisterScalableTarget",
        update="RegisterScalableTarget",
        delete="DeregisterScalableTarget",
        gone=("ObjectNotFoundException",),
        takes=frozenset({*_PLACE, "MinCapacity", "MaxCapacity", "RoleARN", "SuspendedState"}),
        address=lambda ref, properties: _place(properties),
        ref=lambda name, answer, properties: "|".join(str(properties[key]) for key in _PLACE),
        attributes=lambda ctx, ref, properties: {"Id": ref},
        tagging=Tagging(form=dict, changes=False),
    ),
    "AWS::ApplicationAutoScaling::ScalingPolicy": Row(
        "application-autoscaling",
        create="PutScalingPolicy",
        update="PutScalingPolicy",
        delete="DeleteScalingPolicy",
        gone=("ObjectNotFoundException",),
        request=_scaling_policy,
        ref=lambda name, answer, properties: str(answer["PolicyARN"]),
        address=lambda ref, properties: {**_place(properties), "PolicyName": properties["PolicyName"]},
        attributes=lambda ctx, ref, properties: {"Arn": ref, "PolicyName": properties["PolicyName"]},
    ),
}
