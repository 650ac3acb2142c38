"""The report for a pull request: the verdict, the tables, the rest folded. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from peagle_sm.measure.report import rows, words
from peagle_sm.measure.report.cautions import cautions
from peagle_sm.measure.report.parts import parts_of
from peagle_sm.measure.report.proof import trust
from peagle_sm.measure.report.rows import Rows
from peagle_sm.measure.report.verdict import checked, verdict
from peagle_sm.measure.report.view import View
from peagle_sm.measure.result_file import Results
from peagle_sm.measure.withholding import doubt_lines

#: Longer tables are folded: a pull request is read from the top.
_SHOWN_ROWS = 12


def markdown(files: Sequence[Results], *, title: str | None = None) -> str:
    """GitHub's Markdown.

    Raises:
        SpecError: no file, or stand-in weights beside real ones.
    """
    parts = parts_of(files)
    heading = title or "P-EAGLE report"
    if len(parts) == 1:
        return _run(parts[0].view, f"### {heading}")
    about = f"{len(parts)} runs. Compare modes within one run only."
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
    parts += [
        text
        for text in (
            _table("Speed-up", rows.ratios(view)),
            _table("Measured", rows.points(view)),
            _table("Best K", rows.best_k(view)),
            _table("The rate at each K", rows.rates(view)),
            _table(checked(view.checks) if view.checks else "", rows.checks(view)),
        )
        if text
    ]
    parts += [_escaped(f"Note: {line}.") for line in (*doubt_lines(view.points), *view.empty)]
    parts.append(_origin(view))
    return "\n\n".join(parts) + "\n"


def _cautions(view: View) -> list[str]:
    level = {"wrong": "CAUTION", "not-real": "WARNING"}
    return [
        f"> [!{level[one.kind]}]\n> **{_escaped(one.name)}.** {_escaped(one.text)}" for one in cautions(view)
    ]


def _table(title: str, table: Rows | None) -> str:
    if table is None:
        return ""
    right = ["---:" if head in table.figures else "---" for head in table.heads]
    lines = [table.heads, right, *table.rows]
    text = "\n".join(f"| {' | '.join(_escaped(cell) for cell in line)} |" for line in lines)
    if len(table.rows) <= _SHOWN_ROWS:
        return f"**{title}**\n\n{text}"
    summary = f"{title} ({words.plural(len(table.rows), 'row')})"
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
