"""Readers of permissions: results of IAM's policy simulation for the caller and the roles.

Each question has the condition keys of the real call. A key that the real call lacks stays without a value.
A denial is undecided if it depends on a value that only AWS knows, such as the caller's address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from peagle_sm.aws.readers.resources import kms_keys
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.s3 import split_uri
from peagle_sm.core.checks.base import KeyRights, Rights
from peagle_sm.core.checks.image import registry_of
from peagle_sm.core.errors import PeagleError, ServiceFault
from peagle_sm.core.guard import GUARD_STACK, TABLE
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.plan.tags_and_schedules import (
    alarm_names,
    from_zero_alarm,
    hard_schedule_name,
    partition,
    schedule_name,
)
from peagle_sm.core.resources.log_group import log_group_name
from peagle_sm.core.resources.naming import names_for
from peagle_sm.core.resources.ordered import spec_hash, tags
from peagle_sm.core.resources.scalable_target import identity, resource_id, scaling_of
from peagle_sm.core.spec.endpoint_spec import VpcSpec

_ALLOWED = "allowed"
_PASSED = "iam:PassedToService"
# Keys that a call of this toolkit does not have: tags of others, and calls by another AWS service.
_ABSENT = (
    "aws:requesttag/",
    "aws:resourcetag/",
    "aws:tagkeys",
    "aws:calledvia",
    "aws:sourcearn",
    "aws:sourceaccount",
    "aws:sourceorg",
    "aws:principalservicename",
    "aws:ec2instancesource",
    "iam:associatedresourcearn",
    "iam:passedtoservice",
    "s3:",
    "sagemaker:",
)
Context = Mapping[str, str | bool | tuple[str, ...]]


@dataclass(frozen=True)
class Question:
    """Actions on one resource, and the condition keys of the real call.

    ``later``: a deploy works without them; an update, a pause, `logs` or a deletion does not.
    """

    actions: tuple[str, ...]
    resource: str
    context: Context = field(default_factory=dict)
    later: bool = False
    unless: str = ""  #: what this simulation does not read may allow them, too


def caller_rights(session: Session, draft: Draft) -> Rights:
    """Simulate the calls of a deploy, and of what follows it, for the caller.

    Raises:
        ServiceFault: the caller is the account's root user or a federated user: IAM does not simulate these.
        CredentialsError: iam:SimulatePrincipalPolicy is missing.
    """
    caller = session.api("sts").get_caller_identity()
    arn = str(caller["Arn"])
    kind = "AssumedRole" if ":assumed-role/" in arn else "User"
    caller_keys = {"aws:PrincipalType": kind, "aws:userid": str(caller.get("UserId", ""))}
    if kind == "User":
        caller_keys["aws:username"] = arn.rpartition("/")[2]
    return simulate(
        session, _policy_source(session, arn), deploy_calls(draft, arn.split(":")[4]), caller_keys
    )


def execution_rights(session: Session, draft: Draft) -> Rights:
    """Simulate the calls of the containers' role: image, weights, keys, logs."""
    return simulate(session, draft.role_arn or "", _container_calls(draft))


def key_rights(session: Session, draft: Draft) -> KeyRights:
    """Find the KMS keys of the artifacts, and simulate kms:Decrypt with each."""
    keys = kms_keys(session, draft)
    via = {
        "kms:ViaService": f"s3.{draft.region}.amazonaws.com",
        "kms:CallerAccount": (draft.role_arn or "::::").split(":")[4],
    }
    questions = [Question(("kms:Decrypt",), key, via) for key in keys]
    return KeyRights(keys, simulate(session, draft.role_arn or "", questions))


def scheduler_rights(session: Session, draft: Draft) -> Rights:
    """Simulate the call of the lifetime schedule."""
    kinds = {"endpoint": "DeleteEndpoint"}
    if draft.scales_to_zero:
        kinds["inference-component"] = "DeleteInferenceComponent"
    account, tagged = (draft.scheduler_role_arn or "::::").split(":")[4], _on_tagged(draft)
    questions = [
        Question((f"sagemaker:{action}",), _sagemaker(draft, account, kind, draft.spec.name), tagged)
        for kind, action in kinds.items()
    ]
    return simulate(session, draft.scheduler_role_arn or "", questions)


