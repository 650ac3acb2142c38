from __future__ import annotations

from pathlib import Path

import pytest

from peagle_sm.cli.reference import PAGES, main
from peagle_sm.core.errors import EXIT_CODES


@pytest.mark.parametrize("name", list(PAGES))
def test_the_page_is_what_the_program_says(root: Path, name: str) -> None:
    assert (root / "docs" / "reference" / name).read_text() == PAGES[name](), (
        "run: python -m peagle_sm.cli.reference"
    )


def test_every_exit_code_has_a_row() -> None:
    page = PAGES["exit-codes.md"]()
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in page


def test_the_codes_say_which_one_a_missing_input_file_has() -> None:
    assert "file cannot be read" in EXIT_CODES[2]
    assert "file" not in EXIT_CODES[4]


def test_check_tells_and_does_not_write(tmp_path: Path) -> None:
    assert main(["--check"], tmp_path) == 1
    assert list(tmp_path.iterdir()) == []
    assert main([], tmp_path) == 0
    assert main(["--check"], tmp_path) == 0
