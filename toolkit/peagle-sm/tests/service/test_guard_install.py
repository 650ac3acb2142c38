"""Installing and removing the guard: safe to repeat, honest about failures, never at the wrong moment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import CredentialsError, PlanRefused, ServiceFault, SpecError
from peagle_sm.service import Event, Pacing
from peagle_sm.service.guard.installation import (
    InstallReport,
    bucket_arns,
    install,
    uninstall,
)
from peagle_sm.service.guard.status import GuardFiles, shipped
from tests.service.fakes import ACCOUNT
from tests.service.guard_fakes import FakeGuardAws

BUCKET = f"peagle-guard-{ACCOUNT}-us-east-1"
OURS = {"peagle-sm:managed-by": "peagle-sm"}
CHANGING = ("create", "put", "update", "delete")


@pytest.fixture
def aws() -> FakeGuardAws:
    return FakeGuardAws()


@pytest.fixture
def session(aws: FakeGuardAws) -> Session:
    return Session.from_boto3(aws, clock=aws.clock.now)


@pytest.fixture
def pacing(aws: FakeGuardAws) -> Pacing:
    return Pacing(aws.clock.now, aws.clock.monotonic, aws.clock.sleep, poll_s=1.0)


@pytest.fixture(scope="module")
def guard_files() -> GuardFiles:
    return replace(shipped(), content={"peagle_guard/__init__.py": b""})


@pytest.fixture
def installed(session: Session, pacing: Pacing, guard_files: GuardFiles) -> InstallReport:
    report = install(session, {"NoticesEmail": "ops@example.com"}, pacing=pacing, guard_files=guard_files)
    assert report is not None
    return report


def _parameters(request: dict[str, Any]) -> dict[str, Any]:
    return {one["ParameterKey"]: one.get("ParameterValue", "as before") for one in request["Parameters"]}


def test_a_first_installation(aws: FakeGuardAws, installed: InstallReport, guard_files: GuardFiles) -> None:
    assert installed.action == "created"
    assert installed.outputs["Version"] == "1.0"
    request = aws.request("create_stack")
    assert request["Capabilities"] == ["CAPABILITY_NAMED_IAM"]
    parameters = _parameters(request)
    assert parameters == {
        "AssetBucket": BUCKET,
        "AssetKey": guard_files.key,
        "NoticesEmail": "ops@example.com",
    }
    assert list(aws.objects) == [guard_files.key]


def test_the_bucket_is_closed_before_anything_lies_in_it(aws: FakeGuardAws, installed: InstallReport) -> None:
    before = aws.calls[: aws.calls.index("put_object")]
    assert before[0] == "create_bucket"
    assert {
        "put_public_access_block",
        "put_bucket_encryption",
        "put_bucket_versioning",
        "put_bucket_policy",
    } < {*before}
    assert aws.bucket is not None
    policy = json.loads(json.loads(aws.bucket["put_bucket_policy"])["Policy"])
    (denied,) = policy["Statement"]
    assert (denied["Effect"], denied["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    assert denied["Resource"] == [f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/*"]


def test_again_changes_nothing_and_keeps_what_was_told(
    aws: FakeGuardAws, installed: InstallReport, session: Session, pacing: Pacing, guard_files: GuardFiles
) -> None:
    again = install(session, pacing=pacing, guard_files=guard_files)
    assert again is not None
    assert again.action == "unchanged"
    assert aws.calls.count("put_object") == 1
    assert _parameters(aws.request("update_stack"))["NoticesEmail"] == "as before"


def test_a_new_package_is_an_update(
    aws: FakeGuardAws, installed: InstallReport, session: Session, pacing: Pacing, guard_files: GuardFiles
) -> None:
    newer = replace(guard_files, content={"peagle_guard/__init__.py": b"# newer"})
    report = install(session, pacing=pacing, guard_files=newer)
    assert report is not None
    assert report.action == "updated"
    assert _parameters(aws.request("update_stack"))["AssetKey"] == newer.key != guard_files.key


def test_settings_become_parameters_of_the_template(
    aws: FakeGuardAws, session: Session, pacing: Pacing, guard_files: GuardFiles
) -> None:
    wanted = {
        "ModelBucketArns": bucket_arns("us-east-1", ("one", "two")),
        "ImageRepository": "team/*",
        "ReserveConcurrency": "no",
    }
    install(session, wanted, pacing=pacing, guard_files=guard_files)
    sent = _parameters(aws.request("create_stack"))
    assert sent["ModelBucketArns"] == "arn:aws:s3:::one,arn:aws:s3:::two"
    assert wanted.items() <= sent.items()
    assert set(sent) <= guard_files.parameter_names


@pytest.mark.parametrize("name", ["ImageRepositry", "AssetKey"])
def test_a_parameter_that_cannot_be_set_is_refused_before_anything_is_created(
    aws: FakeGuardAws, session: Session, pacing: Pacing, guard_files: GuardFiles, name: str
) -> None:
    with pytest.raises(SpecError, match="allowed: EncryptionKeyArn, EndpointKeyArns, ImageRepository"):
        install(session, {name: "x"}, pacing=pacing, guard_files=guard_files)
    assert aws.calls == []


def test_what_never_stood_is_taken_away_first(
    aws: FakeGuardAws, session: Session, pacing: Pacing, guard_files: GuardFiles
) -> None:
    aws.stack = {"StackName": "PeagleGuard", "StackId": "old", "StackStatus": "ROLLBACK_COMPLETE"}
    report = install(session, pacing=pacing, guard_files=guard_files)
    assert report is not None
    assert report.action == "created"
    assert aws.calls.index("delete_stack") < aws.calls.index("create_stack")


def test_an_operation_under_way_is_waited_for(
    aws: FakeGuardAws, installed: InstallReport, session: Session, pacing: Pacing, guard_files: GuardFiles
) -> None:
    assert aws.stack is not None
    aws.stack["StackStatus"] = "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"
    aws.outcome, aws.done_at = "UPDATE_COMPLETE", aws.clock.seconds + 60
    began = aws.clock.seconds
    install(session, pacing=pacing, guard_files=guard_files)
    assert aws.clock.seconds >= began + 60


def test_a_failure_names_its_cause_and_not_its_consequences(
    aws: FakeGuardAws, session: Session, pacing: Pacing, guard_files: GuardFiles
) -> None:
    words = (
        "Specified ReservedConcurrentExecutions decreases account's UnreservedConcurrentExecution below [10]."
    )
    aws.failures = [("Sweeper", words), ("Switch", "Resource creation cancelled")]
    with pytest.raises(ServiceFault, match="Sweeper") as caught:
        install(session, pacing=pacing, guard_files=guard_files)
    assert words in caught.value.message
    assert "cancelled" not in caught.value.message
    assert caught.value.next_step is not None
    assert "--parameter ReserveConcurrency=no --region us-east-1" in caught.value.next_step


def test_a_lost_answer_while_following_is_no_failure(
    aws: FakeGuardAws, session: Session, pacing: Pacing, guard_files: GuardFiles
) -> None:
    def lose(event: Event) -> None:
        if event.resource == BUCKET:
            aws.lose_answers = 3

    assert install(session, pacing=pacing, progress=lose, guard_files=guard_files) is not None


def test_what_the_cdk_made_is_left_to_the_cdk(
    aws: FakeGuardAws, session: Session, pacing: Pacing, guard_files: GuardFiles
) -> None:
    aws.stack = {"StackName": "PeagleGuard", "StackId": "x", "StackStatus": "CREATE_COMPLETE"}
    with pytest.raises(PlanRefused, match="CDK"):
        install(session, pacing=pacing, guard_files=guard_files)
    assert not [call for call in aws.calls if call.startswith(CHANGING)]


def test_somebody_elses_bucket_is_not_used(
    aws: FakeGuardAws, session: Session, pacing: Pacing, guard_files: GuardFiles
) -> None:
    aws.bucket_is_foreign = True
    with pytest.raises(CredentialsError, match="another account"):
        install(session, pacing=pacing, guard_files=guard_files)
    assert "create_stack" not in aws.calls


def test_uninstall_goes_on_when_that_is_spelled_out_and_says_what_is_left(
    aws: FakeGuardAws, installed: InstallReport, session: Session, pacing: Pacing
) -> None:
    aws.endpoints = {"demo": OURS}
    lines: list[list[str]] = []

    def agree(names: Sequence[str]) -> bool:
        lines.append(list(names))
        return True

    report = uninstall(session, leave_unguarded=True, confirm=agree, pacing=pacing)
    assert report is not None
    assert (lines, report.unguarded) == ([["demo"]], ("demo",))


def test_uninstall_refuses_while_stacks_import_from_it_whatever_is_spelled_out(
    aws: FakeGuardAws, installed: InstallReport, session: Session, pacing: Pacing
) -> None:
    aws.importers = ["Peagle-demo"]
    with pytest.raises(PlanRefused, match="Peagle-demo"):
        uninstall(session, leave_unguarded=True, pacing=pacing)
    assert "delete_stack" not in aws.calls


def test_a_bucket_that_holds_more_stays(
    aws: FakeGuardAws, installed: InstallReport, session: Session, pacing: Pacing
) -> None:
    aws.objects["notes.txt"] = b"mine"
    report = uninstall(session, pacing=pacing)
    assert report is not None
    assert not report.bucket_removed
    assert list(aws.objects) == ["notes.txt"]
