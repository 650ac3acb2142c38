"""The picture of the quickstart in the README, drawn from the figures in docs/how-to/measure.md. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

from scripts.bench.quickstart_page import BEGIN, END

#: The rate, whatever latencies, and the acceptance length.
_POINT = re.compile(r"^\| c=1 \| ([\w -]+) \| ([\d,.]+) \|(?:.+ \|)? ([\d.]*)\W* \|$", re.MULTILINE)
_RATIO = re.compile(r"^\| ([\w-]+) \| no speculation \| c=1 \| ([\d.]+)x \| (\[[^\]]+\])", re.MULTILINE)
_SETTING = re.compile(r"95% interval over (\d+) prompts; ([\w, ]+); temperature (\d)")
_RUN = re.compile(r"(peagle-sm [\d.]+) · run quickstart-(\d{4}-\d\d-\d\d)")
_WIDTH, _LEFT, _BAR, _TOP, _ROW = 760, 130, 300, 62, 44
_STYLE = """\
text { font: 14px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #24292f }
.card { fill: #ffffff; stroke: #d0d7de } .title { font-weight: 600; font-size: 16px }
.head, .note { font-size: 12px; fill: #57606a }
.plain { fill: #afb8c1 } .tree { fill: #7c9cd6 } .best { fill: #3056b4 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .card { fill: #161b22; stroke: #30363d } .head, .note { fill: #9198a1 }
  .plain { fill: #6e7681 } .tree { fill: #5d7fc4 } .best { fill: #8fb0ff }
}"""


@dataclass(frozen=True)
class _Mode:
    name: str
    otps: int
    accepted: str
    over_plain: str


def picture(page: str) -> str:
    """Return an SVG of the three modes' speed and acceptance.

    Raises:
        ValueError: the page lacks the figures of a quickstart.
    """
    shown = page.partition(BEGIN)[2].partition(END)[0]
    ratios = {name: f"{ratio}x {interval}" for name, ratio, interval in _RATIO.findall(shown)}
    modes = [
        _Mode(name, round(float(otps.replace(",", ""))), accepted, ratios.get(name, ""))
        for name, otps, accepted in _POINT.findall(shown)
    ]
    setting, run = _SETTING.search(shown), _RUN.search(shown)
    if len(modes) != 3 or len(ratios) < 2 or not setting or not run:
        raise ValueError("docs/how-to/measure.md lacks the figures of a quickstart; run scripts/measure-page")
    notes = (
        "SmolLM2-135M-Instruct on a CPU, one deployment: this says nothing about a large model on a GPU.",
        f"{setting[2]}, {setting[1]} prompts, temperature {setting[3]}, one request at a time. [ ]: 95%"
        " confidence interval over the prompts.",
        f"{run[1]}, run of {run[2]}. Source: docs/how-to/measure.md.",
    )
    return _drawn(modes, notes)


def _drawn(modes: list[_Mode], notes: tuple[str, ...]) -> str:
    end = _TOP + _ROW * len(modes)
    height = end + 18 * len(notes) + 14
    fastest = max(mode.otps for mode in modes)
    rates = ", ".join(f"{mode.name} {mode.otps} tokens per second" for mode in modes)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img"'
        f' aria-label="{escape(rates)}">',
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="8"/>',
        _text(20, 28, "SmolLM2-135M-Instruct on two cores: three modes of one model", "title"),
        _text(_LEFT, 52, "output tokens per second", "head"),
        _text(_LEFT + _BAR + 56, 52, "vs. no speculation", "head"),
        _text(_WIDTH - 20, 52, "acceptance length", "head", "end"),
    ]
    for index, (mode, colour) in enumerate(zip(modes, ("plain", "tree", "best"), strict=True)):
        top, middle = _TOP + _ROW * index, _TOP + _ROW * index + 25
        width = round(_BAR * mode.otps / fastest)
        parts += [
            _text(20, middle, mode.name),
            f'<rect class="{colour}" x="{_LEFT}" y="{top + 6}" width="{width}" height="28" rx="3"/>',
            _text(_LEFT + width + 8, middle, str(mode.otps)),
            _text(_LEFT + _BAR + 56, middle, mode.over_plain),
            _text(_WIDTH - 20, middle, mode.accepted or "-", anchor="end"),
        ]
    parts += [_text(20, end + 20 + 18 * index, note, "note") for index, note in enumerate(notes)]
    return "\n".join([*parts, "</svg>", ""])


def _text(x: int, y: int, words: str, kind: str = "", anchor: str = "") -> str:
    attributes = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x}" y="{y}"{attributes}>{escape(words)}</text>'
