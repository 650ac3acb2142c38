"""A report and a cost sheet as a terminal shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from peagle_sm.cli.table import render_table

if TYPE_CHECKING:
    from peagle_sm.measure.report.parts import Part
    from peagle_sm.measure.report.rows import Rows
    from peagle_sm.measure.report.view import View


def render_reports(parts: Sequence[Part]) -> str:
    """One run's report, or those of several under their names."""
    if len(parts) == 1:
        return render_report(parts[0].view)
    blocks = [f"{part.title}\n{'=' * len(part.title)}\n{render_report(part.view)}" for part in parts]
    return "\n\n\n".join([*blocks, "Compare modes within one run only."])


def render_report(view: View) -> str:
    """The verdict with how far it reaches, then every table that has rows."""
    from peagle_sm.measure.report import rows
    from peagle_sm.measure.report.proof import trust
    from peagle_sm.measure.report.verdict import checked, verdict
    from peagle_sm.measure.withholding import doubt_lines

    said = verdict(view)
    first = [*caution_lines(view), said.headline]
    first += [f"  {line}" for line in (said.second, "; ".join(said.limits)) if line]
    blocks = ["\n".join(first)]
    measured = rows.ratios(view), rows.points(view), rows.best_k(view), rows.rates(view)
    for table in (*measured, rows.checks(view, power=False)):
        if table is not None:
            blocks.append(render_rows(table))
    if view.checks:
        blocks.append(checked(view.checks))
    if told := trust(view):
        blocks.append("\n".join([told, *(f"note: {line}" for line in doubt_lines(view.points))]))
    return "\n\n".join(blocks)


def caution_lines(view: View) -> list[str]:
    """What must be read before any figure."""
    from peagle_sm.measure.report.cautions import cautions

    return [f"{one.name.upper()}. {one.text}" for one in cautions(view)]


def render_rows(table: Rows) -> str:
    """Aligned columns, figures to the right."""
    return render_table(table.heads, table.rows, right=table.figures)
