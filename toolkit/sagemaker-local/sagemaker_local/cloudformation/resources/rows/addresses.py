"""ARNs, tags by ARN, and whether a name is taken, for the rows of several services."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sagemaker_local.cloudformation.resources.base import Properties, ResourceContext
from sagemaker_local.cloudformation.resources.by_table import (
    Members,
    Tagging,
)
from sagemaker_local.cloudformation.resources.calls import gone_is_fine, send


def arn(service: str, kind: str) -> Callable[[ResourceContext, str], str]:
    """Return a function from a name to its ARN."""
    return lambda ctx, name: f"arn:{ctx.partition}:{service}:{ctx.region}:{ctx.account}:{kind}{name}"


def arn_of(
    service: str, kind: str = "", **more: str
) -> Callable[[ResourceContext, str, Properties], Members]:
    """Return Fn::GetAtt's Arn, and in ``more`` the attributes that are the Ref."""
    arn_by_name = arn(service, kind)
    return lambda ctx, ref, properties: {"Arn": arn_by_name(ctx, ref), **dict.fromkeys(more, ref)}


def by_arn(service: str, kind: str, member: str = "ResourceArn", **calls: Any) -> Tagging:
    """Return the tags of a service whose calls take an ARN."""
    arn_by_name = arn(service, kind)
    return Tagging(of=lambda ctx, ref: {member: arn_by_name(ctx, ref)}, **calls)


def answers(
    service: str, operation: str, members: Callable[[ResourceContext, str], Members], *gone: str
) -> Any:
    """Return a check whether a name is taken: the call answers, or fails with a code of ``gone``."""

    def exists(ctx: ResourceContext, name: str) -> bool:
        with gone_is_fine(*gone):
            send(ctx, service, operation, members(ctx, name))
            return True
        return False

    return exists
