"""What `compare` says of an interval."""

from __future__ import annotations

from pathlib import Path

import pytest

from peagle_bench.commands.comparison_text import outcome_data
from peagle_bench.report.verdict import outcome_of
from peagle_bench.results.records import ClientHealth, Header
from peagle_bench.results.result_file import Outcome, Results
from tests.bench.compare.test_notes import ARM, FINE, SLOW, comparison, point


@pytest.mark.parametrize(
    ("low", "high", "more", "expected"),
    [
        (1.1, 1.3, {}, "p-eagle is faster"),
        (0.8, 0.9, {}, "none is faster"),
        (0.95, 1.0526, {}, "no significant difference (+-5.3%; +-2% needs about 61 prompts)"),
        (0.99, 1.0101, {}, "no significant difference (+-1.0%)"),
        (0.99, 1.01, {"control": True}, "1, as expected"),
        (0.9, 1.1, {"control": True}, "1, as expected"),
        (0.82, 1.04, {"control": True}, "no significant difference, but too few prompts to be sure"),
        (0.97, 1.2, {"control": True}, "no significant difference, but too few prompts to be sure"),
        (1.01, 1.02, {"control": True}, "differs from 1: see the note"),
    ],
)
def test_verdicts(low: float, high: float, more: dict[str, bool], expected: str) -> None:
    assert outcome_of(comparison(low, high, **more)) == expected


def outcome(client: ClientHealth) -> Outcome:
    """One point of such a client, and one comparison on it."""
    header = Header("run", "compare", {}, {}, stand_in_weights=True)
    row = comparison(1.1, 1.3, deployments=1)
    results = Results(header, arms=(ARM,), points=(point(client, ttft=12.0),), comparisons=(row,))
    return Outcome(Path("r.jsonl"), results, ("mind this",))


def test_the_data_has_a_comparison_with_its_verdict_or_withheld_by_its_name() -> None:
    (one,) = outcome_data(outcome(FINE))["comparisons"]
    assert (one["shown"], one["verdict"]) == (True, "p-eagle is faster in this deployment")
    assert (one["ratio"]["low"], one["ratio"]["high"]) == (1.1, 1.3)
    hidden = outcome_data(outcome(SLOW))
    assert (hidden["comparisons"], len(hidden["withheld"])) == ([], 1)
    assert (hidden["withheld"][0]["faster"], hidden["withheld"][0]["slower"]) == ("p-eagle", "none")
