"""The record of a run of the tutorial "Train a head for your model": what its folder says when it is done.

docs/reference/learning-gain.md and the figures in the tutorial are written from it by scripts/reference.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from peagle_learn.core.proof import parse_proof
from peagle_learn.stored_data import TRAINING, VALIDATION
from peagle_learn.train import load_learn_spec
from peagle_sm.core.errors import SpecError
from sagemaker_local.engine.env import engine_locks

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "docs" / "reference" / "learning-gain.json"
#: Of the trainer's own record.
_TRAINING = ("settings", "libraries", "steps", "parameters", "seconds", "peak_memory_gib")


def read_record(path: Path = RECORD) -> dict[str, Any] | None:
    """Read the recorded run; None if there is none yet."""
    if not path.exists():
        return None
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def read_run(
    folder: Path, seconds: Mapping[str, float], sittings: int, origin: Mapping[str, Any]
) -> dict[str, Any]:
    """Collect what a finished run left in its folder: data, training and proof.

    Raises:
        SpecError: the folder has no finished run, or several runs.
    """
    works = sorted(folder.glob(".peagle-learn/*/state.json"))
    if len(works) != 1:
        raise SpecError(
            f"{folder}: found {len(works)} runs in .peagle-learn; allowed: 1",
            next_step="Give the folder of one run: scripts/learn-demo FOLDER.",
        )
    try:
        measured = _read_work(works[0])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise SpecError(
            f"{works[0].parent} lacks a part of a finished run: {error!r}",
            next_step="Run it in a new folder: scripts/learn-demo FOLDER.",
        ) from error
    return {
        "origin": dict(origin),
        "engine": next(iter(engine_locks())),
        "seconds": dict(seconds),
        "sittings": sittings,
        "prove": load_learn_spec(folder / "learn.yaml").prove.model_dump(mode="json"),
        **measured,
    }


def _read_work(state: Path) -> dict[str, Any]:
    work = state.parent
    manifest = _document(work / "data" / "manifest.json")
    head = str(_document(state)["steps"]["train"]["result"]["head"])
    fetched = work / "fetched" / hashlib.sha256(head.encode()).hexdigest()[:16]
    training = _document(fetched / "training.json")
    proofs = [parse_proof(path.read_text(encoding="utf-8"), path.name) for path in work.glob("proofs/*.json")]
    proof = max(proofs, key=lambda each: each.made_at)
    validation = training["history"]["validation"]
    return {
        "data": {
            "sha256": manifest["data"],
            "sources": {Path(name).name: each for name, each in manifest["sources"].items()},
            "settings": manifest["settings"],
            "rows": {name: manifest["files"][name]["rows"] for name in (TRAINING, VALIDATION)},
            "tokens": {name: manifest["files"][name]["tokens"] for name in (TRAINING, VALIDATION)},
            "prompts": {each["name"]: each["prompts"] for each in manifest["sets"]},
        },
        "training": {name: training[name] for name in _TRAINING}
        | {"held_out": [{"step": each["step"], "loss": each["loss"]} for each in validation]},
        "proof": _without_slices(asdict(proof)),
    }


def _without_slices(proof: dict[str, Any]) -> dict[str, Any]:
    for name in ("held_out", "general", "long_context"):
        if proof["evidence"][name] is not None:
            proof["evidence"][name].pop("slices")
    return proof


def _document(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document
