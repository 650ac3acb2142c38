from __future__ import annotations

from pathlib import Path

import pytest

from peagle_sm.core.errors import EXIT_CODES
from scripts.reference_pages.__main__ import PAGES, main
from scripts.reference_pages.quickstart_picture import picture


@pytest.mark.parametrize("name", list(PAGES))
def test_the_page_is_what_the_program_says(root: Path, name: str) -> None:
    assert (root / "docs" / name).read_text(encoding="utf-8") == PAGES[name](), "run: scripts/reference"


def test_every_exit_code_has_a_row() -> None:
    page = PAGES["reference/exit-codes.md"]()
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in page


def test_the_codes_say_which_one_a_missing_input_file_has() -> None:
    assert "file cannot be read" in EXIT_CODES[2]
    assert "file" not in EXIT_CODES[4]


def test_check_names_what_is_out_of_date_and_writes_nothing(tmp_path: Path) -> None:
    pages = {name: PAGES[name] for name in ("reference/exit-codes.md", "reference/checks.md")}
    assert main(["--check"], tmp_path, pages) == 1
    assert list(tmp_path.iterdir()) == []
    assert main([], tmp_path, pages) == 0
    assert main(["--check"], tmp_path, pages) == 0


def test_a_page_without_figures_makes_no_picture() -> None:
    with pytest.raises(ValueError, match="run scripts/measure-page"):
        picture("# Measuring\n")
