"""The permissions of a deploy: the simulated calls, and the results of IAM's simulation."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from moto.iam.models import iam_backends

from peagle_sm.aws.readers.permissions import caller_rights, deploy_calls, execution_rights, simulate
from peagle_sm.aws.session.session import LocalTarget, Session
from peagle_sm.core.checks.base import Rights
from peagle_sm.core.errors import ServiceFault
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, Update
from peagle_sm.service import Pacing, delete, deploy, logs, pause, resume, status, update
from peagle_sm.service.spec_to_plan import plan_for
from tests.local.serving import AsOnAws, Server
from tests.service.setting import make_spec

ACCOUNT = "123456789012"
EVERYTHING = {"Effect": "Allow", "Action": "*", "Resource": "*"}
_numbers = itertools.count(1)

# IAM's action of an operation, where the names differ.
_ACTIONS = {"GetResources": "tag:GetResources"}
_PREFIXES = {"cloudwatch": "cloudwatch"}
# Needs no permission.
_FREE = {"sts:GetCallerIdentity"}


class Recording(AsOnAws):
    """A session that notes the actions of IAM that its calls need."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.actions: set[str] = set()

    def client(self, service: str, **options: Any) -> Any:
        client = super().client(service, **options)
        prefix = _PREFIXES.get(service, client.meta.service_model.signing_name)

        def note(model: Any, **_: Any) -> None:
            self.actions.add(_ACTIONS.get(model.name, f"{prefix}:{model.name}"))

        client.meta.events.register("before-call", note)
        return client


LIVES: dict[str, dict[str, Any]] = {
    "fixed": {},
    "autoscaling": {"autoscaling": {"max_instances": 2, "target_concurrency": 6}},
    "scale-to-zero": {"lifecycle": {"idle": "scale-to-zero"}},
}


@pytest.mark.parametrize("kind", LIVES)
def test_every_call_of_an_endpoint_s_life_is_asked_for(server: Server, kind: str) -> None:
    recording = Recording(server.url)
    session = Session.from_boto3(recording, LocalTarget.from_status(server.status.to_dict()))
    pacing = replace(Pacing.for_session(session), poll_s=0.05)
    name = f"recorded-{kind}"
    speculation = {"mode": "p-eagle", "num_speculative_tokens": 7}
    spec = EndpointSpec(name=name, model="tiny-code", speculation=speculation, **LIVES[kind])
    names = {
        action for each in deploy_calls(plan_for(spec, session).draft, ACCOUNT) for action in each.actions
    }

    endpoint = deploy(spec, session=session, pacing=pacing, unguarded=True)
    script = {"SCRIPT_INVOKE": "sse", "SCRIPT_CHUNKS": "1"}
    list(endpoint.stream({"prompt": "x", "script": script}))
    with suppress(ServiceFault):  # the scripted engine's answer is no completion
        endpoint.invoke(prompt="x", max_tokens=2)
    status(name, session=session)
    fewer = {**speculation, "num_speculative_tokens": 5}
    changed = EndpointSpec(name=name, model="tiny-code", speculation=fewer, **LIVES[kind])
    # UpdateEndpoint does not change a component's model
    way: Update = "off-update-on" if kind == "scale-to-zero" else "in-place"
    update(changed, session=session, pacing=pacing, unguarded=True, strategy=way)
    list(logs(name, session=session))
    pause(name, session=session, pacing=pacing)
    resume(name, session=session, pacing=pacing, unguarded=True)
    delete([name], session=session, pacing=pacing)
    assert {"sagemaker:CreateEndpoint", "scheduler:CreateSchedule"} <= recording.actions
    scaled = "application-autoscaling:RegisterScalableTarget" in recording.actions
    assert scaled is (kind != "fixed")
    assert recording.actions - _FREE - names == set()


@pytest.fixture
def aws(server: Server) -> Session:
    return Session.from_boto3(AsOnAws(server.url))


def _principal(server: Server, *statements: dict[str, Any], boundary: str = "") -> str:
    iam, name = server.client("iam"), f"permissions-{next(_numbers)}"
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    more = {"PermissionsBoundary": boundary} if boundary else {}
    role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=_document(trust), **more)["Role"]
    iam.put_role_policy(RoleName=name, PolicyName="all", PolicyDocument=_document(*statements))
    return str(role["Arn"])


