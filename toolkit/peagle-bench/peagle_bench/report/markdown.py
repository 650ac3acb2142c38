"""The report as GitHub's Markdown, for a pull request. Pure.

The headline and the main tables come first; long tables are collapsed.
"""

from __future__ import annotations

from collections.abc import Sequence

from peagle_bench.load.points import doubt_lines
from peagle_bench.report import formatting
from peagle_bench.report.merging import parts_of
from peagle_bench.report.tables import tables_of
from peagle_bench.report.trust import trust
from peagle_bench.report.verdict import verdict
from peagle_bench.report.view import View, cautions
from peagle_bench.results.result_file import Results
from peagle_sm.core.display import Table

#: Longer tables are collapsed.
_SHOWN_ROWS = 12


def markdown(files: Sequence[Results], *, title: str | None = None) -> str:
    """Write the report in GitHub's Markdown.

    Raises:
        SpecError: no file, or figures of different targets.
    """
    parts = parts_of(files)
    heading = title or "P-EAGLE report"
    if len(parts) == 1:
        return _run(parts[0].view, f"### {heading}")
    about = f"{len(parts)} runs. Compare modes only within one run."
    return "\n\n".join([f"### {heading}", about, *(_run(part.view, f"#### {part.title}") for part in parts)])


def _run(view: View, heading: str) -> str:
    result = verdict(view)
    headline = _escaped(result.headline)
    if result.figure:
        headline = headline.replace(result.figure, f"**{result.figure}**", 1)
    parts = [heading, *_cautions(view), headline]
    if result.second:
        parts.append(result.second)
    if result.limits:
        parts.append(f"_{_escaped('; '.join(result.limits))}_")
    parts += [_titled(table) for table in tables_of(view, power=True)]
    parts += [_escaped(f"Note: {line}.") for line in (*doubt_lines(view.points), *view.empty)]
    parts.append(_origin(view))
    return "\n\n".join(parts) + "\n"


def _cautions(view: View) -> list[str]:
    level = {"wrong": "CAUTION", "not-real": "WARNING"}
    return [
        f"> [!{level[caution.kind]}]\n> **{_escaped(caution.name)}.** {_escaped(caution.text)}"
        for caution in cautions(view)
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
