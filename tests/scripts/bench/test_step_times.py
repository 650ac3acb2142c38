"""The page of predicted rates: rows from the record, and the largest difference."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from scripts.bench.marked_page import insert
from scripts.bench.step_times import BEGIN, END, PAGE, Held, section

ROWS = [
    Held("tiny-code", "p-eagle", 3, 1, 2.1, 102.0, 100.0, 5.0, 0.4, (0.01, 0.03)),
    Held("tiny-code", "eagle3", 3, 8, 1.9, 480.0, 500.0, 9.0, 0.8, (-0.02, -0.06)),
]
DOCUMENT: dict[str, Any] = {
    "provenance": {"date": "2026-11-28T12:00:00+00:00", "machine": {"cores": 2, "processor": "a CPU"}},
    "settings": {"requests": 12, "rounds": 2, "workload": "HumanEval"},
    "rows": [asdict(row) for row in ROWS],
}


def test_the_page_has_a_row_for_each_load_and_the_largest_difference() -> None:
    text = section(DOCUMENT)
    assert "| tiny-code | P-EAGLE | 3 | 1 | 2.10 | 102.0 | 100.0 | +2.0% | +1.0%, +3.0% |" in text
    assert "| tiny-code | EAGLE-3 | 3 | 8 | 1.90 | 480.0 | 500.0 | -4.0% | -2.0%, -6.0% |" in text
    assert "The largest difference is -4.0%." in text


def test_the_page_has_the_place_for_it() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert section(DOCUMENT) in insert(page, BEGIN, END, section(DOCUMENT))
