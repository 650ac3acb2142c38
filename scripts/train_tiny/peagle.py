"""Train the P-EAGLE head by the code of users' heads, ``container/peagle_train``, as a training job does.

The trainer has an environment of its own (NeMo AutoModel). ``docs/reference/trainers.md`` compares it with
``speculators``, which trains the EAGLE-3 head.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from sagemaker_local.engine.trainer_env import LOCK, ensure_trainer, train_command, train_environ
from scripts.lib.locks import read_pins

JOB = "p-eagle-job"  #: folder in the work directory, in place of /opt/ml
RATE = 3e-4  #: the best of those that docs/reference/trainers.md tried
#: Batch, depths and schedule as the EAGLE-3 head's trainer has them (``heads``); the rest are the defaults.
HYPERPARAMETERS = {
    **{"num_depths": 12, "down_sample_ratio": 0.6, "down_sample_ratio_min": 0.05, "sequence_length": 256},
    **{"micro_batch_size": 3, "grad_accumulation_steps": 1, "epochs": 1000, "warmup_ratio": 0.04},
    **{"min_lr_ratio": 0, "checkpoint_every_steps": 1_000_000, "log_every_steps": 20},
}


def lay_out(root: Path, work: Path, own: Mapping[str, float]) -> None:
    """Make the folders of a training job in ``root``; its channels are target, rows and start of ``work``.

    ``own`` are hyperparameters beside :data:`HYPERPARAMETERS`: ``max_steps``, ``learning_rate``, ``seed``.
    """
    data, config = root / "input" / "data", root / "input" / "config"
    data.mkdir(parents=True)
    config.mkdir()
    for channel, name in (("target", "target"), ("training", "training"), ("head", "start")):
        (data / channel).symlink_to((work / name).resolve())
    every = {name: str(value) for name, value in {**HYPERPARAMETERS, **own}.items()}
    (config / "hyperparameters.json").write_text(json.dumps(every), encoding="utf-8")


def train(work: Path, python: Path, own: Mapping[str, float], threads: int) -> None:
    """Train the head into ``work/p-eagle``, in vLLM's layout. One of a former run is replaced."""
    root, log = work / JOB, work / "p-eagle.log"
    shutil.rmtree(root, ignore_errors=True)
    lay_out(root, work, own)
    environ = train_environ({**os.environ, "OMP_NUM_THREADS": str(threads)}, root)
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(train_command(python), env=environ, stdout=file, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(f"training p-eagle failed; see {log}")
    shutil.copytree(root / "model", work / "p-eagle", dirs_exist_ok=True)


def main() -> None:
    """Train the head, and add what it took to ``work/heads.json`` for the cards."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    python = ensure_trainer(lambda line: print(line, flush=True))
    began = time.monotonic()
    own = {"max_steps": options.steps, "learning_rate": options.rate, "seed": options.seed}
    train(options.work, python, own, options.threads)
    minutes = round((time.monotonic() - began) / 60, 1)
    print(f"p-eagle: {minutes} min", flush=True)
    file = options.work / "heads.json"
    facts = json.loads(file.read_text(encoding="utf-8"))
    facts["minutes"]["p-eagle"] = minutes
    version = {pin.key: pin.version for pin in read_pins(LOCK.read_text(encoding="utf-8"))}["nemo-automodel"]
    facts |= {"peagle_trainer": f"NeMo AutoModel {version}", "peagle_rate": options.rate}
    file.write_text(json.dumps(facts, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
