"""Application Auto Scaling of endpoints: targets and policies."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import NotFound


def register(session: Session, parameters: Mapping[str, Any]) -> None:
    """Send RegisterScalableTarget: create the target, or change the one that exists."""
    session.api("application-autoscaling").register_scalable_target(**parameters)


def put_policy(session: Session, parameters: Mapping[str, Any]) -> str:
    """Send PutScalingPolicy: create or replace the policy; return its ARN."""
    return str(session.api("application-autoscaling").put_scaling_policy(**parameters)["PolicyARN"])


def is_registered(session: Session, resource_id: str) -> bool:
    """Return whether a resource is a scalable target."""
    answer = session.api("application-autoscaling").describe_scalable_targets(
        ServiceNamespace="sagemaker", ResourceIds=[resource_id]
    )
    return bool(answer["ScalableTargets"])


def deregister(session: Session, resource_id: str, dimension: str) -> None:
    """Send DeregisterScalableTarget, which deletes the policies, too; a missing target is no error."""
    with suppress(NotFound):
        session.api("application-autoscaling").deregister_scalable_target(
            ServiceNamespace="sagemaker", ResourceId=resource_id, ScalableDimension=dimension
        )