def simulate(
    session: Session, principal: str, questions: Iterable[Question], caller_keys: Context | None = None
) -> Rights:
    """Simulate each question in IAM with the condition keys of the real call."""
    rights = Rights(principal)
    account = principal.split(":")[4] if principal.count(":") >= 4 else ""
    everywhere: Context = {
        "aws:RequestedRegion": session.region,
        "aws:PrincipalArn": principal,
        "aws:PrincipalAccount": account,
        "aws:PrincipalIsAWSService": False,
        "aws:PrincipalType": "AssumedRole",
        "aws:SecureTransport": True,
        "aws:ViaAWSService": False,
        "aws:CurrentTime": session.wall_clock().strftime("%Y-%m-%dT%H:%M:%SZ"),
        **(caller_keys or {}),
    }
    for question in questions:
        owner = question.resource.split(":")[4] if question.resource.count(":") >= 5 else ""
        context = {**everywhere, "aws:ResourceAccount": owner or account, **question.context}
        entries = [_entry(key, value) for key, value in context.items()]
        # One action a call: AWS refuses a call whose actions "require different authorization information",
        # and does not document which do.
        for action in question.actions:
            for row in session.api("iam").rows(
                "simulate_principal_policy",
                "EvaluationResults",
                PolicySourceArn=principal,
                ActionNames=[action],
                ResourceArns=[question.resource],
                ContextEntries=entries,
            ):
                rights = _with_answer(rights, row, question)
    return rights


def _entry(key: str, value: str | bool | tuple[str, ...]) -> dict[str, Any]:
    if isinstance(value, bool):
        kind, values = "boolean", [str(value).lower()]
    elif isinstance(value, tuple):
        kind, values = "stringList", list(value)
    else:
        kind, values = "date" if key == "aws:CurrentTime" else "string", [value]
    return {"ContextKeyName": key, "ContextKeyValues": values, "ContextKeyType": kind}


def _with_answer(rights: Rights, row: Mapping[str, Any], question: Question) -> Rights:
    action = str(row["EvalActionName"])
    # With a list of resources, AWS answers per resource; there is one.
    detail = {**row, **next(iter(row.get("ResourceSpecificResults") or ()), {})}
    decision = detail.get("EvalResourceDecision", row["EvalDecision"])
    text = f"{action} on {question.resource}"
    if decision == _ALLOWED:
        return replace(rights, allowed=(*rights.allowed, text))
    if row.get("OrganizationsDecisionDetail", {}).get("AllowedByOrganizations") is False:
        return replace(rights, by_organization=(*rights.by_organization, text))
    if detail.get("PermissionsBoundaryDecisionDetail", {}).get("AllowedByPermissionsBoundary") is False:
        text += " (its permissions boundary)"
    unknown = sorted(_unknown_keys(action, detail.get("MissingContextValues") or ()))
    if unknown:
        return replace(rights, undecided=(*rights.undecided, f"{text} ({', '.join(unknown)})"))
    if question.unless:
        return replace(rights, undecided=(*rights.undecided, f"{text} ({question.unless})"))
    if question.later:
        return replace(rights, denied_later=(*rights.denied_later, text))
    return replace(rights, denied=(*rights.denied, text))


def _unknown_keys(action: str, missing: Iterable[str]) -> Iterator[str]:
    """Yield the keys without a value that may matter: AWS lists those of all policies of the principal."""
    service = action.partition(":")[0].lower()
    for key in missing:
        if key.lower().startswith(("aws:", f"{service}:")) and not key.lower().startswith(_ABSENT):
            yield key


def _policy_source(session: Session, arn: str) -> str:
    """Return the ARN whose policies apply to a caller: for a session, its role's."""
    if arn.endswith(":root"):
        raise ServiceFault("the caller is the account's root user, and IAM does not simulate its permissions")
    if ":federated-user/" in arn:
        raise ServiceFault("the caller is a federated user, and IAM simulates only users, groups and roles")
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


def _tags(draft: Draft) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in tags(draft, spec_hash(draft))}


