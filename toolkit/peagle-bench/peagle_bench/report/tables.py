"""Report as plain tables: rows for a terminal, and Markdown for a pull request. Pure.

In Markdown the headline and the main tables come first; long tables are collapsed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from peagle_bench.load.points import doubt_lines
from peagle_bench.report import formatting
from peagle_bench.report.costs import cost_rows
from peagle_bench.report.merging import are_alike, parts_of
from peagle_bench.report.slices import columns as slice_columns
from peagle_bench.report.slices import rows as slices
from peagle_bench.report.speed_up import ordered
from peagle_bench.report.trust import trust
from peagle_bench.report.verdict import checked, scored, verdict
from peagle_bench.report.view import Shown, View, cautions
from peagle_bench.results.records import (
    Alternative,
    ComparisonRecord,
    FitRecord,
    Interval,
    KPoint,
    Percentiles,
    TableCheck,
    TableRecord,
)
from peagle_bench.results.result_file import Results
from peagle_sm.core.display import Table
from peagle_sm.core.spec.endpoint_spec import table_text


def points(view: View) -> Table | None:
    """Make the table of points: rate, latencies, acceptance and cost of each arm under each load."""
    found = list(view.measured_by_load())
    if not found:
        return None
    usd = {
        (row.arm.name, row.load, row.otps): row.usd_per_million for row in cost_rows(view.arms, view.points)
    }
    heads = ("load", "arm", "OTPS", "TTFT p95 ms", "TPOT p50 ms", "accepted", "USD/1M tokens")
    lines = tuple(
        (
            point.load.label,
            view.label(point.arm),
            formatting.number(point.otps),
            _part(point.ttft_ms, "p95"),
            _part(point.tpot_ms, "p50"),
            formatting.number(point.acceptance.per_step if point.acceptance else None),
            formatting.usd(usd.get((point.arm, point.load, point.otps))),
        )
        for point in found
    )
    return _used(_with_runs(view, Table("Measured", heads, lines, heads[2:]), found, 2))


def by_slice(view: View) -> Table | None:
    """Make the table of the first pair (or arm) and load by slice; None without slices."""
    records = [one for _, each in view.files for one in slices.slices_in(each)]
    if not records:
        return None
    shown = slices.groups(records, view.arms)[0]
    columns = slice_columns.columns(shown)
    rows = tuple((slices.name_of(one), *(column.cell(one) for column in columns)) for one in shown)
    heads = ("slice", *(column.head for column in columns))
    right = tuple(column.head for column in columns if not column.words)
    return Table("By slice of the traffic", heads, rows, right, folded=True)


def _with_runs(view: View, table: Table, records: Sequence[Shown], names: int) -> Table:
    """Add a column with the run after the first ``names`` cells, if two rows would look the same."""
    if not are_alike(row[:names] for row in table.rows):
        return table

    def with_run(row: tuple[str, ...], run: str) -> tuple[str, ...]:
        return *row[:names], run, *row[names:]

    rows = (with_run(row, view.run_of(record)) for row, record in zip(table.rows, records, strict=True))
    return replace(table, heads=with_run(table.heads, "run"), rows=tuple(rows))


def _part(found: Percentiles | None, name: str) -> str:
    return formatting.number(getattr(found, name) if found else None)


def _used(table: Table) -> Table:
    """Remove the columns of figures that are empty."""
    for head in table.right:
        at = table.heads.index(head)
        if all(row[at] == formatting.DASH for row in table.rows):
            table = _without(table, head)
    return table


def ratios(view: View) -> Table | None:
    """Make the table of comparisons with their intervals."""
    if not view.comparisons:
        return None
    heads = ("arm", "over", "load", "speed-up", "95% interval", "significant", "units", "deployments")
    rows = tuple(
        (
            view.label(row.faster),
            view.label(row.slower),
            row.load.label,
            formatting.ratio(row.ratio.value),
            formatting.span(row.ratio),
            _significance(row),
            f"{row.units} {row.over}",
            str(row.deployments),
        )
        for row in ordered(view)
    )
    return _with_runs(view, Table("Speed-up", heads, rows, ("speed-up", "deployments")), ordered(view), 3)


def _significance(row: ComparisonRecord) -> str:
    if row.doubt is not None:
        return f"no verdict: {row.doubt}"
    return "yes" if row.significant else "no"


def best_k(view: View) -> Table | None:
    """Make the table of the tuner's choices."""
    if not view.fits:
        return None
    rows = tuple(
        (formatting.MODE_NAMES[fit.mode], fit.load.label, str(fit.best_k), fit.reason) for fit in view.fits
    )
    return _with_runs(
        view, Table("Best K", ("mode", "load", "best K", "why"), rows, ("best K",)), view.fits, 2
    )


def rates(view: View) -> Table | None:
    """Make the table of the tuner's fit at each K; K=0 is no speculation."""
    found = [(fit, point) for fit in view.fits for point in sorted(fit.points, key=lambda each: each.k)]
    if not found:
        return None
    heads = ("mode", "load", "K", "OTPS", "95% interval", "over K=0", "accepted", "step ms", "from", "note")
    lines = tuple(_rate(fit, point) for fit, point in found)
    table = Table(
        "Rate at each K", heads, lines, ("K", "OTPS", "over K=0", "accepted", "step ms"), folded=True
    )
    return _used(_with_runs(view, table, [fit for fit, _ in found], 3))


