"""Check whether drafting is effective, from two scrapes of vLLM's ``/metrics``. Pure.

An acceptance length alone cannot decide: a healthy head on text that it does not know drafts no better than
a broken one on text that it does. The shape separates them (`ineffective`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from peagle_gate.embedded_metrics import COUNT, NONE, metrics_line
from peagle_gate.ineffective import DRAFTS_NEEDED, is_ineffective

TOKENS_WITHOUT_DRAFT = 1000
#: A head misses its own profile below this share of its drafted length; docs/explanation/container.md has the
#: measurement.
SHARE_OF_PROFILE = 0.75

_SPEC = "vllm:spec_decode_"
_GENERATED = "vllm:generation_tokens_total"
_FINISHED = "vllm:request_success_total"
_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{([^}]*)\})?\s+(\S+)")
_POSITION = re.compile(r'(?:^|,)\s*position="(\d+)"')


@dataclass(frozen=True)
class Counts:
    """Counts of the engine since it started, or between two scrapes.

    Attributes:
        generated: tokens sent to users.
        finished: requests that ended; the first token of each comes without a draft.
        drafts: number of drafts.
        accepted: accepted draft tokens, by position; position 1 is the first.
    """

    generated: int = 0
    drafts: int = 0
    accepted: tuple[int, ...] = ()
    finished: int = 0

    def since(self, before: Counts) -> Counts:
        """Return the counts after ``before``; for a restarted engine the counts since its start."""
        if self.drafts < before.drafts or self.generated < before.generated:
            return self
        earlier = before.accepted + (0,) * (len(self.accepted) - len(before.accepted))
        return Counts(
            self.generated - before.generated,
            self.drafts - before.drafts,
            tuple(now - then for now, then in zip(self.accepted, earlier, strict=False)),
            max(0, self.finished - before.finished),
        )

    @property
    def undrafted(self) -> int:
        """Tokens without any draft, where a draft was possible."""
        return max(0, self.generated - self.finished) if self.drafts == 0 else 0

    @property
    def survival(self) -> tuple[float, ...]:
        """Share of drafts accepted at each position; empty without drafts."""
        return tuple(count / self.drafts for count in self.accepted) if self.drafts else ()

    @property
    def acceptance_length(self) -> float:
        """Tokens per step: the target's own and the accepted ones."""
        return 1 + sum(self.survival)


def read_counts(metrics: str) -> Counts:
    """Read the text of ``/metrics``, summed over the engines."""
    sums: dict[str, float] = {}
    positions: dict[int, float] = {}
    for line in metrics.splitlines():
        match = _LINE.match(line)
        if not match or not match[1].startswith((_SPEC, _GENERATED, _FINISHED)):
            continue
        name, labels, value = match[1], match[2] or "", float(match[3])
        position = _POSITION.search(labels)
        if name == f"{_SPEC}num_accepted_tokens_per_pos_total" and position:
            at = int(position[1])
            positions[at] = positions.get(at, 0) + value
        else:
            sums[name] = sums.get(name, 0) + value
    return Counts(
        generated=round(sums.get(_GENERATED, 0)),
        drafts=round(sums.get(f"{_SPEC}num_drafts_total", 0)),
        accepted=tuple(round(positions.get(at, 0)) for at in range(max(positions, default=-1) + 1)),
        finished=round(sums.get(_FINISHED, 0)),
    )


@dataclass(frozen=True)
class Profile:
    """Profile of a head: its survival by position on its own canary prompts, and these prompts."""

    survival: tuple[float, ...]
    prompts: tuple[str, ...] = field(default=(), compare=False)


def fault(
    counts: Counts, *, parallel: bool, profile: Profile | None = None, always: bool = True
) -> str | None:
    """Return what is wrong with the drafting; None if nothing is, or with too few counts.

    ``parallel`` is True if each draft has a second token from the same pass. ``always`` is False if the
    engine may draft nothing in good health: with a K of 0, or from text that repeats nothing.
    """
    if always and counts.undrafted >= TOKENS_WITHOUT_DRAFT:
        return f"speculation is off: {counts.generated} tokens and no draft"
    if counts.drafts < DRAFTS_NEEDED:
        return None
    survival = counts.survival
    if parallel and len(survival) >= 2 and is_ineffective(counts.drafts, *counts.accepted[:2]):
        first, second = survival[:2]
        return (
            f"parallel drafting ineffective: of {counts.drafts} drafts {first:.0%} kept the first token "
            f"and {second:.0%} the second"
        )
    return _misses(survival, profile) if profile else None


def _misses(survival: Sequence[float], profile: Profile) -> str | None:
    both = min(len(survival), len(profile.survival))
    reached, expected = sum(survival[:both]), sum(profile.survival[:both])
    if expected <= 0 or reached / expected >= SHARE_OF_PROFILE:
        return None
    return (
        f"the head misses its own profile: acceptance length {1 + reached:.2f} on its canary prompts, "
        f"{1 + expected:.2f} when it was made"
    )


def read_profile(document: object) -> Profile | None:
    """Read a parsed ``canary.json``; None where it is not one."""
    if not isinstance(document, Mapping):
        return None
    survival, prompts = document.get("survival"), document.get("prompts")
    if not (isinstance(survival, list) and all(isinstance(rate, int | float) for rate in survival)):
        return None
    if not (isinstance(prompts, list) and prompts and all(isinstance(text, str) for text in prompts)):
        return None
    return Profile(tuple(float(rate) for rate in survival), tuple(prompts))


def log_line(counts: Counts, namespace: str, unix_ms: int) -> str:
    """Return the log line with the drafts since the last one and their acceptance length."""
    metrics = {
        "Drafts": (counts.drafts, COUNT),
        "AcceptanceLength": (round(counts.acceptance_length, 4), NONE),
    }
    return metrics_line(metrics, {}, namespace=namespace, unix_ms=unix_ms)
