"""What measuring calls return, and what a notebook shows of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import peagle_sm
from peagle_bench.notebook.results import Measured
from peagle_bench.results.result_file import Results
from peagle_sm.core.errors import SpecError
from tests.bench.report import making

FILE = Path("results/x.jsonl")


def head_of(shown: object) -> list[str]:
    return str(shown).splitlines()[:2]


def test_a_comparison_shows_its_verdict_then_its_tables() -> None:
    result = Measured(FILE, making.compared(), ("a note of the run",))
    title, headline = head_of(result)
    assert title == "compare: results/x.jsonl"
    assert headline == result.report().headline
    assert [table.title for table in result.card().tables] == ["Speed-up", "Measured"]
    assert str(result).splitlines()[-1] == "note: a note of the run"
    assert result.comparisons == making.compared().comparisons


def test_stand_in_weights_are_never_left_out() -> None:
    result = Measured(FILE, making.stand_in())
    assert result.stand_in_weights
    assert "Small stand-in weights. These figures compare the modes" in str(result)
    assert "Small stand-in weights. These figures compare the modes" in result._repr_html_()


def test_figures_that_are_withheld_are_told_of_and_not_shown() -> None:
    """A client that was the bottleneck at every load, as on a laptop with three engines."""
    compared = making.compared()
    points = tuple(replace(point, client=replace(point.client, bottleneck=True)) for point in compared.points)
    result = Measured(FILE, replace(compared, points=points, comparisons=()))
    assert [table.title for table in result.card().tables] == []
    assert "No figures to publish: the client could not keep up" in str(result)


def test_results_and_files_make_one_report_and_a_page(tmp_path: Path) -> None:
    tuned = making.write(making.tuned(), tmp_path / "tune.jsonl")
    report = peagle_sm.report(Measured(FILE, making.compared()), str(tuned), title="Both")
    page = report.save(tmp_path / "page.html")
    assert head_of(report) == ["Both", report.headline]
    assert report.markdown.startswith("### Both")
    assert [kinds(file) for file in report.files] == [("compare", 23, 0), ("tune", 0, 6)]
    assert report.headline in page.read_text().replace("\N{NON-BREAKING HYPHEN}", "-")


def kinds(file: Results) -> tuple[str, int, int]:
    return file.header.command, len(file.points), len(file.fits)


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        peagle_sm.report()
    with pytest.raises(SpecError):
        peagle_sm.report(tmp_path / "none.jsonl")
