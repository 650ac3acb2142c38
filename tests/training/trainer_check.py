"""Run by the trainer's Python: ``trainer_check.py COMMAND …``.

- ``gradients``: loss, gradient and lm_head rows of the library's own loss and of each attention and number of
  partitions, and the counts by depth against the library's accuracy.
- ``steps``: what AdamW changes in float32, in bfloat16 and with master weights.
- ``bfloat16 ROOT STOP``: the job in ROOT with a target in bfloat16, as on a GPU, until step STOP.
- ``state FOLDER``: what a checkpoint has.
- ``rollouts TARGET PROMPTS OUT HELD_OUT``: the target's greedy continuations of the shipped prompts as
  documents, and other prompts.
- ``output HEAD TARGET``: how far the head's output matrix is from the target's rows of its draft tokens.
- ``damage HEAD OUT``: noise on the matrices.

All but ``bfloat16`` and the last two print a JSON object.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

PROMPT, NEW, TRAINED = 48, 112, 150


HIDDEN, VOCAB = 128, 512


def random_batch(tokens: int = 320) -> dict[str, Any]:
    """Random hidden states; the first quarter is a prompt and the last fifth is padding."""
    mask = (torch.arange(tokens) < tokens - tokens // 5).long()[None]
    torch.manual_seed(1)
    return {
        "input_ids": torch.randint(4, VOCAB, (1, tokens)),
        "attention_mask": mask,
        "loss_mask": mask * (torch.arange(tokens) > tokens // 4),
        "aux_hidden_states": torch.randn(1, tokens, 3 * HIDDEN),
        "target_logits": torch.randn(1, tokens, VOCAB),
    }


def small_trainer(kind: Any, partitions: int = 1) -> Any:
    """A trainer, the library's or ours, of a head of 2 layers with the same random weights."""
    from nemo_automodel.components.speculative.eagle.draft_llama import LlamaEagle3DraftModel
    from transformers import LlamaConfig

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=HIDDEN,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        vocab_size=VOCAB,
        tie_word_embeddings=False,
    ).to_dict()
    config |= {"draft_vocab_size": VOCAB, "target_hidden_size": HIDDEN, "parallel_drafting": True}
    draft = LlamaEagle3DraftModel(LlamaConfig.from_dict({**config, "attn_implementation": "eager"})).float()
    return kind(
        draft,
        selected_token_ids=torch.arange(VOCAB),
        selected_token_mask=torch.ones(VOCAB, dtype=torch.bool),
        num_depths=8,
        mask_token_id=3,
        sequence_partitions=partitions,
    )


def step_of(trainer: Any, batch: dict[str, Any]) -> list[Any]:
    """Forward and backward pass of a batch; return the library's metrics of each partition."""
    if trainer.sequence_partitions == 1:
        parts = [trainer(**batch)]
        parts[0].loss.backward()
        return parts
    cut, parts = trainer.build_peagle_plan(batch["loss_mask"]), []
    for number in range(len(cut.units)):
        parts.append(trainer(**batch, peagle_segment=(cut, number)))
        parts[-1].loss.backward()
    return parts


def gradients() -> dict[str, Any]:
    """The library's own loss comes first, then ours."""
    from nemo_automodel.components.speculative.eagle import PEagleTrainerModule

    from peagle_train import on_cpu
    from peagle_train.recipe import CountingTrainer, figures

    batch = random_batch()
    first: Any = None
    results: dict[str, Any] = {}
    kinds = [("library", PEagleTrainerModule, "dense"), ("library", PEagleTrainerModule, "structured")]
    kinds += [("ours", CountingTrainer, "dense"), ("ours", CountingTrainer, "structured")]
    for name, kind, attention in kinds:
        on_cpu.install(attention)
        for partitions in (1, 8) if name == "library" else (1, 2, 4, 8):
            rows: list[int] = []
            trainer = small_trainer(kind, partitions)
            trainer.draft_model.lm_head.register_forward_hook(
                lambda module, given, logits, rows=rows: rows.append(logits.shape[:-1].numel())
            )
            torch.manual_seed(7)
            parts = step_of(trainer, batch)
            gradient = torch.cat(
                [each.grad.flatten() for each in trainer.parameters() if each.grad is not None]
            )
            first = gradient if first is None else first
            valid = sum(float(part.valid_tokens) for part in parts)
            right = sum(float(part.accuracy) * float(part.valid_tokens) for part in parts)
            result = {
                "loss": sum(part.loss.item() for part in parts),
                "relative": ((gradient - first).norm() / first.norm()).item(),
                "largest": (gradient - first).abs().max().item(),
                "accuracy": right / valid,
                "rows": sum(rows),
                "largest_part": max(rows),
            }
            if kind is CountingTrainer:
                counts = trainer.take_counts(True)
                result |= {"counted": figures(counts), "by_depth": counts[1].tolist()}
            results[f"{name} {attention} {partitions}"] = result
    return results


