"""Checks on the known faults of engine versions; each has a day from which it must be looked at again."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from functools import cache
from importlib import resources

import yaml
from pydantic import BaseModel, ConfigDict

from peagle_sm.core.catalog.images import version_of
from peagle_sm.core.checks.base import Check, Note, check
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.spec.endpoint_spec import Mode


class Advisory(BaseModel):
    """One fault: ``what`` happens, before which vLLM, to which models and modes (None: to all)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    what: str
    security: bool = False
    fixed_in: str | None = None
    models: tuple[str, ...] | None = None
    modes: tuple[Mode, ...] | None = None
    min_context: int | None = None
    source: str
    url: str
    date: dt.date
    expires: dt.date

    def meets(self, draft: Draft) -> bool:
        """Whether the spec can meet it; an image of unknown version cannot be said to."""
        version = draft.image.version if draft.image else None
        return (
            version is not None
            and (self.fixed_in is None or version < version_of(self.fixed_in))
            and (self.models is None or draft.spec.model in self.models)
            and (self.modes is None or draft.mode in self.modes)
            and (self.min_context is None or (draft.max_model_len or 0) >= self.min_context)
        )


@cache
def _load_advisories() -> tuple[Advisory, ...]:
    """Read the packaged list."""
    text = resources.files("peagle_sm.core").joinpath("data", "advisories.yaml").read_text(encoding="utf-8")
    return tuple(Advisory.model_validate(row) for row in yaml.safe_load(text))


def _expiry_words(expires: dt.date, today: dt.date | None) -> str:
    """Say until when an advisory is believed; ``today`` None leaves the judgement to the reader."""
    if today is not None and today >= expires:
        return f"this advisory expired on {expires}: look whether it still holds, or upgrade peagle-sm"
    return f"believed until {expires}"


def _today(draft: Draft) -> dt.date | None:
    return draft.context.now.date() if draft.context.now else None


@check(
    "advisories",
    why="Older engines have known holes: a request can kill them or reach into the network.",
    source="vLLM security advisories, floor 0.33.0 as of November 2026",
    remedy="Move to an image at or above the floor as soon as AWS publishes one; keep the endpoint private.",
    severity="warning",
    url="https://github.com/vllm-project/vllm/security/advisories",
)
def floor(draft: Draft) -> Iterator[Note]:
    """An engine below the floor of the security advisories."""
    lowest = draft.catalog.images.advisory_floor
    if draft.image is None or not draft.image.version or draft.image.version >= version_of(lowest.version):
        return
    expires = dt.date.fromisoformat(lowest.expires) if lowest.expires else None
    until = f" ({_expiry_words(expires, _today(draft))})" if expires else ""
    holes = [
        f"{row.what} (fixed in {row.fixed_in})"
        for row in _load_advisories()
        if row.security and row.meets(draft)
    ]
    yield Note(
        "warning",
        f"vLLM {draft.image.version_text} is below {lowest.version}, the floor of its security advisories"
        f"{until}{''.join(f'; {hole}' for hole in holes)}",
        expires=expires,
    )


@check(
    "known-faults",
    why="The endpoint starts and answers, and then crashes or loses its acceleration on some requests.",
    source="vLLM's issues, pull requests and advisories; data/advisories.yaml names each page",
    remedy="Read the page; take an image without the fault where there is one, and watch acceptance.",
    severity="warning",
    url="https://github.com/vllm-project/vllm/issues",
)
def known_faults(draft: Draft) -> Iterator[Note]:
    """Faults of the image's engine version that this model, mode or context can meet."""
    for row in _load_advisories():
        if not row.security and row.meets(draft):
            fixed = f", fixed in vLLM {row.fixed_in}" if row.fixed_in else ""
            yield Note(
                "warning",
                f"{row.id}: {row.what}{fixed} ({row.source}; {_expiry_words(row.expires, _today(draft))})",
                f"Read {row.url}.",
                row.expires,
            )


CHECKS: tuple[Check, ...] = (floor, known_faults)
