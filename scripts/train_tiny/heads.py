"""Train the EAGLE-3 head with `speculators`, and plant the P-EAGLE head, which ``peagle`` trains.

Both get the same sequences and the same number of steps. EAGLE-3 has the first half of its steps first, since
P-EAGLE starts from its layer (``warm_start``).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.train_tiny.target import AUX_LAYERS

TOKENS_A_STEP = 768  #: three rollouts; attention over the sampled depths is dense on a CPU
DEPTHS = 12  #: the K up to which the P-EAGLE head is trained
DEPTH_RATIO, LEAST_RATIO = 0.6, 0.05  #: share of slots sampled at each further depth, and its floor
TTT_STEPS = 6  #: the depth to which the EAGLE-3 head is unrolled in training
PEAGLE_LAYERS, EAGLE3_LAYERS = 2, 1
PEAGLE_HEADS, PEAGLE_KEY_VALUE_HEADS = 16, 8  #: of 64; what `copying` plants needs that many
MASK_TOKEN_ID = 1  #: <|mask|> in the tokenizer of this family

_SHARED = [
    *("--draft-attn-impl", "sdpa", "--loss-implementation", "eager", "--hidden-states-dtype", "bfloat16"),
    *("--num-workers", "0", "--on-missing", "raise", "--train-data-ratio", "0.98", "--optimizer", "muon"),
    *("--log-freq", "20", "--no-resume-from-checkpoint", "--embed-requires-grad"),
]
_FRESH = ["--draft-arch", "llama", "--no-norm-before-residual", "--no-norm-before-fc", "--no-norm-output"]
_EAGLE3 = [
    *_FRESH,
    *("--num-layers", str(EAGLE3_LAYERS), "--full-attention-indices", "0", "--ttt-steps", str(TTT_STEPS)),
]
_PEAGLE = [
    *_FRESH,
    *("--num-layers", str(PEAGLE_LAYERS), "--full-attention-indices", *map(str, range(PEAGLE_LAYERS))),
    *("--mask-token-id", str(MASK_TOKEN_ID)),
]
DEPTH_OPTIONS = [
    *("--num-depths", str(DEPTHS), "--max-anchors", "512"),
    *("--down-sample-ratio", str(DEPTH_RATIO), "--down-sample-ratio-min", str(LEAST_RATIO)),
]


@dataclass(frozen=True)
class Plan:
    """How long and how fast each part trains; a step is :data:`TOKENS_A_STEP` tokens."""

    steps: int  #: of each head; EAGLE-3 has them in two halves
    rate: float = 2e-3
    seed: int = 0


class Trainer:
    """Runs ``speculators train`` in ``work``, one part after the other, each with a log of its own."""

    def __init__(self, work: Path, plan: Plan, threads: int) -> None:
        """Take where the target and the rollouts are, and what is wanted."""
        self.work, self.plan = work, plan
        self.minutes: dict[str, float] = {}
        self._environment = {
            **os.environ,
            "TRAIN_THREADS": str(threads),
            "OMP_NUM_THREADS": str(threads),
            "OMP_WAIT_POLICY": "passive",
        }

    def run(self, part: str, kind: str, options: list[str], *, steps: int, turn: int = 0) -> Path:
        """Train one part for ``steps`` steps; returns its checkpoint. Each ``turn`` orders the data anew."""
        epochs = 1 + steps * TOKENS_A_STEP // self._rollout_tokens()
        length = ["--max-steps", str(steps), "--epochs", str(epochs), "--scheduler-type", "cosine"]
        return self._call(part, kind, [*options, *length, "--seed", str(self.plan.seed + turn)])

    def fresh(self, kind: str, options: list[str]) -> Path:
        """Save an untrained head; returns its checkpoint."""
        return self._call("fresh", kind, [*options, "--dry-run", "--seed", str(self.plan.seed)])

    def _call(self, part: str, kind: str, options: list[str]) -> Path:
        began, folder = time.monotonic(), self.work / "checkpoints" / part
        layers = [str(i) for i in AUX_LAYERS]
        words = [
            *(sys.executable, "-m", "scripts.train_tiny.speculators_cpu", "--speculator-type", kind),
            *("--verifier-name-or-path", str(self.work / "target"), "--save-path", str(folder)),
            *("--data-path", str(self.work / "rollouts"), "--log-dir", str(self.work / "logs")),
            *("--target-layer-ids", *layers, "--total-seq-len", str(TOKENS_A_STEP)),
            *("--lr", str(self.plan.rate), "--scheduler-warmup-ratio", "0.04"),
            *(*_SHARED, *options),
        ]
        log = self.work / f"{part}.log"
        with log.open("w") as file:
            done = subprocess.run(words, env=self._environment, stdout=file, stderr=subprocess.STDOUT)
        if done.returncode:
            sys.exit(f"training {part} failed; see {log}")
        self.minutes[part] = round((time.monotonic() - began) / 60, 1)
        print(f"{part}: {self.minutes[part]} min", flush=True)
        return last_checkpoint(folder)

    def _rollout_tokens(self) -> int:
        return int(json.loads((self.work / "rollouts.json").read_text())["tokens"])


def last_checkpoint(folder: Path) -> Path:
    """The newest checkpoint of a run.

    Raises:
        FileNotFoundError: the run has saved none.
    """
    folders = [p.parent for p in folder.glob("**/model.safetensors") if not p.parent.is_symlink()]
    if not folders:
        raise FileNotFoundError(f"no checkpoint in {folder}")
    return max(folders, key=lambda path: (path / "model.safetensors").stat().st_mtime)


def plant(trainer: Trainer, eagle3: Path) -> Path:
    """Write the P-EAGLE head to start from, with the layer of ``eagle3``; returns its checkpoint."""
    fresh, warm = trainer.fresh("peagle", [*_PEAGLE, *DEPTH_OPTIONS]), trainer.work / "checkpoints" / "warm"
    words = [sys.executable, "-m", "scripts.train_tiny.warm_start", "--work", str(trainer.work)]
    words += ["--out", str(warm), "--eagle3", str(eagle3), "--fresh", str(fresh)]
    subprocess.run([*words, "--seed", str(trainer.plan.seed)], check=True)
    return warm


def train(trainer: Trainer) -> None:
    """Train EAGLE-3 into ``work/checkpoints/eagle3``, and plant P-EAGLE in ``work/checkpoints/warm``."""
    first = trainer.plan.steps // 2
    half = trainer.run("eagle3-first", "eagle3", _EAGLE3, steps=first)
    plant(trainer, half)
    options = ["--from-pretrained", str(half), "--ttt-steps", str(TTT_STEPS)]
    trainer.run("eagle3", "eagle3", options, steps=trainer.plan.steps - first, turn=1)


def main() -> None:
    """Make both, and leave ``work/heads.json`` for the cards."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2938, help="of each head")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    plan = Plan(options.steps, options.rate, options.seed)
    trainer = Trainer(options.work, plan, options.threads)
    train(trainer)
    sizes = {
        "tokens_a_step": TOKENS_A_STEP,
        "depths": DEPTHS,
        "ttt_steps": TTT_STEPS,
        "eagle3_layers": EAGLE3_LAYERS,
        "peagle_layers": PEAGLE_LAYERS,
        "peagle_heads": PEAGLE_HEADS,
        "peagle_kv_heads": PEAGLE_KEY_VALUE_HEADS,
    }
    facts = {**asdict(plan), **sizes, "minutes": trainer.minutes}
    (options.work / "heads.json").write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
