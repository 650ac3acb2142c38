"""Train the EAGLE-3 and the P-EAGLE head with `speculators`: same data, same number of steps.

The two runs go side by side, one thread each: that is the fastest way on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from peagle_sm.train.target import AUX_LAYERS

TOKENS_A_STEP = 768  #: three rollouts; attention over the sampled depths is dense on a CPU
DEPTHS = 12  #: the K up to which the P-EAGLE head is trained
TTT_STEPS = 6  #: the depth to which the EAGLE-3 head is unrolled in training
PEAGLE_LAYERS, EAGLE3_LAYERS = 2, 1
MASK_TOKEN_ID = 1  #: <|mask|> in the tokenizer of this family

_SHARED = [
    *("--draft-arch", "llama", "--no-norm-before-residual", "--no-norm-before-fc", "--no-norm-output"),
    *("--draft-attn-impl", "sdpa", "--loss-implementation", "eager", "--hidden-states-dtype", "bfloat16"),
    *("--num-workers", "0", "--on-missing", "raise", "--train-data-ratio", "0.98"),
    *("--optimizer", "muon", "--scheduler-type", "cosine", "--scheduler-warmup-ratio", "0.04"),
    *("--log-freq", "20", "--no-resume-from-checkpoint", "--embed-requires-grad"),
]
_OF_HEAD = {
    "eagle3": [
        *("--num-layers", str(EAGLE3_LAYERS), "--full-attention-indices", "0"),
        *("--ttt-steps", str(TTT_STEPS)),
    ],
    "p-eagle": [
        *("--num-layers", str(PEAGLE_LAYERS), "--full-attention-indices", *map(str, range(PEAGLE_LAYERS))),
        *("--num-depths", str(DEPTHS), "--mask-token-id", str(MASK_TOKEN_ID), "--max-anchors", "512"),
        *("--down-sample-ratio", "0.8", "--down-sample-ratio-min", "0.15"),
    ],
}


def command(head: str, work: Path, epochs: int, rate: float, seed: int) -> list[str]:
    """The whole ``speculators train`` command line for one head."""
    layers = [str(i) for i in AUX_LAYERS]
    kind = {"eagle3": "eagle3", "p-eagle": "peagle"}[head]
    return [
        *(sys.executable, "-m", "peagle_sm.train.speculators_cpu", "--speculator-type", kind),
        *("--verifier-name-or-path", str(work / "target"), "--data-path", str(work / "rollouts")),
        *("--save-path", str(work / "checkpoints" / head), "--log-dir", str(work / "logs")),
        *("--target-layer-ids", *layers, "--total-seq-len", str(TOKENS_A_STEP)),
        *("--epochs", str(epochs), "--lr", str(rate), "--seed", str(seed), *_SHARED, *_OF_HEAD[head]),
    ]


def main() -> None:
    """Train both heads into ``work/checkpoints``; the first that fails ends the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=1, help="passes over the rollouts")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    environment = {**os.environ, "TRAIN_THREADS": "1", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    began, runs = time.monotonic(), {}
    for head in _OF_HEAD:
        words = command(head, options.work, options.epochs, options.rate, options.seed)
        log = (options.work / f"{head}.log").open("w")
        runs[head] = subprocess.Popen(words, env=environment, stdout=log, stderr=subprocess.STDOUT)
    minutes: dict[str, float] = {}
    try:
        while len(minutes) < len(runs):
            for head, run in runs.items():
                if run.poll() is not None and head not in minutes:
                    if run.returncode:
                        sys.exit(f"training the {head} head failed; see {options.work / head}.log")
                    minutes[head] = round((time.monotonic() - began) / 60, 1)
                    print(f"{head} head trained in {minutes[head]} min", flush=True)
            time.sleep(1)
    finally:
        for run in runs.values():
            run.terminate()
    logs = {head: (options.work / f"{head}.log").read_text() for head in runs}
    facts = {
        "epochs": options.epochs,
        "last_logged_step": {h: int(re.findall(r"global_step=(\d+)", t)[-1]) for h, t in logs.items()},
        "tokens_a_step": TOKENS_A_STEP,
        "rate": options.rate,
        "seed": options.seed,
        "depths": DEPTHS,
        "ttt_steps": TTT_STEPS,
        "minutes": minutes,
    }
    (options.work / "heads.json").write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