def _with_tags(draft: Draft) -> Context:
    """Return the keys of a call that sends the tags of the plan."""
    planned = _tags(draft)
    return {f"aws:RequestTag/{key}": value for key, value in planned.items()} | {
        "aws:TagKeys": tuple(planned)
    }


def _on_tagged(draft: Draft) -> Context:
    """Return the keys of a call on a resource that has the tags of the plan."""
    return {f"aws:ResourceTag/{key}": value for key, value in _tags(draft).items()}


def deploy_calls(draft: Draft, account: str) -> Iterator[Question]:
    """Yield the calls of a deploy, an update, a pause, a resume, `status`, `logs` and a deletion.

    A test records those calls against the local SageMaker, and finds each of them here.
    """
    yield from _sagemaker_calls(draft, account)
    yield from _key_calls(draft, account)
    for service, role in {
        "sagemaker.amazonaws.com": draft.role_arn,
        "scheduler.amazonaws.com": draft.scheduler_role_arn,
    }.items():
        if role is not None:
            yield Question(("iam:PassRole",), role, {_PASSED: service})
    place = f"arn:{partition(draft.region)}"
    schedules = f"{place}:scheduler:{draft.region}:{account}:schedule/default"
    lifetime = f"{schedules}/{schedule_name(draft.spec.name)}"
    yield Question(tuple(f"scheduler:{verb}Schedule" for verb in ("Create", "Get", "Delete")), lifetime)
    yield Question(("scheduler:UpdateSchedule",), lifetime, later=True)
    hard = f"{schedules}/{hard_schedule_name(draft.spec.name)}"
    yield Question(("scheduler:GetSchedule", "scheduler:DeleteSchedule"), hard)
    stack = f"{place}:cloudformation:{draft.region}:{account}:stack/{GUARD_STACK}/*"
    yield Question(("cloudformation:DescribeStacks",), stack, later=True)
    table = f"{place}:dynamodb:{draft.region}:{account}:table/{TABLE}"
    yield Question(tuple(f"dynamodb:{verb}Item" for verb in ("Get", "Update", "Delete")), table, later=True)
    groups = f"{place}:logs:{draft.region}:{account}:log-group"
    component = names_for(draft.spec.name, "", component=draft.scales_to_zero).component
    group = f"{groups}:{log_group_name(draft.spec.name, component)}"
    actions = ("CreateLogGroup", "PutRetentionPolicy", "DescribeLogStreams", "FilterLogEvents")
    # Logs authorizes these on the ARN that ends in a star.
    yield Question(tuple(f"logs:{action}" for action in actions), f"{group}:*", later=True)
    yield Question(("logs:GetLogEvents",), f"{group}:log-stream:*", later=True)
    yield Question(("logs:DescribeLogGroups",), f"{groups}:*", later=True)
    yield Question(("tag:GetResources",), "*", later=True)
    alarms = f"{place}:cloudwatch:{draft.region}:{account}:alarm"
    for name in alarm_names(draft.spec.name):
        of_alarms = ("cloudwatch:PutMetricAlarm", "cloudwatch:DeleteAlarms")
        yield Question(of_alarms, f"{alarms}:{name}", later=True)
    if scaling_of(draft) is not None:
        yield from _scaling_calls(draft, account)


def _key_calls(draft: Draft, account: str) -> Iterator[Question]:
    """Yield the caller's call for the volume's key: SageMaker creates its grant in the caller's name.

    Source: "SageMaker AI API Permissions" (CreateEndpoint with a KmsKeyId). Policies name keys by ARN, so an
    alias is not asked about.
    """
    key = draft.spec.security.kms_key_id
    if key is None or "alias/" in key:
        return
    if not key.startswith("arn:"):
        key = f"arn:{partition(draft.region)}:kms:{draft.region}:{account}:key/{key}"
    context: Context = {
        "kms:ViaService": f"sagemaker.{draft.region}.amazonaws.com",
        "kms:CallerAccount": account,
        "kms:GrantIsForAWSResource": True,
    }
    yield Question(("kms:CreateGrant",), key, context, unless="the key's own policy")


