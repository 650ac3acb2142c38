"""Lines of engines on their way to CloudWatch Logs."""

from __future__ import annotations

from datetime import UTC, datetime

from sagemaker_local.other_services.moto import SERVICE, Moto
from sagemaker_local.other_services.stores import Roles
from sagemaker_local.runtime.logs import EndpointLogs


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
    moto = Moto("123456789012", "us-east-1", lambda: datetime(2026, 11, 20, tzinfo=UTC))
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
