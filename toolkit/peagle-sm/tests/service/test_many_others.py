"""How many calls `delete` and `list` make in an account that holds much else, and what they find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import CredentialsError, Declined
from peagle_sm.service import Deletable, Pacing, delete, deploy, keep, list_endpoints, pause, status
from peagle_sm.service.progress import Event
from tests.local.serving import IMAGE
from tests.service.account import Account, arn_of
from tests.service.aws_errors import denied, throttled
from tests.service.setting import EXECUTION_ROLE, make_spec

OTHERS, ENDPOINTS = 110, 20  # configs and models of more than a page, and endpoints
OURS = {"peagle-sm:managed-by": "peagle-sm"}


def _create_parts(aws: Account, name: str, tags: dict[str, str]) -> dict[str, Any]:
    """Create a model and a config, and return what CreateEndpoint takes."""
    rows = [{"Key": key, "Value": value} for key, value in tags.items()]
    container = {"Image": IMAGE, "Environment": {"SCRIPT_GATE": name}}
    aws.sagemaker.create_model(
        ModelName=name, ExecutionRoleArn=EXECUTION_ROLE, PrimaryContainer=container, Tags=rows
    )
    variant = {"VariantName": "AllTraffic", "ModelName": name, "InitialInstanceCount": 1}
    variants = [{**variant, "InstanceType": "ml.g7e.2xlarge"}]
    aws.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=variants, Tags=rows)
    return {"EndpointName": name, "EndpointConfigName": name, "Tags": rows}


def test_one_endpoint_costs_as_many_calls_beside_many_others_as_alone(aws: Account, pacing: Pacing) -> None:
    """Some of the others are peagle-sm's; all names begin with its name."""
    session = aws.session()

    def calls_of(act: Callable[[], object]) -> Counter[str]:
        aws.calls.clear()
        act()
        return Counter(aws.calls)

    def measure() -> list[Counter[str]]:
        deploy(make_spec(), session=session, pacing=pacing)
        return [
            calls_of(lambda: status("demo", session=session)),
            calls_of(lambda: pause("demo", session=session, pacing=pacing)),
            calls_of(lambda: delete(["demo"], session=session, pacing=pacing)),
        ]

    alone = measure()
    for number in range(OTHERS):
        name = f"demo-{number:04d}"
        tags = {**OURS, "peagle-sm:endpoint": name} if number < ENDPOINTS // 2 else {"team": "other"}
        request = _create_parts(aws, name, tags)
        if number < ENDPOINTS:
            aws.sagemaker.create_endpoint(**request)
    assert measure() == alone
    assert max(calls.total() for calls in alone) <= 40
    assert len(aws.everything()) == 2 * OTHERS + ENDPOINTS
    deploy(make_spec(), session=session, pacing=pacing)
    shown: list[float | None] = []

    def confirm(rows: Sequence[Deletable]) -> bool:
        shown.extend(row.usd_per_hour for row in rows)
        return False

    with pytest.raises(Declined):
        delete(["demo"], session=session, pacing=pacing, confirm=confirm)
    assert shown == [4.2]
    calls = calls_of(lambda: list_endpoints(session))
    assert (calls["ListEndpoints"], calls["ListEndpointConfigs"], calls["ListModels"]) == (1, 2, 2)
    assert "ListTags" not in calls
    everything = calls_of(lambda: list_endpoints(session, everything=True))
    assert everything.total() == calls.total()
    assert len(list_endpoints(session, everything=True)) == ENDPOINTS + 1


