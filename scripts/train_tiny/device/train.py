"""Train one head on an accelerator, from a checkpoint of `speculators`, and write one in its layout."""

from __future__ import annotations

import argparse
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from scripts.train_tiny.device import data
from scripts.train_tiny.device.drafting import Batch, Drafted, Sampling, eagle3, p_eagle
from scripts.train_tiny.device.head import Head, Shape

DEPTHS = 12  #: the K up to which the P-EAGLE head is trained
UNROLLED = 7  #: passes of the EAGLE-3 head over its own states
SAMPLING = Sampling(DEPTHS, ratio=0.7, floor=0.1)
WARM_UP = 0.02  #: of the steps
MASK_TOKEN_ID = 1
HARD = 0.5  #: weight of the target's most likely token beside its whole distribution
TESTED_DEPTHS = 8
SAVED_EVERY = 500  #: steps


def loss_of(drafted: Drafted) -> torch.Tensor:
    """Cross-entropy with the target's distribution, and with its most likely token; a mean over rows."""
    guess = drafted.logits.float().log_softmax(-1)
    truth = drafted.targets.float().softmax(-1)
    best = drafted.targets.argmax(-1, keepdim=True)
    soft, hard = -(truth * guess).sum(-1), -guess.gather(1, best)[:, 0]
    return ((1 - HARD) * soft + HARD * hard).mean()


