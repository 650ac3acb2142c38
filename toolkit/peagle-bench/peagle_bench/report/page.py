"""Report as one self-contained HTML file with style, charts, tables and data. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from typing import Any, TypeGuard

from peagle_bench.report import performance, speed_up, trust
from peagle_bench.report.files import embed
from peagle_bench.report.merging import Part, parts_of
from peagle_bench.report.section import Section, section
from peagle_bench.report.slices.drawing import by_slice
from peagle_bench.report.verdict import Tile, Verdict, tiles, verdict, workload_name
from peagle_bench.report.view import View, cautions
from peagle_bench.results.result_file import Results
from peagle_sm.core.display import Safe, join, tag

#: The only script: it saves the data as files. Without scripts the page lacks only this button.
_SAVE = """
const button = document.getElementById("save");
button.hidden = false;
button.onclick = () => {
  for (const block of document.querySelectorAll('script[type="application/x-ndjson"]')) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([block.textContent.trimStart()], {type: block.type}));
    link.download = block.id + ".jsonl";
    link.click();
    URL.revokeObjectURL(link.href);
  }
};
"""


def html_page(files: Sequence[Results], *, title: str | None = None) -> str:
    """The page; ``title`` goes before the run's own description.

    Raises:
        SpecError: no file, or stand-in weights beside real ones.
    """
    parts = parts_of(files)
    name = title or "P-EAGLE report"
    first = parts[0].view
    marked = f"{name} ({first.watermark})" if first.watermark else name
    headline = verdict(first).headline if len(parts) == 1 else f"{len(parts)} runs"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content="peagle-sm report"),
        tag("title", f"{headline} · {marked}"),
        tag("style", Safe(_style())),
    )
    shown = _run(first, name) if len(parts) == 1 else join(_overview(parts, name), *_each_run(parts))
    body = tag("body", Safe(_unbroken(str(shown))), embed(files), tag("script", Safe(_SAVE)))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _run(view: View, name: str) -> Safe:
    """Make the part of one run, from its cautions to its provenance."""
    sections = _sections(view)
    return join(
        _banner(view),
        tag("header", *_opening(view, verdict(view), name)),
        tag("nav", *(tag("a", one.title, href=f"#{one.id}") for one in sections), aria_label="Sections"),
        tag("main", *(section(one) for one in sections)),
    )


def _overview(parts: Sequence[Part], name: str) -> Safe:
    """List the runs with their headlines; runs must not be compared with each other."""
    rows = [
        tag("li", tag("a", part.title, href=f"#run-{number}"), " ", verdict(part.view).headline)
        for number, part in enumerate(parts, start=1)
    ]
    return tag(
        "header",
        tag("p", name, class_="over"),
        tag("h1", f"{len(parts)} runs"),
        tag("p", "Each run has its own part below. Compare modes only within one run.", class_="second"),
        tag("ol", *rows, class_="runs"),
    )


def _each_run(parts: Sequence[Part]) -> list[Safe]:
    return [
        tag("article", Safe(_own_ids(str(_run(part.view, part.name)), f"run-{number}")), id=f"run-{number}")
        for number, part in enumerate(parts, start=1)
    ]


def _own_ids(markup: str, prefix: str) -> str:
    """Add the run's prefix to every id in its markup and to every reference."""
    markup = re.sub(r'( id="|href="#)', rf"\1{prefix}-", markup)
    return re.sub(
        r' aria-labelledby="([^"]*)"',
        lambda found: f' aria-labelledby="{" ".join(f"{prefix}-{one}" for one in found[1].split())}"',
        markup,
    )


def _unbroken(markup: str) -> str:
    """Use non-breaking hyphens in the modes' names in text; attributes stay unchanged."""
    return re.sub(
        r"(<[^>]*>)|P-EAGLE|EAGLE-3",
        lambda found: found[1] or found[0].replace("-", "\N{NON-BREAKING HYPHEN}"),
        markup,
    )


def _style() -> str:
    return resources.files("peagle_bench.report").joinpath("page.css").read_text(encoding="utf-8")


def _sections(view: View) -> list[Section]:
    found = (
        speed_up.speed_ups(view),
        performance.throughput(view),
        performance.latency(view),
        performance.acceptance(view),
        trust.scorecard(view),
        by_slice(view),
        performance.by_load(view),
        performance.curve(view),
        performance.money(view),
        trust.proof(view),
        trust.quality(view),
        trust.origin(view),
    )
    return [one for one in found if one is not None]


def _banner(view: View) -> Safe | None:
    """Make the banner with the cautions."""
    found = cautions(view)
    parts = [tag("p", tag("strong", f"{one.name}. "), one.text, class_=one.kind) for one in found]
    return tag("div", *parts, class_="banner", role="note") if parts else None


def _opening(view: View, said: Verdict, name: str) -> list[Safe | None]:
    shown = tiles(view)
    return [
        tag("p", " · ".join([name, *_about(view)]), class_="over"),
        tag("h1", _stressed(said)),
        tag("p", said.second, class_="second") if said.second else None,
        tag("p", " · ".join(said.limits), class_="limits") if said.limits else None,
        tag("div", *(_tile(tile) for tile in shown), class_="tiles") if shown else None,
    ]


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
    told = [header.provenance.get("machine") for header in view.headers]
    local = {f"{one['cores']} cores of {one['processor']}" for one in told if _is_told(one)}
    return ", ".join(sorted(local)) if any(arm.usd_per_hour == 0 for arm in view.arms) else None


def _is_told(machine: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(machine, dict) and {"cores", "processor"} <= machine.keys()


def _stressed(said: Verdict) -> Safe:
    """Format the headline with its figure emphasised and its interval lighter."""
    before, figure, after = said.headline.partition(said.figure) if said.figure else (said.headline, "", "")
    span, closed, rest = after.partition("]")
    if closed and " [" in span:
        text, _, bounds = span.partition("[")
        tail = join(text, tag("span", f"[{bounds}]", class_="span"), rest)
    else:
        tail = join(after)
    return join(before, tag("em", figure, class_="gain" if said.gain else None) if figure else None, tail)


def _tile(tile: Tile) -> Safe:
    return tag(
        "div",
        tag("p", tile.figure, class_="figure"),
        tag("p", tile.name, class_="name"),
        tag("p", tile.detail, class_="detail"),
        class_=f"tile {tile.tone}".strip(),
    )
