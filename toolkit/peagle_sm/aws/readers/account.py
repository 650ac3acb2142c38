"""Readers of the caller, the roles, their permissions, and the endpoint's name.

The permissions come from IAM's policy simulation. The date of STS's answer shows the error of this machine's
clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from email.utils import parsedate_to_datetime
from typing import Any

from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.readers.resources import kms_keys
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.s3 import split_uri
from peagle_sm.core.checks.base import Identity, KeyRights, Rights, Role, Taken
from peagle_sm.core.checks.image import registry_of
from peagle_sm.core.errors import CredentialsError, NotFound, PeagleError, ServiceFault
from peagle_sm.core.plan.payloads import names_for, spec_hash
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.plan.tags_and_schedules import (
    MANAGED_BY,
    MANAGER,
    STACK,
    hard_schedule_name,
    partition,
    schedule_name,
)


def identity(session: Session, _: Draft | None) -> Identity:
    """Ask STS for the caller; the answer's Date header has AWS's time.

    Raises:
        ServiceFault: STS does not answer.
    """
    before = session.wall_clock()
    try:
        answer = session.api("sts").get_caller_identity()
    except CredentialsError as error:
        return Identity(problem=error.message, next_step=error.next_step or "")
    after = session.wall_clock()
    sent = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    skew = None
    # The local SageMaker uses its own clock, which `local clock advance` moves on purpose.
    if sent and not session.is_local:
        # The header has whole seconds, from a time between the two readings.
        here = before + (after - before) / 2
        skew = (here - parsedate_to_datetime(sent)).total_seconds()
    return Identity(str(answer["Account"]), str(answer["Arn"]), skew_s=skew)


def taken(session: Session, draft: Draft) -> Taken:
    """Find out what already has the endpoint's name."""
    found = control.describe_endpoint(session, draft.spec.name)
    if found is None:
        return Taken()
    tags = control.tags_of(session, found.arn) or {}
    return Taken(found.status, tags.get(MANAGED_BY) == MANAGER, tags.get(STACK) or None)


_ALLOWED = "allowed"
Question = tuple[tuple[str, ...], str, dict[str, str]]
"""Actions, their resource, and the values of condition keys."""


def read_role(session: Session, arn: str) -> Role:
    """Read a role's trust policy and the names of its policies.

    Raises:
        CredentialsError: iam:GetRole or iam:ListAttachedRolePolicies is missing.
    """
    name = arn.rpartition("/")[2]
    try:
        role = session.api("iam").get_role(RoleName=name)["Role"]
    except NotFound:
        return Role(arn, exists=False)
    rows = session.api("iam").rows("list_attached_role_policies", "AttachedPolicies", RoleName=name)
    attached = tuple(row["PolicyName"] for row in rows)
    return Role(arn, True, tuple(_services(role["AssumeRolePolicyDocument"])), attached)


def _services(document: Any) -> Iterator[str]:
    statements = document.get("Statement", []) if isinstance(document, dict) else []
    for statement in statements if isinstance(statements, list) else [statements]:
        principal = statement.get("Principal", {})
        found = principal.get("Service", []) if isinstance(principal, dict) else []
        if statement.get("Effect") == "Allow":
            yield from [found] if isinstance(found, str) else found


def caller_rights(session: Session, draft: Draft) -> Rights:
    """Simulate the calls of a deploy for the caller.

    Raises:
        ServiceFault: the caller is the account's root user, which IAM does not simulate.
        CredentialsError: iam:SimulatePrincipalPolicy is missing.
    """
    arn = str(session.api("sts").get_caller_identity()["Arn"])
    return simulate(session, _policy_source(session, arn), _deploy_calls(draft, arn.split(":")[4]))


def execution_rights(session: Session, draft: Draft) -> Rights:
    """Simulate the calls of the containers' role: image, weights, keys, logs."""
    return simulate(session, draft.role_arn or "", _container_calls(draft))


def key_rights(session: Session, draft: Draft) -> KeyRights:
    """Find the KMS keys of the artifacts, and simulate kms:Decrypt with each."""
    keys = kms_keys(session, draft)
    questions: list[Question] = [(("kms:Decrypt",), key, {}) for key in keys]
    return KeyRights(keys, simulate(session, draft.role_arn or "", questions))


def scheduler_rights(session: Session, draft: Draft) -> Rights:
    """Simulate the call of the lifetime schedule."""
    arn = _sagemaker(draft, (draft.scheduler_role_arn or "::::").split(":")[4], "endpoint", draft.spec.name)
    return simulate(session, draft.scheduler_role_arn or "", [(("sagemaker:DeleteEndpoint",), arn, {})])


