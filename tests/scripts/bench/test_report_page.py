"""Reports in pages: k-by-load and is-it-right."""

from __future__ import annotations

from pathlib import Path

import pytest

from peagle_bench.results.result_file import ResultWriter, records_of
from scripts.bench import report_page
from scripts.bench.report_page import BEGIN, END
from tests.bench.report import making


def test_the_report_of_a_tuning_is_written_between_the_marks(tmp_path: Path) -> None:
    results, page = tmp_path / "tune.jsonl", tmp_path / "page.md"
    with ResultWriter(results) as writer:
        for record in records_of(making.tuned()):
            writer.append(record)
    page.write_text(f"before\n{BEGIN}\nNNN\n{END}\nafter\n")
    assert report_page.main([str(page), str(results), "--title", "SmolLM2"]) == 0
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n### SmolLM2\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "| P-EAGLE | c=8 | 10 |" in text
    assert "NNN" not in text


@pytest.mark.parametrize("name", ["k-by-load.md"])
def test_the_pages_have_a_place_for_their_report(root: Path, name: str) -> None:
    text = (root / "docs" / "how-to" / name).read_text(encoding="utf-8")
    assert text.index(BEGIN) < text.index(END)


def test_a_page_without_marks_and_a_missing_file_are_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, results = tmp_path / "page.md", tmp_path / "tune.jsonl"
    page.write_text("no marks")
    assert report_page.main([str(page), str(results)]) == 2
    with ResultWriter(results) as writer:
        for record in records_of(making.tuned()):
            writer.append(record)
    assert report_page.main([str(page), str(results)]) == 2
    assert "lacks" in capsys.readouterr().err
    assert page.read_text() == "no marks"