def steps(count: int = 12, rate: float = 1e-5) -> dict[str, Any]:
    """Losses, and how far weights near 1 (norms, mask_hidden) move in ``count`` steps of AdamW."""
    from peagle_train import masters, on_cpu
    from peagle_train.recipe import CountingTrainer

    on_cpu.install()
    results: dict[str, Any] = {}
    moved: dict[str, Any] = {}
    for how in ("float32", "bfloat16", "masters"):
        trainer = small_trainer(CountingTrainer, partitions=2)
        draft, batch = trainer.draft_model, random_batch()
        # The same start for all three: what bfloat16 can hold.
        draft.to(torch.bfloat16)
        if how != "bfloat16":
            draft.float()
        if how == "masters":
            masters.compute_in(torch.bfloat16, draft)
        if how != "float32":
            for name in ("aux_hidden_states", "target_logits"):
                batch[name] = batch[name].to(torch.bfloat16)
        draft.gradient_checkpointing_enable()
        optimizer = torch.optim.AdamW(trainer.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
        before, losses = copied(masters.state_of(draft)), []
        for number in range(count):
            torch.manual_seed(number)
            losses.append(sum(part.loss.item() for part in step_of(trainer, batch)))
            optimizer.step()
            optimizer.zero_grad()
        after = masters.state_of(draft)
        moved[how] = torch.cat(
            [(after[name].float() - before[name]).flatten() for name in sorted(before) if near_1(name)]
        )
        reference = moved["float32"]
        results[how] = {
            "losses": losses,
            "moved": moved[how].norm().item(),
            "share_moved": (moved[how] != 0).float().mean().item(),
            "from_float32": ((moved[how] - reference).norm() / reference.norm()).item(),
            "dtypes": sorted({str(each.dtype) for each in after.values()}),
        }
    return results


def copied(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value.detach().float().clone() for name, value in state.items()}


def near_1(name: str) -> bool:
    return "norm" in name or name == "mask_hidden"


def bfloat16(root: Path, stop: int) -> None:
    """One start of the job in ``root``; it ends after ``stop`` steps, or writes the head."""
    from peagle_train import on_cpu
    from peagle_train.heads import write_warm_start
    from peagle_train.plan import Folders, make_plan
    from peagle_train.recipe import HeadRecipe, Stopped

    class OnAGpu(HeadRecipe):
        """A CPU that computes in a GPU's dtype."""

        def _setup_colocated_target(self, *given: Any) -> None:
            self.compute_dtype = torch.bfloat16
            super()._setup_colocated_target(*given)

    on_cpu.install()
    work = root / "work"
    work.mkdir(exist_ok=True)
    plan = make_plan(Folders(root), work, 1)
    assert plan.head is not None
    write_warm_start(plan.head, plan.target, plan.warm_start)
    recipe = OnAGpu(plan, lambda: recipe.runtime.global_step >= stop)
    recipe.setup()
    assert recipe.target_model.dtype == torch.bfloat16
    try:
        recipe.train()
    except Stopped:
        return
    recipe.write_result()


def state(folder: Path) -> dict[str, Any]:
    """What a checkpoint has of the head: names, types, a hash, the share that bfloat16 would round."""
    saved = torch.load(folder / "state.pt", map_location="cpu", weights_only=True)
    values = saved["draft"]
    flat = torch.cat([value.flatten() for value in values.values() if value.is_floating_point()])
    moments = [value for each in saved["optimizer"]["state"].values() for value in each.values()]
    return {
        "names": sorted(values),
        "dtypes": sorted({str(each.dtype) for each in (*values.values(), *moments)}),
        "hash": hashlib.sha256(flat.numpy().tobytes()).hexdigest(),
        "beyond_bfloat16": (flat != flat.bfloat16().float()).float().mean().item(),
    }


@torch.no_grad()
def rollouts(target: Path, prompts: Path, documents: Path, held_out: Path) -> None:
    """The first prompts become documents, the others' tokens go to ``held_out``."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(target)
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
    texts = [json.loads(line)["text"] for line in prompts.read_text().splitlines()]
    rows = [row for row in tokenizer(texts, add_special_tokens=False)["input_ids"] if len(row) >= PROMPT]
    rows = [row[:PROMPT] for row in rows]
    trained = torch.tensor(rows[:TRAINED])
    with documents.open("w") as opened:
        for batch in trained.split(50):
            generate = model.generate(
                batch,
                attention_mask=torch.ones_like(batch),
                max_new_tokens=NEW,
                do_sample=False,
                eos_token_id=None,
            )
            for number, ids in enumerate(generate.tolist()):
                mask = [0] * PROMPT + [1] * (len(ids) - PROMPT)
                opened.write(
                    json.dumps({"input_ids": ids, "loss_mask": mask, "conversation": str(number)}) + "\n"
                )
    held_out.write_text(json.dumps(rows[TRAINED : TRAINED + 16]))


def output(head: Path, target: Path) -> float:
    """The largest distance of a value."""
    from safetensors.torch import load_file

    trained, whole = (load_file(folder / "model.safetensors") for folder in (head, target))
    rows = torch.arange(len(trained["d2t"])) + trained["d2t"]
    return (trained["lm_head.weight"].float() - whole["lm_head.weight"][rows]).abs().max().item()


def damage(head: Path, out: Path, ratio: float = 0.6) -> None:
    """Noise of ``ratio`` of each matrix's deviation; embedding and output stay."""
    from safetensors.torch import load_file, save_file

    torch.manual_seed(0)
    out.mkdir()
    shutil.copy(head / "config.json", out)
    tensors = load_file(head / "model.safetensors")
    for name, value in tensors.items():
        if value.dim() == 2 and not name.startswith(("embed", "lm_head")):
            plain = value.float()
            tensors[name] = (plain + ratio * plain.std() * torch.randn_like(plain)).to(value.dtype)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    what, *paths = arguments
    if what == "gradients":
        print(json.dumps(gradients()))
    elif what == "steps":
        print(json.dumps(steps()))
    elif what == "bfloat16":
        bfloat16(Path(paths[0]), int(paths[1]))
    elif what == "state":
        print(json.dumps(state(Path(paths[0]))))
    elif what == "rollouts":
        target, prompts, documents, held_out = map(Path, paths)
        rollouts(target, prompts, documents, held_out)
    elif what == "output":
        print(output(Path(paths[0]), Path(paths[1])))
    else:
        damage(Path(paths[0]), Path(paths[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
