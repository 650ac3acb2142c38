"""What a campaign runs: each pack small, on the clean arm and on the faults that it must find.

The sizes are small so that a run takes seconds. The context stays within the 496 tokens that the stand-in
heads were trained on, as far as a pack can use it: beyond that their acceptance does fall
(`docs/how-to/packs.md`), so a run there is no clean one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.packs.arms import BLIND, CLEAN, LOCAL_FAULTS, OTHER, PLAIN, QUICK, SHORT

REFUSED = "refused"  #: instead of a failed check: the pack's data is refused


@dataclass(frozen=True)
class Case:
    """A pack, its size, and the check that must fail on each faulty arm; ``clean`` is its clean endpoint."""

    pack: str
    context: int
    units: int
    faults: Mapping[str, str]
    clean: str = CLEAN

    @property
    def endpoints(self) -> list[str]:
        """Return the endpoints that it needs."""
        faulty = [
            name for name, check in self.faults.items() if name not in LOCAL_FAULTS and check != REFUSED
        ]
        return [PLAIN, self.clean, *faulty]


CASES = {
    one.pack: one
    for one in (
        Case("rag", 480, 16, {SHORT: "acceptance by length", OTHER: "identity"}),
        Case("long-context", 480, 24, {SHORT: "acceptance by position", OTHER: "identity"}),
        Case("agents", 512, 24, {SHORT: "prefix cache", OTHER: "identity"}),
        Case("speed-bench", 8192, 22, {"placeholders": REFUSED}),
        Case("guardrails", 8192, 6, {"draft-tokens": "verified", "keeps-generating": "cancelled"}, QUICK),
        Case("structured-output", 8192, 2, {"no-format": "forms"}, QUICK),
        Case("adversarial", 8192, 6, {BLIND: "speed"}, QUICK),
    )
}


def needed(packs: Sequence[str]) -> set[str]:
    """Return the endpoints that the packs need; each is an engine of 3 GB."""
    return {name for pack in packs for name in CASES[pack].endpoints}


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
