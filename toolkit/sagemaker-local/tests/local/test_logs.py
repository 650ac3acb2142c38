"""Lines of engines on their way to CloudWatch Logs."""

from __future__ import annotations

from datetime import UTC, datetime

from sagemaker_local.clock import LocalClock
from sagemaker_local.other_services.moto import SERVICE, Moto
from sagemaker_local.other_services.stores import Roles
from sagemaker_local.process.client import advance_clock
from sagemaker_local.runtime.logs import EndpointLogs
from tests.local.serving import Server


def test_lines_go_over_in_batches_by_stream_and_stay_readable() -> None:
    stored: list[tuple[str, str, list[tuple[int, str]], str | None]] = []
    logs = EndpointLogs(
        now=lambda: datetime(2026, 11, 20, tzinfo=UTC),
        store=lambda *batch: stored.append(batch),
        role_of=lambda endpoint, component: None,
    )
    logs.line("e", "v/i-1", "one")
    logs.line("e", "v/i-1", "  ")
    logs.line("e", "v/i-2", "two")
    logs.line("f", "v/i-3", "x" * 300_000)
    logs.flush()
    at = 1_795_132_800_000
    assert stored[:2] == [
        ("/aws/sagemaker/Endpoints/e", "v/i-1", [(at, "one")], None),
        ("/aws/sagemaker/Endpoints/e", "v/i-2", [(at, "two")], None),
    ]
    assert len(stored[2][2][0][1]) < 262_144
    logs.flush()
    assert len(stored) == 3
    assert logs.recent("e", 2) == ["  ", "two"]
    assert logs.recent("absent", 10) == []
    assert logs.recent("e", 0) == []


def test_lines_are_written_by_the_role_of_an_endpoint_while_it_is_there() -> None:
    stored: list[tuple[str, str, list[tuple[int, str]], str | None]] = []
    roles: dict[tuple[str, str | None], str] = {("e", None): "arn:of-e", ("e", "c"): "arn:of-c"}
    logs = EndpointLogs(
        now=lambda: datetime(2026, 11, 20, tzinfo=UTC),
        store=lambda *batch: stored.append(batch),
        role_of=lambda endpoint, component: roles.get((endpoint, component)),
    )
    logs.line("e", "v/i-1", "one")
    logs.line("e", "c/i-1", "of a component", "c")
    logs.flush()
    logs.line("e", "v/i-1", "printed before the endpoint was gone, written after")
    roles.clear()
    logs.flush()
    assert [(batch[0], batch[3]) for batch in stored] == [
        ("/aws/sagemaker/Endpoints/e", "arn:of-e"),
        ("/aws/sagemaker/InferenceComponents/c", "arn:of-c"),
        ("/aws/sagemaker/Endpoints/e", None),
    ]


def test_a_group_comes_into_being_only_by_who_may_create_it() -> None:
    moto = Moto("123456789012", "us-east-1", LocalClock(lambda: datetime(2026, 11, 20, tzinfo=UTC)))
    roles, groups = Roles(moto), moto.backend("logs").groups
    may = roles.make("logs-may", "sagemaker.amazonaws.com", ["logs:*"])
    may_not = roles.make(
        "logs-may-not", "sagemaker.amazonaws.com", ["logs:CreateLogStream", "logs:PutLogEvents"]
    )
    for name, role, created in (
        ("/logs/gone", None, False),
        ("/logs/may-not", may_not, False),
        ("/logs/may", may, True),
        ("/logs/service", SERVICE, True),
    ):
        moto.put_log_events(name, "s", [(1_795_132_800_000, "line")], role)
        assert (name in groups) == created, name
    moto.put_log_events("/logs/may", "s", [(1_795_132_800_001, "late")], None)
    assert [event.message for event in groups["/logs/may"].streams["s"].events] == ["line", "late"]


def test_put_log_events_goes_by_the_local_clock(server: Server) -> None:
    """Other tests move the clock of this one server, too: lines must be accepted by that clock."""
    logs = server.client("logs")
    logs.create_log_group(logGroupName="/logs/ahead")
    logs.create_log_stream(logGroupName="/logs/ahead", logStreamName="s")
    now = round(datetime.fromisoformat(advance_clock(server.status.port, 3 * 3600)).timestamp() * 1000)
    hour = 3_600_000
    events = [{"timestamp": now + hours * hour, "message": f"{hours}"} for hours in (-15 * 24, 0, 1, 3)]
    answer = logs.put_log_events(logGroupName="/logs/ahead", logStreamName="s", logEvents=events)
    rejected = answer["rejectedLogEventsInfo"]
    assert (rejected["tooOldLogEventEndIndex"], rejected["tooNewLogEventStartIndex"]) == (0, 3)
    kept = logs.filter_log_events(logGroupName="/logs/ahead")["events"]
    assert [event["message"] for event in kept] == ["0", "1"]
