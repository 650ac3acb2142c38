"""K by load of a machine kind: its name, its figure, its part of the page, and what is recorded."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from peagle_bench.report.files import records_of
from peagle_bench.results.result_file import Results, ResultWriter, read
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.planning import make_plan
from scripts.bench.comparison import spec_of
from scripts.bench.loads import curves
from tests.bench.report import making
from tests.core.support import LOCAL
from tests.rules.files import ROOT

AMD, INTEL = "AMD EPYC without AVX-512", "Intel Xeon with AMX"
TRACE = {
    "steps": [1, 8, 1],
    "ratio": {"value": 1.03, "low": 1.01, "high": 1.05},
    "by_load": {"1": {"value": 1.1, "low": 1.05, "high": 1.15}},
    "blocks": 8,
    "at_most_2_percent_slower": "holds",
    "draft_tokens_per_step": {"table": 6.25, "fixed": 5.0},
    "requests": 100,
    "failed": 0,
    "identical_outputs": 48,
    "compared_outputs": 48,
    "load_average": 1.5,
}


@pytest.mark.parametrize(
    ("model", "flags", "kind"),
    [
        ("AMD EPYC", "avx2 sse", AMD),
        ("Intel(R) Xeon(R) Processor", "avx512f amx_tile", INTEL),
        ("Intel(R) Xeon(R) Platinum 8275CL CPU @ 3.00GHz", "avx512f", "Intel Xeon with AVX-512, without AMX"),
        ("AMD EPYC 9R14 96-Core Processor", "avx512f", "AMD EPYC with AVX-512, without AMX"),
    ],
)
def test_a_machine_kind_is_named_by_what_decides_k(model: str, flags: str, kind: str) -> None:
    text = f"processor\t: 0\nmodel name\t: {model}\nflags\t\t: fpu {flags}\n\nprocessor\t: 1\n"
    assert curves.machine_kind(text) == kind


def made(kind: str) -> Results:
    """What a tuning by load gives, recorded for a machine kind."""
    found = making.tuned_by_load()
    header = replace(found.header, config={**found.header.config, "requests": 12}, stand_in_weights=True)
    return curves.recorded(replace(found, header=header), kind, 1.25)


def record(kind: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with ResultWriter(folder / f"{curves.slug(kind)}.jsonl", overwrite=True) as writer:
        for one in records_of(made(kind)):
            writer.append(one)


def test_the_figure_has_a_panel_for_each_load_and_both_themes() -> None:
    text = curves.figure(made(AMD))
    root = ElementTree.fromstring(text)
    panels = root.findall("{http://www.w3.org/2000/svg}svg")
    assert len(panels) == 4
    assert root.attrib["aria-label"].endswith(AMD)
    assert "prefers-color-scheme: dark" in text
    titles = [one.text or "" for one in root.findall("{http://www.w3.org/2000/svg}text")]
    assert titles[0].startswith("c=1: tokens/s by K (")
    assert "small stand-in weights" in titles[0]


def test_each_machine_kind_has_its_part_of_the_page(tmp_path: Path) -> None:
    page, folder = tmp_path / "docs/how-to/k.md", tmp_path / "docs/assets/k-by-load"
    page.parent.mkdir(parents=True)
    page.write_text(f"before\n{curves.BEGIN}\nstale part\n{curves.END}\nafter\n")
    record(AMD, folder)
    (folder / f"{curves.slug(AMD)}{curves.TRACE}.json").write_text(json.dumps({"p-eagle": TRACE}))
    curves.write_page(page, folder)
    record(INTEL, folder)  # another machine adds its own
    curves.write_page(page, folder)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "stale part" not in text
    assert text.index(f"### {AMD}") < text.index(f"### {INTEL}")
    assert "](../assets/k-by-load/intel-xeon-with-amx.svg)" in text
    assert (folder / "intel-xeon-with-amx.svg").is_file()
    assert "| c=1 | EAGLE-3 | 7 | 505 | [497, 512] | 186 | 2.71x |" in text
    assert text.count("P-EAGLE on the trace") == 1
    assert (
        "P-EAGLE on the trace c=1 to 8 to 1: the table has 1.030 [1.010, 1.050] times the tokens/s of the "
        "best fixed K (95% interval over 8 blocks in turns). At most 2% slower: holds. By load: c=1 1.100 "
        "[1.050, 1.150]. Draft tokens per step: table 6.2, fixed 5.0. Answered: 100 of 100 requests; "
        "identical outputs: 48 of 48 prompts. Load average 1.5."
    ) in text
    assert "Small stand-in weights, eager engine. 2026-11-20, 2 cores of AMD EPYC; vLLM 0.3" in text


def test_the_page_is_that_of_what_is_recorded(tmp_path: Path) -> None:
    """The figure and the page are written by the script, never by hand."""
    folder, page = tmp_path / "docs/assets/k-by-load", tmp_path / "docs/how-to/k-by-load.md"
    folder.mkdir(parents=True)
    if (ROOT / curves.FOLDER).is_dir():
        shutil.copytree(ROOT / curves.FOLDER, folder, dirs_exist_ok=True)
    page.parent.mkdir(parents=True)
    shutil.copy(ROOT / curves.PAGE, page)
    curves.write_page(page, folder)
    assert page.read_text() == (ROOT / curves.PAGE).read_text()
    for path in folder.iterdir():
        assert path.read_text() == (ROOT / curves.FOLDER / path.name).read_text(), path.name
    for path in folder.glob("*.jsonl"):
        assert read(path).header.provenance["machine_kind"]


def test_the_arms_of_a_trace_are_those_that_tune_would_write() -> None:
    own, _ = making.tuned_by_load().tables
    arms = curves.arms_of(spec_of("p-eagle"), own)
    table, fixed = arms["table"].speculation, arms["fixed"].speculation
    assert table.num_speculative_tokens_per_batch_size == own.rows
    assert (table.num_speculative_tokens, fixed.num_speculative_tokens) == (11, 5)
    for arm in arms.values():
        errors = [one for one in make_plan(arm, LOCAL, load_catalog()).findings if one.severity == "error"]
        assert errors == []
