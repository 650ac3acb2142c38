"""Every call of every use case under every fault; docs/reference/faults-matrix.md has the outcomes.

`scripts/fault-matrix` runs each cell and writes the page. Here a choice of them runs again (`cells.runs`),
and a call that the page does not know, or a cell that comes to something else, fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.cases import CASES, Case
from tests.faults.cells import record, run_cells
from tests.faults.page import PAGE, read_page
from tests.faults.world import Place, guarded
from tests.local.serving import Server


@pytest.fixture(scope="module")
def place(server: Server) -> Iterator[Place]:
    place = Place(server)
    with guarded(place):
        yield place


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_matrix(case: Case, place: Place, root: Path) -> None:
    rows = read_page((root / PAGE).read_text(encoding="utf-8"))[case.name]
    recorded = record(place, case)
    calls = {number: recorded.calls[number] for number in recorded.numbers}
    assert calls == {number: call for number, (call, _) in rows.items()}, "run scripts/fault-matrix"
    for cell in run_cells(place, recorded, every=False):
        assert not cell.wrong, cell
        assert cell.outcome == rows[cell.number][1][cell.kind], cell


def test_the_page_has_no_cell_that_is_wrong(root: Path) -> None:
    text = (root / PAGE).read_text(encoding="utf-8")
    assert ", 0 not as they must be;" in text
    assert set(read_page(text)) == {case.name for case in CASES}
