"""How many calls `delete` and `list` make in an account that holds much else, and what they find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import CredentialsError
from peagle_sm.service import Deletable, Pacing, delete, deploy, keep, list_endpoints, pause, status
from peagle_sm.service.progress import Event
from tests.service.fakes import START, FakeAws, Row, arn_of, denied, throttled
from tests.service.setting import make_spec, pacing_of, session_of

OTHERS = 1_500
OURS = {"peagle-sm:managed-by": "peagle-sm"}


def _fill(aws: FakeAws, name: Callable[[int], str], tags: Callable[[str], dict[str, str]]) -> None:
    created = START - timedelta(days=30)
    for number in range(OTHERS):
        endpoint = name(number)
        config = f"{endpoint}-{number:08x}"
        aws.endpoints[endpoint] = Row(created, {}, tags(endpoint), config=config)
        aws.configs[config] = Row(created, {"ProductionVariants": [{"ModelName": config}]}, tags(endpoint))
        aws.models[config] = Row(created, {}, tags(endpoint))


@pytest.fixture(params=["foreign", "ours"])
def crowded(request: pytest.FixtureRequest, aws: FakeAws) -> FakeAws:
    """One endpoint `demo` beside 1,500 others with the same beginning of their names."""
    foreign = request.param == "foreign"
    _fill(
        aws,
        lambda number: f"demo-{number:04d}",
        lambda name: {"team": "other"} if foreign else {**OURS, "peagle-sm:endpoint": name},
    )
    deploy(make_spec("demo"), session=session_of(aws), pacing=pacing_of(aws))
    aws.clock.sleep(3600)
    aws.calls.clear()
    return aws


def test_delete_of_one_endpoint_beside_many_makes_at_most_40_calls(crowded: FakeAws) -> None:
    report = delete(["demo"], session=session_of(crowded), pacing=pacing_of(crowded))
    assert report.leftovers == ()
    kinds = {"endpoint", "endpoint-config", "model", "schedule"}
    assert {one.partition("/")[0] for one in report.deleted} == kinds
    assert len(crowded.calls) <= 40, Counter(crowded.calls)
    assert len(crowded.endpoints) == len(crowded.configs) == len(crowded.models) == OTHERS


def test_status_and_pause_of_one_endpoint_beside_many_make_few_calls(crowded: FakeAws) -> None:
    session, pacing = session_of(crowded), pacing_of(crowded)
    assert status("demo", session=session).summary.status == "InService"
    assert len(crowded.calls) <= 20, Counter(crowded.calls)
    crowded.calls.clear()
    assert pause("demo", session=session, pacing=pacing).was_off is False
    assert len(crowded.calls) <= 40, Counter(crowded.calls)


def test_list_makes_one_call_a_page_for_what_others_own(aws: FakeAws, session: Session) -> None:
    _fill(aws, lambda number: f"other-{number:04d}", lambda name: {"team": "other"})
    deploy(make_spec("demo"), session=session, pacing=pacing_of(aws))
    aws.calls.clear()
    (row,) = list_endpoints(session)
    assert (row.name, row.status, row.num_speculative_tokens) == ("demo", "InService", 3)
    pages = OTHERS // 100 + 1
    calls = Counter(aws.calls)
    assert {call: count for call, count in calls.items() if count > 1} == {
        "list_endpoints": pages,
        "list_endpoint_configs": pages,
        "list_models": pages,
    }
    assert "ListTags" not in calls
    aws.calls.clear()
    assert len(list_endpoints(session, everything=True)) == OTHERS + 1
    assert Counter(aws.calls) == calls


def test_a_paused_and_a_kept_endpoint_are_listed_as_status_shows_them(
    aws: FakeAws, session: Session, pacing: Pacing
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
    assert rows["kept"].expires_at > START + timedelta(hours=20)


def test_a_new_endpoint_that_the_tagging_api_lacks_is_listed_and_deleted(
    aws: FakeAws, session: Session, pacing: Pacing
) -> None:
    deploy(make_spec("demo"), session=session, pacing=pacing)
    aws.untagged = {arn for arn, _ in aws.tagged()}
    (row,) = list_endpoints(session)
    assert len(row.resources) == 4
    delete(["demo"], session=session, pacing=pacing)
    assert aws.everything() == []


def test_a_new_config_of_a_long_name_beside_many_newer_ones_is_found_through_its_endpoint(
    aws: FakeAws, session: Session, pacing: Pacing
) -> None:
    deploy(make_spec("demo"), session=session, pacing=pacing)
    aws.untagged = {arn for arn, _ in aws.tagged()}
    later = aws.clock.now() + timedelta(seconds=1)
    for number in range(200):
        aws.configs[f"demo-{number:04d}-{number:08x}"] = Row(later, {}, {"team": "other"})
        aws.models[f"demo-{number:04d}-{number:08x}"] = Row(later, {}, {"team": "other"})
    (config,) = (name for name, row in aws.configs.items() if row.tags.get("peagle-sm:endpoint") == "demo")
    assert status("demo", session=session).summary.resources == (
        "endpoint/demo",
        f"endpoint-config/{config}",
        f"model/{config}",
        "schedule/peagle-demo-lifetime",
    )


def test_what_is_gone_and_what_is_not_ours_any_more_does_not_count(
    aws: FakeAws, session: Session, pacing: Pacing
) -> None:
    marks = {**OURS, "peagle-sm:endpoint": "demo"}
    deploy(make_spec("demo"), session=session, pacing=pacing)
    aws.stale_tags = {arn_of("endpoint-config", "demo-00000000"): marks, arn_of("model", "x"): marks}
    aws.models["taken"] = Row(START, {}, {"team": "other"})
    aws.stale_tags[arn_of("model", "taken")] = marks
    assert len(status("demo", session=session).summary.resources) == 4
    delete(["demo"], session=session, pacing=pacing)
    assert aws.everything() == ["model/taken"]


def test_a_pause_that_the_tagging_api_does_not_know_yet_is_listed(
    aws: FakeAws, session: Session, pacing: Pacing
) -> None:
    deploy(make_spec("demo"), session=session, pacing=pacing)
    aws.stale_tags = dict(aws.tagged())
    pause("demo", session=session, pacing=pacing)
    (row,) = list_endpoints(session)
    assert row.status == "Paused"


@pytest.mark.parametrize("fault", [denied, throttled], ids=["denied", "throttled"])
def test_without_the_tagging_api_all_works_and_a_note_says_why_it_takes_longer(
    aws: FakeAws, session: Session, pacing: Pacing, fault: Callable[[str], BaseException]
) -> None:
    deploy(make_spec("demo"), session=session, pacing=pacing)
    aws.before = lambda _, number, operation: fault(operation) if operation == "GetResources" else None
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
    aws: FakeAws, session: Session, pacing: Pacing
) -> None:
    deploy(make_spec("demo"), session=session, pacing=pacing)
    refused = {"GetResources", "list_models"}
    aws.before = lambda _, number, operation: denied(operation) if operation in refused else None
    with pytest.raises(CredentialsError, match="list_models"):
        delete(["demo"], session=session, pacing=pacing)
    aws.before = lambda _, number, operation: denied(operation) if operation == "list_models" else None
    assert delete(["demo"], session=session, pacing=pacing).leftovers == ()
    assert aws.everything() == []


def test_the_price_that_a_deletion_shows_needs_no_call(crowded: FakeAws) -> None:
    shown: list[float | None] = []

    def confirm(rows: Sequence[Deletable]) -> bool:
        shown.extend(row.usd_per_hour for row in rows)
        return True

    delete(["demo"], session=session_of(crowded), pacing=pacing_of(crowded), confirm=confirm)
    assert shown == [4.2]
