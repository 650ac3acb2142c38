"""Report section on speed-up: every comparison with its confidence interval and factors. Pure.

The intervals are drawn as cells of the table, all on one logarithmic axis with 1 marked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from peagle_bench.report import formatting
from peagle_bench.report.charts import Scale, nice_ticks, ratio_ticks
from peagle_bench.report.formatting import Look, marker
from peagle_bench.report.merging import are_alike
from peagle_bench.report.section import Section, arm_cell, folded, table
from peagle_bench.report.verdict import chief
from peagle_bench.report.view import View, load_value
from peagle_bench.results.records import ComparisonRecord, Interval
from peagle_sm.core.display import Content, Safe, join, tag

_WIDTH, _HEIGHT, _PAD = 300.0, 26.0, 14.0
_LABEL = 28.0  # smallest distance of two labels


@dataclass(frozen=True)
class IntervalAxis:
    """Axis that the cells of a column share."""

    scale: Scale
    ticks: tuple[float, ...]

    @classmethod
    def of_shares(cls, intervals: Iterable[Interval]) -> IntervalAxis:
        """Make an axis for shares, which ends at 1."""
        low = min([0.9, *(each.low for each in intervals)])
        ticks = tuple(one for one in nice_ticks(low, 1.0, 4) if low <= one <= 1)
        return cls(Scale(low, 1.0, _PAD, _WIDTH - _PAD), ticks)

    @classmethod
    def over(cls, intervals: Iterable[Interval]) -> IntervalAxis:
        """Make an axis that includes every interval, and 1."""
        found = list(intervals)
        low = min([0.98, *(each.low for each in found)])
        high = max([1.02, *(each.high for each in found)])
        margin = (high / low) ** 0.04
        low, high = low / margin, high * margin
        ticks = tuple(ratio_ticks(low, high))
        return cls(Scale(low, high, _PAD, _WIDTH - _PAD, log=True), ticks)

    def head(self, title: str, sides: tuple[str, str] | None = None) -> Safe:
        """Draw the axis for the column's head; labels that would touch are left out, except 1.

        ``title``: what the axis shows; above it, ``sides``: what the intervals left and right of 1 mean.
        """
        shown: list[float] = []
        for tick in sorted(self.ticks, key=lambda tick: (tick != 1.0, tick)):
            if all(abs(self.scale(tick) - self.scale(other)) >= _LABEL for other in shown):
                shown.append(tick)
        labels = [self._label(tick, end=tick in (min(shown), max(shown))) for tick in shown]
        if self.scale.log:
            title += " (log)"
        title_text = tag("text", title, x=_WIDTH / 2, y=-4, class_="axis", text_anchor="middle")
        if sides is None:
            return _cell(title_text, *labels, above=20)
        words = [
            tag("text", f"\N{LEFTWARDS ARROW} {sides[0]}", x=2, y=-28, class_="side costs"),
            tag("text", f"{sides[1]} \N{RIGHTWARDS ARROW}", x=_WIDTH - 2, y=-28, class_="side helps last"),
        ]
        return _cell(*words, title_text, *labels, above=44)

    def _label(self, tick: float, *, end: bool) -> Safe:
        # On a phone only 1 and the ends are shown: the others would touch.
        kind = "tick one" if tick == 1 else "tick end" if end else "tick"
        return tag("text", formatting.axis(tick), x=self.scale(tick), y=20, class_=kind, text_anchor="middle")

    def cell(
        self, interval: Interval, look: Look, tone: str | None = None, *, doubtful: bool = False
    ) -> Safe:
        """Draw one interval with its value; the marker is hollow if it is ``doubtful`` or includes 1.

        ``doubtful``: there is no verdict, so the marker is hollow. ``tone`` (good, bad or open) gives it the
        colour of its result, and shades the two sides of 1.
        """
        low, high, x = (self.scale(v) for v in (interval.low, interval.high, interval.value))
        y = _HEIGHT / 2
        return _cell(
            *(self._sides() if tone else ()),
            *(self._rule(tick) for tick in self.ticks),
            tag(
                "g",
                tag("path", d=f"M{low:.1f} {y - 4}v8m0 -4H{high:.1f}m0 -4v8", class_="interval"),
                marker(look.shape, x, y, 4.2, hollow=doubtful or not interval.shown),
                class_=f"t-{tone}" if tone else look.classes,
            ),
        )

    def empty(self) -> Safe:
        """Draw the shaded sides without an interval."""
        return _cell(*self._sides(), *(self._rule(tick) for tick in self.ticks))

    def _sides(self) -> tuple[Safe, Safe]:
        x = self.scale(1.0)
        return (
            tag("rect", x=0, y=0, width=x, height=_HEIGHT, class_="costs"),
            tag("rect", x=x, y=0, width=_WIDTH - x, height=_HEIGHT, class_="helps"),
        )

    def _rule(self, tick: float) -> Safe:
        x = self.scale(tick)
        return tag("line", x1=x, x2=x, y1=0, y2=_HEIGHT, class_="one" if tick == 1 else "grid")


def _cell(*content: Safe, above: float = 0) -> Safe:
    return tag(
        "svg",
        *content,
        viewBox=f"0 {-above:g} {_WIDTH:g} {_HEIGHT + above:g}",
        class_=f"cell above-{above:g}" if above else "cell",
        aria_hidden="true",
    )


Column = tuple[Content, Callable[[ComparisonRecord], Content]]  #: a head, and its cell for a row
_OVER = {
    "prompts": "prompts",
    "conversations": "conversations",
    "blocks": "time blocks",
    "deployments": "deployments",
}


def speed_ups(view: View) -> Section | None:
    """Make the section with every comparison and its interval; controls last."""
    if not view.comparisons:
        return None
    groups = [list(rows) for _, rows in groupby(ordered(view), key=_pair)]
    if all(len(rows) == 1 for rows in groups):  # one table with the names of the arms
        body = [_ratios(view, ordered(view), "Speed-up of each pair", paired=True)]
    else:
        body = [_group(view, rows) for rows in groups]
    split = any(each.slices for _, each in view.files)  # then the section on slices has them
    categories = [] if split else [row for row in ordered(view) if row.categories]
    if categories:
        body.append(folded("By category of prompt", *(_categories(view, row) for row in categories)))
    return Section("speed-up", "Speed-up", _range(view), join(*body))


def _pair(row: ComparisonRecord) -> tuple[str, str]:
    return row.faster, row.slower


def ordered(view: View) -> list[ComparisonRecord]:
    """Sort comparisons: the headline's pair first, controls last, each pair by load."""
    first = chief(view)
    order = {arm.name: at for at, arm in enumerate(view.arms)}

    def key(row: ComparisonRecord) -> tuple[object, ...]:
        ahead = first is not None and _pair(row) == _pair(first)
        names = -order.get(row.faster, 0), -order.get(row.slower, 0)
        return row.control, not ahead, *names, row.load.kind, load_value(row.load)

    return sorted(view.comparisons, key=key)


