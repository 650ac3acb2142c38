"""Readers of a preflight: each looks at one thing in AWS and brings a fact of `core.preflight_facts`.

A reader decides nothing and creates nothing. It raises what `aws.errors` maps; `service.preflight` runs them
side by side, and turns what could not be looked at into an `Unknown` with the permission that is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peagle_sm.aws.readers import head, identity, network, quotas, reservation, roles, storage
from peagle_sm.aws.session.session import Session
from peagle_sm.core.plan.resolve import Draft

Reader = Callable[[Session, Draft | None], Any]

# Without a spec these alone have something to look at.
WITHOUT_SPEC: Mapping[str, Reader] = {"identity": identity.read}
WITH_SPEC: Mapping[str, Reader] = {
    "caller_rights": roles.caller_rights,
    "execution_role": roles.execution_role,
    "execution_rights": roles.execution_rights,
    "key_rights": roles.key_rights,
    "scheduler_role": roles.scheduler_role,
    "scheduler_rights": roles.scheduler_rights,
    "quotas": quotas.read,
    "reservation": reservation.read,
    "image": storage.image,
    "artifacts": storage.artifacts,
    "head": head.read,
    "key": storage.key,
    "network": network.read,
    "prices": quotas.prices,
    "taken": identity.taken,
}
# On the local SageMaker nothing is limited, priced, or pulled from a registry, and anybody may call.
LOCAL = frozenset({"identity", "execution_role", "scheduler_role", "artifacts", "head", "taken"})

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
    "GetProducts": "pricing:GetProducts",
    "GetRole": "iam:GetRole",
    "HeadBucket": "s3:ListBucket",
    "HeadObject": "s3:GetObject",
    "ListAttachedRolePolicies": "iam:ListAttachedRolePolicies",
    "ListAWSDefaultServiceQuotas": "servicequotas:ListAWSDefaultServiceQuotas",
    "ListObjectsV2": "s3:ListBucket",
    "ListServiceQuotas": "servicequotas:ListServiceQuotas",
    "ListTags": "sagemaker:ListTags",
    "SimulatePrincipalPolicy": "iam:SimulatePrincipalPolicy",
    "list_endpoints": "sagemaker:ListEndpoints",
}
"""The permission behind each call that a reader makes, by the name under which it is reported."""


def readers(session: Session, draft: Draft | None) -> dict[str, Reader]:
    """Return the readers that have something to look at here."""
    chosen = dict(WITHOUT_SPEC)
    if draft is not None:
        chosen |= WITH_SPEC
        if draft.spec.placement.capacity_reservation_arn is None:
            del chosen["reservation"]
        if draft.spec.head_uri is None or not draft.speculating:
            del chosen["head"]
        if draft.spec.security.kms_key_id is None:
            del chosen["key"]
        if draft.spec.security.vpc is None:
            del chosen["network"]
    return {name: read for name, read in chosen.items() if not session.is_local or name in LOCAL}
