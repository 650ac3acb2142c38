"""Memory and time of a training step by partitions: ``python -m scripts.bench.training.memory``.

Each step runs in a process of its own with the trainer's Python, one thread. It writes
docs/reference/training-memory.md, with machine, versions and seed, and the rows as JSON beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peagle_bench.results import provenance
from sagemaker_local.engine.trainer_env import LOCK, ensure_trainer
from sagemaker_local.paths import container_dir, weights_dir
from scripts.lib.locks import read_pins

STEP = Path(__file__).with_name("step.py")
PAGE = Path("docs/reference/training-memory.md")
LIBRARIES = ("nemo-automodel", "torch", "transformers")
INTRODUCTION = """\
# Memory and time of a training step

One step of a head of the shipped shape (2 layers, 16 and 8 heads, hidden size 256, 8 depths) on one document,
in a process of its own, on a CPU in float32. `sequence_partitions` splits the document; loss and gradients
stay the same (`tests/training/test_trainer.py`). **Above** is the process's peak above what it had before the
step: weights, libraries and the document itself lie below it. The last column is that, against one partition.

| tokens | partitions | before, GiB | peak, GiB | above, GiB | seconds | loss | share |
|---:|---:|---:|---:|---:|---:|---:|---:|
"""
NOT_MEASURED = """\

Only rows with a loss get logits: that is why 8 partitions need less than in the library, which computes them
for context rows too. AdamW's states are not in these rows, since a step of the optimizer is not measured.

Not measured on a GPU, since none was at hand: neither whether 8 partitions need at most 0.35 times the peak
activation memory of one there, nor a sequence of 20,480 tokens on one GPU. There the head has float32 master
weights and computes in bfloat16.
"""


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench.training.memory", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--tokens", default="2048,8192", help="lengths of the document, with commas")
    parser.add_argument("--partitions", default="1,2,4,8", help="numbers of partitions, with commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", type=Path, default=PAGE)
    return parser.parse_args(words)


def measured(python: Path, tokens: int, partitions: int, seed: int) -> dict[str, Any]:
    """One row, from a process of its own."""
    head = weights_dir() / "p-eagle"
    command = [str(python), str(STEP), str(head), str(tokens), str(partitions), str(seed)]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(container_dir()), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**row, "load": round(provenance.load_now(), 1)}


def page(rows: Sequence[dict[str, Any]], told: dict[str, Any]) -> str:
    """The page of measured rows."""
    whole = {row["tokens"]: row["peak_gib"] - row["before_gib"] for row in rows if row["partitions"] == 1}
    lines = []
    for row in rows:
        above = row["peak_gib"] - row["before_gib"]
        share = f"{above / whole[row['tokens']]:.2f}" if row["tokens"] in whole else ""
        cells = [
            f"{row['tokens']:,}",
            row["partitions"],
            f"{row['before_gib']:.2f}",
            f"{row['peak_gib']:.2f}",
        ]
        cells += [f"{above:.2f}", f"{row['seconds']:.0f}", f"{row['loss']:.6f}", share]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    loads = [row["load"] for row in rows]
    origin = (
        f"\nMeasured by `{told['command']}` on {told['date']}: {told['machine']}, one thread, load average "
        f"{min(loads)} to {max(loads)}, seed {told['seed']}; {told['versions']}.\n"
    )
    return INTRODUCTION + "\n".join(lines) + "\n" + NOT_MEASURED + origin


def main(words: Sequence[str] | None = None) -> int:
    """Measure every row, then write page and rows."""
    options = arguments(words)
    python = ensure_trainer(lambda line: print(line, file=sys.stderr))
    rows = []
    for tokens in map(int, options.tokens.split(",")):
        for partitions in map(int, options.partitions.split(",")):
            rows.append(measured(python, tokens, partitions, options.seed))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    origin = provenance.origin(options.seed)
    pins = {pin.key: pin.version for pin in read_pins(LOCK.read_text(encoding="utf-8"))}
    machine = origin["machine"]
    told = {
        "command": f"python -m scripts.bench.training.memory "
        f"--tokens {options.tokens} --partitions {options.partitions}",
        "date": origin["date"][:10],
        "machine": f"{machine['processor']}, {machine['cores']} shared cores",
        "seed": options.seed,
        "versions": ", ".join(f"{name} {pins[name]}" for name in LIBRARIES),
    }
    options.page.write_text(page(rows, told), encoding="utf-8")
    options.page.with_suffix(".json").write_text(
        json.dumps({"origin": origin, "rows": rows}, indent=1) + "\n", encoding="utf-8"
    )
    print(f"written: {options.page}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
