"""What a campaign runs: each pack small, on the clean arm and on the faults that it must find.

The sizes are small so that a run takes seconds. The context stays within the 496 tokens that the stand-in
heads were trained on, as far as a pack can use it: beyond that their acceptance falls, by a quarter at the
model's limit (`docs/how-to/is-it-right.md`), and a clean run must not be near a fault.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.packs.arms import BLIND, CLEAN, LOCAL_FAULTS, OTHER, PLAIN, SHORT

REFUSED = "refused"  #: instead of a failed check: the pack's data is refused


@dataclass(frozen=True)
class Case:
    """A pack, its size, and the check that must fail on each faulty arm.

    ``apart``: it compares speeds, or counts what an engine generates, so nothing else may use the engines.
    """

    pack: str
    context: int
    units: int
    faults: Mapping[str, str]
    apart: bool = False

    def endpoint(self, arm: str) -> str:
        """Return the endpoint beside the plain one that shows a fault; that of `CLEAN` is clean."""
        on_clean = arm in LOCAL_FAULTS or self.faults.get(arm) == REFUSED
        return CLEAN if on_clean else arm


CASES = {
    one.pack: one
    for one in (
        Case("rag", 480, 16, {SHORT: "acceptance by length", OTHER: "identity"}),
        Case("long-context", 480, 12, {SHORT: "acceptance by position", OTHER: "identity"}),
        Case("agents", 576, 12, {SHORT: "prefix cache", OTHER: "identity"}),
        Case("speed-bench", 8192, 22, {"placeholders": REFUSED}),
        Case("guardrails", 8192, 6, {"draft-tokens": "verified", "keeps-generating": "cancelled"}, True),
        Case("structured-output", 8192, 2, {"no-format": "forms"}),
        Case("adversarial", 8192, 6, {BLIND: "speed"}, True),
        Case(
            "reasoning-effort",
            1024,
            12,
            {SHORT: "acceptance by effort", OTHER: "identity", BLIND: "cost by effort"},
            True,
        ),
    )
}


def needed(cells: Iterable[tuple[str, str]]) -> set[str]:
    """Return the endpoints that packs and arms need; each is an engine of 3 GB."""
    return {PLAIN, *(CASES[pack].endpoint(arm) for pack, arm in cells)}


_WORDS = [
    "what",
    "why",
    "where",
    "when",
    "which",
    "who",
    "how",
    "river",
    "stone",
    "paper",
    "garden",
    "engine",
    "letter",
    "winter",
    "market",
    "bridge",
]


def speed_bench_file(path: Path, *, placeholders: int, seed: int) -> Path:
    """Write a file in SPEED-Bench's form with made-up questions; some rows have the placeholder instead."""
    rng = random.Random(f"speed-bench {seed}")
    lines = []
    for number in range(880):
        text = f"Question {number}: {' '.join(rng.choices(_WORDS, k=12))}?"
        turns = ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"] if number < placeholders else [text]
        row = {"question_id": number, "category": f"category {number % 11}", "turns": turns}
        lines.append(json.dumps(row))
    path.write_text("\n".join(lines) + "\n")
    return path
