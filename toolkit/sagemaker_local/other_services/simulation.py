"""SimulatePrincipalPolicy over moto's IAM, which lacks it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sagemaker_local.other_services.policies import ALLOWED, decide

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
        documents = list(_documents(iam, arn))
    except NotFoundException:
        return False
    return decide(documents, action, resource, context or {}).decision == ALLOWED


def simulate_principal_policy(response: Any) -> Any:
    """Decide each action on each resource by the principal's own policies."""
    from moto.core.responses import ActionResult

    asked = response._get_params()
    documents = list(_documents(response.backend, str(asked.get("PolicySourceArn"))))
    context = {
        entry["ContextKeyName"]: (entry.get("ContextKeyValues") or [""])[0]
        for entry in asked.get("ContextEntries") or []
    }
    rows = []
    for action in asked.get("ActionNames") or []:
        for resource in asked.get("ResourceArns") or ["*"]:
            found = decide(documents, action, resource, context)
            rows.append(
                {
                    "EvalActionName": action,
                    "EvalResourceName": resource,
                    "EvalDecision": found.decision,
                    "MatchedStatements": [],
                    "MissingContextValues": list(found.missing),
                }
            )
    return ActionResult({"EvaluationResults": rows, "IsTruncated": False})


def _documents(iam: Any, arn: str) -> Iterator[dict[str, Any]]:
    from moto.iam.exceptions import NotFoundException

    kept = [*iam.roles.values(), *iam.users.values()]
    principal = next((each for each in kept if each.arn == arn), None)
    if principal is None:
        raise NotFoundException(f"The principal {arn} cannot be found.")
    inline = principal.policies
    texts = inline.values() if isinstance(inline, dict) else [each["policy_document"] for each in inline]
    yield from (json.loads(text) for text in texts)
    for policy in principal.managed_policies.values():
        yield json.loads(next(each.document for each in policy.versions if each.is_default))
