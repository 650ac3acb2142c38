"""The part of docs/how-to/measure.md that scripts/measure-page writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from peagle_sm.core.errors import SpecError
from scripts.bench import quickstart_page
from scripts.bench.marked_page import insert
from scripts.bench.quickstart_results import results_of
from tests.measure.report import making
from tests.rules.files import ROOT
from tests.scripts.bench.test_quickstart import ORIGIN, RECORDS, run

CONFIG = {"workload": {"name": "HumanEval", "prompts": 6}, "max_tokens": 48, "seed": 3}
AROUND = f"before\n{quickstart_page.BEGIN}\nold\n{quickstart_page.END}\nafter\n"


def test_the_part_holds_the_command_the_pictures_and_every_figure() -> None:
    text = quickstart_page.section(results_of(run(), RECORDS, config=CONFIG, origin=ORIGIN))
    assert "scripts/measure-page --run --prompts 6 --max-tokens 48 --seed 3\n" in text
    assert 'srcset="measure-dark.png"' in text
    assert 'alt="The report: No difference shown between P-EAGLE and EAGLE-3' in text
    assert "| P-EAGLE | no speculation | c=1 | 2.00x |" in text
    assert "Small stand-in weights" in text


def test_another_file_is_refused() -> None:
    with pytest.raises(SpecError, match="of a tune; the page shows a quickstart"):
        quickstart_page.section(making.tuned())


def test_only_what_stands_between_the_marks_changes() -> None:
    assert insert(AROUND, quickstart_page.BEGIN, quickstart_page.END, "new") == AROUND.replace("old", "new")
    with pytest.raises(ValueError, match="lacks"):
        insert("no marks", quickstart_page.BEGIN, quickstart_page.END, "new")


def test_a_file_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "measure.md"
    page.write_text(AROUND)
    words = ["--results", str(tmp_path / "none.jsonl"), "--page", str(page)]
    assert quickstart_page.main(words) == 2
    assert "there is no results file" in capsys.readouterr().err
    assert page.read_text() == AROUND


def test_the_page_shows_a_report_with_its_pictures() -> None:
    text = (ROOT / "docs" / "how-to" / "measure.md").read_text()
    shown = text.partition(quickstart_page.BEGIN)[2].partition(quickstart_page.END)[0]
    assert "scripts/measure-page --run --prompts" in shown
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', shown)
    assert sorted(pictures) == ["measure-dark.png", "measure-light.png"]
    for name in pictures:
        assert 0 < (ROOT / "docs" / "how-to" / name).stat().st_size < 400_000
