"""The part of docs/measure.md that scripts/measure-page writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from peagle_sm.core.errors import SpecError
from peagle_sm.measure import measure_page
from peagle_sm.measure.marked_page import insert
from peagle_sm.measure.quickstart_results import results_of
from tests.measure.report import making
from tests.measure.test_quickstart_document import ORIGIN, RECORDS, run
from tests.rules.files import ROOT

CONFIG = {"workload": {"name": "HumanEval", "prompts": 6}, "max_tokens": 48, "seed": 3}
AROUND = f"before\n{measure_page.BEGIN}\nold\n{measure_page.END}\nafter\n"


def test_the_part_holds_the_command_the_pictures_and_every_figure() -> None:
    text = measure_page.section(results_of(run(), RECORDS, config=CONFIG, origin=ORIGIN))
    assert "scripts/measure-page --run --prompts 6 --max-tokens 48 --seed 3\n" in text
    assert 'srcset="measure-dark.png"' in text
    assert 'alt="The report: No difference shown between P-EAGLE and EAGLE-3' in text
    assert "| P-EAGLE | no speculation | c=1 | 2.00x |" in text
    assert "Small stand-in weights" in text


def test_another_file_is_refused() -> None:
    with pytest.raises(SpecError, match="of a tune; the page shows a quickstart"):
        measure_page.section(making.tuned())


def test_only_what_stands_between_the_marks_changes() -> None:
    assert insert(AROUND, measure_page.BEGIN, measure_page.END, "new") == AROUND.replace("old", "new")
    with pytest.raises(ValueError, match="lacks"):
        insert("no marks", measure_page.BEGIN, measure_page.END, "new")


def test_a_file_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "measure.md"
    page.write_text(AROUND)
    words = ["--results", str(tmp_path / "none.jsonl"), "--page", str(page)]
    assert measure_page.main(words) == 2
    assert "there is no results file" in capsys.readouterr().err
    assert page.read_text() == AROUND


def test_the_page_shows_a_report_with_its_pictures() -> None:
    text = (ROOT / "docs" / "measure.md").read_text()
    shown = text.partition(measure_page.BEGIN)[2].partition(measure_page.END)[0]
    assert "scripts/measure-page --run --prompts" in shown
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', shown)
    assert sorted(pictures) == ["measure-dark.png", "measure-light.png"]
    for name in pictures:
        assert 0 < (ROOT / "docs" / name).stat().st_size < 400_000
