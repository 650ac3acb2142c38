"""SimulatePrincipalPolicy over moto's IAM, which lacks it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sagemaker_local.other_services.policies import (
    ALLOWED,
    EXPLICIT,
    IMPLICIT,
    condition_keys,
    decide,
)

_MARK = "peagle_simulation"


def lay_simulation() -> None:
    """Answer SimulatePrincipalPolicy for roles and users."""
    from moto.iam.responses import IamResponse

    if getattr(IamResponse, _MARK, False):
        return
    IamResponse.simulate_principal_policy = simulate_principal_policy
    setattr(IamResponse, _MARK, True)


def allows(iam: Any, arn: str, action: str, resource: str, context: Mapping[str, str] | None = None) -> bool:
    """Whether a role's own policies allow an action; a deleted role is allowed nothing."""
    from moto.iam.exceptions import NotFoundException

    try:
        documents = list(_policies(_principal(iam, arn)))
    except NotFoundException:
        return False
    return decide(documents, action, resource, context or {}).decision == ALLOWED


def simulate_principal_policy(response: Any) -> Any:
    """Decide each action on each resource, as AWS does: one row an action, and a result for each resource.

    The principal's own policies, its permissions boundary and the service control policies count. A test sets
    the last as `IAMBackend.service_control_policies`; an account without them is in no organization.
    """
    from moto.core.responses import ActionResult

    request = response._get_params()
    _check_one_kind(request.get("ActionNames") or [])
    principal = _principal(response.backend, str(request.get("PolicySourceArn")))
    layers = _Layers(
        list(_policies(principal)),
        list(_boundary(response.backend, principal)),
        getattr(response.backend, "service_control_policies", None),
    )
    context = {
        entry["ContextKeyName"]: tuple(entry.get("ContextKeyValues") or [""])
        for entry in request.get("ContextEntries") or []
    }
    resources = request.get("ResourceArns") or ["*"]
    rows = [layers.row(action, resources, context) for action in request.get("ActionNames") or []]
    return ActionResult({"EvaluationResults": rows, "IsTruncated": False})


@dataclass(frozen=True)
class _Layers:
    """Policies of a principal, its boundary, and the organization's; empty or None where there are none."""

    own: list[dict[str, Any]]
    boundary: list[dict[str, Any]]
    organization: list[dict[str, Any]] | None

    def row(
        self, action: str, resources: list[str], context: Mapping[str, tuple[str, ...]]
    ) -> dict[str, Any]:
        every = [*self.own, *self.boundary, *(self.organization or ())]
        given_keys = {key.lower() for key in context}
        missing = [key for key in condition_keys(every) if key.lower() not in given_keys]
        results = [self._result(action, resource, context, missing) for resource in resources]
        decisions = [result["EvalResourceDecision"] for result in results]
        worst = next((decision for decision in (EXPLICIT, IMPLICIT) if decision in decisions), ALLOWED)
        row: dict[str, Any] = {
            "EvalActionName": action,
            "EvalResourceName": "*",
            "EvalDecision": worst,
            "MatchedStatements": [],
            # "If you include a list of resources, then any missing context values are instead included
            # under the ResourceSpecificResults section" (API reference).
            "MissingContextValues": missing if resources == ["*"] else [],
            "ResourceSpecificResults": [] if resources == ["*"] else results,
        }
        if self.organization is not None:
            allowed = all(
                decide(self.organization, action, resource, context).decision == ALLOWED
                for resource in resources
            )
            row["OrganizationsDecisionDetail"] = {"AllowedByOrganizations": allowed}
        if self.boundary:
            row["PermissionsBoundaryDecisionDetail"] = {
                "AllowedByPermissionsBoundary": all(
                    result["PermissionsBoundaryDecisionDetail"]["AllowedByPermissionsBoundary"]
                    for result in results
                )
            }
        return row

    def _result(
        self, action: str, resource: str, context: Mapping[str, tuple[str, ...]], missing: list[str]
    ) -> dict[str, Any]:
        layers = [self.own, *([self.boundary] if self.boundary else [])]
        layers += [self.organization] if self.organization is not None else []
        decisions = [decide(layer, action, resource, context).decision for layer in layers]
        result: dict[str, Any] = {
            "EvalResourceName": resource,
            "EvalResourceDecision": next(
                (decision for decision in (EXPLICIT, IMPLICIT) if decision in decisions), ALLOWED
            ),
            "MatchedStatements": [],
            "MissingContextValues": missing,
        }
        if self.boundary:
            result["PermissionsBoundaryDecisionDetail"] = {
                "AllowedByPermissionsBoundary": decisions[1] == ALLOWED
            }
        return result


def _check_one_kind(actions: list[str]) -> None:
    """Refuse actions of different kinds in one call; AWS does, and does not say which these are.

    Here they differ if their service or their verb does, so no call passes that AWS may refuse.
    """
    from moto.iam.exceptions import InvalidInput

    kinds = {re.match(r"[^:]*:[A-Z]?[a-z]*", action).group().lower(): action for action in actions}  # type: ignore[union-attr]
    if len(kinds) > 1:
        first, second, *_ = kinds.values()
        raise InvalidInput(
            f"Invalid Input Actions: [{first}] and [{second}] require different authorization information."
        )


def _principal(iam: Any, arn: str) -> Any:
    from moto.iam.exceptions import NotFoundException

    kept = [*iam.roles.values(), *iam.users.values()]
    principal = next((each for each in kept if each.arn == arn), None)
    if principal is None:
        raise NotFoundException(f"The principal {arn} cannot be found.")
    return principal


def _policies(principal: Any) -> Iterator[dict[str, Any]]:
    inline = principal.policies
    texts = inline.values() if isinstance(inline, dict) else [each["policy_document"] for each in inline]
    yield from (json.loads(text) for text in texts)
    for policy in principal.managed_policies.values():
        yield json.loads(next(each.document for each in policy.versions if each.is_default))


def _boundary(iam: Any, principal: Any) -> Iterator[dict[str, Any]]:
    arn = getattr(principal, "permissions_boundary_arn", None)
    if arn:
        policy = iam.get_policy(arn)
        yield json.loads(next(version.document for version in policy.versions if version.is_default))
