"""Checkpoints in the folder that SageMaker copies to S3 while the job runs, and back when it starts again.

The library's own checkpoints are written by all processes together and need a file system that all instances
share. SageMaker copies each instance's folder to one place in S3, in any order. Here one process writes one
file, and a manifest with the sizes, so that a partial copy does not count as a checkpoint.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peagle_train import Mistake

MANIFEST = "checkpoint.json"
STATE = "state.pt"
SCHEMA = "peagle-train-checkpoint/1"
KEPT = 2
_NAME = re.compile(r"step-(\d{8})")


@dataclass(frozen=True)
class Saved:
    """A complete checkpoint: ``run`` says which run it is of, ``history`` what that run has logged."""

    folder: Path
    step: int
    run: Mapping[str, Any]
    history: Mapping[str, Any]


def save(
    folder: Path,
    step: int,
    run: Mapping[str, Any],
    history: Mapping[str, Any],
    write: Callable[[Path], None],
) -> None:
    """Save a checkpoint; ``write`` writes the state into a file. Older ones go, but for the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    final, part = folder / f"step-{step:08}", folder / f".step-{step:08}.part"
    for left in (part, final):
        shutil.rmtree(left, ignore_errors=True)
    part.mkdir()
    write(part / STATE)
    manifest = {
        "schema": SCHEMA,
        "step": step,
        "run": dict(run),
        "history": dict(history),
        "files": {STATE: (part / STATE).stat().st_size},
    }
    (part / MANIFEST).write_text(json.dumps(manifest) + "\n", encoding="utf-8")
    os.replace(part, final)
    complete = [each.folder for each in _complete(folder)]
    for each in folder.iterdir():
        older = _NAME.fullmatch(each.name) and each not in complete[-KEPT:]
        if each.is_dir() and (older or each.name.endswith(".part")):
            shutil.rmtree(each, ignore_errors=True)


def newest(folder: Path) -> Saved | None:
    """Return the newest complete checkpoint; None without one."""
    return next(reversed(_complete(folder)), None)


def _complete(folder: Path) -> list[Saved]:
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    checkpoints = [_read(folder / name) for name in names if _NAME.fullmatch(name)]
    return [each for each in checkpoints if each is not None]


def _read(folder: Path) -> Saved | None:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        sizes = {name: (folder / name).stat().st_size for name in manifest["files"]}
        if manifest["schema"] != SCHEMA or sizes != manifest["files"] or STATE not in sizes:
            return None
        if folder.name != f"step-{manifest['step']:08}":
            return None
        return Saved(folder, manifest["step"], manifest["run"], manifest["history"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def check_same_run(saved: Saved, run: Mapping[str, Any]) -> None:
    """Check that a checkpoint belongs to this run.

    Raises:
        Mistake: it is not; the message names what differs.
    """
    names = sorted({*saved.run, *run})
    differs = [name for name in names if saved.run.get(name) != run.get(name)]
    if differs:
        name = differs[0]
        raise Mistake(
            f"the checkpoint of step {saved.step} is of another run: {name} was {saved.run.get(name)!r:.80}, "
            f"now it is {run.get(name)!r:.80}; give this job a checkpoint folder of its own"
        )
