"""``training.json`` beside the weights: what each step of their training left, and what they then reached.

The cards are written from it alone, so they can be written again where the work directory is gone.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

NAME = "training.json"
_STEPS = ("corpus", "target", "rollouts", "heads")


def gather(work: Path, seconds: int | None = None) -> dict[str, Any]:
    """What the steps wrote into ``work``; ``seconds`` is what all of them took, on a wall clock.

    Raises:
        FileNotFoundError: a step has not run.
    """
    facts: dict[str, Any] = {name: _read(work / f"{name}.json") for name in _STEPS}
    if seconds is not None:
        facts["whole"] = {"minutes": round(seconds / 60, 1), "cores": os.cpu_count()}
    return facts


def update(weights: Path, *, work: Path | None, seconds: int | None, quick: Path | None) -> dict[str, Any]:
    """Bring ``weights/training.json`` up to date with what is given, and return it.

    ``quick`` is the weights directory of the family that ``scripts/train-tiny --quick`` made.

    Raises:
        FileNotFoundError: one of the files is missing.
    """
    path = weights / NAME
    facts = gather(work, seconds) if work else _read(path)
    if quick is not None:
        facts["quick"] = _read(quick / NAME)
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return facts


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
