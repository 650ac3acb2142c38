"""What the measuring calls return, typed and shown by a notebook in the report's own words; and report()."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from peagle_sm.core.display import Card, Note, Shown, Table, Tone
from peagle_sm.core.errors import SpecError
from peagle_sm.measure.load.points import doubt_lines, withheld_lines
from peagle_sm.measure.report import tables
from peagle_sm.measure.report.files import read_files, write_page
from peagle_sm.measure.report.merging import demand_figures, view_of
from peagle_sm.measure.report.page import html_page
from peagle_sm.measure.report.tables import Rows, markdown
from peagle_sm.measure.report.verdict import checked, verdict
from peagle_sm.measure.report.view import View, cautions
from peagle_sm.measure.results.records import CheckRecord, ComparisonRecord, FitRecord, Mode, PointRecord
from peagle_sm.measure.results.result_file import Results

_FOLDED_ABOVE = 8


@dataclass(frozen=True)
class Report(Shown):
    """Results files put together."""

    files: tuple[Results, ...]
    title: str | None = None

    @property
    def headline(self) -> str:
        """What the files say, in one sentence."""
        return verdict(view_of(self.files)).headline

    @property
    def html(self) -> str:
        """The whole page, with its data inside."""
        return html_page(self.files, title=self.title)

    @property
    def markdown(self) -> str:
        """The same for a pull request."""
        return markdown(self.files, title=self.title)

    def save(self, path: str | Path) -> Path:
        """Write the page.

        Raises:
            SpecError: the place cannot be written to.
        """
        write_page(Path(path), self.html)
        return Path(path)

    def card(self) -> Card:
        """What a notebook shows of it."""
        return files_card(self.files, self.title or "P-EAGLE report")


@dataclass(frozen=True)
class Measured(Shown):
    """What one run wrote: the file, what it holds, and what a reader of the figures must know."""

    path: Path
    results: Results
    notes: tuple[str, ...] = ()

    @property
    def stand_in_weights(self) -> bool:
        """Whether the small weights were measured, whose figures say nothing of a large model on a GPU."""
        return self.results.header.stand_in_weights

    def report(self, title: str | None = None) -> Report:
        """The run as a report."""
        return Report((self.results,), title)

    def card(self) -> Card:
        """What a notebook shows of it."""
        header = self.results.header
        return files_card((self.results,), f"{header.command}: {self.path}", self.notes)


@dataclass(frozen=True)
class BenchResult(Measured):
    """What `bench` measured."""

    @property
    def points(self) -> tuple[PointRecord, ...]:
        """One for each load; `PointRecord.client` says whether its figures may be published."""
        return self.results.points


@dataclass(frozen=True)
class CompareResult(Measured):
    """What `compare` measured."""

    @property
    def points(self) -> tuple[PointRecord, ...]:
        """One for each arm and load."""
        return self.results.points

    @property
    def comparisons(self) -> tuple[ComparisonRecord, ...]:
        """The ratio of each pair, with its 95% interval; ``control`` is an arm beside itself."""
        return self.results.comparisons


@dataclass(frozen=True)
class TuneResult(Measured):
    """What `tune` chose; ``k`` is by mode the one K for all loads, ``written`` the spec that it went into."""

    k: dict[Mode, int] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    written: str | None = None
    minutes: float = 0.0
    usd: float | None = None

    @property
    def fits(self) -> tuple[FitRecord, ...]:
        """The curve over K, for each mode and load."""
        return self.results.fits


@dataclass(frozen=True)
class VerifyResult(Measured):
    """What `verify` found."""

    @property
    def checks(self) -> tuple[CheckRecord, ...]:
        """Each check with its verdict and what it would have caught."""
        return self.results.checks

    @property
    def passed(self) -> bool | None:
        """None where nothing failed and something could not be decided, or no check applies."""
        found = [check.passed for check in self.checks if check.applicable]
        return False if False in found else None if None in found or not found else True


def files_card(files: Sequence[Results], title: str, notes: Sequence[str] = ()) -> Card:
    """The report in small: its headline, its tables, its cautions."""
    view = view_of(files)
    said = verdict(view)
    marks = [
        Note(f"{one.name}. {one.text}", "bad" if one.kind == "wrong" else "caution") for one in cautions(view)
    ]
    own = list(dict.fromkeys(notes)) or [
        *withheld_lines(view.withheld),
        *doubt_lines(view.points),
        *view.empty,
    ]
    limits = [Note("; ".join(said.limits))] if said.limits else []
    return Card(
        title,
        said.headline,
        _tone(view, gain=said.gain),
        tables=tuple(_tables(view)),
        notes=(*marks, *limits, *(Note(line) for line in own)),
    )


def _tone(view: View, *, gain: bool) -> Tone:
    verdicts = {check.passed for check in view.checks if check.applicable}
    if False in verdicts:
        return "bad"
    if None in verdicts:
        return "caution"
    return "good" if gain or verdicts else "plain"


def _tables(view: View) -> list[Table]:
    found = (
        ("Speed-up", tables.ratios(view), False),
        ("Measured", tables.points(view), False),
        ("Best K", tables.best_k(view), False),
        ("The rate at each K", tables.rates(view), True),
        (_checks_title(view), tables.checks(view, power=False), False),
    )
    return [_table(title, table, long) for title, table, long in found if table is not None]


def _checks_title(view: View) -> str:
    """What was checked, unless the headline says it."""
    said = checked(view.checks) if view.checks else ""
    return "Checks" if said == verdict(view).headline else said


def _table(title: str, table: Rows, folded: bool) -> Table:
    return Table(title, table.heads, table.rows, table.figures, folded or len(table.rows) > _FOLDED_ABOVE)


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
