"""Report as one self-contained HTML file with style, charts and tables. Pure.

This module collects what the page says; the template ``page.html`` says where.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peagle_bench.report import modes, performance, slices, speed_up, trust, tuning
from peagle_bench.report.blocks import Section, page_tables
from peagle_bench.report.merging import parts_of
from peagle_bench.report.rendering import render
from peagle_bench.report.tiles import Tile, tiles
from peagle_bench.report.verdict import Verdict, verdict, workload_name
from peagle_bench.report.view import Caution, View, cautions
from peagle_bench.results.result_file import Results


@dataclass(frozen=True)
class Run:
    """What the page says of one run, from its cautions to its provenance; ``title`` is its link's."""

    title: str
    cautions: tuple[Caution, ...]
    about: str
    verdict: Verdict
    headline: tuple[str, str, str]  #: before the emphasised figure, it, and the rest
    tiles: tuple[Tile, ...]
    sections: list[Section]


def html_page(files: Sequence[Results], *, title: str | None = None) -> str:
    """The page; ``title`` goes before the run's own description.

    Raises:
        SpecError: no file, or figures of different targets.
    """
    parts = parts_of(files)
    name = title or "P-EAGLE report"
    alone = len(parts) == 1
    mark = f" ({parts[0].view.watermark})" if parts[0].view.watermark else ""
    runs = [_run(part.view, name if alone else part.name, part.title) for part in parts]
    return render(
        "page.html",
        title=f"{runs[0].verdict.headline if alone else f'{len(parts)} runs'} · {name}{mark}",
        name=name,
        runs=runs,
    )


def decision_page(name: str, outcome: Verdict, section: Section, files: Sequence[Results] = ()) -> str:
    """The page of a decision: its own section first, then those of the measurement that it uses, if any.

    Raises:
        SpecError: figures of different targets.
    """
    view = parts_of(files)[0].view if files else None
    run = Run(
        title=name,
        cautions=() if view is None else cautions(view),
        about=" · ".join([name, *([] if view is None else _about(view))]),
        verdict=outcome,
        headline=(outcome.headline, "", ""),
        tiles=(),
        sections=[section, *([] if view is None else _sections(view))],
    )
    return render("page.html", title=f"{outcome.headline} · {name}", name=name, runs=[run])


def _run(view: View, name: str, title: str) -> Run:
    result = verdict(view)
    return Run(
        title=title,
        cautions=cautions(view),
        about=" · ".join([name, *_about(view)]),
        verdict=result,
        headline=result.headline.partition(result.figure) if result.figure else (result.headline, "", ""),
        tiles=tiles(view),
        sections=_sections(view),
    )


def _sections(view: View) -> list[Section]:
    sections = (
        _modes(view),
        speed_up.speed_ups(view),
        performance.throughput(view),
        performance.latency(view),
        performance.acceptance(view),
        trust.scorecard(view),
        slices.by_slice(view),
        tuning.best_k(view),
        tuning.step_times(view),
        performance.money(view),
        trust.proof(view),
        trust.quality(view),
        trust.origin(view),
    )
    return [section for section in sections if section is not None]


def _modes(view: View) -> Section | None:
    table = modes.modes(view)
    if table is None:
        return None
    lead = "Ratios with 95% intervals; same: answers identical to those without speculation."
    return Section("modes", "Each mode", lead, page_tables(table))


def _about(view: View) -> list[str]:
    facts = [workload_name(view)]
    facts.append(_machines(view))
    dates = sorted({str(header.provenance.get("date", ""))[:10] for header in view.headers} - {""})
    facts.append(" to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else None)
    return [fact for fact in facts if fact]


def _machines(view: View) -> str | None:
    """The instance types; where nothing bills, the machine that ran it all."""
    billed = {arm.instance_type for arm in view.arms if arm.instance_type and arm.usd_per_hour != 0}
    if billed:
        return ", ".join(sorted(billed))
    if all(arm.usd_per_hour != 0 for arm in view.arms):
        return None
    machines = [header.provenance.get("machine") for header in view.headers]
    local = {
        f"{machine['cores']} cores of {machine['processor']}"
        for machine in machines
        if isinstance(machine, dict) and {"cores", "processor"} <= machine.keys()
    }
    return ", ".join(sorted(local))
