"""Log lines of the job, one for each event; CloudWatch's metrics are read from them. Pure."""

import time
from collections.abc import Callable, Sequence
from typing import Any

PREFIX = "peagle-train"


def words(record: dict[str, Any]) -> str:
    """Return ``name=value`` pairs; numbers as short as they can be read back."""
    return " ".join(f"{name}={_number(value)}" for name, value in record.items())


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def by_depth(accuracies: Sequence[float | None]) -> dict[str, float]:
    """Return the accuracy of each drafted position, from 1; without those that had nothing to learn."""
    return {f"accuracy_{depth}": each for depth, each in enumerate(accuracies, 1) if each is not None}


class Pace:
    """Tokens a second since the last line, and the seconds that are left."""

    def __init__(self, step: int, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._total = clock, total
        self._began = self._last = clock()
        self._first, self._tokens = step, 0

    def at(self, step: int, tokens: int) -> dict[str, Any]:
        """Return the figures of a step, where ``tokens`` were read since this process began."""
        now = self._clock()
        since, done = now - self._last, step - self._first
        rate = (tokens - self._tokens) / since if since > 0 else 0.0
        self._last, self._tokens = now, tokens
        left = (now - self._began) / done * (self._total - step) if done else 0.0
        return {"tokens_per_second": round(rate, 1), "seconds_left": round(left)}

    @property
    def seconds(self) -> float:
        """Seconds since the training began or went on."""
        return self._clock() - self._began


class Log:
    """The job's lines, and the history for ``training.json``."""

    def __init__(
        self, total: int, history: dict[str, Any] | None = None, say: Callable[[str], None] = print
    ) -> None:
        self.total, self._say = total, say
        self.history: dict[str, Any] = {"steps": [], "validation": [], "resumed_at": [], **(history or {})}

    def step(self, step: int, record: dict[str, Any]) -> None:
        """Log the figures of the steps since the last such line."""
        self.history["steps"].append({"step": step, **record})
        self._say(f"{PREFIX} step={step}/{self.total} {words(record)}")

    def validation(self, step: int, record: dict[str, Any]) -> None:
        """Log the figures of the held-out documents."""
        self.history["validation"].append({"step": step, **record})
        self._say(f"{PREFIX} validation step={step} {words(record)}")

    def checkpoint(self, step: int) -> None:
        """Log that a checkpoint is complete."""
        self._say(f"{PREFIX} checkpoint step={step}")

    def resumed(self, step: int) -> None:
        """Log that the run resumes from a checkpoint."""
        self.history["resumed_at"].append(step)
        self._say(f"{PREFIX} resumed step={step}")
