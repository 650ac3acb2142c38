"""report(): results files as one page, as Markdown, and in a notebook."""

from __future__ import annotations

from pathlib import Path

from peagle_sm.core.errors import SpecError
from peagle_sm.measure.notebook.results import Measured, Report
from peagle_sm.measure.report.files import read_files
from peagle_sm.measure.report.unfinished import demand_figures


def report(*results: Measured | str | Path, title: str | None = None) -> Report:
    """Put results together: what a measuring call returned, a results file, or a page made of some.

    Raises:
        NotFound: a file is not there.
        SpecError: nothing was given, a file cannot be read as results, or none of them holds a finished load.
    """
    if not results:
        raise SpecError("there is no results file to report on", next_step="give at least one")
    files = []
    for one in results:
        files += [one.results] if isinstance(one, Measured) else read_files([Path(one)])
    demand_figures(files)
    return Report(tuple(files), title)