def simulate(session: Session, principal: str, questions: Iterable[Question]) -> Rights:
    """Simulate each question; unknown values of condition keys count as allowed."""
    allowed: list[str] = []
    denied: list[str] = []
    for actions, resource, context in questions:
        entries = [
            {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"}
            for key, value in context.items()
        ]
        answer = session.api("iam").simulate_principal_policy(
            PolicySourceArn=principal,
            ActionNames=list(actions),
            ResourceArns=[resource],
            ContextEntries=entries,
        )
        for row in answer["EvaluationResults"]:
            told = f"{row['EvalActionName']} on {resource}"
            passes = row["EvalDecision"] == _ALLOWED or row.get("MissingContextValues")
            (allowed if passes else denied).append(told)
    return Rights(principal, tuple(allowed), tuple(denied))


def _policy_source(session: Session, arn: str) -> str:
    """Return the ARN whose policies apply to a caller: for a session, its role's."""
    if arn.endswith(":root"):
        raise ServiceFault("the caller is the account's root user, and IAM does not simulate its permissions")
    if ":assumed-role/" not in arn:
        return arn
    name = arn.split("/")[1]
    try:
        return str(session.api("iam").get_role(RoleName=name)["Role"]["Arn"])
    except PeagleError:
        # Without a path: only roles of IAM Identity Center and a few others have one.
        head, _, _ = arn.partition(":assumed-role/")
        return f"{head.replace(':sts:', ':iam:')}:role/{name}"


def _sagemaker(draft: Draft, account: str, kind: str, name: str) -> str:
    return f"arn:{partition(draft.region)}:sagemaker:{draft.region}:{account}:{kind}/{name.lower()}"


def _deploy_calls(draft: Draft, account: str) -> Iterator[Question]:
    names = names_for(draft.spec.name, spec_hash(draft), component=draft.scales_to_zero)
    sagemaker = {
        "model": (names.model, ("CreateModel", "DescribeModel", "DeleteModel", "AddTags")),
        "endpoint-config": (
            names.config,
            ("CreateEndpointConfig", "DescribeEndpointConfig", "DeleteEndpointConfig", "AddTags"),
        ),
        "endpoint": (
            names.endpoint,
            ("CreateEndpoint", "DescribeEndpoint", "DeleteEndpoint", "InvokeEndpoint", "AddTags"),
        ),
    }
    for kind, (name, actions) in sagemaker.items():
        arn = _sagemaker(draft, account, kind, name)
        yield tuple(f"sagemaker:{each}" for each in actions), arn, {}
    passed = {
        "sagemaker.amazonaws.com": draft.role_arn,
        "scheduler.amazonaws.com": draft.scheduler_role_arn,
    }
    for service, role in passed.items():
        if role is not None:
            yield ("iam:PassRole",), role, {"iam:PassedToService": service}
    arn = (
        f"arn:{partition(draft.region)}:scheduler:{draft.region}:{account}:schedule/default/"
        f"{schedule_name(draft.spec.name)}"
    )
    actions = tuple(f"scheduler:{each}Schedule" for each in ("Create", "Get", "Delete"))
    yield actions, arn, {}
    hard = arn.replace(schedule_name(draft.spec.name), hard_schedule_name(draft.spec.name))
    yield ("scheduler:GetSchedule", "scheduler:DeleteSchedule"), hard, {}


def _container_calls(draft: Draft) -> Iterator[Question]:
    place = partition(draft.region)
    parts = registry_of(draft.image.uri) if draft.image else None
    if parts is not None:
        account, region, rest = parts
        repository = rest.partition("@")[0].rpartition(":")[0] or rest.partition("@")[0]
        arn = f"arn:{place}:ecr:{region}:{account}:repository/{repository}"
        pull = ("BatchCheckLayerAvailability", "BatchGetImage", "GetDownloadUrlForLayer")
        yield tuple(f"ecr:{each}" for each in pull), arn, {}
        yield ("ecr:GetAuthorizationToken",), "*", {}
    for uri in {draft.model_uri, draft.head_uri} - {None}:
        bucket, prefix = split_uri(str(uri))
        yield ("s3:GetObject",), f"arn:{place}:s3:::{bucket}/{prefix}config.json", {}
        yield ("s3:ListBucket",), f"arn:{place}:s3:::{bucket}", {"s3:prefix": prefix}
    account = (draft.role_arn or "::::").split(":")[4]
    group = f"/aws/sagemaker/Endpoints/{draft.spec.name}"
    stream = f"arn:{place}:logs:{draft.region}:{account}:log-group:{group}:log-stream:AllTraffic/i-0"
    yield ("logs:CreateLogStream", "logs:PutLogEvents"), stream, {}
