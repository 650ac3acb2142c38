"""Runs the whole matrix and writes docs/reference/faults-matrix.md; `scripts/fault-matrix` calls this.

With names of use cases it runs those alone, prints what is wrong, and writes nothing.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.cases import CASES
from tests.faults.cells import Cell, Recorded, all_cells, record, run_cells
from tests.faults.page import PAGE, page
from tests.faults.world import Place, guarded
from tests.local.serving import running_server


def main(only: list[str]) -> int:
    unknown = set(only) - {case.name for case in CASES}
    if unknown:
        print(
            f"no such use case: {', '.join(sorted(unknown))}; there are: {', '.join(c.name for c in CASES)}"
        )
        return 2
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        serving = running_server(Path(folder))
        place = Place(next(serving))
        try:
            with guarded(place):
                return _run(place, only)
        finally:
            next(serving, None)


def _run(place: Place, only: list[str]) -> int:
    recorded: list[Recorded] = []
    cells: dict[str, list[Cell]] = {}
    runs = 0
    for case in CASES:
        if only and case.name not in only:
            continue
        began, cpu = time.monotonic(), time.process_time()
        recorded_case = record(place, case)
        ran = {(cell.number, cell.kind): cell for cell in run_cells(place, recorded_case, every=True)}
        recorded.append(recorded_case)
        cells[case.name] = list(all_cells(recorded_case, ran))
        runs += len(ran)
        for cell in ran.values():
            if cell.wrong:
                print(f"{case.name} {cell.number} {cell.call} {cell.kind}: {cell.wrong}")
        print(
            f"{case.name}: {len(cells[case.name])} cells by {len(ran)} runs, "
            f"{time.process_time() - cpu:.0f} s of CPU, {time.monotonic() - began:.0f} s",
            file=sys.stderr,
        )
    if not only:
        Path(PAGE).write_text(page(recorded, cells, runs), encoding="utf-8")
        print(f"written: {PAGE}", file=sys.stderr)
    return int(any(cell.wrong for rows in cells.values() for cell in rows))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
