"""Run by the Python of `scripts/train-tiny`: the common start of both trainers, and a head by speculators.

``prepare WORK EAGLE3`` leaves in WORK the rollouts (unless they exist), the same as training rows of a user's
job, and the planted P-EAGLE head to start from, in both layouts; EAGLE3 is a head in vLLM's layout.
``train RUN STEPS RATE SEED PRECISION`` trains from RUN/warm and exports the head into RUN/head.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from scripts.train_tiny import corpus
from scripts.train_tiny.export import export_head
from scripts.train_tiny.handover import give
from scripts.train_tiny.heads import DEPTH_OPTIONS, Plan, Trainer, plant
from scripts.train_tiny.target import encode

SEQUENCES = 1200  #: as `scripts/train-tiny --quick`


def prepare(work: Path, eagle3: Path) -> None:
    """Write rollouts, training rows and the head to start from."""
    if not (work / "rollouts.json").exists():
        found = corpus.documents(corpus.download(work / "wheels"))
        corpus.write(found, work / "documents.jsonl")
        encode(work)
        words = [sys.executable, "-m", "scripts.train_tiny.rollout", "--work", str(work)]
        subprocess.run([*words, "--sequences", str(SEQUENCES)], check=True)
    layer = work / "eagle3"
    layer.mkdir(exist_ok=True)
    renamed = {
        name.replace("midlayer.", "layers.0."): tensor
        for name, tensor in load_file(eagle3 / "model.safetensors").items()
    }
    save_file(renamed, layer / "model.safetensors", metadata={"format": "pt"})
    warm = plant(Trainer(work, Plan(steps=0), threads=1), layer)
    give(work, warm)
    warm.rename(work / "warm")


def train(run: Path, steps: int, rate: float, seed: int, precision: str) -> None:
    """Train one P-EAGLE head on all rollouts, with the settings of the EAGLE-3 head's trainer, and export it.

    `speculators` insists on a validation share; it gets the smallest, since the engine measures the head.
    """
    trainer = Trainer(run, Plan(steps, rate, seed), threads=1)
    start = cast(run / "warm", run / "start", precision)
    options = ["--from-pretrained", str(start), *DEPTH_OPTIONS]
    options += ["--hidden-states-dtype", precision, "--train-data-ratio", "0.999"]  # the last ones win
    trained = trainer.run("p-eagle", "peagle", options, steps=steps)
    export_head(trained, run / "target", run / "head", parallel=True)
    shutil.rmtree(run / "checkpoints")


def cast(warm: Path, start: Path, precision: str) -> Path:
    """Write the head to start from with weights of this precision: `speculators` takes theirs as it is."""
    shutil.copytree(warm, start)
    kept = load_file(warm / "model.safetensors")
    to = getattr(torch, precision)
    save_file({name: tensor.to(to) for name, tensor in kept.items()}, start / "model.safetensors",
              metadata={"format": "pt"})  # fmt: skip
    config = json.loads((warm / "config.json").read_text())
    (start / "config.json").write_text(json.dumps({**config, "dtype": precision}))
    return start


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare(*map(Path, sys.argv[2:4]))
    else:
        train(Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]), sys.argv[6])
