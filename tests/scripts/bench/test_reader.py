"""The page about the readers' cost, from readings written down here, and one small run of the whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.bench.progress import Reporter
from scripts.bench.reader.command import ASYNC, OURS, RAW, arguments, job
from scripts.bench.reader.page import ImportCost, Reading, page, ratio
from scripts.bench.reader.server import events_of
from tests.aws.streams import recorded

ORIGIN = {
    "date": "2026-11-22",
    "versions": {"boto3": "1.44.5"},
    "machine": {"cores": 2, "processor": "a processor"},
    "git_revision": "abc",
}


def _readings(ours_us: float, per_s: float = 50_000.0) -> list[Reading]:
    readings = []
    for turn in range(4):
        readings.append(Reading(RAW, 0.0, 100, 10.0 + turn, 40_000.0))
        readings.append(Reading(OURS, 0.0, 100, (10.0 + turn) * ours_us / 10, per_s))
    return readings


def _page(readings: list[Reading], cost: ImportCost | None = None) -> str:
    imports = [cost or ImportCost("import peagle_sm", (7.0, 8.0, 9.0), False)]
    return page(readings, imports, origin=ORIGIN, load=(0.1, 0.4), stream="x.sse", command="scripts/x")


def test_a_ratio_of_paired_rounds_has_an_interval_that_knows_the_pairs() -> None:
    assert ratio([8.0, 16.0, 24.0], [10.0, 20.0, 30.0]) == pytest.approx((0.8, 0.8, 0.8))
    middle, low, high = ratio([8.0, 30.0, 20.0], [10.0, 20.0, 30.0])
    assert low < middle < high


def test_what_holds_and_what_does_not_is_told() -> None:
    text = _page(_readings(8.0))
    assert "| as fast as it is read | TokenStream | 9.2 | 8.0 | -20% [-20%, -20%] | 50,000 |" in text
    assert "4 rounds" in text
    assert "does not hold" not in text
    slow = _page(_readings(13.0, per_s=9_000.0), ImportCost("import peagle_sm", (150.0,), True))
    assert slow.count("**does not hold:**") == 3


def test_a_recording_is_taken_apart_into_its_middle_and_its_end() -> None:
    middle, end = events_of(recorded("chat-acceptance.sse"))
    assert all(b'"content":' in event and b'"role"' not in event for event in middle)
    assert end.count(b"data: ") == 3
    assert end.endswith(b"data: [DONE]\n\n")


@pytest.mark.slow
def test_a_small_run_from_the_server_to_the_page(root: Path, tmp_path: Path) -> None:
    written = tmp_path / "page.md"
    stream = root / "toolkit/peagle-sm/tests/aws/recorded/chat-acceptance.sse"
    words = [
        "--rounds",
        "2",
        "--chunks",
        "300",
        "--paced",
        "20",
        "--stream",
        str(stream),
        "--page",
        str(written),
    ]
    assert job(arguments(words), Reporter()) == 0
    text = written.read_text()
    for reader in (RAW, OURS, ASYNC):
        assert text.count(f"| {reader} |") == 2
    assert "| import peagle_sm |" in text