def _group(view: View, rows: Sequence[ComparisonRecord]) -> Safe:
    first = rows[0]
    note = None
    if first.control:
        said = "The same arm twice: an interval that excludes 1 would mean a biased run."
        note = tag("p", said, class_="note")
    caption = f"{view.label(first.faster)} over {view.label(first.slower)}"
    return tag("div", tag("h3", _names(view, first)), note, _ratios(view, rows, caption), class_="group")


def _names(view: View, row: ComparisonRecord) -> Safe:
    return join(arm_cell(view, row.faster), tag("span", " over ", class_="over"), arm_cell(view, row.slower))


def _ratios(view: View, rows: Sequence[ComparisonRecord], caption: str, *, paired: bool = False) -> Safe:
    """Make a table of ratios on one axis; ``paired`` adds the names of each row's arms."""
    axis = IntervalAxis.over(row.ratio for row in rows)
    loads = {row.load for row in rows}
    if paired and len(loads) == 1:
        caption += f" at {rows[0].load.label}"
    # In the caption if it is the same in every row, to keep the table narrow.
    same_units = paired and len({_units(row) for row in rows}) == 1
    caption += f", over {_units(rows[0])}" if same_units else ""
    same_answers = paired and len({_alike(row) for row in rows}) == 1
    if same_answers and rows[0].compared_outputs:
        caption += f"; identical answers: {_alike(rows[0])}"
    left: list[Column] = [("arms", lambda row: _names(view, row))] if paired else []
    left += [("load", lambda row: row.load.label)] if not paired or len(loads) > 1 else []
    left += [("run", view.run_of)] if are_alike((*_pair(row), row.load) for row in rows) else []
    columns: list[Column] = [
        *left,
        ("speed-up", _figure),
        ("95% interval", lambda row: formatting.span(row.ratio)),
        (
            axis.head("speed-up"),
            lambda row: _drawn(view, axis, row, row.ratio),
        ),
    ]
    if any(row.acceptance_ratio or row.step_time_ratio for row in rows):
        columns += [
            ("from acceptance", lambda row: _factor(row.acceptance_ratio)),
            ("from step time", lambda row: _factor(row.step_time_ratio)),
        ]
    columns += [] if same_units else [("over", _units)]
    if not same_answers and any(row.compared_outputs for row in rows):
        columns.append(("identical answers", _alike))
    return table(
        [head for head, _ in columns],
        [[cell(row) for _, cell in columns] for row in rows],
        caption=caption,
        words=range(len(left)),
        titled=not paired,
    )


