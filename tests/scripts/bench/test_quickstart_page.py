"""The part of docs/how-to/measure.md that scripts/measure-page writes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from peagle_sm.core.errors import SpecError
from scripts.bench import quickstart_page
from scripts.bench.marked_page import insert
from scripts.reference_pages.quickstart_picture import picture
from tests.bench.report import making
from tests.rules.files import ROOT
from tests.scripts.bench.making import HEADER, made

AROUND = f"before\n{quickstart_page.BEGIN}\nold\n{quickstart_page.END}\nafter\n"


def test_the_part_holds_the_command_the_pictures_and_every_figure() -> None:
    results = replace(made(), header=replace(HEADER, command="quickstart"))
    text = quickstart_page.section(results)
    assert "scripts/measure-page --run --prompts 6 --max-tokens 48 --seed 3\n" in text
    assert 'srcset="measure-dark.png"' in text
    assert '<source media="(max-width: 600px)" srcset="measure-narrow-light.png">' in text
    assert 'alt="The beginning of the report: No verdict on P-EAGLE and EAGLE-3: 6 conversations' in text
    assert "| P-EAGLE | no speculation | c=1 | 2.00x |" in text
    assert "Small stand-in weights" in text


def test_the_picture_is_drawn_of_what_the_quickstart_writes() -> None:
    """Its answers are streamed, so the table has latencies between the rate and the acceptance length."""
    config = {
        "workload": {"name": "chat, code and JSON", "prompts": 6, "temperature": 0.0},
        "max_tokens": 48,
        "seed": 3,
    }
    provenance = {**HEADER.provenance, "versions": {"peagle-sm": "0.1.0"}}
    header = replace(
        HEADER, command="quickstart", run_id="quickstart-2026-11-20", config=config, provenance=provenance
    )
    text = quickstart_page.section(replace(made(), header=header))
    assert "| load | arm | OTPS | TTFT p95 ms | TPOT p50 ms | accepted |" in text
    drawn = picture(insert(AROUND, quickstart_page.BEGIN, quickstart_page.END, text))
    label = (
        "no speculation 200 tokens per second, EAGLE-3 400 tokens per second, P-EAGLE 400 tokens per second"
    )
    assert f'aria-label="{label}"' in drawn
    assert ">2.75<" in drawn


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
    assert "not found" in capsys.readouterr().err
    assert page.read_text() == AROUND


def test_the_page_shows_a_report_with_its_pictures() -> None:
    text = (ROOT / "docs" / "how-to" / "measure.md").read_text()
    shown = text.partition(quickstart_page.BEGIN)[2].partition(quickstart_page.END)[0]
    assert "scripts/measure-page --run --prompts" in shown
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', shown)
    assert {"measure-dark.png", "measure-light.png"} <= set(pictures)
    for name in pictures:
        assert 0 < (ROOT / "docs" / "how-to" / name).stat().st_size < 400_000