def optimizers(head: Head, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside, AdamW for the rest, as `speculators` divides them."""
    matrices: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for name, parameter in head.named_parameters():
        if not parameter.requires_grad:
            continue
        inside = parameter.ndim == 2 and not name.startswith(("embed_tokens", "lm_head"))
        (matrices if inside else others).append(parameter)
    return [
        torch.optim.Muon(matrices, lr=rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=rate / 2, weight_decay=0.0, betas=(0.9, 0.98), fused=True),
    ]


def share_of_rate(step: int, steps: int) -> float:
    """The learning rate's course: up within the warm-up, then down a cosine to nothing."""
    start = max(1, int(WARM_UP * steps))
    if step < start:
        return (step + 1) / start
    return 0.5 * (1 + math.cos(math.pi * (step - start) / max(1, steps - start)))


class Trainer:
    """One head, its target and its rollouts."""

    def __init__(self, head: Head, teacher: data.Teacher, parallel: bool, device: torch.device) -> None:
        """Put everything together; ``parallel`` is P-EAGLE."""
        self.head, self.teacher, self.parallel, self.device = head, teacher, parallel, device

    def draft(self, batch: Batch, sampling: Sampling = SAMPLING, unrolled: int = UNROLLED) -> Drafted:
        """The head's pass over a batch."""
        with torch.autocast(self.device.type, torch.bfloat16):
            if self.parallel:
                return p_eagle(self.head, batch, sampling, MASK_TOKEN_ID)
            return eagle3(self.head, batch, unrolled)

    def batch(self, length: int, rows: torch.Tensor) -> Batch:
        """What the target says of ``rows``."""
        with torch.autocast(self.device.type, torch.bfloat16):
            return self.teacher.batch(rows.to(self.device).long(), length)

    def run(
        self,
        batches: Iterator[tuple[int, torch.Tensor]],
        steps: int,
        rate: float,
        save: Callable[[], None] = lambda: None,
    ) -> None:
        """Train for ``steps`` batches; ``save`` is called now and then: a lent machine may be taken back."""
        own = optimizers(self.head, rate)
        peaks = [optimizer.param_groups[0]["lr"] for optimizer in own]
        began, mean = time.monotonic(), torch.zeros((), device=self.device)
        for step in range(steps):
            for optimizer, peak in zip(own, peaks, strict=True):
                optimizer.param_groups[0]["lr"] = peak * share_of_rate(step, steps)
            loss = loss_of(self.draft(self.batch(*next(batches))))
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(self.head.parameters(), 1.0)
            sound = bool(torch.isfinite(norm))
            for optimizer in own:
                if sound:
                    optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            if sound:
                mean.mul_(0.99).add_(0.01 * loss.detach())
            else:
                print(f"step {step + 1}: no finite gradient, left out", flush=True)
            if (step + 1) % 200 == 0 or step + 1 == steps:
                told = float(mean) / (1 - 0.99 ** (step + 1))
                seconds = time.monotonic() - began
                print(f"step {step + 1}/{steps}  loss {told:.4f}  {seconds:.0f} s", flush=True)
            if (step + 1) % SAVED_EVERY == 0:
                save()

    @torch.no_grad()
    def acceptance(self, groups: dict[int, torch.Tensor], size: int, most: int) -> list[float]:
        """Survival at each of TESTED_DEPTHS positions, over every place of up to ``most`` rollouts."""
        survived = torch.zeros(TESTED_DEPTHS, device=self.device)
        chains = seen = 0
        for length, rows in groups.items():
            if seen >= most:
                break
            for part in rows.split(size):
                batch = self.batch(length, part)
                made = self.draft(batch, Sampling(TESTED_DEPTHS, 1.0, 1.0), TESTED_DEPTHS)
                right = made.logits.argmax(-1) == made.targets.argmax(-1)
                table = torch.zeros(batch.tokens.numel(), TESTED_DEPTHS, dtype=torch.bool, device=self.device)
                table[made.anchor, made.depth] = right
                whole = torch.zeros(batch.tokens.numel(), dtype=torch.bool, device=self.device)
                whole[made.anchor[made.depth == TESTED_DEPTHS - 1]] = True
                whole &= torch.arange(len(whole), device=self.device) % batch.tokens.shape[1] >= batch.first
                survived += table[whole].long().cumprod(1).sum(0)
                chains += int(whole.sum())
                seen += len(part)
        return [float(x) / max(1, chains) for x in survived]


def main() -> None:
    """Train, test on held-out rollouts, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--start", type=Path, required=True, help="checkpoint to go on from")
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--rollouts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--documents", type=int, default=64, help="a step")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    # With cuDNN's attention the P-EAGLE losses became no numbers within 3,600 steps (torch 2.11, H200);
    # without it none of 2,000 steps had a gradient that was not finite.
    torch.backends.cuda.enable_cudnn_sdp(False)
    device = torch.device(options.device)
    config = json.loads((options.start / "config.json").read_text())
    stored = load_file(options.start / "model.safetensors")
    parallel = "mask_hidden" in stored
    head = Head(Shape.of(config), parallel)
    head.load_state_dict({name: stored[name].float() for name in head.state_dict()})
    # An EAGLE-3 head reads the target's embedding as it is.
    head.embed_tokens.weight.requires_grad_(parallel)
    target = AutoModelForCausalLM.from_pretrained(options.target, dtype=torch.float32).to(device)
    trainer = Trainer(head.to(device), data.Teacher(target), parallel, device)
    held = data.read(options.rollouts, "held")
    began = time.monotonic()

    def test(word: str) -> list[float] | None:
        if not held:
            return None
        survival = trainer.acceptance(held, 16, 640)
        told = " ".join(f"{share:.3f}" for share in survival)
        print(f"{word}: acceptance length at K=7 {1 + sum(survival[:7]):.3f}; survival {told}", flush=True)
        return survival

    before = test("before")
    groups = data.read(options.rollouts, "train")

    def save() -> None:
        options.out.mkdir(parents=True, exist_ok=True)
        shutil.copy(options.start / "config.json", options.out / "config.json")
        made = {name: tensor.to(torch.bfloat16).cpu() for name, tensor in head.state_dict().items()}
        save_file(made, options.out / "model.safetensors", metadata={"format": "pt"})

    batches = data.order(groups, options.documents, options.seed)
    trainer.run(batches, options.steps, options.rate, save)
    save()
    after = test("after")
    facts = {
        "steps": options.steps,
        "documents_a_step": options.documents,
        "unrolled": UNROLLED,
        "depths": DEPTHS,
        "rollouts": sum(map(len, groups.values())),
        "rate": options.rate,
        "seed": options.seed,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "held_out_survival": {"before": before, "after": after},
    }
    (options.out / "facts.json").write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
