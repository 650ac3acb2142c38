"""Checks on what is known against the engine's version; each finding has a day on which it expires."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from peagle_sm.core.catalog.advisories import expiry_words, load_advisories
from peagle_sm.core.catalog.images import version_of
from peagle_sm.core.checks.base import Check, Note, check
from peagle_sm.core.plan.resolve import Draft


def _today(draft: Draft) -> date | None:
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
    expires = date.fromisoformat(lowest.expires) if lowest.expires else None
    until = f" ({expiry_words(expires, _today(draft))})" if expires else ""
    holes = [
        f"{row.what} (fixed in {row.fixed_in})"
        for row in load_advisories()
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
    for row in load_advisories():
        if not row.security and row.meets(draft):
            fixed = f", fixed in vLLM {row.fixed_in}" if row.fixed_in else ""
            yield Note(
                "warning",
                f"{row.id}: {row.what}{fixed} ({row.source}; {expiry_words(row.expires, _today(draft))})",
                f"Read {row.url}.",
                row.expires,
            )


CHECKS: tuple[Check, ...] = (floor, known_faults)