def _scaling_calls(draft: Draft, account: str) -> Iterator[Question]:
    """Yield the calls of autoscaling, and of the component of an endpoint that scales to zero.

    Application Auto Scaling changes the count by a role of its own, but RegisterScalableTarget also checks
    that the caller may do so. Source: "Application Auto Scaling permissions for SageMaker AI".
    """
    place, name = f"arn:{partition(draft.region)}", draft.spec.name
    new, existing = _with_tags(draft), _on_tagged(draft)
    targets = f"{place}:application-autoscaling:{draft.region}:{account}:scalable-target/*"
    target = identity(resource_id(name, name if draft.scales_to_zero else None))
    on_target = {
        "application-autoscaling:service-namespace": "sagemaker",
        "application-autoscaling:scalable-dimension": target["ScalableDimension"],
    }
    calls = ("RegisterScalableTarget", "PutScalingPolicy", "DeregisterScalableTarget")
    yield Question(tuple(f"application-autoscaling:{action}" for action in calls), targets, on_target)
    yield Question(("application-autoscaling:DescribeScalableTargets",), "*", later=True)
    linked = "sagemaker.application-autoscaling.amazonaws.com"
    role = f"role/aws-service-role/{linked}/AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint"
    yield Question(
        ("iam:CreateServiceLinkedRole",),
        f"{place}:iam::{account}:{role}",
        {"iam:AWSServiceName": linked},
        unless="needed unless the account has that role, from an earlier scalable target",
    )
    alarms = f"{place}:cloudwatch:{draft.region}:{account}:alarm"
    # Target tracking makes its alarms; AWS's page on scaling endpoints asks the caller for the permission.
    tracking = ("cloudwatch:PutMetricAlarm", "cloudwatch:DeleteAlarms")
    yield Question(tracking, f"{alarms}:TargetTracking-{target['ResourceId']}-AlarmHigh-*")
    if not draft.scales_to_zero:
        endpoint = _sagemaker(draft, account, "endpoint", name)
        yield Question(("sagemaker:UpdateEndpointWeightsAndCapacities",), endpoint, existing)
        return
    component = _sagemaker(draft, account, "inference-component", name)
    yield Question(("sagemaker:CreateInferenceComponent",), component, {**new, **existing})
    yield Question(("sagemaker:AddTags",), component, {**new, **existing})
    verbs = ("Describe", "Delete")
    yield Question(tuple(f"sagemaker:{verb}InferenceComponent" for verb in verbs), component, existing)
    yield Question(("sagemaker:UpdateInferenceComponentRuntimeConfig",), component, existing)
    yield Question(("sagemaker:ListTags",), component, existing, later=True)
    yield Question(("sagemaker:InvokeEndpoint",), component, existing)
    alarm = f"{alarms}:{from_zero_alarm(name)}"
    yield Question(("cloudwatch:PutMetricAlarm", "cloudwatch:DeleteAlarms"), alarm)
    yield Question(("cloudwatch:DescribeAlarms",), f"{alarms}:*", later=True)
    schedules = f"{place}:scheduler:{draft.region}:{account}:schedule/default"
    hard = f"{schedules}/{hard_schedule_name(name, 1)}"
    yield Question(("scheduler:CreateSchedule", "scheduler:GetSchedule", "scheduler:DeleteSchedule"), hard)


