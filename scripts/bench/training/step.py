"""Run by the trainer's Python: one step of the shipped head on one document, in a process of its own.

``step.py HEAD TOKENS PARTITIONS SEED`` prints a JSON object: the process's memory before the step and at
most, both in GiB, seconds and CPU seconds of the step, and the loss. The target's hidden states are made up;
what is measured is the head's forward and backward pass, which the partitions are for.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from nemo_automodel.components.speculative.eagle.draft_llama import LlamaEagle3DraftModel
from transformers import LlamaConfig

from peagle_train import on_cpu
from peagle_train.recipe import CountingTrainer

PAGE = 4096


def resident_gib() -> float:
    """Memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**30


def highest_gib() -> float:
    """The most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def trainer(head: dict[str, Any], partitions: int) -> Any:
    """The library's trainer of a head of the shipped shape."""
    config = {**LlamaConfig(**head).to_dict(), **head, "attn_implementation": "eager"}
    vocab = config["draft_vocab_size"]
    return CountingTrainer(
        LlamaEagle3DraftModel(LlamaConfig.from_dict(config)).float(),
        selected_token_ids=torch.arange(vocab),
        selected_token_mask=torch.ones(vocab, dtype=torch.bool),
        num_depths=8,
        mask_token_id=head["ptd_token_id"],
        sequence_partitions=partitions,
    )


def main(head: str, tokens: int, partitions: int, seed: int) -> None:
    """Measure one step."""
    torch.set_num_threads(1)
    on_cpu.install()
    config = json.loads(Path(head, "config.json").read_text())
    torch.manual_seed(seed)
    made = trainer(config, partitions)
    batch = {
        "input_ids": torch.randint(4, config["vocab_size"], (1, tokens)),
        "attention_mask": torch.ones(1, tokens, dtype=torch.long),
        "loss_mask": torch.ones(1, tokens, dtype=torch.long),
        "aux_hidden_states": torch.randn(1, tokens, 3 * config["target_hidden_size"]),
        "target_logits": torch.randn(1, tokens, config["vocab_size"]),
    }
    before, most, highest = resident_gib(), [0.0], highest_gib()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            most[0] = max(most[0], resident_gib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    began, cpu = time.monotonic(), time.process_time()
    torch.manual_seed(seed + 1)
    loss = 0.0
    if partitions == 1:
        part = made(**batch).loss
        part.backward()
        loss = part.item()
    else:
        cut = made.build_peagle_plan(batch["loss_mask"])
        for number in range(len(cut.units)):
            part = made(**batch, peagle_segment=(cut, number)).loss
            part.backward()
            loss += part.item()
    over.set()
    watcher.join()
    # The kernel misses no peak, but its figure may be one of the set-up.
    peak = highest_gib() if highest_gib() > highest else most[0]
    print(
        json.dumps(
            {
                "tokens": tokens,
                "partitions": partitions,
                "before_gib": round(before, 3),
                "peak_gib": round(peak, 3),
                "seconds": round(time.monotonic() - began, 1),
                "cpu_seconds": round(time.process_time() - cpu, 1),
                "loss": round(loss, 6),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
