"""Whether a role can be passed to a service: it exists, trusts it, and the stack's role may pass it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

from sagemaker_local.cloudformation.resources.base import ResourceContext, ResourceFailure

Statement = Mapping[str, Any]


def check_role(ctx: ResourceContext, role_arn: str, service: str, refusal: str) -> None:
    """Check what AWS checks when a role is handed to a service (``lambda.amazonaws.com``).

    Raises:
        ResourceFailure: with ``refusal`` when the role is not there or does not trust the service; with AWS's
            words on iam:PassRole when the stack is deployed with a role that may not pass it.
    """
    try:
        role = ctx.client("iam").get_role(RoleName=role_arn.rsplit("/", 1)[-1])["Role"]
    except ClientError as error:
        raise ResourceFailure(refusal) from error
    if role["Arn"] != role_arn or not trusts(role["AssumeRolePolicyDocument"], service):
        raise ResourceFailure(refusal)
    if ctx.role_arn is not None and not may(
        ctx, ctx.role_arn, "iam:PassRole", role_arn, {"iam:PassedToService": service}
    ):
        raise ResourceFailure(
            f"User: {ctx.role_arn} is not authorized to perform: iam:PassRole on resource: {role_arn} "
            "because no identity-based policy allows the iam:PassRole action"
        )


def trusts(document: Mapping[str, Any], service: str) -> bool:
    """Return whether a trust policy lets a service assume the role."""
    for statement in _each(document.get("Statement", [])):
        principal = statement.get("Principal", {})
        services = _each(principal.get("Service", [])) if isinstance(principal, Mapping) else []
        if statement.get("Effect") == "Allow" and service in services:
            return True
    return False


def may(ctx: ResourceContext, role_arn: str, action: str, resource: str, context: Mapping[str, str]) -> bool:
    """Return whether a role's policies allow an action on a resource.

    Read are its inline and attached policies with the operators of strings and ARNs; conditions with other
    operators do not hold. Boundaries and organisations' policies are not read.
    """
    statements = list(_statements(ctx, role_arn.rsplit("/", 1)[-1]))
    fitting = [each for each in statements if _fits(each, action, resource, context)]
    return any(each["Effect"] == "Allow" for each in fitting) and not any(
        each["Effect"] == "Deny" for each in fitting
    )


def _statements(ctx: ResourceContext, name: str) -> Iterator[Statement]:
    iam = ctx.client("iam")
    for policy in iam.list_role_policies(RoleName=name)["PolicyNames"]:
        document = iam.get_role_policy(RoleName=name, PolicyName=policy)["PolicyDocument"]
        yield from _each(document["Statement"])
    for attached in iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]:
        arn = attached["PolicyArn"]
        version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
        kept = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]
        yield from _each(kept["Document"]["Statement"])


def _fits(statement: Statement, action: str, resource: str, context: Mapping[str, str]) -> bool:
    if "NotAction" in statement:
        acts = not any(_like(each, action.lower(), lower=True) for each in _each(statement["NotAction"]))
    else:
        acts = any(_like(each, action.lower(), lower=True) for each in _each(statement.get("Action", [])))
    if "NotResource" in statement:
        on = not any(_like(each, resource) for each in _each(statement["NotResource"]))
    else:
        on = any(_like(each, resource) for each in _each(statement.get("Resource", [])))
    return acts and on and _holds(statement.get("Condition", {}), context)


def _holds(condition: Mapping[str, Any], context: Mapping[str, str]) -> bool:
    for operator, keys in condition.items():
        for key, allowed in keys.items():
            given = context.get(key)
            patterns = [str(each) for each in _each(allowed)]
            match operator.removesuffix("IfExists"):
                case "StringEquals" | "ArnEquals" | "StringLike" | "ArnLike":
                    exact = operator.startswith("StringEquals")
                    found = given is not None and any(
                        given == each if exact else _like(each, given) for each in patterns
                    )
                    if not found and not (given is None and operator.endswith("IfExists")):
                        return False
                case "StringNotEquals" | "StringNotLike" | "ArnNotLike" | "ArnNotEquals":
                    if given is not None and any(_like(each, given) for each in patterns):
                        return False
                case _:
                    return False
    return True


def _like(pattern: str, text: str, *, lower: bool = False) -> bool:
    pattern = pattern.lower() if lower else pattern
    parts = ("." if char == "?" else ".*" if char == "*" else re.escape(char) for char in pattern)
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
