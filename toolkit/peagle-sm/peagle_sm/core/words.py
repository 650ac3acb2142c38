"""What people read: findings, durations, money, failure reasons, install commands; and UTF-8 text.

peagle-sm is not on a package index, so ``pip install 'peagle-sm[hub]'`` does not work. The install commands
name the packages instead, which works from a clone and from a wheel; those of this project are folders of a
clone. A test compares `EXTRAS` with pyproject.toml.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Literal

from peagle_sm.core.errors import SpecError

if TYPE_CHECKING:
    from pydantic import ValidationError

Severity = Literal["error", "warning", "info"]
_WORST_FIRST: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True)
class Finding:
    """One problem or fact that a check found; an "error" stops a deploy.

    ``check`` is a stable id, for programs. ``url`` is the public page behind ``source``. An advisory
    ``expires`` on an ISO date: from then on somebody must check whether it still holds.
    """

    severity: Severity
    message: str
    next_step: str = ""
    check: str = ""
    source: str = ""
    url: str = ""
    expires: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def error_finding(check: str, message: str, next_step: str = "") -> Finding:
    """Return a finding that stops a deploy."""
    return Finding("error", message, next_step, check)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sort errors first, then warnings; findings of one severity keep their order."""
    return sorted(findings, key=lambda finding: _WORST_FIRST.index(finding.severity))


def elapsed(seconds: float) -> str:
    """Format a duration: `7s`, `3m07s`, `2h05m`."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{secs:02d}s" if minutes else f"{secs}s"


def relative(moment: datetime, now: datetime) -> str:
    """Format a time: `in 2 h 10 min`, `3 min ago`, or `now` within half a minute."""
    seconds = (moment - now).total_seconds()
    minutes = int(abs(seconds) / 60 + 0.5)
    if not minutes:
        return "now"
    days, rest = divmod(minutes, 24 * 60)
    hours, minutes = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (0 if days else minutes, "min")]
    length = " ".join(f"{count} {unit}" for count, unit in parts if count)
    return f"in {length}" if seconds > 0 else f"{length} ago"


def when(moment: datetime | None) -> str:
    """Format a time as `2026-11-20 08:15 UTC`; None as a dash."""
    return "-" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def when_to(moment: datetime | None, now: datetime) -> str:
    """Format a time as `2026-11-20 08:15 UTC (in 2 h 10 min)`; None as a dash."""
    return "-" if moment is None else f"{when(moment)} ({relative(moment, now)})"


def usd(amount: float | None, per: str = "", *, at_most: bool = False) -> str:
    """Format money: `12.34 USD/hour`; None is `unknown`, never zero. An upper bound begins with `at most`."""
    if amount is None:
        return "unknown"
    return f"{'at most ' if at_most else ''}{amount:,.2f} USD{'/' + per if per else ''}"


def speculation_text(mode: str | None, tokens: int | None) -> str:
    """Format speculation: `p-eagle, 7 draft tokens`, `none`, or `unknown`."""
    if mode is None:
        return "unknown"
    if mode == "none" or tokens is None:
        return mode
    return f"{mode}, {tokens} draft tokens"


WHOLE_IN_JSON = "in full: --format json"
_SHORT = 300  # characters: a shorter reason of one line is shown unchanged
_REST = 240
_EXCEPTION = re.compile(r"\b(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout): (?=\S)")
_POINTS_AWAY = "root cause above"  # vLLM's last exception only refers to it


def cause_first(reason: str, whole: str) -> str:
    """Shorten a reason to its last exception and its beginning, cut between words.

    ``whole`` states where the whole reason is. A short reason of one line is returned unchanged.
    """
    text = reason.strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) <= 1 and len(text) <= _SHORT:
        return text
    beginning = shorten(lines[0], _REST, placeholder=" …")
    return f"{shorten(_cause(lines), _SHORT, placeholder=' …')}\n{beginning}\n({whole})"


def _cause(lines: list[str]) -> str:
    """Return the last exception; the last line if there is none."""
    exceptions = [line[match.start() :] for line in lines for match in _EXCEPTION.finditer(line)]
    causes = [exception for exception in exceptions if _POINTS_AWAY not in exception]
    return (causes or exceptions or lines)[-1]


EXTRAS: dict[str, tuple[str, ...]] = {
    "cdk": ("aws-cdk-lib==2.275.0", "cdk-nag==3.0.2", "constructs>=10.8,<11"),
    "hub": ("huggingface_hub>=2.4,<3",),
    "openai": ("aiohttp>=3.10,<4", "openai>=2,<4"),
    "record": ("bc-detect-secrets==1.5.52",),
}


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra."""
    return f"pip install {' '.join(shlex.quote(package) for package in EXTRAS[extra])}"


