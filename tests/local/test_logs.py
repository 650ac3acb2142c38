"""Lines of engines on their way to CloudWatch Logs."""

from __future__ import annotations

from datetime import UTC, datetime

from peagle_sm.local.logs import EndpointLogs


def test_lines_go_over_in_batches_by_stream_and_stay_readable() -> None:
    stored: list[tuple[str, str, list[tuple[int, str]]]] = []
    logs = EndpointLogs(
        now=lambda: datetime(2026, 11, 20, tzinfo=UTC), store=lambda *batch: stored.append(batch)
    )
    logs.line("e", "v/i-1", "one")
    logs.line("e", "v/i-1", "  ")
    logs.line("e", "v/i-2", "two")
    logs.line("f", "v/i-3", "x" * 300_000)
    logs.flush()
    at = 1_795_132_800_000
    assert stored[:2] == [
        ("/aws/sagemaker/Endpoints/e", "v/i-1", [(at, "one")]),
        ("/aws/sagemaker/Endpoints/e", "v/i-2", [(at, "two")]),
    ]
    assert len(stored[2][2][0][1]) < 262_144
    logs.flush()
    assert len(stored) == 3
    assert logs.recent("e", 2) == ["  ", "two"]
    assert logs.recent("absent", 10) == []
    assert logs.recent("e", 0) == []
