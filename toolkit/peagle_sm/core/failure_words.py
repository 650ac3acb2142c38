"""A failure reason of SageMaker as people read it: the cause first, the log around it shortened."""

from __future__ import annotations

import re
from textwrap import shorten

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
