"""Names and tags of jobs, and the log lines of the trainer. Pure.

A job's name has a hash of what it is made from: the same spec finds its job again, running or finished.
SageMaker never frees a name, so a further attempt after a failure has a number. It uses the same checkpoints.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from peagle_sm.core.plan import tags_and_schedules as keys

LEARN = keys.LEARN
_HASH_CHARACTERS = 10
_ATTEMPT = re.compile(r"-(\d{1,2})$")


def digest_of(*parts: Any) -> str:
    """Return the hash of what is trained: 10 hex digits."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_CHARACTERS]


def base_name(spec_name: str, digest: str) -> str:
    """Return the name of the first attempt, which begins the names of the others."""
    return f"{spec_name}-{digest}"


def attempt_name(base: str, attempt: int) -> str:
    """Return the name of an attempt, from 1 on."""
    return base if attempt == 1 else f"{base}-{attempt}"


def attempt_of(name: str, base: str) -> int | None:
    """Return which attempt a job's name is; None if it is another spec's."""
    if name == base:
        return 1
    rest = name.removeprefix(base)
    match = _ATTEMPT.fullmatch(rest)
    return int(match[1]) if rest != name and match else None


def newest_attempt(names: Iterable[str], base: str) -> str | None:
    """Return the name of the newest attempt among the names of jobs; None without one."""
    attempts = {attempt: name for name in names if (attempt := attempt_of(name, base)) is not None}
    return attempts[max(attempts)] if attempts else None


def next_attempt(newest: str | None, base: str) -> int:
    """Return the number of the attempt after the newest one, given by its name; 1 if it is None."""
    return 1 if newest is None else (attempt_of(newest, base) or 1) + 1


def time_tag(moment: datetime) -> str:
    """Return a time as a tag has it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def job_tags(
    spec_name: str, deadline: datetime, usd_per_hour: float | None, own: Mapping[str, str]
) -> list[dict[str, str]]:
    """Return the tags of a job, the user's own last; the guard reads the deadline."""
    ours = {
        keys.MANAGED_BY: keys.MANAGER,
        LEARN: spec_name,
        keys.DEADLINE: time_tag(deadline),
    }
    if usd_per_hour:
        ours[keys.USD_PER_HOUR] = keys.number(usd_per_hour)
    return [{"Key": key, "Value": value} for key, value in {**ours, **own}.items()]


MARK = "peagle-train "
_PAIR = re.compile(r"([a-z_0-9]+)=(\S+)")
_NUMBER = r"([-+0-9.eEinfa]+)"
#: Metrics of CloudWatch, by the trainer's keys; SageMaker reads them from its lines.
_TRAINING_METRICS = ("loss", "accuracy", "learning_rate", "tokens_per_second")
_MOST_DEPTHS = 18


def metric_definitions(depths: int) -> list[dict[str, str]]:
    """Return SageMaker's metric definitions for the trainer's lines; AWS takes at most 40."""
    names = [*_TRAINING_METRICS, *(f"accuracy_{depth}" for depth in range(1, min(depths, _MOST_DEPTHS) + 1))]
    training = [{"Name": name, "Regex": rf"peagle-train step=.* {name}={_NUMBER}"} for name in names]
    validation = [
        {"Name": f"validation_{name}", "Regex": rf"peagle-train validation step=.* {name}={_NUMBER}"}
        for name in ("loss", "accuracy")
    ]
    return [*training, *validation]


@dataclass(frozen=True)
class TrainerLine:
    """One line of the trainer: its kind, step and figures."""

    kind: str
    step: int
    steps: int | None = None
    figures: Mapping[str, float] = field(default_factory=dict)

    def depth_accuracies(self) -> dict[int, float]:
        """Return accuracy by depth, from 1 on."""
        rows = {
            int(name.removeprefix("accuracy_")): value
            for name, value in self.figures.items()
            if name.removeprefix("accuracy_").isdigit()
        }
        return dict(sorted(rows.items()))


def read_line(text: str) -> TrainerLine | None:
    """Read a line of the trainer; None for any other line."""
    _, mark, rest = text.partition(MARK)
    if not mark:
        return None
    word = rest.split(" ", 1)[0]
    kind = "training" if "=" in word else word
    pairs = dict(_PAIR.findall(rest))
    step, _, steps = pairs.pop("step", "").partition("/")
    if not step.isdigit():
        return None
    figures: dict[str, float] = {}
    for name, value in pairs.items():
        try:
            figures[name] = float(value)
        except ValueError:
            continue  # a later trainer may write other things
    return TrainerLine(kind, int(step), int(steps) if steps.isdigit() else None, figures)


def read_lines(texts: Iterable[str]) -> list[TrainerLine]:
    """Read the trainer's lines among others; of lines of one kind and step the last one counts.

    A job that was interrupted trains the steps after its last checkpoint again.
    """
    lines: dict[tuple[str, int], TrainerLine] = {}
    for text in texts:
        line = read_line(text)
        if line is not None:
            lines.pop((line.kind, line.step), None)
            lines[(line.kind, line.step)] = line
    return list(lines.values())
