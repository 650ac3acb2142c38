"""The report: tables, the place in the page, the picture, and the command's answers."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.guard.simulator.__main__ import ROOT, main
from tests.guard.simulator.campaign import campaign
from tests.guard.simulator.judging import picture, report
from tests.guard.simulator.judging.tally import Tally, quantile

PAGE = f"# before\n{report.BEGIN}\nold\n{report.END}\nafter\n"


@pytest.fixture(scope="module")
def tally() -> Tally:
    heard: list[int] = []
    found = campaign(8, 0, 1, lambda done, _: heard.append(done))
    assert heard == [8]
    return found


def test_every_rule_has_its_row_and_every_sweep_is_counted(tally: Tally) -> None:
    rows = report.by_rule(tally)
    assert [row.split("|")[1].strip(" *") for row in rows[2:]] == report.RULES
    assert sum(calls.total() for calls in tally.sweeps.calls.values()) > 100
    assert all(tally.rules[rule].worlds == 8 for rule in report.RULES)


def test_tallies_join_to_what_one_run_gives(tally: Tally) -> None:
    joined = campaign(4, 0, 1, lambda *_: None)
    joined.join(campaign(4, 4, 1, lambda *_: None))
    assert report.by_rule(joined) == report.by_rule(tally)
    assert report.by_fault(joined) == report.by_fault(tally)


def test_the_picture_is_an_svg_that_names_every_rule(tally: Tally) -> None:
    drawn = picture.draw(tally, report.RULES, report.GUARD)
    words = [node.text for node in ElementTree.fromstring(drawn).iter() if node.tag.endswith("text")]
    assert set(report.RULES) <= set(words)
    assert "prefers-color-scheme: dark" in drawn


def test_the_page_keeps_what_is_not_generated() -> None:
    assert report.replaced(PAGE, "new") == "# before\nnew\nafter\n"
    with pytest.raises(ValueError, match="are missing"):
        report.replaced("# before\n", "new")


def test_the_shipped_page_has_the_place() -> None:
    assert report.replaced((ROOT / "docs" / "explanation" / "guard.md").read_text(encoding="utf-8"), "new")


def test_the_command_writes_page_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "guard.md").write_text(PAGE, encoding="utf-8")
    assert main(["--worlds", "3", "--seed", "5", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert "3 of 3 worlds" in told.err
    written = (tmp_path / "guard.md").read_text(encoding="utf-8")
    assert "scripts/simulate-guard --worlds 3 --seed 5" in written
    assert written.startswith("# before")
    assert (tmp_path / "guard.svg").read_text(encoding="utf-8").startswith("<svg")


def test_a_number_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--worlds", "0"])
    assert "allowed: a whole number, at least 1" in capsys.readouterr().err


def test_quantiles_are_values_that_occurred() -> None:
    assert [quantile([3, 1, 2], share) for share in (0, 0.5, 0.95)] == [1, 2, 3]
    assert quantile([], 0.5) == 0