def clone_command(*packages: str) -> str:
    """Return the advice that installs packages of this project, such as `peagle-bench`, from a clone."""
    return "In a clone of peagle-sm: pip install " + " ".join(f"./toolkit/{package}" for package in packages)


_TO_UTF8 = "Convert it to UTF-8, for example with `iconv -f latin1 -t utf-8 FILE`."
_TO_TEXT = "Unpack an archive; write a table, such as Parquet or Excel, as JSON lines in UTF-8."
#: Byte order marks. UTF-32 comes first, since its mark begins with that of UTF-16.
_MARKS = (
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_SAMPLE = 4096  #: bytes by which an encoding without a mark is recognised


def utf8_text(data: bytes, where: str, first_line: int = 1) -> str:
    """Decode text; ``first_line`` is the number of its first line.

    Raises:
        SpecError: it is not UTF-8; the message has ``where``, the line and the byte, or the kind of file.
    """
    if first_line == 1:
        refuse_other_files(data, where)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise SpecError(
            f"{where}, line {line}: found byte 0x{data[error.start]:02x}, which is not UTF-8; "
            "allowed: UTF-8 text.",
            next_step=_TO_UTF8,
        ) from None


def refuse_other_files(data: bytes, where: str) -> None:
    """Refuse text in UTF-16 or UTF-32, and bytes that are not text: archives, tables, databases."""
    encoding = _encoding_of(data)
    if encoding is not None:
        raise SpecError(
            f"{where} is {encoding.upper()} text; allowed: UTF-8 text.",
            next_step=f"Convert it to UTF-8: `iconv -f {encoding} -t utf-8 FILE`.",
            details={"found": encoding, "allowed": "utf-8"},
        )
    if b"\0" in data[:_SAMPLE]:
        raise SpecError(
            f"{where} is a binary file; allowed: UTF-8 text.",
            next_step=_TO_TEXT,
            details={"found": "binary", "allowed": "utf-8"},
        )


def _encoding_of(data: bytes) -> str | None:
    """Return the encoding by its byte order mark, or by where the NUL bytes are; None for all others.

    If most characters are of the first 256, every second byte is NUL in UTF-16, and three of four in UTF-32.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return name
    head = data[: min(len(data), _SAMPLE) // 4 * 4]
    if b"\0" not in head:
        return None
    nulls = [head[place::4].count(0) > len(head) // 8 for place in range(4)]
    return {
        (False, True, True, True): "utf-32le",
        (True, True, True, False): "utf-32be",
        (False, True, False, True): "utf-16le",
        (True, False, True, False): "utf-16be",
    }.get((nulls[0], nulls[1], nulls[2], nulls[3]))


def encoded_utf8(text: str, where: str) -> bytes:
    """Encode text.

    Raises:
        SpecError: it holds half a character, as Python writes a command line that is not UTF-8.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        character = (
            f"byte 0x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"half a character, U+{code:04X}"
        )
        raise SpecError(
            f"{where}: found {character} (position {error.start}), which is not UTF-8; allowed: UTF-8 text.",
            next_step=_TO_UTF8,
        ) from None


_EXPECTED = {
    "int_type": "int",
    "int_from_float": "int",
    "float_type": "float",
    "string_type": "str",
    "bool_type": "bool",
    "tuple_type": "a list",
    "dict_type": "an object",
    "dataclass_type": "an object",
}


def first_fault(error: ValidationError) -> str:
    """Describe the first field that is missing or has a wrong type, and what was expected."""
    first = error.errors(include_url=False)[0]
    *outer, name = [str(part) for part in first["loc"] if isinstance(part, str)] or ["the whole"]
    if first["type"] == "missing":
        return ": ".join([*outer, f"the field {name!r} is missing"])
    if first["type"] == "literal_error":
        expected = "one of " + first["ctx"]["expected"].replace(" or ", ", ")
    else:
        expected = _EXPECTED.get(first["type"], first["msg"])
    value = repr(first["input"])
    shown = value if len(value) <= 60 else value[:57] + "..."
    return ": ".join([*outer, name, f"expected {expected}, found {shown}"])
