"""Train the small target: a Llama of a few million parameters on Python source.

The learning rate follows the share of the time budget that is used up, not a step count, so that a
run ends when it was told to on any machine; the card records the steps that were reached.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

from scripts.train_tiny import corpus, tokenizer

#: (share of the time budget, sequence length, sequences a step): mostly short, since short steps are
#: cheap, and the last part at full length so that all 8,192 positions have been trained.
PHASES = ((0.62, 512, 8), (0.20, 2048, 2), (0.18, 8192, 1))
MATRIX_LR, VECTOR_LR, WARM_UP_STEPS = 3e-3, 4e-3, 30
AUX_LAYERS = (1, 3, 5)  #: inputs of these layers feed the draft heads (vLLM's numbering)


def config(layers: int) -> LlamaConfig:
    """The target's shape. head_dim 64, since vLLM's CPU attention wants 32, 64, 80, 96, 112 or 128."""
    return LlamaConfig(
        vocab_size=tokenizer.VOCAB_SIZE,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=tokenizer.MAX_LENGTH,
        rms_norm_eps=1e-5,
        rope_theta=100000.0,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=2,
        initializer_range=0.02,
        attn_implementation="sdpa",
        use_cache=False,
    )


def encode(work: Path) -> None:
    """Write ``train.bin`` and ``held.bin`` (uint16 token ids, documents parted by the end token)."""
    tok = AutoTokenizer.from_pretrained(work / "target")
    for name, held in (("train", False), ("held", True)):
        texts = [d.text for d in corpus.read(work / "documents.jsonl") if d.held_out is held]
        rows = tok(texts, add_special_tokens=False)["input_ids"]
        ids = [token for row in rows for token in (0, *row)]
        np.array(ids, dtype=np.uint16).tofile(work / f"{name}.bin")


def windows(data: np.ndarray, length: int, count: int, rng: np.random.Generator) -> Iterator[torch.Tensor]:
    """Batches [count, length + 1] of the stream, each stretch once a pass, at a fresh offset."""
    while True:
        starts = np.arange(int(rng.integers(0, length)), len(data) - length - 1, length)
        rng.shuffle(starts)
        for i in range(0, len(starts) - count + 1, count):
            rows = np.stack([data[s : s + length + 1] for s in starts[i : i + count]])
            yield torch.from_numpy(rows.astype(np.int64))


def loss_by_token(model: LlamaForCausalLM, batch: torch.Tensor) -> torch.Tensor:
    """Cross entropy in nats, [batch, length]."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(input_ids=batch[:, :-1], use_cache=False).logits
    size = logits.shape[-1]
    flat = cross_entropy(logits.float().view(-1, size), batch[:, 1:].reshape(-1), reduction="none")
    return flat.view(batch.shape[0], -1)


@torch.no_grad()
def held_out_loss(model: LlamaForCausalLM, data: np.ndarray, length: int, sequences: int) -> np.ndarray:
    """Mean loss in nats at each position, over ``sequences`` stretches spread evenly over ``data``."""
    model.eval()
    starts = np.linspace(0, len(data) - length - 1, sequences).astype(int)
    rows = [torch.from_numpy(data[s : s + length + 1].astype(np.int64))[None] for s in starts]
    losses = torch.cat([loss_by_token(model, row) for row in rows])
    model.train()
    return losses.mean(0).numpy()


def _scale(step: int, share: float) -> float:
    """Warm-up, flat to half the budget, then a straight line down to 2%."""
    return min(1.0, (step + 1) / WARM_UP_STEPS) * min(1.0, max(0.02, (1 - share) / 0.5))


