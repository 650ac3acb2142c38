"""Bucket policies with conditions, which moto ignores: a deny of plain HTTP would deny everything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sagemaker_local.other_services.checksums import lay_s3_checksums

_MARK = "peagle_rules"

# What is known of every request. The local port stands in for AWS's, which is reached over TLS.
_CONTEXT = {"aws:securetransport": "true"}


def lay_s3_rules() -> None:
    """Add our rules to moto's S3, once in a process.

    A statement of a policy whose condition does not hold says nothing; checksums are held.
    """
    lay_s3_checksums()
    from moto.iam.access_control import IAMPolicy, PermissionResult
    from moto.s3.models import FakeBucket

    if getattr(FakeBucket, _MARK, False):
        return

    def get_permission(self: Any, action: str, resource: str) -> Any:
        if self.policy is None:
            return PermissionResult.NEUTRAL
        policy = json.loads(self.policy)
        statements = policy.get("Statement", [])
        every = statements if isinstance(statements, list) else [statements]
        applying = [
            {key: value for key, value in each.items() if key != "Condition"}
            for each in every
            if conditions_hold(each.get("Condition", {}))
        ]
        if not applying:
            return PermissionResult.NEUTRAL
        return IAMPolicy(json.dumps({**policy, "Statement": applying})).is_action_permitted(action, resource)

    FakeBucket.get_permission = get_permission
    setattr(FakeBucket, _MARK, True)


def conditions_hold(conditions: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether a statement's conditions hold; a condition on an unknown key does not hold."""
    for operator, wanted in conditions.items():
        for key, values in wanted.items():
            known = _CONTEXT.get(key.lower())
            allowed = values if isinstance(values, list) else [values]
            if operator != "Bool" or known not in [str(value).lower() for value in allowed]:
                return False
    return True
