"""Typed results of the measuring calls, displayed by notebooks; and report()."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from peagle_bench.load.points import doubt_lines, withheld_lines
from peagle_bench.report.markdown import markdown
from peagle_bench.report.merging import demand_figures, parts_of
from peagle_bench.report.page import html_page
from peagle_bench.report.tables import tables_of
from peagle_bench.report.verdict import verdict
from peagle_bench.report.view import View, cautions
from peagle_bench.results.records import (
    CheckRecord,
    ComparisonRecord,
    FitRecord,
    Mode,
    PointRecord,
    all_passed,
)
from peagle_bench.results.result_file import Results, read_files
from peagle_sm.aws.files import write_file
from peagle_sm.core.display import Card, Note, Shown, Table, Tone
from peagle_sm.core.errors import SpecError

_FOLDED_ABOVE = 8


@dataclass(frozen=True)
class Report(Shown):
    """Report on one or more results files."""

    files: tuple[Results, ...]
    title: str | None = None

    @property
    def headline(self) -> str:
        """Headline of the report: one sentence."""
        return verdict(parts_of(self.files)[0].view).headline

    @property
    def html(self) -> str:
        """HTML page, one file that needs nothing else."""
        return html_page(self.files, title=self.title)

    @property
    def markdown(self) -> str:
        """Report as Markdown, for a pull request."""
        return markdown(self.files, title=self.title)

    def save(self, path: str | Path) -> Path:
        """Write the HTML page.

        Raises:
            SpecError: the file cannot be written.
        """
        write_file(Path(path), self.html, parents=True)
        return Path(path)

    def card(self) -> Card:
        """Return the summary that a notebook displays."""
        return files_card(self.files, self.title or "P-EAGLE report")


@dataclass(frozen=True)
class Measured(Shown):
    """Results of one run: the file, its content, and notes for the reader of the figures."""

    path: Path
    results: Results
    notes: tuple[str, ...] = ()

    @property
    def stand_in_weights(self) -> bool:
        """Whether the small stand-in weights were measured; such figures are not a large model's."""
        return self.results.header.stand_in_weights

    def report(self, title: str | None = None) -> Report:
        """Return a report of this run."""
        return Report((self.results,), title)

    def card(self) -> Card:
        """Return the summary that a notebook displays."""
        header = self.results.header
        return files_card((self.results,), f"{header.command}: {self.path}", self.notes)

    @property
    def points(self) -> tuple[PointRecord, ...]:
        """One point for each arm and load; `PointRecord.client` says whether its figures may be published."""
        return self.results.points

    @property
    def comparisons(self) -> tuple[ComparisonRecord, ...]:
        """Ratio of each pair, with its 95% interval; ``control`` marks an A/A pair."""
        return self.results.comparisons

    @property
    def fits(self) -> tuple[FitRecord, ...]:
        """Fitted curve over K, for each mode and load."""
        return self.results.fits

    @property
    def checks(self) -> tuple[CheckRecord, ...]:
        """Each check of `verify` with its verdict and its power."""
        return self.results.checks

    @property
    def passed(self) -> bool | None:
        """Whether all checks passed; None if none failed but one is undecided, or none applies."""
        return all_passed(self.checks)


@dataclass(frozen=True)
class TuneResult(Measured):
    """Result of `tune`; ``k`` is each mode's K for all loads, ``written`` the changed spec file."""

    k: dict[Mode, int] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    written: str | None = None
    minutes: float = 0.0
    usd: float | None = None


def files_card(files: Sequence[Results], title: str, notes: Sequence[str] = ()) -> Card:
    """Make the summary of results files: headline, tables, cautions; of several runs, one after the other."""
    parts = parts_of(files)
    first, several = parts[0].view, len(parts) > 1
    result = verdict(first)
    marks = [
        Note(f"{caution.name}. {caution.text}", "bad" if caution.kind == "wrong" else "caution")
        for part in parts
        for caution in cautions(part.view)
    ]
    own = list(dict.fromkeys(notes))
    for part in () if own else parts:
        view = part.view
        own += [*withheld_lines(view.withheld), *doubt_lines(view.points), *view.empty]
    limits = [Note("; ".join(result.limits))] if result.limits else []
    tables = [
        replace(table, title=f"{part.title}: {table.title}") if several else table
        for part in parts
        for table in _tables(part.view)
    ]
    lines = [*dict.fromkeys(marks), *limits, *(Note(line) for line in own)]
    tone = _tone(first, gain=result.gain)
    return Card(title, result.headline, tone, tables=tuple(tables), notes=tuple(lines))


def _tone(view: View, *, gain: bool) -> Tone:
    if not any(check.applicable for check in view.checks):
        return "good" if gain else "plain"
    passed = all_passed(view.checks)
    return "caution" if passed is None else "good" if passed else "bad"


def _tables(view: View) -> list[Table]:
    """Return the tables with short titles; the headline may give the result of the checks already."""
    headline = verdict(view).headline
    return [
        replace(
            table,
            title="Checks" if table.title == headline else table.title,
            folded=table.folded or len(table.rows) > _FOLDED_ABOVE,
        )
        for table in tables_of(view)
    ]


def report(*results: Measured | str | Path, title: str | None = None) -> Report:
    """Make a report of results: from measuring calls and results files.

    Raises:
        SpecError: no argument, a file that is missing or cannot be read, or no finished load in any file.
    """
    if not results:
        raise SpecError("no results file was given", next_step="give at least one")
    files = []
    for result in results:
        files += [result.results] if isinstance(result, Measured) else read_files([Path(result)])
    demand_figures(files)
    return Report(tuple(files), title)