def _tagging_api_shows(aws: Account, shown: dict[str, dict[str, str]]) -> None:
    """Let GetResources lag behind: it has these ARNs with these tags."""

    def answer(operation: str) -> dict[str, Any] | None:
        if operation != "GetResources":
            return None
        sent = aws.sent[operation]
        kinds = {kind.partition(":")[2] for kind in sent["ResourceTypeFilters"]}
        rows = [
            {"ResourceARN": arn, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
            for arn, tags in shown.items()
            if arn.rpartition(":")[2].partition("/")[0] in kinds
            and all(tags.get(each["Key"]) in each["Values"] for each in sent["TagFilters"])
        ]
        return {"ResourceTagMappingList": rows}

    aws.before = answer


def _tagged(aws: Account) -> dict[str, dict[str, str]]:
    parts = [each.partition("/") for each in aws.everything() if not each.startswith("schedule/")]
    return {arn_of(kind, name): aws.tags(kind, name) for kind, _, name in parts}


def test_a_paused_and_a_kept_endpoint_are_listed_as_status_shows_them(
    aws: Account, session: Session, pacing: Pacing
) -> None:
    names = ["paused", "kept", "other"]
    for name in names:
        deploy(make_spec(name), session=session, pacing=pacing)
    pause("paused", session=session, pacing=pacing)
    keep("kept", timedelta(hours=20), session=session, pacing=pacing)
    rows = {row.name: row for row in list_endpoints(session)}
    assert {name: row.status for name, row in rows.items()} == {
        "paused": "Paused",
        "kept": "InService",
        "other": "InService",
    }
    for name, row in rows.items():
        assert (row.mode, row.num_speculative_tokens) == ("p-eagle", 3)
        assert (row.instance_type, row.instance_count, row.usd_per_hour) == ("ml.g7e.2xlarge", 1, 4.2)
        assert row.expires_at == status(name, session=session).summary.expires_at
    assert rows["kept"].expires_at is not None
    assert rows["kept"].expires_at > aws.start + timedelta(hours=20)


def test_a_new_endpoint_that_the_tagging_api_lacks_is_listed_and_deleted(
    aws: Account, session: Session, pacing: Pacing
) -> None:
    deploy(make_spec("demo"), session=session, pacing=pacing)
    _tagging_api_shows(aws, {})
    (row,) = list_endpoints(session)
    assert len(row.resources) == 4
    delete(["demo"], session=session, pacing=pacing)
    assert aws.everything() == []


def test_a_new_config_of_a_long_name_beside_many_newer_ones_is_found_through_its_endpoint(
    aws: Account, session: Session, pacing: Pacing
) -> None:
    deploy(make_spec("demo"), session=session, pacing=pacing)
    _tagging_api_shows(aws, {})
    (config,) = aws.names("endpoint-config")
    for number in range(OTHERS):
        _create_parts(aws, f"demo-{number:04d}-{number:08x}", {"team": "other"})
    assert status("demo", session=session).summary.resources == (
        "endpoint/demo",
        f"endpoint-config/{config}",
        f"model/{config}",
        "schedule/peagle-demo-lifetime",
    )


def test_what_is_gone_and_what_is_not_ours_any_more_does_not_count(
    aws: Account, session: Session, pacing: Pacing
) -> None:
    marks = {**OURS, "peagle-sm:endpoint": "demo"}
    deploy(make_spec("demo"), session=session, pacing=pacing)
    _create_parts(aws, "taken", {"team": "other"})
    gone = [arn_of("endpoint-config", "demo-00000000"), arn_of("model", "x"), arn_of("model", "taken")]
    _tagging_api_shows(aws, {**_tagged(aws), **dict.fromkeys(gone, marks)})
    assert len(status("demo", session=session).summary.resources) == 4
    delete(["demo"], session=session, pacing=pacing)
    assert aws.everything() == ["endpoint-config/taken", "model/taken"]


def test_a_pause_that_the_tagging_api_does_not_know_yet_is_listed(
    aws: Account, session: Session, pacing: Pacing
) -> None:
    deploy(make_spec("demo"), session=session, pacing=pacing)
    _tagging_api_shows(aws, _tagged(aws))
    pause("demo", session=session, pacing=pacing)
    (row,) = list_endpoints(session)
    assert row.status == "Paused"


@pytest.mark.parametrize("fault", [denied, throttled], ids=["denied", "throttled"])
def test_without_the_tagging_api_all_works_and_a_note_says_why_it_takes_longer(
    aws: Account, session: Session, pacing: Pacing, fault: Callable[[str], BaseException]
) -> None:
    deploy(make_spec("demo"), session=session, pacing=pacing)
    aws.before = lambda operation: fault(operation) if operation == "GetResources" else None
    notes: list[str] = []
    (row,) = list_endpoints(session, note=notes.append)
    assert len(row.resources) == 4
    (note,) = notes
    assert note.startswith("GetResources: ")
    assert note.endswith("; reading each resource's tags instead, which needs more calls")
    lines: list[Event] = []
    delete(["demo"], session=session, pacing=pacing, progress=lines.append)
    assert note in [event.message for event in lines]
    assert aws.everything() == []


def test_with_neither_the_tagging_api_nor_the_lists_the_missing_permission_is_named(
    aws: Account, session: Session, pacing: Pacing
) -> None:
    deploy(make_spec("demo"), session=session, pacing=pacing)
    refused = {"GetResources", "ListModels"}
    aws.before = lambda operation: denied(operation) if operation in refused else None
    with pytest.raises(CredentialsError, match="ListModels"):
        delete(["demo"], session=session, pacing=pacing)
    aws.before = lambda operation: denied(operation) if operation == "ListModels" else None
    assert delete(["demo"], session=session, pacing=pacing).leftovers == ()
    assert aws.everything() == []
