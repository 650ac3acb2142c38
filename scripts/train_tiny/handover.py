"""Hand the planted P-EAGLE head and the rollouts to the trainer of users' heads, and take the head back.

That trainer reads training rows and a head in vLLM's layout; ``export`` and ``device`` read a checkpoint of
`speculators`. Both ways are here, since the trainer's environment has neither ``datasets`` nor `speculators`.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch
from datasets import load_from_disk
from safetensors.torch import load_file, save_file

from scripts.train_tiny.export import export_head

ROWS, START = "training", "start"  #: folders of the work directory that the trainer reads
HEAD = "p-eagle"  #: the one that it writes, in vLLM's layout
Tensors = dict[str, torch.Tensor]


def give(work: Path, planted: Path) -> None:
    """Write training rows and the head to start from into ``work``; ``planted`` is its checkpoint."""
    rows = load_from_disk(str(work / "rollouts")).with_format(None)
    (work / ROWS).mkdir(exist_ok=True)
    with (work / ROWS / "rollouts.tokens.jsonl").open("w") as file:
        for row in rows:
            file.write(json.dumps({name: row[name] for name in ("input_ids", "loss_mask")}) + "\n")
    export_head(planted, work / "target", work / START, parallel=True)


def values(head: Tensors, planted: Tensors) -> Tensors:
    """The tensors of a checkpoint like ``planted`` with the values of ``head``, which has vLLM's names.

    What the head does not have, it shares with the target, and so did ``planted``.

    Raises:
        KeyError: the checkpoint has no such tensor.
    """
    tensors = dict(planted)
    for name, tensor in head.items():
        own = name.replace("midlayer.", "layers.0.", 1)
        tensors[own] = tensor.reshape(planted[own].shape).to(planted[own].dtype)
    return tensors


def take(head: Path, planted: Path, out: Path) -> None:
    """Write the head in folder ``head`` as a checkpoint ``out``, shaped like that it started from."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    shutil.copy(planted / "config.json", out)
    tensors = values(load_file(head / "model.safetensors"), load_file(planted / "model.safetensors"))
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    """Give to the trainer, or take from it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("what", choices=("give", "take"))
    options = parser.parse_args()
    work, checkpoints = options.work, options.work / "checkpoints"
    if options.what == "give":
        give(work, checkpoints / "warm")
    else:
        take(work / HEAD, checkpoints / "warm", checkpoints / "p-eagle" / "trained")


if __name__ == "__main__":
    main()