def _document(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def _rights(aws: Session, principal: str, only: str = "", **fields: Any) -> Rights:
    """Simulate the calls of a deploy, or ``only`` those of one action."""
    calls = deploy_calls(plan_for(make_spec(**fields), aws).draft, ACCOUNT)
    return simulate(aws, principal, [call for call in calls if not only or only in call.actions])


def _actions(texts: tuple[str, ...]) -> set[str]:
    return {text.partition(" ")[0] for text in texts}


# Conditions of other statements, whose keys AWS names for every action.
UNRELATED = {
    "Effect": "Allow",
    "Action": "ec2:RunInstances",
    "Resource": "*",
    "Condition": {"StringEquals": {"ec2:InstanceType": "t3.micro", "aws:RequestTag/team": "a"}},
}


def test_an_explicit_denial_counts_beside_conditions_of_other_statements(
    server: Server, aws: Session
) -> None:
    denied = {"Effect": "Deny", "Action": "sagemaker:CreateEndpoint", "Resource": "*"}
    rights = _rights(aws, _principal(server, EVERYTHING, UNRELATED, denied))
    assert _actions(rights.denied) == {"sagemaker:CreateEndpoint"}
    assert rights.undecided == ()


def test_what_no_statement_allows_is_denied_beside_conditions_of_others(server: Server, aws: Session) -> None:
    rights = _rights(aws, _principal(server, {**EVERYTHING, "Action": "sagemaker:*"}, UNRELATED))
    assert {"iam:PassRole", "scheduler:CreateSchedule"} <= _actions(rights.denied)
    assert "sagemaker:CreateEndpoint" not in _actions(rights.denied)


@pytest.mark.parametrize(
    ("condition", "allowed"),
    [
        ({"StringEquals": {"aws:RequestedRegion": "us-east-1"}}, True),
        ({"StringEquals": {"aws:RequestedRegion": "eu-west-1"}}, False),
        ({"StringEquals": {"aws:RequestTag/peagle-sm:managed-by": "peagle-sm"}}, True),
        ({"StringEquals": {"aws:RequestTag/team": "a"}}, False),
        ({"ForAllValues:StringLike": {"aws:TagKeys": "peagle-sm:*"}}, True),
        ({"StringEquals": {"sagemaker:NetworkIsolation": "true"}}, True),
        ({"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::*:role/permissions-*"}}, True),
        ({"StringEquals": {"aws:ResourceAccount": ACCOUNT}}, True),
        ({"StringEquals": {"aws:PrincipalAccount": "999999999999"}}, False),
        ({"Bool": {"aws:SecureTransport": "true"}}, True),
    ],
)
def test_a_condition_has_the_value_of_the_real_call(
    server: Server, aws: Session, condition: dict[str, Any], allowed: bool
) -> None:
    principal = _principal(server, {**EVERYTHING, "Action": "sagemaker:CreateModel", "Condition": condition})
    rights = _rights(aws, principal, "sagemaker:CreateModel")
    assert ("sagemaker:CreateModel" in _actions(rights.allowed)) is allowed
    assert ("sagemaker:CreateModel" in _actions(rights.denied)) is not allowed


def test_a_condition_that_only_aws_knows_is_undecided(server: Server, aws: Session) -> None:
    office = {"NotIpAddress": {"aws:SourceIp": "203.0.113.0/24"}}
    deny = {"Effect": "Deny", "Action": "sagemaker:*", "Resource": "*", "Condition": office}
    rights = _rights(aws, _principal(server, EVERYTHING, deny), "sagemaker:CreateModel")
    assert "sagemaker:CreateModel" in _actions(rights.undecided)
    assert all("aws:SourceIp" in text for text in rights.undecided)
    assert rights.denied == ()


def test_a_permissions_boundary_denies(server: Server, aws: Session) -> None:
    policy = server.client("iam").create_policy(
        PolicyName=f"boundary-{next(_numbers)}",
        PolicyDocument=_document({**EVERYTHING, "Action": ["sagemaker:*", "scheduler:*"]}),
    )["Policy"]["Arn"]
    rights = _rights(aws, _principal(server, EVERYTHING, boundary=policy))
    assert "iam:PassRole" in _actions(rights.denied)
    assert any("permissions boundary" in text for text in rights.denied)
    assert "sagemaker:CreateEndpoint" in _actions(rights.allowed)


@pytest.fixture
def organization(server: Server) -> Iterator[list[dict[str, Any]]]:
    """Service control policies of the account, for the time of a test."""
    backend: Any = iam_backends[ACCOUNT]["aws"]
    backend.service_control_policies = [json.loads(_document(EVERYTHING))]
    yield backend.service_control_policies
    del backend.service_control_policies


def _only_in(*regions: str) -> dict[str, Any]:
    condition = {"StringNotEquals": {"aws:RequestedRegion": list(regions)}}
    return json.loads(_document({**EVERYTHING, "Effect": "Deny", "Condition": condition}))  # type: ignore[no-any-return]


def test_an_administrator_is_allowed_in_a_region_of_the_organization(
    server: Server, aws: Session, organization: list[dict[str, Any]]
) -> None:
    organization.append(_only_in("us-east-1", "eu-west-1"))
    rights = _rights(aws, _principal(server, EVERYTHING))
    assert (rights.denied, rights.by_organization, rights.undecided) == ((), (), ())


def test_a_service_control_policy_that_denies_is_named_apart(
    server: Server, aws: Session, organization: list[dict[str, Any]]
) -> None:
    organization.append(_only_in("eu-west-1"))
    rights = _rights(aws, _principal(server, EVERYTHING))
    assert "sagemaker:CreateEndpoint" in _actions(rights.by_organization)
    assert (rights.denied, rights.allowed) == ((), ())


