"""K by load in every form of the report: the table, its validation, and the other modes at each load."""

from __future__ import annotations

import json
from pathlib import Path

from peagle_bench.notebook.results import TuneResult
from peagle_bench.report import tables
from peagle_bench.report.files import extract
from peagle_bench.report.markdown import markdown
from peagle_bench.report.merging import view_of
from peagle_bench.report.page import html_page
from peagle_bench.report.verdict import verdict
from tests.bench.report import making
from tests.bench.report.test_page import Outline
from tests.cli.running import run

ACCEPTED, REFUSED = making.tuned_by_load(), making.tuned_by_load(accepted=False)
ROWS = "11 (1 to 2), 5 (3 to 6), 2 (7 and more)"


def test_the_headline_is_the_table_or_why_there_is_none() -> None:
    assert verdict(view_of([ACCEPTED])).headline == f"K by requests in flight for P-EAGLE: {ROWS}"
    wanted = "One K at every load for P-EAGLE: 5, since the table was not accepted"
    assert verdict(view_of([REFUSED])).headline == wanted


def test_the_whole_tables_in_markdown() -> None:
    text = markdown([REFUSED])
    begin = text.index("**K by load**")
    end = text.index("**Best K**")
    assert text[begin:end] == (
        "**K by load**\n\n"
        "| mode | K by requests in flight | result | why |\n"
        "| --- | --- | --- | --- |\n"
        f"| P-EAGLE | {ROWS} | not accepted, K=5 at every load | the table's own endpoint is slower than "
        "that of the fixed K at c=1 (0.951 [0.939, 0.964]) |\n"
        "| EAGLE-3 | 5 (1 and more) | K=5 at every load | no table of K is needed: K=5 is written |\n\n"
        "**Table of K over the fixed K, each on its own endpoint**\n\n"
        "| mode | load | table / fixed K | 95% interval | result | looks | identical outputs |\n"
        "| --- | --- | ---: | --- | --- | ---: | --- |\n"
        "| P-EAGLE | c=1 to 8 to 1 | 1.041 | [1.029, 1.054] | as fast | 1 | 48 of 48 |\n"
        "| P-EAGLE | c=1 | 0.951 | [0.939, 0.964] | slower | 1 | 48 of 48 |\n\n"
        "**Other modes at each load**\n\n"
        "| mode | load | instead | tokens/s over it | 95% interval | result |\n"
        "| --- | --- | --- | ---: | --- | --- |\n"
        "| P-EAGLE | c=1 | no speculation | 0.450 | [0.436, 0.464] | slower |\n"
        "| P-EAGLE | c=1 | EAGLE-3 K=5 | 0.800 | [0.776, 0.824] | slower |\n"
        "| P-EAGLE | c=2 | no speculation | 0.500 | [0.485, 0.515] | slower |\n"
        "| P-EAGLE | c=2 | EAGLE-3 K=5 | 0.900 | [0.873, 0.927] | slower |\n"
        "| P-EAGLE | c=4 | no speculation | 0.800 | [0.776, 0.824] | slower |\n"
        "| P-EAGLE | c=4 | EAGLE-3 K=5 | 1.010 | [0.980, 1.040] | not significantly different |\n"
        "| P-EAGLE | c=8 | no speculation | 1.070 | [1.038, 1.102] | faster |\n"
        "| P-EAGLE | c=8 | EAGLE-3 K=5 | 1.120 | [1.086, 1.154] | faster |\n\n"
    )


def test_the_page_has_a_section_a_chart_and_the_records() -> None:
    page = html_page([ACCEPTED])
    outline = Outline(page)
    assert "by-load" in {attributes.get("id") for attributes in outline.named("section")}
    for name in ("P-EAGLE table", "P-EAGLE K=5", "EAGLE-3 K=5", "no speculation"):
        assert name in page.replace("\N{NON-BREAKING HYPHEN}", "-")
    (inside,) = extract(page)
    assert inside.tables == ACCEPTED.tables
    assert html_page([making.tuned()]).count('id="by-load"') == 0


def test_two_runs_of_one_spec_are_kept_apart() -> None:
    """Both belong to the same comparison, so they are parts of one report."""
    found = view_of([ACCEPTED, REFUSED])
    rows = tables.validations(found.tables, found)
    assert rows is not None
    assert "run" in rows.heads
    assert len(set(rows.rows)) == len(rows.rows)


def test_json_and_terminal(tmp_path: Path) -> None:
    file = making.write(ACCEPTED, tmp_path / "tune.jsonl")
    own, other = json.loads(run("report", file, "--format", "json").stdout)["tables"]
    assert (own["rows"], own["accepted"], own["fixed_k"]) == ([[1, 2, 11], [3, 6, 5], [7, 1024, 2]], True, 5)
    assert own["checks"][3]["looks"] == 2
    assert [one["verdict"] for one in own["alternatives"]][-1] == "faster"
    assert (other["rows"], other["checks"], other["accepted"]) == ([[1, 1024, 5]], [], False)
    shown = run("report", file).stdout
    assert f"P-EAGLE  {ROWS}  accepted" in shown
    assert "P-EAGLE  c=1 to 8 to 1            1.041  [1.029, 1.054]  as fast      1  48 of 48" in shown


def test_a_notebook_shows_the_table_and_has_its_record() -> None:
    result = TuneResult(Path("results/tune.jsonl"), ACCEPTED, k={"p-eagle": 5, "eagle3": 5})
    titles = [table.title for table in result.card().tables]
    assert titles[:3] == ["K by load", "Table of K over the fixed K", "Other modes at each load"]
    assert result.tables[0].accepted
    assert f"K by requests in flight for P-EAGLE: {ROWS}" in str(result)
