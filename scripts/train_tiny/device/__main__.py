"""Train both heads further, on an accelerator: ``python -m scripts.train_tiny.device --work W``.

``W`` is what ``scripts/train-tiny`` left: corpus, target and the heads to go on from. The machine needs an
accelerator and PyTorch for it, transformers, safetensors and numpy; `speculators` it does not need.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from scripts.train_tiny.heads import last_checkpoint

HEADS = ("eagle3", "p-eagle")
SHARES = 6  #: processes that write rollouts; one alone waits for its own Python most of the time


def together(commands: dict[str, list[str]], logs: Path) -> None:
    """Run every command at once, each with a log of its own; end with the first failure's log named."""
    running = {}
    for name, words in commands.items():
        with (logs / f"{name}.log").open("w") as log:
            running[name] = subprocess.Popen(
                [sys.executable, "-m", *words], stdout=log, stderr=subprocess.STDOUT
            )
    failed = [name for name, process in running.items() if process.wait()]
    if failed:
        sys.exit(f"{', '.join(failed)} failed; see {logs / failed[0]}.log")


def main() -> None:
    """Prompts, rollouts, then both heads side by side; leaves ``W/device.json`` for the cards."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2000, help="of each head (default 2000)")
    parser.add_argument("--documents", type=int, default=64, help="rollouts a step (default 64)")
    parser.add_argument("--prompts", type=int, default=60_000, help="at most (default 60,000: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    work, made = options.work, options.work / "device"
    made.mkdir(parents=True, exist_ok=True)
    package, seed = "scripts.train_tiny.device", ["--seed", str(options.seed)]
    prompts = made / "prompts.npz"
    wanted = ["--work", str(work), "--out", str(prompts), "--most", str(options.prompts)]
    together({"prompts": [f"{package}.prompts", *wanted, *seed]}, made)
    common = ["--target", str(work / "target"), "--device", options.device, *seed]
    shares = {
        f"rollouts-{share}": [
            *(f"{package}.rollouts", "--prompts", str(prompts), "--out", str(made / "rollouts")),
            *("--share", str(share), "--shares", str(SHARES), *common),
        ]
        for share in range(SHARES)
    }
    together(shares, made)
    size = ["--steps", str(options.steps), "--documents", str(options.documents)]
    # The newest checkpoint wins, so what is trained here goes beside the one that it went on from.
    starts = {head: last_checkpoint(work / "checkpoints" / head) for head in HEADS}
    outs = {head: work / "checkpoints" / head / "device" for head in HEADS}
    trainings = {
        head: [
            *(f"{package}.train", "--start", str(starts[head]), "--out", str(outs[head])),
            *("--rollouts", str(made / "rollouts"), *size, *common),
        ]
        for head in HEADS
    }
    together(trainings, made)
    facts = {head: json.loads((outs[head] / "facts.json").read_text()) for head in HEADS}
    (work / "device.json").write_text(json.dumps(facts, indent=1))
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
