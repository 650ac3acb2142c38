"""Installing and removing the guard: safe to repeat, honest about failures, never at the wrong moment."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from peagle_sm.aws.control.stacks import stack_status
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import CredentialsError, PlanRefused, ServiceFault, SpecError
from peagle_sm.core.guard import GUARD_STACK
from peagle_sm.service import Event, Pacing
from peagle_sm.service.guard.installation import InstallReport, bucket_arns, install, uninstall
from peagle_sm.service.guard.status import GuardFiles, shipped
from tests.local.serving import Server, eventually
from tests.service.account import Account, WatchedBoto3
from tests.service.aws_errors import broken, client_error
from tests.service.setting import ACCOUNT

BUCKET = f"peagle-guard-{ACCOUNT}-us-east-1"
EMAIL = {"NoticesEmail": "ops@example.com"}
CHANGING = ("Create", "Put", "Update", "Delete")


@pytest.fixture
def aws(server: Server, watched: WatchedBoto3) -> Iterator[Account]:
    """An account without a guard, or with the one that an earlier test has installed."""
    account = Account(server, watched)
    yield account
    account.clear()


@pytest.fixture
def pacing(aws: Account) -> Pacing:
    """CloudFormation works in real time."""
    return Pacing(aws.now, time.monotonic, lambda _: time.sleep(0.02), poll_s=1.0)


@pytest.fixture(scope="module")
def guard_files() -> GuardFiles:
    return replace(shipped(), content={"peagle_guard/__init__.py": b""})


@pytest.fixture
def installed(aws: Account, session: Session, pacing: Pacing, guard_files: GuardFiles) -> Account:
    install(session, EMAIL, pacing=pacing, guard_files=guard_files)
    aws.calls.clear()
    return aws


def _changes(aws: Account) -> list[str]:
    return [call for call in aws.calls if call.startswith(CHANGING)]


def _parameters(request: dict[str, Any]) -> dict[str, Any]:
    return {each["ParameterKey"]: each.get("ParameterValue", "as before") for each in request["Parameters"]}


def _remove_bucket(aws: Account) -> None:
    s3 = aws.server.client("s3")
    with suppress(ClientError):  # there is none
        for row in s3.list_object_versions(Bucket=BUCKET).get("Versions", []):
            s3.delete_object(Bucket=BUCKET, Key=row["Key"], VersionId=row["VersionId"])
        s3.delete_bucket(Bucket=BUCKET)


def _answer_stack(aws: Account, status: str, until: str, events: Sequence[dict[str, Any]] = ()) -> None:
    """Let the guard's stack have a status until a call; CloudFormation does nothing else before it."""
    stack = {"StackName": GUARD_STACK, "StackId": "old", "StackStatus": status}

    def answer(operation: str) -> dict[str, Any] | None:
        if operation == until:
            aws.before = lambda operation: None
            return {"StackId": "old"}
        answers: dict[str, Any] = {
            "DescribeStacks": {"Stacks": [stack]},
            "DescribeStackEvents": {"StackEvents": events},
        }
        return answers.get(operation)

    aws.before = answer


def test_a_failure_names_its_cause_and_not_its_consequences(
    aws: Account, session: Session, pacing: Pacing, guard_files: GuardFiles
) -> None:
    reason = (
        "Specified ReservedConcurrentExecutions decreases account's UnreservedConcurrentExecution below [10]."
    )
    events = [
        {
            "EventId": logical_id,
            "Timestamp": aws.now() + timedelta(seconds=1),
            "LogicalResourceId": logical_id,
            "ResourceType": "AWS::Lambda::Function",
            "ResourceStatus": "CREATE_FAILED",
            "ResourceStatusReason": why,
        }
        for logical_id, why in (("Switch", "Resource creation cancelled"), ("Sweeper", reason))
    ]

    def create(operation: str) -> dict[str, Any] | None:
        if operation == "CreateStack":
            _answer_stack(aws, "ROLLBACK_COMPLETE", "DeleteStack", events)
            return {"StackId": "old"}
        return None

    aws.before = create
    with pytest.raises(ServiceFault, match="Sweeper") as caught:
        install(session, pacing=pacing, guard_files=guard_files)
    assert reason in caught.value.message
    assert "cancelled" not in caught.value.message
    assert "--parameter ReserveConcurrency=no --region us-east-1" in (caught.value.next_step or "")


