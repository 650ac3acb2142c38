"""Durations, money and events in the words that people read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from peagle_sm.core.words import elapsed, relative, usd

if TYPE_CHECKING:
    from peagle_sm.service import Event

__all__ = ["STAND_IN", "elapsed", "event_line", "parse_duration", "relative", "usd"]

#: Beside measured figures of the weights that ship with peagle-sm.
STAND_IN = "small stand-in weights on a CPU: these figures say nothing of a GPU"
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float:
    """Seconds in `90s`, `45m`, `2h`, `1d` or `1h30m`.

    Raises:
        ValueError: the text is not such a duration, or is zero.
    """
    compact = text.strip().lower().replace(" ", "")
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise ValueError(f"{text!r} is not a duration; write for example 90s, 45m, 2h or 1h30m")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds <= 0:
        raise ValueError(f"{text!r} is zero; time only goes forward")
    return seconds


def event_line(event: Event, at_s: float | None = None) -> str:
    """`  3m07s  endpoint demo is Creating  0.12 USD so far`."""
    said = event.message
    if event.phase == "waiting" and event.status and event.status not in said:
        said += f" is {event.status}"
    said = said.replace("\n", "\n" + " " * 9)  # below the first line's words, not below its clock
    words = [f"{elapsed(event.elapsed_s if at_s is None else at_s):>7}", said]
    if event.spent_usd is not None:
        words.append(f"{usd(event.spent_usd)} so far")
    return "  ".join(words)
