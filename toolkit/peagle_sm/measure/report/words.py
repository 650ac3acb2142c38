"""Figures and names as a reader wants them; a missing figure is a dash, never 0. Pure."""

from __future__ import annotations

from peagle_sm.measure.records import Interval

DASH = "–"  # noqa: RUF001 (an en dash is what it is)
MODE_NAMES = {"none": "no speculation", "eagle3": "EAGLE-3", "p-eagle": "P-EAGLE", "unknown": "mode unknown"}


def number(value: float | None, digits: int = 3) -> str:
    """``1,167`` ``97.3`` ``3.94``: about ``digits`` digits that count, thousands set apart."""
    if value is None:
        return DASH
    size = abs(value)
    if size >= 10 ** (digits - 1) or (value == int(value) and size >= 100):
        return f"{value:,.0f}"
    decimals = digits - 1 if size < 10 else digits - 2
    if 0 < size < 0.1:
        return f"{value:.{digits}g}"
    return f"{value:.{decimals}f}"


def axis(value: float) -> str:
    """A tick's label: ``1,500`` ``2.5`` ``0``."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.4f}".rstrip("0")


def ratio(value: float) -> str:
    """``1.31x``."""
    return f"{value:.2f}x"


def span(interval: Interval) -> str:
    """``[1.20, 1.42]``."""
    return f"[{interval.low:.2f}, {interval.high:.2f}]"


def with_span(interval: Interval | None) -> str:
    """``1.31x [1.20, 1.42]``; a dash without one."""
    return DASH if interval is None else f"{ratio(interval.value)} {span(interval)}"


def share(value: float | None) -> str:
    """``97%``; ``<1%`` of what is not quite nothing."""
    if value is None:
        return DASH
    return "<1%" if 0 < value < 0.005 else f"{100 * value:.0f}%"


def usd(value: float | None) -> str:
    """``0.43`` ``12.40`` ``1,250`` (USD, without the word); small sums keep two digits that count."""
    if value is None:
        return DASH
    if 0 < abs(value) < 0.1:
        return f"{value:.2g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.2f}"


def plural(count: int, word: str) -> str:
    """``1 prompt``, ``96 prompts``."""
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def tokens(millions: float | None) -> str:
    """``12.0 million``, ``5.09 billion``."""
    if millions is None:
        return DASH
    return f"{number(millions)} million" if millions < 1000 else f"{number(millions / 1000)} billion"
