"""Durations, money and modes in the words that people read, on every front door. Pure."""

from __future__ import annotations

from datetime import datetime
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
