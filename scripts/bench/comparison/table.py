"""A report as text: fixed columns for a terminal, Markdown for a page; pure."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.bench.comparison.stats import Ratio
from scripts.bench.comparison.summary import ArmSummary, Report

#: Two lines each in a terminal, one in Markdown.
_HEADINGS = (
    ("mode", ""),
    ("K", ""),
    ("OTPS", ""),
    ("acceptance", "length"),
    ("target steps", "/1k tokens"),
    ("draft passes", "/1k tokens"),
    ("vs none", "[95% interval]"),
    ("vs eagle3", "[95% interval]"),
    ("distinct", "4-grams"),
)


#: What the intervals are of: another deployment of the same may differ by some percent.
REACH = "95% intervals over the prompts of this deployment only"


def ratio_text(ratio: Ratio | None) -> str:
    """``1.23x [1.10, 1.36]``; ``not shown [0.95, 1.08]`` where the interval includes 1; ``-`` for none."""
    if ratio is None:
        return "-"
    interval = f"[{ratio.low:.2f}, {ratio.high:.2f}]"
    return f"{ratio.value:.2f}x {interval}" if ratio.shown else f"not shown {interval}"


def _row(arm: ArmSummary, report: Report) -> tuple[str, ...]:
    length = arm.acceptance_length
    return (
        arm.mode,
        str(arm.num_speculative_tokens or "-"),
        f"{arm.otps:.0f}",
        "unknown" if length is None else f"{length:.2f}",
        f"{arm.target_steps_per_1000_tokens:.0f}",
        f"{arm.draft_passes_per_1000_tokens:.0f}",
        ratio_text(_against(arm, "none", report)),
        ratio_text(_against(arm, "eagle3", report)),
        f"{arm.distinct_4_grams:.2f}",
    )


def _against(arm: ArmSummary, mode: str, report: Report) -> Ratio | None:
    names = [base.arm for base in report.arms if base.mode == mode]
    found = [ratio for name, ratio in report.speed_ups[arm.arm].items() if name in names]
    return found[0] if len(found) == 1 else None


def identity_text(report: Report) -> str:
    """Whether the arms agree, and by what that was compared."""
    if report.identical_outputs:
        count = report.prompts
        return f"identical outputs: yes, {count} of {count} prompts (by {report.identity_by})"
    same = report.prompts - len(report.differing)
    shown = ", ".join(report.differing[:5])
    return (
        f"identical outputs: NO, {same} of {report.prompts} prompts (by {report.identity_by});"
        f" different on {shown}"
    )


def plain(report: Report, load: Sequence[float] | None = None) -> str:
    """The report for a terminal. ``load`` is the 1-minute load average before and after."""
    head = list(zip(*_HEADINGS, strict=True))
    body = [_row(arm, report) for arm in report.arms]
    widths = [max(map(len, column)) for column in zip(*head, *body, strict=True)]
    rule = tuple("-" * width for width in widths)
    lines = [
        report.title,
        *(_line(row, widths) for row in (*head, rule, *body)),
        identity_text(report),
        REACH,
    ]
    if load is not None:
        lines.append(load_text(load))
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """The first column to the left, the figures to the right."""
    first, *figures = zip(cells, widths, strict=True)
    padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in figures)]
    return "  ".join(padded).rstrip()


def load_text(load: Sequence[float]) -> str:
    """The machine's load beside the figures: what else ran makes them smaller."""
    return "load average (1 min), from before to after: " + " -> ".join(f"{value:.2f}" for value in load)


def markdown(report: Report, *, with_title: bool = True) -> str:
    """The report as a Markdown table, followed by what it says about outputs."""
    head = [" ".join(words).rstrip() for words in _HEADINGS]
    body = [_row(arm, report) for arm in report.arms]
    lines = [f"**{report.title}**", ""] if with_title else []
    lines.append("| " + " | ".join(head) + " |")
    lines.append("|---|" + "---:|" * (len(head) - 1))
    lines += ["| " + " | ".join(row) + " |" for row in body]
    said = identity_text(report)
    lines += ["", f"{said[0].upper()}{said[1:]}. {REACH}."]
    return "\n".join(lines)