def _rate(fit: FitRecord, point: KPoint) -> tuple[str, ...]:
    plain = baseline(fit)
    span = formatting.DASH
    if point.low is not None and point.high is not None:
        span = f"[{formatting.number(point.low)}, {formatting.number(point.high)}]"
    marks = {0: "no speculation", fit.best_k: "chosen"}
    return (
        formatting.MODE_NAMES[fit.mode],
        fit.load.label,
        str(point.k),
        formatting.number(point.otps),
        span,
        formatting.ratio(point.otps / plain.otps) if plain and plain.otps and point.k else formatting.DASH,
        formatting.number(point.acceptance_length),
        formatting.number(point.step_ms),
        "measured" if point.measured else "the fit",
        marks.get(point.k, ""),
    )


def baseline(fit: FitRecord) -> KPoint | None:
    """Return the point without speculation (K=0) of a fit; None if it was not measured."""
    return next((point for point in fit.points if point.k == 0), None)


def by_load(view: View) -> Table | None:
    """Make the table of K by load: the tuner's table for each mode, and what was decided."""
    if not view.tables:
        return None
    heads = ("mode", "K by requests in flight", "result", "why")
    rows = tuple(
        (formatting.MODE_NAMES[table.mode], table_text(table.rows), decision(table), table.reason)
        for table in view.tables
    )
    return _with_runs(view, Table("K by load", heads, rows), view.tables, 1)


def decision(table: TableRecord) -> str:
    """Return what is used: the table, or one K."""
    if table.accepted:
        return "accepted"
    refused = "" if len(table.rows) == 1 else "not accepted, "
    return f"{refused}K={table.fixed_k} at every load"


APART = ", each on its own endpoint"
_RATIOS = ("table / fixed K", "tokens/s over it", "looks")  #: columns of figures


def validations(tables: Sequence[TableRecord], view: View | None = None) -> Table | None:
    """Make the table of the validations: each table's own endpoint over that of the fixed K.

    ``view`` names the runs where two rows would look the same.
    """
    heads = ("mode", "load", "table / fixed K", "95% interval", "result", "looks", "identical outputs")
    title = f"Table of K over the fixed K{APART}"
    return _of_tables(title, tables, heads, lambda table: [_check_cells(one) for one in table.checks], view)


def _check_cells(check: TableCheck) -> tuple[str, ...]:
    alike = formatting.DASH
    if check.compared_outputs is not None:
        alike = f"{check.identical_outputs} of {check.compared_outputs}"
    return check.load.label, *_exact(check.ratio), check.verdict, str(check.looks), alike


def _exact(ratio: Interval) -> tuple[str, str]:
    """Format a ratio near 1 with three decimals: the validation decides about 2%."""
    return f"{ratio.value:.3f}", f"[{ratio.low:.3f}, {ratio.high:.3f}]"


def alternatives(tables: Sequence[TableRecord], view: View | None = None) -> Table | None:
    """Make the table of the other modes at each load: their rate over the tuned mode's with the K in use.

    ``view`` names the runs where two rows would look the same.
    """
    heads = ("mode", "load", "instead", "tokens/s over it", "95% interval", "result")
    title = "Other modes at each load"
    return _of_tables(title, tables, heads, lambda table: list(map(_other_cells, table.alternatives)), view)


def _other_cells(other: Alternative) -> tuple[str, ...]:
    name = formatting.MODE_NAMES[other.mode]
    instead = name if other.mode == "none" else f"{name} K={other.k}"
    return other.load.label, instead, *_exact(other.ratio), other.verdict


def _of_tables(
    title: str,
    tables: Sequence[TableRecord],
    heads: tuple[str, ...],
    cells_of: Callable[[TableRecord], Sequence[tuple[str, ...]]],
    view: View | None,
) -> Table | None:
    found = [
        (table, (formatting.MODE_NAMES[table.mode], *row)) for table in tables for row in cells_of(table)
    ]
    if not found:
        return None
    made = Table(title, heads, tuple(row for _, row in found), _RATIOS)
    if view is not None:
        made = _with_runs(view, made, [table for table, _ in found], 3)
    return made if len({table.mode for table in tables}) > 1 else _without(made, "mode")


def table_data(table: TableRecord) -> dict[str, Any]:
    """Return K by load of one mode as JSON, with its validation and the alternatives."""
    return {
        "mode": table.mode,
        "rows": [list(row) for row in table.rows],
        "accepted": table.accepted,
        "fixed_k": table.fixed_k,
        "reason": table.reason,
        "checks": [
            {
                "load": check.load.label,
                **asdict(check.ratio),
                "verdict": check.verdict,
                "looks": check.looks,
                "identical_outputs": check.identical_outputs,
                "compared_outputs": check.compared_outputs,
            }
            for check in table.checks
        ],
        "alternatives": [
            {
                "load": one.load.label,
                "mode": one.mode,
                "k": one.k,
                **asdict(one.ratio),
                "verdict": one.verdict,
            }
            for one in table.alternatives
        ],
    }