KEY = "arn:aws:kms:us-east-1:123456789012:key/0a1b"
NETWORK = {"subnet_ids": ["subnet-0a1b2c3d"], "security_group_ids": ["sg-0a1b2c3d"]}


@pytest.mark.parametrize("own", [KEY, "0a1b"])
def test_the_grant_of_the_volume_s_key_is_asked_for_and_the_key_s_policy_may_allow_it(
    server: Server, aws: Session, own: str
) -> None:
    security = {"kms_key_id": own}
    principal = _principal(server, {**EVERYTHING, "Action": ["sagemaker:*", "iam:*", "scheduler:*"]})
    rights = _rights(aws, principal, "kms:CreateGrant", security=security)
    assert [text for text in rights.undecided if f"kms:CreateGrant on {KEY}" in text]
    via = {"StringLike": {"kms:ViaService": "sagemaker.*.amazonaws.com"}}
    granted = {"Effect": "Allow", "Action": "kms:CreateGrant", "Resource": KEY, "Condition": via}
    rights = _rights(aws, _principal(server, granted), "kms:CreateGrant", security=security)
    assert f"kms:CreateGrant on {KEY}" in rights.allowed


AUTOSCALING = {"max_instances": 2, "target_concurrency": 6}


def test_the_alarms_of_target_tracking_are_asked_for(server: Server, aws: Session) -> None:
    ours = {"Effect": "Deny", "Action": "cloudwatch:*", "Resource": "arn:aws:cloudwatch:*:*:alarm:Target*"}
    rights = _rights(aws, _principal(server, EVERYTHING, ours), autoscaling=AUTOSCALING)
    assert _actions(rights.denied) == {"cloudwatch:PutMetricAlarm", "cloudwatch:DeleteAlarms"}


def test_the_role_of_autoscaling_may_exist_already(server: Server, aws: Session) -> None:
    deny = {"Effect": "Deny", "Action": "iam:CreateServiceLinkedRole", "Resource": "*"}
    rights = _rights(
        aws, _principal(server, EVERYTHING, deny), "iam:CreateServiceLinkedRole", autoscaling=AUTOSCALING
    )
    assert _actions(rights.undecided) == {"iam:CreateServiceLinkedRole"}
    assert (rights.denied, rights.denied_later) == ((), ())


def test_a_log_group_is_authorized_by_the_arn_that_ends_in_a_star(server: Server, aws: Session) -> None:
    group = "arn:aws:logs:us-east-1:123456789012:log-group:/aws/sagemaker/Endpoints/demo:*"
    rights = _rights(aws, _principal(server, {**EVERYTHING, "Action": "logs:*", "Resource": group}))
    assert {"logs:CreateLogGroup", "logs:FilterLogEvents"} <= _actions(rights.allowed)


@pytest.mark.parametrize("vpc", [None, NETWORK])
def test_a_role_without_network_interfaces_is_denied_only_in_a_vpc(
    server: Server, aws: Session, vpc: dict[str, Any] | None
) -> None:
    without = _principal(server, EVERYTHING, {"Effect": "Deny", "Action": "ec2:*", "Resource": "*"})
    spec = make_spec(execution_role_arn=without, scheduler_role_arn=without, security={"vpc": vpc})
    denied = _actions(execution_rights(aws, plan_for(spec, aws).draft).denied)
    assert ("ec2:CreateNetworkInterface" in denied) is (vpc is not None)
    assert ("ec2:DescribeVpcs" in denied) is (vpc is not None)


class _Caller(AsOnAws):
    """A session whose caller has another ARN."""

    def __init__(self, url: str, arn: str) -> None:
        super().__init__(url)
        self._arn = arn

    def client(self, service: str, **options: Any) -> Any:
        client = super().client(service, **options)
        if service == "sts":
            client.get_caller_identity = lambda: {"Arn": self._arn, "UserId": "AIDA", "Account": ACCOUNT}
        return client


@pytest.mark.parametrize(
    ("arn", "message"),
    [
        (f"arn:aws:iam::{ACCOUNT}:root", "root user"),
        (f"arn:aws:sts::{ACCOUNT}:federated-user/me", "federated user"),
    ],
)
def test_a_caller_whom_iam_does_not_simulate_is_named(server: Server, arn: str, message: str) -> None:
    session = Session.from_boto3(_Caller(server.url, arn))
    with pytest.raises(ServiceFault, match=message):
        caller_rights(session, plan_for(make_spec(), session).draft)


def test_the_role_of_a_session_is_asked_about_with_its_path(server: Server) -> None:
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    role = server.client("iam").create_role(
        RoleName="AWSReservedSSO_Admin_0a1b",
        Path="/aws-reserved/sso.amazonaws.com/",
        AssumeRolePolicyDocument=_document(trust),
    )["Role"]["Arn"]
    arn = f"arn:aws:sts::{ACCOUNT}:assumed-role/AWSReservedSSO_Admin_0a1b/me"
    session = Session.from_boto3(_Caller(server.url, arn))
    assert caller_rights(session, plan_for(make_spec(), session).draft).principal == role
