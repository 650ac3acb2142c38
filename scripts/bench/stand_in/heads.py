"""Train SmolLM2's two heads from nothing, one after the other, on answers that `peagle-sm learn data` stored.

    python -m scripts.bench.stand_in.heads FOLDER DATA...

Each DATA is a data set's folder, with ``training`` and ``validation``. FOLDER/p-eagle and FOLDER/eagle3 are
what ``/opt/ml`` is in a training job; the heads are in their ``model``. Both heads get the recipe's settings,
the same documents in the same order, and all cores. Call it again after an interruption: it goes on from the
last checkpoint, and a finished head is kept.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from peagle_learn.core.recipes import chosen, load_recipes
from peagle_learn.core.spec import TrainSpec
from sagemaker_local.contents.smollm2 import ensure_smollm2
from sagemaker_local.engine.trainer_env import ensure_trainer, train_environ

ROOT = Path(__file__).parents[3]
MODEL = "smollm2-135m-instruct"
HEADS = ("p-eagle", "eagle3")
#: EAGLE-3 learns as many steps as it is served with; each costs it a pass, in training as in serving.
DEPTHS = {"eagle3": 3}
#: Documents of each held-out file whose loss is measured before and after; a hundred take a minute.
MOST_HELD_OUT = 40


def main(folder: Path, data: list[Path]) -> int:
    """Train what is not yet trained; return the trainer's exit status."""
    python = ensure_trainer(say)
    target = ensure_smollm2(say)
    for head in HEADS:
        root = folder / head
        if (root / "model" / "training.json").is_file():
            say(f"{head}: trained already, {root / 'model'}")
            continue
        lay(root, target, data, settings(head))
        environ = train_environ({**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}, root)
        environ["PYTHONPATH"] += f"{os.pathsep}{ROOT}"
        environ["PEAGLE_TARGET_STATES"] = str(folder / "target-states")
        say(f"{head}: training")
        program = [str(python), "-P", "-m", "scripts.bench.stand_in.training", head]
        trained = subprocess.run(program, env=environ, cwd=ROOT, check=False)
        if trained.returncode:
            return trained.returncode
    return 0


def settings(head: str) -> dict[str, Any]:
    """Return the recipe's hyperparameters."""
    values = chosen(TrainSpec(), load_recipes().recipe(MODEL), warm=False, gpus=1)
    return values | ({"num_depths": DEPTHS[head]} if head in DEPTHS else {})


def lay(root: Path, target: Path, data: list[Path], values: dict[str, Any]) -> None:
    """Lay a job's channels and settings."""
    config, channels = root / "input" / "config", root / "input" / "data"
    config.mkdir(parents=True, exist_ok=True)
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    (config / "hyperparameters.json").write_text(json.dumps(texts))
    for channel in ("training", "validation"):
        shutil.rmtree(channels / channel, ignore_errors=True)
        (channels / channel).mkdir(parents=True)
        for number, each in enumerate(data):
            for file in sorted((each / channel).glob("*.tokens.jsonl")):
                rows = file.read_text(encoding="utf-8").splitlines(keepends=True)
                kept = rows if channel == "training" else rows[:MOST_HELD_OUT]
                (channels / channel / f"{number}-{file.name}").write_text("".join(kept), encoding="utf-8")
    place = channels / "target"
    place.unlink(missing_ok=True)
    place.symlink_to(target)


def say(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), [Path(each) for each in sys.argv[2:]]))
