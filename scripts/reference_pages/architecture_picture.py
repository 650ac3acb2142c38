"""Drawing of the architecture: packages as boxes, imports as arrows."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Box:
    """A package: its place in pixels, its name and one line on what it does."""

    x: int
    y: int
    width: int
    name: str
    words: str
    kind: str = "part"


HEIGHT = 52
BOXES = {
    "cli": Box(20, 44, 440, "cli", "parse, call, render"),
    "service": Box(20, 132, 210, "service", "use cases: deploy, delete, …"),
    "measure": Box(250, 132, 210, "measure", "workloads, load, statistics"),
    "traffic": Box(20, 220, 440, "traffic", "recorded requests: redact, write, read back"),
    "aws": Box(20, 308, 440, "aws", "boto3 adapters, streams, preflight readers"),
    "core": Box(20, 396, 440, "core", "spec, catalogue, plan, checks, cost, errors; pure"),
    "local": Box(530, 308, 210, "sagemaker_local", "a SageMaker on this machine", "own"),
    "stacks": Box(530, 396, 210, "stacks", "CDK app; the guard's Lambdas", "own"),
    "container": Box(530, 220, 210, "container", "the image: vLLM, gate, plugins", "own"),
    "tools": Box(20, 498, 720, "scripts, tests", "for work on peagle-sm; they may import everything", "tool"),
}
ARROWS = [
    (125, 96, 125, 132, ""),
    (355, 96, 355, 132, ""),
    (250, 158, 230, 158, ""),
    (125, 184, 125, 220, ""),
    (355, 184, 355, 220, ""),
    (240, 272, 240, 308, ""),
    (240, 360, 240, 396, ""),
    (460, 334, 530, 334, "1 module"),
    (530, 422, 460, 422, ""),
    (635, 308, 635, 272, "runs"),
]
_ALT = (
    "Imports go down: cli, then service and measure, then traffic, then aws, then core;"
    " sagemaker_local, stacks and container are packages of their own"
)
_STYLE = """\
text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #57606a }
.name { font-weight: 600; font-size: 14px; fill: #24292f } .card { fill: #ffffff; stroke: #d0d7de }
.part { fill: #e8eefb; stroke: #7c9cd6 } .own { fill: #eaf5ee; stroke: #6fae88 }
.tool { fill: #f6f8fa; stroke: #afb8c1 }
.frame { fill: none; stroke: #7c9cd6; stroke-dasharray: 4 3 } .line { stroke: #57606a; stroke-width: 1.5 }
.tip { fill: #57606a }
@media (prefers-color-scheme: dark) {
  text { fill: #9198a1 } .name { fill: #e6edf3 } .card { fill: #161b22; stroke: #30363d }
  .part { fill: #1c2a45; stroke: #5d7fc4 } .own { fill: #1a3024; stroke: #4d8a66 }
  .tool { fill: #21262d; stroke: #6e7681 }
  .frame { stroke: #5d7fc4 } .line { stroke: #9198a1 } .tip { fill: #9198a1 }
}"""


def architecture_picture() -> str:
    """Return the SVG."""
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 570" width="760" role="img"'
        f' aria-label="{_ALT}">',
        f"<style>\n{_STYLE}\n</style>",
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>',
        '<rect class="card" x="0.5" y="0.5" width="759" height="569" rx="8"/>',
        '<rect class="frame" x="10" y="10" width="460" height="450" rx="8"/>',
        '<text x="20" y="30">peagle_sm, the product: an arrow is an import, and imports go down only</text>',
        '<text x="530" y="30">packages of their own</text>',
    ]
    parts += [
        f'<line class="line" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" marker-end="url(#tip)"/>'
        for x1, y1, x2, y2, _ in ARROWS
    ]
    parts += [
        f'<text x="{(x1 + x2) // 2 + (8 if x1 == x2 else 0)}" y="{(y1 + y2) // 2 + (4 if x1 == x2 else -8)}"'
        f' text-anchor="{"start" if x1 == x2 else "middle"}">{words}</text>'
        for x1, y1, x2, y2, words in ARROWS
        if words
    ]
    for box in BOXES.values():
        parts += [
            f'<rect class="{box.kind}" x="{box.x}" y="{box.y}" width="{box.width}" height="{HEIGHT}"'
            ' rx="6"/>',
            f'<text class="name" x="{box.x + 12}" y="{box.y + 22}">{escape(box.name)}</text>',
            f'<text x="{box.x + 12}" y="{box.y + 41}">{escape(box.words)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