def _sagemaker_calls(draft: Draft, account: str) -> Iterator[Question]:
    names = names_for(draft.spec.name, spec_hash(draft), component=draft.scales_to_zero)
    new, existing = _with_tags(draft), _on_tagged(draft)
    security = draft.spec.security
    hardware: dict[str, str | bool | tuple[str, ...]] = {"sagemaker:InstanceTypes": draft.instance_types}
    if security.kms_key_id is not None:
        hardware["sagemaker:VolumeKmsKey"] = security.kms_key_id
    network: dict[str, str | bool | tuple[str, ...]] = {
        "sagemaker:NetworkIsolation": security.network_isolation
    }
    if security.vpc is not None:
        network["sagemaker:VpcSubnets"] = tuple(security.vpc.subnet_ids)
        network["sagemaker:VpcSecurityGroupIds"] = tuple(security.vpc.security_group_ids)
    model = _sagemaker(draft, account, "model", names.model)
    config = _sagemaker(draft, account, "endpoint-config", names.config)
    endpoint = _sagemaker(draft, account, "endpoint", names.endpoint)
    yield Question(("sagemaker:CreateModel",), model, {**new, **network})
    yield Question(("sagemaker:CreateEndpointConfig",), config, {**new, **hardware})
    yield Question(("sagemaker:CreateEndpoint",), endpoint, new)
    yield Question(("sagemaker:CreateEndpoint",), config, {**new, **existing})
    yield Question(
        ("sagemaker:UpdateEndpoint", "sagemaker:UpdateEndpointWeightsAndCapacities"),
        endpoint,
        existing,
        later=True,
    )
    yield Question(("sagemaker:UpdateEndpoint",), config, existing, later=True)
    for kind, arn in (("Model", model), ("EndpointConfig", config), ("Endpoint", endpoint)):
        yield Question((f"sagemaker:Describe{kind}", f"sagemaker:Delete{kind}"), arn, existing)
        yield Question(("sagemaker:AddTags",), arn, {**new, **existing})
        yield Question(("sagemaker:ListTags",), arn, existing, later=True)
    yield Question(
        ("sagemaker:InvokeEndpoint", "sagemaker:InvokeEndpointWithResponseStream"), endpoint, existing
    )
    yield Question(("sagemaker:DeleteTags",), config, existing, later=True)
    lists = ("ListModels", "ListEndpointConfigs", "ListEndpoints", "ListInferenceComponents")
    yield Question(tuple(f"sagemaker:{action}" for action in lists), "*", later=True)


def _container_calls(draft: Draft) -> Iterator[Question]:
    place = partition(draft.region)
    parts = registry_of(draft.image.uri) if draft.image else None
    if parts is not None:
        account, region, image = parts
        repository = image.partition("@")[0].rpartition(":")[0] or image.partition("@")[0]
        arn = f"arn:{place}:ecr:{region}:{account}:repository/{repository}"
        pull = ("BatchCheckLayerAvailability", "BatchGetImage", "GetDownloadUrlForLayer")
        yield Question(tuple(f"ecr:{action}" for action in pull), arn)
        yield Question(("ecr:GetAuthorizationToken",), "*")
    for uri in {draft.model_uri, draft.head_uri} - {None}:
        bucket, prefix = split_uri(str(uri))
        yield Question(("s3:GetObject",), f"arn:{place}:s3:::{bucket}/{prefix}config.json")
        yield Question(("s3:ListBucket",), f"arn:{place}:s3:::{bucket}", {"s3:prefix": prefix})
    account = (draft.role_arn or "::::").split(":")[4]
    names = names_for(draft.spec.name, spec_hash(draft), component=draft.scales_to_zero)
    group = log_group_name(draft.spec.name, names.component)
    stream = f"arn:{place}:logs:{draft.region}:{account}:log-group:{group}:log-stream:AllTraffic/i-0"
    yield Question(("logs:CreateLogStream", "logs:PutLogEvents"), stream)
    if draft.spec.security.vpc is not None:
        yield from _network_calls(draft.spec.security.vpc, draft.region, account)


def _network_calls(vpc: VpcSpec, region: str, account: str) -> Iterator[Question]:
    """Yield what SageMaker does with the role to join a VPC. Source: "SageMaker AI execution roles"."""
    place = f"arn:{partition(region)}:ec2:{region}:{account}"
    interface = f"{place}:network-interface/*"
    subnets = [f"{place}:subnet/{subnet}" for subnet in vpc.subnet_ids]
    groups = [f"{place}:security-group/{group}" for group in vpc.security_group_ids]
    for resource in (interface, *subnets, *groups):
        yield Question(("ec2:CreateNetworkInterface",), resource)
    leave = ("CreateNetworkInterfacePermission", "DeleteNetworkInterface", "DeleteNetworkInterfacePermission")
    yield Question(tuple(f"ec2:{action}" for action in leave), interface)
    see = ("DhcpOptions", "NetworkInterfaces", "SecurityGroups", "Subnets", "Vpcs")
    yield Question(tuple(f"ec2:Describe{kind}" for kind in see), "*")
