"""docs/explanation/local.md: every row of the fidelity ledger has a source, and names tests that exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

FILE_AND_TEST = re.compile(r"(?:([\w/]+\.py))?::(test_\w+)")


@pytest.fixture
def ledger(root: Path) -> str:
    return (root / "docs" / "explanation" / "local.md").read_text()


def cited(ledger: str) -> Iterator[tuple[str, str]]:
    """(file, test) of each citation; `::test_x` alone means the file named before it."""
    file = ""
    for match in FILE_AND_TEST.finditer(ledger):
        file = match[1] or file
        yield Path(file).name, match[2]


def test_every_test_that_the_ledger_names_exists(ledger: str, root: Path) -> None:
    texts = {
        path.name: path.read_text()
        for path in (root / "toolkit/sagemaker-local/tests/local").rglob("test_*.py")
    }
    missing = [f"{file}::{test}" for file, test in cited(ledger) if f"def {test}(" not in texts.get(file, "")]
    assert missing == []


def test_every_row_of_the_control_plane_has_a_source_and_a_test(ledger: str) -> None:
    section = ledger.split("## Control plane")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    assert len(rows) > 30
    assert [row for row in rows if any(not cell.strip(" -") for cell in row)] == []
