"""The target's own greedy continuations of many prompts, grouped by length so that training pads nothing."""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

NEW_TOKENS = 176
BATCH = 2048
START_TOKEN_SHARE = 0.3  #: of the prompts keep their start token; clients send prompts without


def read_prompts(file: Path, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """The prompts, each [tokens], and which of them are held out, [prompts]."""
    stored = np.load(file)
    ends = np.cumsum(stored["lengths"])
    rows = np.split(stored["ids"].astype(np.int64), ends[:-1])
    keeps_start = np.random.default_rng(seed).random(len(rows)) < START_TOKEN_SHARE
    return [row if keep else row[1:] for row, keep in zip(rows, keeps_start, strict=True)], stored["held_out"]


@torch.no_grad()
def continued(model: torch.nn.Module, prompts: list[np.ndarray], device: torch.device) -> np.ndarray:
    """Greedy continuations [prompts, NEW_TOKENS]; after an end token another text begins."""
    longest = max(map(len, prompts))
    ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.from_numpy(prompt)
        mask[row, longest - len(prompt) :] = 1
    made = model.generate(  # type: ignore[operator]
        ids.to(device),
        attention_mask=mask.to(device),
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    whole: np.ndarray = made[:, longest:].cpu().numpy()
    return whole


def main() -> None:
    """Write one share of the rollouts, ``--out``/<share>.npz: an array [rollouts, length] for each length."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--share", type=int, default=0)
    parser.add_argument("--shares", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    device, began = torch.device(options.device), time.monotonic()
    model = AutoModelForCausalLM.from_pretrained(options.target, dtype=torch.bfloat16).eval().to(device)
    prompts, held_out = read_prompts(options.prompts, options.seed)
    mine = list(range(options.share, len(prompts), options.shares))
    mine.sort(key=lambda i: len(prompts[i]))
    groups: dict[str, list[np.ndarray]] = defaultdict(list)
    for first in range(0, len(mine), BATCH):
        chunk = mine[first : first + BATCH]
        for i, new in zip(chunk, continued(model, [prompts[i] for i in chunk], device), strict=True):
            kind = "held" if held_out[i] else "train"
            groups[f"{kind}_{len(prompts[i])}"].append(np.concatenate([prompts[i], new]).astype(np.uint16))
        print(f"rollouts {first + len(chunk)}/{len(mine)}  {time.monotonic() - began:.0f} s", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {name: np.stack(rows) for name, rows in groups.items()}
    np.savez(options.out / f"{options.share}.npz", **arrays)


if __name__ == "__main__":
    main()
