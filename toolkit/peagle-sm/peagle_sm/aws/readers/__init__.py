"""Readers of a preflight: each reads one fact of `core.checks.base` from AWS.

A reader decides nothing and creates nothing. It raises the errors of `aws.session.errors`. The preflight runs
all readers in parallel; a reader that fails gives an `Unknown` with the missing permission.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peagle_sm.aws.readers import account, permissions, resources
from peagle_sm.aws.session.session import Session
from peagle_sm.core.plan.resolve import Draft

Reader = Callable[[Session, Any], Any]
"""Reader of a fact, from the session and the draft; those without a spec get None."""

# Only these readers work without a spec.
WITHOUT_SPEC: Mapping[str, Reader] = {"identity": account.identity}
WITH_SPEC: Mapping[str, Reader] = {
    "caller_rights": permissions.caller_rights,
    "execution_role": lambda session, draft: account.read_role(session, draft.role_arn or ""),
    "execution_rights": permissions.execution_rights,
    "key_rights": permissions.key_rights,
    "scheduler_role": lambda session, draft: account.read_role(session, draft.scheduler_role_arn or ""),
    "scheduler_rights": permissions.scheduler_rights,
    "quotas": resources.quotas,
    "reservation": resources.reservation,
    "image": resources.image,
    "artifacts": resources.artifacts,
    "head": resources.head,
    "generation": resources.generation,
    "key": resources.key,
    "network": resources.network,
    "taken": account.taken,
}
# The local SageMaker has no quotas, prices, registry or permissions.
LOCAL = frozenset(
    {"identity", "execution_role", "scheduler_role", "artifacts", "head", "generation", "taken"}
)

PERMISSIONS: Mapping[str, str] = {
    "BatchGetImage": "ecr:BatchGetImage",
    "DescribeEndpoint": "sagemaker:DescribeEndpoint",
    "DescribeEndpointConfig": "sagemaker:DescribeEndpointConfig",
    "DescribeKey": "kms:DescribeKey",
    "DescribeSecurityGroups": "ec2:DescribeSecurityGroups",
    "DescribeStacks": "cloudformation:DescribeStacks",
    "DescribeSubnets": "ec2:DescribeSubnets",
    "DescribeTrainingPlan": "sagemaker:DescribeTrainingPlan",
    "GetBucketLocation": "s3:GetBucketLocation",
    "GetObject": "s3:GetObject",
    "GetRole": "iam:GetRole",
    "HeadBucket": "s3:ListBucket",
    "HeadObject": "s3:GetObject",
    "ListAttachedRolePolicies": "iam:ListAttachedRolePolicies",
    "ListAWSDefaultServiceQuotas": "servicequotas:ListAWSDefaultServiceQuotas",
    "ListObjectsV2": "s3:ListBucket",
    "ListServiceQuotas": "servicequotas:ListServiceQuotas",
    "ListTags": "sagemaker:ListTags",
    "SimulatePrincipalPolicy": "iam:SimulatePrincipalPolicy",
    "ListEndpoints": "sagemaker:ListEndpoints",
}
"""Permission of each call that a reader makes, by the operation's name in errors."""


def readers(session: Session, draft: Draft | None) -> dict[str, Reader]:
    """Return the readers that apply to this session and spec."""
    chosen = dict(WITHOUT_SPEC)
    if draft is not None:
        chosen |= WITH_SPEC
        if draft.spec.placement.capacity_reservation_arn is None:
            del chosen["reservation"]
        if draft.spec.head_uri is None or not draft.mode_facts.has_weights:
            del chosen["head"]
        if draft.spec.model_uri is None or not draft.speculating:
            del chosen["generation"]
        if draft.spec.security.kms_key_id is None:
            del chosen["key"]
        if draft.spec.security.vpc is None:
            del chosen["network"]
    return {name: read for name, read in chosen.items() if not session.is_local or name in LOCAL}
