"""What a recording will do: checked, described, then started.

Nothing is opened or created before `start`, so that a command can show the plan and ask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peagle_sm.core.errors import SpecError
from peagle_sm.traffic.exchange import NEVER
from peagle_sm.traffic.file_target import FileTarget
from peagle_sm.traffic.recorder import Recorder, TrafficSource
from peagle_sm.traffic.worker import need_library

KEEP_DAYS = 30
FOREVER = "forever"
_MOST_DAYS = 3650

STORED = "prompts, answers, parameters, token counts, times, slices and acceptance, with secrets redacted"
LIMITS = "names, addresses, unknown formats of keys, and secrets in images stay or cannot be recognised"
LEFT_OUT = f"token ids, log-probabilities, images, audio; the fields {', '.join(NEVER[:-1])} and {NEVER[-1]}"


@dataclass(frozen=True)
class RecordingPlan:
    """Settings of a recording; ``keep_days`` None keeps records for ever."""

    target: str
    sample: float = 1.0
    keep_days: int | None = KEEP_DAYS

    def rows(self) -> list[tuple[str, str]]:
        """Return what will be recorded, as names and texts for people."""
        share = "every request" if self.sample == 1 else f"{self.sample:.3g} of the requests, by chance"
        return [
            ("records", f"{share}, to {self.target}"),
            ("stored", STORED),
            ("not stored", LEFT_OUT),
            ("redaction", f"by format; {LIMITS}"),
            ("encryption", "none of its own: the disk's; the file is readable by you only (mode 600)"),
            ("kept", self._kept()),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            **dict(self.rows()),
            "target": self.target,
            "sample": self.sample,
            "keep_days": self.keep_days,
        }

    def _kept(self) -> str:
        if self.keep_days is None:
            return "until you delete them"
        days = f"{self.keep_days} day{'' if self.keep_days == 1 else 's'}"
        return f"{days} after a file is full or a day old; deleted while a recording runs"


def planned(
    target: str,
    *,
    sample: float = 1.0,
    keep_days: int | str | None = KEEP_DAYS,
) -> RecordingPlan:
    """Check the settings of a recording; ``keep_days`` "forever" or None keeps the records.

    Raises:
        SpecError: a setting is invalid.
    """
    if not 0 < sample <= 1:
        raise SpecError(
            f"sample: found {sample:g}; allowed: above 0, at most 1 (1 records every request)",
            next_step="give for example 0.1 for one request in ten",
        )
    if "://" in target or not target:
        raise SpecError(
            f"found {target!r}; allowed: a file",
            next_step="give for example traffic.jsonl; `aws s3 sync` copies its folder to a bucket",
        )
    return RecordingPlan(target, sample, _days(keep_days))


def _days(value: int | str | None) -> int | None:
    if value is None or value == FOREVER:
        return None
    try:
        days = int(value)
    except ValueError:
        days = 0
    if not 1 <= days <= _MOST_DAYS:
        raise SpecError(
            f"keep days: found {value!r}; allowed: 1 to {_MOST_DAYS}, or {FOREVER}",
            next_step=f"give a number of days, for example {KEEP_DAYS}",
        )
    return days


def start(
    plan: RecordingPlan,
    source: TrafficSource,
    *,
    on_problem: Callable[[str], object] = lambda message: None,
) -> Recorder:
    """Open the file, check it, and start recording.

    Raises:
        NotFound: a package that is needed is not installed.
        SpecError: the file cannot be used.
    """
    need_library()
    target = FileTarget(Path(plan.target), keep_days=plan.keep_days)
    return Recorder(target, source, sample=plan.sample, on_problem=on_problem)
