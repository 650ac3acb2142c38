"""The preflight over HTTP: an unmodified boto3, a session as on AWS, and the local server to answer."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest

from peagle_sm.aws.readers import PERMISSIONS, WITH_SPEC, readers
from peagle_sm.aws.session.session import Session
from peagle_sm.core.checks import ALL_CHECKS
from peagle_sm.core.checks.base import Result, Unknown
from peagle_sm.core.errors import CredentialsError, ServiceFault, SpecError
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service.preflight import (
    PreflightFailed,
    gather,
    preflight,
    refuse_errors,
    require_preflight,
    results_data,
)
from peagle_sm.service.spec_to_plan import plan_for
from sagemaker_local.lifecycle import advance_clock, find_server
from tests.local.serving import AsOnAws, Server, local_session

_numbers = itertools.count(1)
ACCOUNT = "123456789012"


@pytest.fixture
def aws(server: Server) -> Session:
    def clock() -> datetime:  # other tests put the server's clock forward, and the server dates its answers
        return datetime.now(UTC) + timedelta(seconds=find_server(server.status.port).clock_ahead_s)

    return Session.from_boto3(AsOnAws(server.url), clock=clock)


@pytest.fixture
def fields(server: Server) -> dict[str, Any]:
    """A bucket with weights, an image, and two roles, as a spec for AWS wants them."""
    number = next(_numbers)
    bucket, s3 = f"preflight-{number}", server.client("s3")
    s3.create_bucket(Bucket=bucket)
    for folder in ("target", "head"):
        for name in ("config.json", "model.safetensors"):
            s3.put_object(Bucket=bucket, Key=f"{folder}/{name}", Body=b"{}")
    ecr, repository = server.client("ecr"), f"vllm-{number}"
    ecr.create_repository(repositoryName=repository)
    tag = "0.33.0-gpu-py312-cu130-ubuntu24.04-sagemaker"
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {"digest": "sha256:" + "0" * 64},
        "layers": [],
    }
    ecr.put_image(repositoryName=repository, imageTag=tag, imageManifest=json.dumps(manifest))
    roles = {
        name: _role(server, f"preflight-{name}-{number}", service, statement)
        for name, service, statement in (
            (
                "execution",
                "sagemaker.amazonaws.com",
                {"Action": ["s3:*", "ecr:*", "logs:*"], "Resource": "*"},
            ),
            (
                "scheduler",
                "scheduler.amazonaws.com",
                {
                    "Action": "sagemaker:DeleteEndpoint",
                    "Resource": "*",
                    "Condition": {"StringEquals": {"aws:ResourceTag/peagle-sm:managed-by": "peagle-sm"}},
                },
            ),
        )
    }
    return {
        "name": f"preflight-{number}",
        "model": "gpt-oss-20b",
        "source": "container",
        "image": f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/{repository}:{tag}",
        "model_uri": f"s3://{bucket}/target/",
        "head_uri": f"s3://{bucket}/head/",
        "placement": {"instance_types": ["ml.g6.12xlarge"]},
        "serving": {"data_parallel_size": 4},
        "speculation": {"mode": "none"},  # the files here are named as weights are, and hold none
        "execution_role_arn": roles["execution"],
        "scheduler_role_arn": roles["scheduler"],
    }


def _role(server: Server, name: str, service: str, statement: dict[str, Any]) -> str:
    iam = server.client("iam")
    trust = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps({"Statement": [trust]}))
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **statement}]}
    iam.put_role_policy(RoleName=name, PolicyName="all", PolicyDocument=json.dumps(policy))
    return str(role["Role"]["Arn"])


def _look(aws: Session, fields: dict[str, Any], **changes: Any) -> dict[str, Result]:
    plan = plan_for(EndpointSpec(**{**fields, **changes}), aws)
    by_name: dict[str, Result] = {}
    for result in preflight(aws, plan):
        by_name.setdefault(result.check, result)  # the worst comes first
    return by_name


def test_what_is_in_order_is_ok_and_what_cannot_be_looked_at_is_unknown(
    aws: Session, fields: dict[str, Any]
) -> None:
    outcome = _look(aws, fields)
    statuses = {check: result.status for check, result in outcome.items()}
    assert {check for check, status in statuses.items() if status == "error"} == {"guard-installed"}
    for check in (
        "credentials",
        "account",
        "clock-skew",
        "role-trust",
        "role-rights",
        "scheduler-role-trust",
        "scheduler-role-rights",
        "quota-instances",
        "quota-all-instances",
        "image-exists",
        "artifacts-readable",
        "artifacts-region",
        "artifacts-files",
        "name-taken",
    ):
        assert statuses[check] == "ok", outcome[check]
    # The caller here is one whom IAM does not know; the local server's price list lacks the type.
    assert statuses["caller-rights"] == "unknown"
    assert "no hosting price" in outcome["price"].message
    assert "reservation" not in statuses
    assert "kms-key" not in statuses


@pytest.mark.parametrize(
    ("check", "changes", "message"),
    [
        (
            "quota-instances",
            {"placement": {"instance_types": ["ml.p6-b200.48xlarge"]}},
            "'ml.p6-b200.48xlarge for endpoint usage' is 0; needed: 1",
        ),
        ("role-trust", {"execution_role_arn": f"arn:aws:iam::{ACCOUNT}:role/nobody"}, "does not exist"),
        (
            "artifacts-readable",
            {"model_uri": "s3://nowhere-at-all/target/"},
            "the bucket nowhere-at-all does not exist",
        ),
        (
            "image-exists",
            {"image": f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/none:0.33.0-cu130"},
            "does not exist",
        ),
        ("kms-key", {"security": {"kms_key_id": "alias/none"}}, "is missing"),
        (
            "vpc",
            {"security": {"vpc": {"subnet_ids": ["subnet-none"], "security_group_ids": ["sg-none"]}}},
            "not found in us-east-1: subnet-none, sg-none",
        ),
    ],
)
def test_what_would_fail_is_an_error(
    aws: Session, fields: dict[str, Any], check: str, changes: dict[str, Any], message: str
) -> None:
    result = _look(aws, fields, **changes)[check]
    assert result.status == "error", result
    assert message in result.message
    assert result.next_step
    assert result.source


def test_roles_that_may_too_little_and_trust_the_wrong_one(
    server: Server, aws: Session, fields: dict[str, Any]
) -> None:
    name = f"{fields['name']}-weak"
    weak = _role(server, name, "ec2.amazonaws.com", {"Action": "s3:GetObject", "Resource": "*"})
    result = _look(aws, fields, execution_role_arn=weak, scheduler_role_arn=weak)
    assert "it trusts ec2.amazonaws.com" in result["role-trust"].message
    assert "ecr:BatchGetImage" in result["role-rights"].message
    assert "s3:GetObject" not in result["role-rights"].message
    assert "sagemaker:DeleteEndpoint" in result["scheduler-role-rights"].message


def test_weights_that_the_role_cannot_decrypt(server: Server, aws: Session, fields: dict[str, Any]) -> None:
    key = server.client("kms").create_key()["KeyMetadata"]["Arn"]
    bucket = fields["model_uri"].split("/")[2]
    server.client("s3").put_object(
        Bucket=bucket, Key="locked/config.json", Body=b"{}", ServerSideEncryption="aws:kms", SSEKMSKeyId=key
    )
    artifacts_kms = _look(aws, fields, model_uri=f"s3://{bucket}/locked/")["artifacts-kms"]
    assert (artifacts_kms.status, key in artifacts_kms.message) == ("warning", True), artifacts_kms
    assert _look(aws, fields)["artifacts-kms"].status == "ok"


def test_the_callers_rights_are_simulated_for_the_role_behind_a_session(
    server: Server, fields: dict[str, Any]
) -> None:
    name = f"{fields['name']}-deployer"
    statement = {"Action": ["sagemaker:*", "scheduler:*"], "Resource": "*"}
    role = _role(server, name, "ec2.amazonaws.com", statement)
    keys = server.client("sts").assume_role(RoleArn=role, RoleSessionName="me")["Credentials"]
    session = AsOnAws(server.url)
    session._session = boto3.Session(
        keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"], region_name="us-east-1"
    )
    caller_rights = _look(Session.from_boto3(session), fields)["caller-rights"]
    assert caller_rights.status == "error", caller_rights
    assert (
        f"the caller {role} may not iam:PassRole on {fields['execution_role_arn']}" in caller_rights.message
    )
    assert "sagemaker:CreateEndpoint" not in caller_rights.message


def test_instances_of_other_endpoints_count_and_the_own_ones_do_not(
    server: Server, aws: Session, fields: dict[str, Any]
) -> None:
    name = server.deploy()
    draft = plan_for(EndpointSpec(**{**fields, "name": name}), aws).draft
    quotas = WITH_SPEC["quotas"](aws, draft)
    assert quotas.in_use["ml.g7e.2xlarge"] >= 1
    assert quotas.own_in_use == {"ml.g7e.2xlarge": 1}
    name_taken = _look(aws, fields, name=name)["name-taken"]
    assert (name_taken.status, "peagle-sm did not create it" in name_taken.message) == ("error", True)
    server.client("sagemaker").delete_endpoint(EndpointName=name)


def test_a_missing_permission_is_named_and_is_no_error(
    server: Server, aws: Session, fields: dict[str, Any]
) -> None:
    advance_clock(server.status.port, 360)  # as other tests do
    services = ("service-quotas", "iam", "s3", "ecr", "cloudformation")
    session = Session.from_boto3(DenyingAll(server.url, *services), clock=aws.wall_clock)
    outcome = _look(session, fields)
    expected = {
        "quota-instances": "servicequotas:ListServiceQuotas",
        "role-trust": "iam:GetRole",
        "role-rights": "iam:SimulatePrincipalPolicy",
        "artifacts-readable": "s3:ListBucket",
        "image-exists": "ecr:BatchGetImage",
        "guard-installed": "cloudformation:DescribeStacks",
    }
    for check, permission in expected.items():
        assert (outcome[check].status, outcome[check].permission) == ("unknown", permission), outcome[check]
        assert permission in outcome[check].next_step
    assert not [check for check, result in outcome.items() if result.status == "error"]


class DenyingAll(AsOnAws):
    """Every call of the services that are named comes back as AWS words a missing permission."""

    def __init__(self, url: str, *services: str) -> None:
        super().__init__(url)
        self._services = services

    def client(self, service: str, **options: Any) -> Any:
        created = super().client(service, **options)
        if service in self._services:
            created.meta.events.register("before-send", _denied)
        return created


def _denied(request: Any, **_: Any) -> Any:
    from botocore.awsrequest import AWSResponse, HeadersDict

    if "x-amz-target" in {key.lower() for key in request.headers}:
        text = b'{"__type": "AccessDeniedException", "message": "not authorized"}'
    elif "Action=" in _text(request.body):
        text = b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>"
    else:
        text = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"

    class Raw:
        def stream(self, **_: Any) -> Iterator[bytes]:
            yield text

    headers: Any = HeadersDict({"content-type": "text/xml"})
    return AWSResponse(request.url, 403, headers, Raw())


def _text(body: Any) -> str:
    return body.decode() if isinstance(body, bytes) else str(body or "")


def test_without_credentials_the_first_check_says_so() -> None:
    nobody = boto3.Session(region_name="us-east-1")
    results = preflight(Session.from_boto3(nobody), None)
    first = results[0]
    assert (first.check, first.status) == ("credentials", "error")
    assert "No AWS credentials" in first.message or "no AWS credentials" in first.message
    with pytest.raises(CredentialsError) as caught:
        refuse_errors(results)
    assert caught.value.exit_code == 5


def test_an_error_refuses_with_code_3_and_a_skipped_check_does_not(
    aws: Session, fields: dict[str, Any]
) -> None:
    big = {
        **fields,
        "placement": {"instance_types": ["ml.p6-b200.48xlarge"]},
        "serving": {"data_parallel_size": 8},
    }
    plan = plan_for(EndpointSpec(**big), aws)
    with pytest.raises(PreflightFailed, match=r"ml\.p6-b200\.48xlarge for endpoint usage' is 0") as caught:
        require_preflight(aws, plan)
    assert caught.value.exit_code == 3
    assert "`peagle-sm deploy --skip-check quota-instances`" in (caught.value.next_step or "")
    results = require_preflight(aws, plan, skip=["quota-instances"])
    (skipped,) = [each for each in results if each.status == "skipped"]
    assert "An instance type quota that is too small" in skipped.message
    assert results_data(results)


def test_every_error_has_the_option_of_deploy_that_goes_on_in_spite_of_it() -> None:
    results = [
        Result(id, "error", "m", "what", "why", next_step="Mend it.", source="s")
        for id in ("guard-installed", "name-taken")
    ]
    with pytest.raises(PreflightFailed) as caught:
        refuse_errors(results)
    assert caught.value.next_step == (
        "Mend it. To deploy anyway: `peagle-sm deploy --unguarded --skip-check name-taken`."
    )


def test_a_check_that_there_is_not_cannot_be_skipped(aws: Session) -> None:
    with pytest.raises(SpecError, match="allowed: an id of a check"):
        preflight(aws, None, skip=["quota"])


def test_time_is_bounded_and_what_fails_is_unknown() -> None:
    def hangs() -> None:
        time.sleep(60)

    def breaks() -> None:
        raise KeyError("x")

    def faults() -> None:
        raise ServiceFault("no answer", code="NoAnswer")

    facts = gather({"a": hangs, "b": breaks, "c": faults, "d": lambda: 7}, timeout_s=0.2)
    assert facts == {
        "a": Unknown("no answer within 0.2 s"),
        "b": Unknown("KeyError: 'x'"),
        "c": Unknown("no answer"),
        "d": 7,
    }


def test_the_folders_of_the_s3_console_and_requirements_are_found(
    server: Server, aws: Session, fields: dict[str, Any]
) -> None:
    bucket = fields["model_uri"].split("/")[2]
    for key, body in (("target/", b""), ("target/old/", b""), ("target/requirements.txt", b"torch")):
        server.client("s3").put_object(Bucket=bucket, Key=key, Body=body)
    result = _look(aws, fields)
    markers = result["artifacts-markers"]
    assert markers.status == "error"
    assert f"`aws s3 rm {fields['model_uri']}`" in markers.message
    assert f"`aws s3 rm {fields['model_uri']}old/`" in markers.message
    assert result["artifacts-requirements"].status == "error"  # the spec's containers are isolated


def test_on_the_local_sagemaker_less_is_asked(server: Server) -> None:
    local = local_session(server)
    plan = plan_for(EndpointSpec(name="local-preflight", model="tiny-code"), local)
    advance_clock(server.status.port, 1200)  # on purpose, so it is no fault of this machine's clock
    assert set(readers(local, plan.draft)) == {
        "identity",
        "execution_role",
        "scheduler_role",
        "artifacts",
        "taken",
    }
    by_name = {each.check: each.status for each in preflight(local, plan)}
    assert by_name["artifacts-readable"] == "ok"
    assert by_name["role-trust"] == "ok"
    assert by_name["clock-skew"] == "ok"
    assert "quota-instances" not in by_name


def test_every_reader_is_judged_and_every_call_has_its_permission() -> None:
    judged = {check.reads for check in ALL_CHECKS}
    assert set(WITH_SPEC) <= judged
    assert all(":" in permission for permission in PERMISSIONS.values())