def _drawn(view: View, axis: IntervalAxis, row: ComparisonRecord, interval: Interval) -> Safe:
    return axis.cell(interval, view.look(row.faster), doubtful=row.doubt is not None)


def _factor(factor: Interval | None) -> str:
    return formatting.DASH if factor is None else formatting.with_span(factor)


def _units(row: ComparisonRecord) -> str:
    return f"{row.units} {_OVER.get(row.over, row.over)}"


def _alike(row: ComparisonRecord) -> str:
    return f"{row.identical_outputs} of {row.compared_outputs}" if row.compared_outputs else formatting.DASH


def _figure(row: ComparisonRecord) -> Safe:
    figure = formatting.ratio(row.ratio.value)
    if row.significant:
        return tag("strong", figure)
    reason = " not significant" if row.doubt is None else f" no verdict: {row.doubt}"
    return tag("span", figure, tag("small", reason), class_="muted")


def _categories(view: View, row: ComparisonRecord) -> Safe:
    axis = IntervalAxis.over(row.categories.values())
    ranked = sorted(row.categories.items(), key=lambda item: -item[1].value)
    body = [
        [
            name,
            formatting.ratio(found.value),
            formatting.span(found),
            _drawn(view, axis, row, found),
        ]
        for name, found in ranked
    ]
    caption = f"{view.label(row.faster)} over {view.label(row.slower)} at {row.load.label}, by category"
    caption += "" if row.doubt is None else f"; no verdict: {row.doubt}"
    return table(["category", "speed-up", "95% interval", axis.head("speed-up")], body, caption=caption)


def _range(view: View) -> str:
    first = chief(view)
    if first is None:
        return ""
    rows = [row for row in ordered(view) if _pair(row) == _pair(first)]
    significant = sum(row.significant for row in rows)
    names = f"{view.label(first.faster)} over {view.label(first.slower)}"
    if len(rows) == 1:
        doubt = "" if rows[0].doubt is None else f" (no verdict: {rows[0].doubt})"
        sentence = f"{names}: {formatting.with_span(rows[0].ratio)} at {rows[0].load.label}{doubt}."
    else:
        ends = (rows[0], rows[-1])
        sentence = f"{names}: " + " and ".join(
            f"{formatting.ratio(r.ratio.value)} at {r.load.label}" for r in ends
        )
        what = "comparisons" if are_alike(row.load for row in rows) else "loads"
        sentence += f"; significant at {significant} of {len(rows)} {what}."
    least = min(row.deployments for row in rows)
    reach = (
        "One deployment: the intervals do not cover other deployments."
        if least == 1
        else f"The intervals cover {least} deployments."
    )
    return f"{sentence} {reach}"
