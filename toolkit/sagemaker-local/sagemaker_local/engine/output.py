"""Output of an engine: its lines, and the last ones after it has ended."""

import re
from collections import deque
from collections.abc import Callable, Iterable

KEPT_LINES = 1000
_LONGEST = 64 * 1024
# "(EngineCore pid=12) ERROR 11-20 07:54:07 [core.py:1023] text": who, level, when and where come off.
_WHO = re.compile(r"^\((?:\w+)[^)]*\bpid=\d+\)\s?")
_LEVEL = re.compile(r"^(INFO|DEBUG|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]+\] ?")
_RAISED = re.compile(
    r"^[\w.]*(?:Error|Exception|Interrupt|Exit)(?::|$)|^\S+: error: |^Killed\b|^Segmentation fault"
)
_FIELD = re.compile(r"^[\w.]+$")
_POINTLESS = "For further information visit https://errors.pydantic.dev"
_WIDEST = 400
# uvicorn's access log: `INFO:     127.0.0.1:37898 - "GET /ping HTTP/1.1" 200 OK`.
_PROBE = re.compile(r'^INFO:\s+\S+ - "GET /(?:ping|metrics)(?:\?\S*)? HTTP/[\d.]+" (\d{3})\b')
# True of every failed start or sudden end, so they explain none.
_EMPTY_WORDS = (
    "Engine core initialization failed",
    "WorkerProc initialization failed",
    "Engine loop is not running",
    "AsyncLLM output_handler failed",
    "EngineCore encountered an issue",
)


class OutputLines:
    """Cuts a stream of bytes into lines, hands each on, and keeps the last thousand.

    Answered health checks and metrics scrapes are left out: one comes every other second, and they bury what
    an engine has to say. One that failed stays.
    """

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._rest = b""
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)

    def feed(self, chunk: bytes) -> None:
        """Process the next bytes; a line that never ends is cut at 64 KiB."""
        *complete, self._rest = (self._rest + chunk).split(b"\n")
        for line in complete:
            self._emit(line)
        while len(self._rest) > _LONGEST:
            head, self._rest = self._rest[:_LONGEST], self._rest[_LONGEST:]
            self._emit(head)

    def close(self) -> None:
        """Process the end of the stream: the remainder is a line too."""
        if self._rest:
            rest, self._rest = self._rest, b""
            self._emit(rest)

    def _emit(self, line: bytes) -> None:
        # A progress bar overwrites itself; its last state is what a terminal would show.
        text = line.decode(errors="replace").rstrip("\r").rpartition("\r")[2].rstrip()
        if _probed(text) == "200":
            return
        self.lines.append(text)
        self._on_line(text)


def last_words(lines: Iterable[str], limit: int = 15, killed_by: str | None = None) -> str:
    """Return the lines that say why an engine ended, oldest first; its very last lines if none of them does.

    A traceback is told by its last line and what belongs to it (a validation error's field and reasons). The
    same cause, reported by several processes, is told once. Long lines are cut. Health checks, which fail in
    every such case, are no words of the engine's. ``killed_by`` names the signal that ended it: then the last
    lines of a healthy start explain nothing and are left out.
    """
    plain = [_plain(line) for line in lines if not _probed(line)]
    causes: list[str] = []
    inside = False
    for level, text in plain:
        raised = _RAISED.match(text) is not None
        inside = raised or (inside and not level and _continues(text))
        alone = level in ("ERROR", "CRITICAL") and not _is_frame(text)
        if (inside or alone) and text.strip() and text not in causes and _POINTLESS not in text:
            causes.append(text)
    if not causes and killed_by is not None:
        return f"killed by a signal ({killed_by}); the engine itself reported no error"
    telling = [text for text in causes if not any(words in text for words in _EMPTY_WORDS)]
    chosen = telling or causes or [text for _, text in plain if text.strip()]
    return "\n".join(text if len(text) <= _WIDEST else f"{text[:_WIDEST]}…" for text in chosen[-limit:])


def _continues(text: str) -> bool:
    """Whether a line after the one that names the error still belongs to it: a field's name, or indented."""
    return bool(_FIELD.match(text)) or (text.startswith("  ") and not text.lstrip().startswith("File "))


def _plain(line: str) -> tuple[str, str]:
    text = _WHO.sub("", line)
    level = _LEVEL.match(text)
    return (level.group(1), text[level.end() :]) if level else ("", text)


def _probed(line: str) -> str:
    """Return the status of a health check or metrics scrape in the access log; "" for any other line."""
    probe = _PROBE.match(_WHO.sub("", line))
    return probe.group(1) if probe else ""


def _is_frame(text: str) -> bool:
    """Whether the line belongs to the middle of a traceback."""
    return text.startswith((" ", "Traceback ")) or set(text) <= set("^~ ")
