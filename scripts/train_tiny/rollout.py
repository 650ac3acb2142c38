"""Training data for the heads: the target's own greedy continuations and its hidden states.

``speculators train --on-missing raise`` reads them: a `datasets` folder with ``input_ids``,
``loss_mask`` and ``seq_len``, and ``hidden_states/hs_<i>.safetensors`` with ``token_ids`` [T] and
``hidden_states`` [T, 3 auxiliary + last, H], the last one taken before the final norm.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from scripts.train_tiny import corpus
from scripts.train_tiny.target import AUX_LAYERS

PROMPT_TOKENS, NEW_TOKENS = 80, 176  #: of each on-policy sequence; three of them fill a training step
MASKED_PROMPT_TOKENS = PROMPT_TOKENS - 8  #: the last few prompt tokens train too
BATCH = 256


def prompts(work: Path, count: int, rng: np.random.Generator) -> Iterator[torch.Tensor]:
    """``count`` training prompts [PROMPT_TOKENS]: half start at a function, half anywhere."""
    data = np.fromfile(work / "train.bin", dtype=np.uint16)
    tokenizer = AutoTokenizer.from_pretrained(work / "target")
    wanted = [d.text for d in corpus.read(work / "documents.jsonl") if "#" in d.source and not d.held_out]
    random.Random(int(rng.integers(2**31))).shuffle(wanted)
    rows = tokenizer(wanted[:count], add_special_tokens=False)["input_ids"]
    starts = [[0, *row][:PROMPT_TOKENS] for row in rows if len(row) >= PROMPT_TOKENS][: count // 2]
    for row in starts:
        yield torch.tensor(row, dtype=torch.long)
    for start in rng.integers(0, len(data) - PROMPT_TOKENS, count - len(starts)):
        yield torch.from_numpy(data[start : start + PROMPT_TOKENS].astype(np.int64))


@torch.no_grad()
def continuations(model: torch.nn.Module, rows: list[torch.Tensor]) -> torch.Tensor:
    """Greedy continuations [rows, PROMPT_TOKENS + NEW_TOKENS]; after an end token a new text begins."""
    batch = torch.stack(rows)
    return model.generate(  # type: ignore[operator, no-any-return]
        batch,
        attention_mask=torch.ones_like(batch),
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        eos_token_id=None,
    )


@torch.no_grad()
def store_hidden_states(model: torch.nn.Module, rows: list[torch.Tensor], into: Path) -> None:
    """One safetensors file a row, in the layout of the module's docstring."""
    last: dict[str, torch.Tensor] = {}
    # The state before the final norm is no output of transformers, so it is caught on its way in.
    hook = model.model.norm.register_forward_pre_hook(lambda _, inputs: last.update(h=inputs[0]))
    into.mkdir(parents=True, exist_ok=True)
    for first in range(0, len(rows), 16):
        batch = torch.stack(rows[first : first + 16])
        output = model.model(input_ids=batch, output_hidden_states=True, use_cache=False)
        states = torch.stack([output.hidden_states[i] for i in AUX_LAYERS] + [last["h"]], 2)
        for offset, (state, ids) in enumerate(zip(states.to(torch.bfloat16), batch, strict=True)):
            tensors = {"hidden_states": state.contiguous(), "token_ids": ids.contiguous()}
            save_file(tensors, into / f"hs_{first + offset}.safetensors")
    hook.remove()


def main() -> None:
    """Write ``work/rollouts`` from ``work/target`` and the corpus beside it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--sequences", type=int, default=4800)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rng, began = np.random.default_rng(options.seed), time.monotonic()
    model = AutoModelForCausalLM.from_pretrained(options.work / "target", dtype=torch.bfloat16).eval()
    prompt_rows = list(prompts(options.work, options.sequences, rng))
    rng.shuffle(prompt_rows)  # type: ignore[arg-type]
    rows: list[torch.Tensor] = []
    for first in range(0, len(prompt_rows), BATCH):
        rows += list(continuations(model, prompt_rows[first : first + BATCH]))
        print(f"rollouts {len(rows)}/{len(prompt_rows)}  {time.monotonic() - began:.0f} s", flush=True)
    out = options.work / "rollouts"
    store_hidden_states(model, rows, out / "hidden_states")
    mask = [0] * MASKED_PROMPT_TOKENS + [1] * (PROMPT_TOKENS + NEW_TOKENS - MASKED_PROMPT_TOKENS)
    columns = {
        "input_ids": [row.tolist() for row in rows],
        "loss_mask": [mask] * len(rows),
        "seq_len": [len(row) for row in rows],
    }
    dataset = Dataset.from_dict(columns)
    dataset.set_format("torch")
    dataset.save_to_disk(out)
    facts = {"sequences": len(rows), "tokens": sum(map(len, rows)), "seed": options.seed}
    facts |= {"prompt_tokens": PROMPT_TOKENS, "new_tokens": NEW_TOKENS}
    (options.work / "rollouts.json").write_text(json.dumps(facts, indent=1))
    print(facts, f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