def checks(view: View, *, power: bool = True) -> Table | None:
    """Make the table of checks; ``power`` adds the long column of what each check detects."""
    if not view.checks:
        return None
    said = {True: "passed", False: "FAILED", None: "not decided"}
    heads = ("check", "arm", "result", "found", "detects")
    rows = [
        (
            check.name,
            check.arm,
            said[check.passed] if check.applicable else "not applicable",
            check.summary,
            check.power,
        )
        for check in view.checks
    ]
    kept = len(heads) if power else len(heads) - 1
    made = Table(checked(view.checks), heads[:kept], tuple(row[:kept] for row in rows))
    table = _with_runs(view, made, view.checks, 2)
    return table if len({check.arm for check in view.checks}) > 1 else _without(table, "arm")


PACK_RESULTS = {True: "pass", False: "FAIL", None: "not measured"}


def packs(view: View) -> Table | None:
    """Make the scorecard: a row for each workload pack and arm."""
    if not view.packs:
        return None
    heads = ("pack", "arm", "result", "figure", "why")
    rows = tuple(
        (one.pack, view.label(one.arm), PACK_RESULTS[one.passed], one.figure or formatting.DASH, one.why)
        for one in view.packs
    )
    table = _with_runs(view, Table(scored(view.packs), heads, rows), view.packs, 2)
    return table if len({one.arm for one in view.packs}) > 1 else _without(table, "arm")


def _without(table: Table, head: str) -> Table:
    at = table.heads.index(head)
    heads = (*table.heads[:at], *table.heads[at + 1 :])
    return replace(table, heads=heads, rows=tuple((*row[:at], *row[at + 1 :]) for row in table.rows))


def tables_of(view: View, *, power: bool = False) -> list[Table]:
    """Make every table that has rows, in the order of each output: terminal, notebook, Markdown."""
    found = (
        ratios(view),
        points(view),
        by_slice(view),
        by_load(view),
        validations(view.tables, view),
        alternatives(view.tables, view),
        best_k(view),
        rates(view),
        packs(view),
        checks(view, power=power),
    )
    return [table for table in found if table is not None]


#: Longer tables are collapsed.
_SHOWN_ROWS = 12


def markdown(files: Sequence[Results], *, title: str | None = None) -> str:
    """Write the report in GitHub's Markdown.

    Raises:
        SpecError: no file, or stand-in weights beside real ones.
    """
    parts = parts_of(files)
    heading = title or "P-EAGLE report"
    if len(parts) == 1:
        return _run(parts[0].view, f"### {heading}")
    about = f"{len(parts)} runs. Compare modes only within one run."
    return "\n\n".join([f"### {heading}", about, *(_run(part.view, f"#### {part.title}") for part in parts)])


def _run(view: View, heading: str) -> str:
    said = verdict(view)
    stressed = (
        _escaped(said.headline).replace(said.figure, f"**{said.figure}**", 1)
        if said.figure
        else said.headline
    )
    parts = [heading, *_cautions(view), stressed]
    if said.second:
        parts.append(said.second)
    if said.limits:
        parts.append(f"_{_escaped('; '.join(said.limits))}_")
    parts += [_titled(table) for table in tables_of(view, power=True)]
    parts += [_escaped(f"Note: {line}.") for line in (*doubt_lines(view.points), *view.empty)]
    parts.append(_origin(view))
    return "\n\n".join(parts) + "\n"


def _cautions(view: View) -> list[str]:
    level = {"wrong": "CAUTION", "not-real": "WARNING"}
    return [
        f"> [!{level[one.kind]}]\n> **{_escaped(one.name)}.** {_escaped(one.text)}" for one in cautions(view)
    ]


def markdown_table(table: Table) -> str:
    """Write a table in Markdown."""
    right = ["---:" if head in table.right else "---" for head in table.heads]
    lines = [table.heads, right, *table.rows]
    return "\n".join(f"| {' | '.join(_escaped(cell) for cell in line)} |" for line in lines)


def _titled(table: Table) -> str:
    text = markdown_table(table)
    if len(table.rows) <= _SHOWN_ROWS:
        return f"**{table.title}**\n\n{text}"
    summary = f"{table.title} ({formatting.plural(len(table.rows), 'row')})"
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _origin(view: View) -> str:
    header = view.headers[0]
    versions = header.provenance.get("versions") or {}
    facts = [f"peagle-sm {versions['peagle-sm']}"] if "peagle-sm" in versions else []
    facts += [f"run {each.run_id} (`{each.command}`)" for each in view.headers]
    if date := str(header.provenance.get("date", ""))[:10]:
        facts.append(date)
    if revision := header.provenance.get("git_revision"):
        facts.append(str(revision)[:12])
    facts.append(trust(view))
    return f"<sub>{_escaped(' · '.join(fact for fact in facts if fact))}</sub>"