def train(work: Path, minutes: float, layers: int, seed: int, threads: int) -> dict[str, object]:
    """Train for ``minutes`` and save ``work/target``; returns what the card needs to know."""
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    rng = np.random.default_rng(seed)
    data = np.fromfile(work / "train.bin", dtype=np.uint16)
    held = np.fromfile(work / "held.bin", dtype=np.uint16)
    model = LlamaForCausalLM(config(layers))
    matrices: list[torch.nn.Parameter] = []
    vectors: list[torch.nn.Parameter] = []
    for name, parameter in model.named_parameters():
        hidden = parameter.ndim == 2 and "embed" not in name and "lm_head" not in name
        (matrices if hidden else vectors).append(parameter)
    muon = torch.optim.Muon(
        matrices, lr=1.0, momentum=0.95, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"
    )
    adam = torch.optim.AdamW(vectors, lr=1.0, betas=(0.9, 0.95), weight_decay=0.0)
    began, cpu, step, tokens, smooth = time.monotonic(), time.process_time(), 0, 0, math.nan
    phases = [(bound, windows(data, length, count, rng)) for bound, length, count in PHASES]
    while (share := (time.monotonic() - began) / (60 * minutes)) < 1:
        limit, source = 0.0, phases[-1][1]
        for bound, candidate in phases:
            limit += bound
            if share < limit:
                source = candidate
                break
        for optimizer, rate in ((muon, MATRIX_LR), (adam, VECTOR_LR)):
            for group in optimizer.param_groups:
                group["lr"] = rate * _scale(step, share)
        batch = next(source)
        loss = loss_by_token(model, batch).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(vectors, 1.0)
        for optimizer in (muon, adam):
            optimizer.step()
            optimizer.zero_grad()
        step, tokens = step + 1, tokens + batch[:, 1:].numel()
        value = loss.item()
        smooth = value if math.isnan(smooth) else 0.95 * smooth + 0.05 * value
        if step % 20 == 0:
            pace = tokens / (time.monotonic() - began)
            print(f"step {step}  {share:4.0%}  loss {smooth:.3f}  {pace:.0f} tokens/s", flush=True)
        if step % 200 == 0:
            print(f"held-out loss {held_out_loss(model, held, 512, 40).mean():.4f}", flush=True)
    long = held_out_loss(model, held, tokenizer.MAX_LENGTH, min(16, len(held) // tokenizer.MAX_LENGTH))
    facts: dict[str, object] = {
        "steps": step,
        "tokens": tokens,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "cpu_minutes": round((time.process_time() - cpu) / 60, 1),
        "threads": threads,
        "seed": seed,
        "layers": layers,
        "parameters": sum(p.numel() for p in model.parameters()),
        "corpus_tokens": len(data),
        "held_out_loss": round(float(held_out_loss(model, held, 512, 200).mean()), 4),
        "held_out_loss_512_1023": round(float(long[512:1024].mean()), 4),
        "held_out_loss_4096_8191": round(float(long[4096:8192].mean()), 4),
    }
    model.config.use_cache = True
    model = model.to(torch.bfloat16)
    model.generation_config = GenerationConfig(bos_token_id=0, eos_token_id=0, pad_token_id=2)
    model.save_pretrained(work / "target")
    (work / "target.json").write_text(json.dumps(facts, indent=1))
    return facts


def main() -> None:
    """Corpus, tokenizer and target, each made only if it is not in ``--work`` yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=50)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    work: Path = options.work
    if not (work / "documents.jsonl").exists():
        documents = corpus.documents(corpus.download(work / "wheels"), options.seed)
        counts = corpus.write(documents, work / "documents.jsonl")
        counts["humaneval_found"] = len(corpus.contamination(documents, corpus.humaneval_prompts()))
        (work / "corpus.json").write_text(json.dumps(counts, indent=1))
        print(counts, flush=True)
    if not (work / "target" / "tokenizer.json").exists():
        sample = [d.text for d in corpus.read(work / "documents.jsonl") if not d.held_out][:4000]
        tokenizer.train(sample, work / "target")
    if not (work / "train.bin").exists():
        encode(work)
    print(train(work, options.minutes, options.layers, options.seed, options.threads))


if __name__ == "__main__":
    main()