def test_a_first_installation_in_a_closed_bucket_replaces_a_stack_that_was_never_created(
    aws: Account, session: Session, pacing: Pacing, guard_files: GuardFiles
) -> None:
    _remove_bucket(aws)
    cloudformation = aws.server.client("cloudformation")
    endpoint = {"Type": "AWS::SageMaker::Endpoint", "Properties": {"EndpointConfigName": "missing"}}
    template = json.dumps({"Resources": {"Endpoint": endpoint}})
    cloudformation.create_stack(StackName=GUARD_STACK, TemplateBody=template)
    eventually(lambda: stack_status(session, GUARD_STACK) == "ROLLBACK_COMPLETE")
    lost = 3

    def lose(event: Event) -> None:
        """Three answers are lost while the stack is followed: that is no failure."""

        def fail(operation: str) -> BaseException | None:
            nonlocal lost
            lost -= operation == "DescribeStacks"
            return broken(operation) if operation == "DescribeStacks" and lost >= 0 else None

        if event.resource == BUCKET and "DeleteStack" in aws.calls:
            aws.before = fail

    report = install(session, EMAIL, pacing=pacing, progress=lose, guard_files=guard_files)
    assert isinstance(report, InstallReport)
    assert report.action == "created"
    assert aws.calls.index("DeleteStack") < aws.calls.index("CreateStack")
    request = aws.sent["CreateStack"]
    assert request["Capabilities"] == ["CAPABILITY_NAMED_IAM"]
    assert _parameters(request) == {"AssetBucket": BUCKET, "AssetKey": guard_files.key, **EMAIL}
    s3 = aws.server.client("s3")
    assert [row["Key"] for row in s3.list_objects_v2(Bucket=BUCKET)["Contents"]] == [guard_files.key]
    before = _changes(aws)[: _changes(aws).index("PutObject")]
    secured = {"PutPublicAccessBlock", "PutBucketEncryption", "PutBucketVersioning", "PutBucketPolicy"}
    assert {"CreateBucket", *secured} <= set(before)
    (refusal,) = json.loads(s3.get_bucket_policy(Bucket=BUCKET)["Policy"])["Statement"]
    assert (refusal["Effect"], refusal["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    assert refusal["Resource"] == [f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/*"]


def test_again_changes_nothing_keeps_the_parameters_and_waits_for_an_operation_under_way(
    installed: Account, session: Session, pacing: Pacing, guard_files: GuardFiles
) -> None:
    (stack,) = installed.server.client("cloudformation").describe_stacks(StackName=GUARD_STACK)["Stacks"]
    moving = {"Stacks": [{**stack, "StackStatus": "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"}]}
    installed.before = lambda operation: (
        moving if operation == "DescribeStacks" and installed.calls.count(operation) < 5 else None
    )
    again = install(session, pacing=pacing, guard_files=guard_files)
    assert again is not None
    assert again.action == "unchanged"
    assert installed.calls.count("DescribeStacks") >= 5
    assert "PutObject" not in installed.calls
    assert _parameters(installed.sent["UpdateStack"])["NoticesEmail"] == "as before"


def test_a_new_package_and_settings_are_an_update(
    installed: Account, session: Session, pacing: Pacing, guard_files: GuardFiles
) -> None:
    newer = replace(guard_files, content={"peagle_guard/__init__.py": b"# newer"})
    wanted = {
        "ModelBucketArns": bucket_arns("us-east-1", ("one", "two")),
        "ImageRepository": "team/*",
        "ReserveConcurrency": "no",
    }
    report = install(session, wanted, pacing=pacing, guard_files=newer)
    assert report is not None
    assert report.action == "updated"
    sent = _parameters(installed.sent["UpdateStack"])
    assert sent["AssetKey"] == newer.key != guard_files.key
    assert sent["ModelBucketArns"] == "arn:aws:s3:::one,arn:aws:s3:::two"
    assert wanted.items() <= sent.items()
    assert set(sent) <= guard_files.parameter_names


@pytest.mark.parametrize("name", ["ImageRepositry", "AssetKey"])
def test_a_parameter_that_cannot_be_set_is_refused_before_anything_is_created(
    aws: Account, session: Session, pacing: Pacing, guard_files: GuardFiles, name: str
) -> None:
    with pytest.raises(SpecError, match="allowed: EncryptionKeyArn, EndpointKeyArns, ImageRepository"):
        install(session, {name: "x"}, pacing=pacing, guard_files=guard_files)
    assert _changes(aws) == []


def test_what_the_cdk_made_is_left_to_the_cdk(
    aws: Account, session: Session, pacing: Pacing, guard_files: GuardFiles
) -> None:
    aws.stacks[GUARD_STACK] = "CREATE_COMPLETE"
    with pytest.raises(PlanRefused, match="CDK"):
        install(session, pacing=pacing, guard_files=guard_files)
    assert _changes(aws) == []


def test_somebody_elses_bucket_is_not_used(
    aws: Account, session: Session, pacing: Pacing, guard_files: GuardFiles
) -> None:
    foreign = client_error("HeadBucket", "403", "Forbidden", 403)
    aws.before = lambda operation: foreign if operation == "HeadBucket" else None
    with pytest.raises(CredentialsError, match="another account"):
        install(session, pacing=pacing, guard_files=guard_files)
    assert not {"CreateStack", "UpdateStack"} & set(aws.calls)


def test_uninstall_refuses_while_stacks_import_from_it_and_else_reports_what_is_left(
    installed: Account, session: Session, pacing: Pacing
) -> None:
    imports = {"Imports": ["Peagle-demo"]}
    installed.before = lambda operation: imports if operation == "ListImports" else None
    with pytest.raises(PlanRefused, match="Peagle-demo"):
        uninstall(session, leave_unguarded=True, pacing=pacing)
    assert "DeleteStack" not in installed.calls
    installed.before = lambda operation: None
    installed.foreign("demo")
    marks = {"peagle-sm:managed-by": "peagle-sm", "peagle-sm:endpoint": "demo"}
    installed.tag(marks)
    s3 = installed.server.client("s3")
    s3.put_object(Bucket=BUCKET, Key="notes.txt", Body=b"mine")
    shown: list[list[str]] = []

    def agree(names: Sequence[str]) -> bool:
        shown.append(list(names))
        return True

    report = uninstall(session, leave_unguarded=True, confirm=agree, pacing=pacing)
    assert report is not None
    assert (shown, report.unguarded) == ([["demo"]], ("demo",))
    assert not report.bucket_removed
    assert [row["Key"] for row in s3.list_objects_v2(Bucket=BUCKET)["Contents"]] == ["notes.txt"]
    _remove_bucket(installed)
