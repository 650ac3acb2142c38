"""docs/explanation/guard.svg: three small charts, drawn by hand in SVG, readable on light and dark paper."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

from tests.guard.simulator.judging.tally import Tally, quantile

EDGE = -45  #: where the picture begins: the longest rule's name ends at LEFT
WIDTH = 980
ROW = 30
LEFT = 250
SPAN = 520  #: of the longest bar
STYLE = """
  :root { color-scheme: light dark; }
  .paper { fill: #ffffff; }
  text { font: 15.5px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #24292f; }
  .title { font-size: 17px; font-weight: 600; }
  .small { font-size: 15.5px; fill: #57606a; }
  .axis { stroke: #8c959f; stroke-width: 1; }
  .bound { stroke: #24292f; stroke-width: 1.5; stroke-dasharray: 4 3; }
  .flight { fill: #b42318; }
  .return { fill: #e9967a; }
  .money { fill: #2563a8; }
  .whisker { stroke: #24292f; stroke-width: 1.5; }
  .ours { fill: #2f7d4f; }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117; }
    text { fill: #e6edf3; }
    .small { fill: #9aa4ae; }
    .bound, .whisker { stroke: #e6edf3; }
    .flight { fill: #ff7b72; }
    .return { fill: #d9a38f; }
    .money { fill: #6cb6ff; }
    .ours { fill: #56d39a; }
  }
"""


def draw(tally: Tally, rules: list[str], guard: str) -> str:
    """Return the picture as an SVG document; ``rules`` in the order from top to bottom."""
    parts = [*_killed(tally, rules, top=20)]
    second = 20 + 70 + ROW * len(rules)
    parts += _wasted(tally, rules, top=second)
    third = second + 70 + ROW * len(rules)
    parts += _above(tally.rules[guard].excess, top=third)
    height = third + 250
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{EDGE} 0 {WIDTH} {height}" '
        f'width="{WIDTH}" role="img" aria-label="The guard and published rules, simulated">'
    )
    body = "\n".join(parts)
    paper = f'<rect class="paper" x="{EDGE}" width="{WIDTH}" height="{height}"/>'
    return f"{head}\n<style>{STYLE}</style>\n{paper}\n{body}\n</svg>\n"


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    cls = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{cls}>{escape(words)}</text>'


def _bar(x: float, y: float, width: float, kind: str, height: float = 16) -> str:
    size = f'width="{max(width, 0):.1f}" height="{height:.1f}"'
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" {size} rx="2"/>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _killed(tally: Tally, rules: list[str], top: float) -> Iterable[str]:
    top_share = max([0.1, *(_both(tally, rule) for rule in rules)])
    yield _text(20, top + 10, "Turned off although somebody used it, in % of all endpoints", "title")
    yield _text(
        20, top + 30, "dark: a request was in flight; light: traffic came back within the grace", "small"
    )
    for row, rule in enumerate(rules):
        y = top + 46 + ROW * row
        group = tally.rules[rule]
        flight, back = group.share("in_flight"), group.share("before_return")
        yield _text(LEFT - 12, y + 13, rule, anchor="end")
        yield _bar(LEFT, y, SPAN * flight / top_share, "flight")
        yield _bar(LEFT + SPAN * flight / top_share, y, SPAN * back / top_share, "return")
        words = "0" if flight + back == 0 else f"{100 * flight:.1f}% + {100 * back:.1f}%"
        yield _text(LEFT + SPAN * (flight + back) / top_share + 8, y + 13, words)
    yield _line(LEFT, top + 42, LEFT, top + 46 + ROW * len(rules), "axis")


def _both(tally: Tally, rule: str) -> float:
    group = tally.rules[rule]
    return group.share("in_flight") + group.share("before_return")


def _wasted(tally: Tally, rules: list[str], top: float) -> Iterable[str]:
    highest = max([1.0, *(quantile(tally.rules[rule].usd, 0.95) for rule in rules)])
    yield _text(
        20, top + 10, "Paid after the last request, in USD for each endpoint at 100 USD an hour", "title"
    )
    yield _text(20, top + 30, "bar: median of the worlds; line: 95 of 100 stay below", "small")
    for row, rule in enumerate(rules):
        y = top + 46 + ROW * row
        usd = tally.rules[rule].usd
        middle, high = quantile(usd, 0.5), quantile(usd, 0.95)
        yield _text(LEFT - 12, y + 13, rule, anchor="end")
        yield _bar(LEFT, y, SPAN * middle / highest, "money")
        yield _line(LEFT, y + 8, LEFT + SPAN * high / highest, y + 8, "whisker")
        yield _text(LEFT + SPAN * high / highest + 8, y + 13, f"{middle:,.0f} (95%: {high:,.0f})")
    yield _line(LEFT, top + 42, LEFT, top + 46 + ROW * len(rules), "axis")


def _above(excess: list[float], top: float) -> Iterable[str]:
    """How long the guard's endpoints stayed quiet above idle plus grace, where everything worked."""
    first, last, base = -1, 11, top + 190
    width = SPAN / (last - first)
    counts = [0] * (last - first)
    for minutes in excess:
        counts[min(max(int(minutes // 1) - first, 0), last - first - 1)] += 1
    highest = max([1, *counts])
    yield _text(
        20, top + 10, "The guard where everything works: minutes of quiet above idle plus grace", "title"
    )
    yield _text(
        20,
        top + 30,
        f"{len(excess):,} endpoints turned off for idleness; dashed: the promise, two sweeps",
        "small",
    )
    for index, count in enumerate(counts):
        height = 130 * count / highest
        x = LEFT + index * width
        yield _bar(x + 1, base - height, width - 2, "ours", height)
        if (first + index) % 2 == 0:
            yield _text(x, base + 18, str(first + index), "small", "middle")
    yield _line(LEFT, base, LEFT + width * (last - first), base, "axis")
    bound = LEFT + (10 - first) * width
    yield _line(bound, top + 44, bound, base, "bound")
    yield _text(bound + 6, top + 56, "10 minutes", "small")
