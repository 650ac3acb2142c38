"""Run by the trainer's Python: ``trainer_check.py gradients | rollouts OUT HELD_OUT | damage HEAD OUT``.

``gradients`` prints a JSON object: loss and gradient of each attention and number of partitions against the
first, and the counts by depth against the library's own accuracy. ``rollouts`` writes the target's greedy
continuations of the shipped prompts as documents, and other prompts. ``damage`` adds noise to the matrices.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

PROMPT, NEW, TRAINED = 48, 112, 150


def gradients(tokens: int = 320) -> dict[str, Any]:
    """A head of 2 layers over random hidden states; the last fifth of the document is padding."""
    from nemo_automodel.components.speculative.eagle.draft_llama import LlamaEagle3DraftModel
    from transformers import LlamaConfig

    from peagle_train import on_cpu
    from peagle_train.recipe import CountingTrainer, figures

    hidden, vocab = 128, 512
    real = tokens - tokens // 5
    mask = (torch.arange(tokens) < real).long()[None]
    torch.manual_seed(1)
    batch = {
        "input_ids": torch.randint(4, vocab, (1, tokens)),
        "attention_mask": mask,
        "loss_mask": mask * (torch.arange(tokens) > tokens // 4),
        "aux_hidden_states": torch.randn(1, tokens, 3 * hidden),
        "target_logits": torch.randn(1, tokens, vocab),
    }

    def trainer(partitions: int) -> Any:
        torch.manual_seed(0)
        config = LlamaConfig(
            hidden_size=hidden,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            vocab_size=vocab,
            tie_word_embeddings=False,
        ).to_dict()
        config |= {"draft_vocab_size": vocab, "target_hidden_size": hidden, "parallel_drafting": True}
        draft = LlamaEagle3DraftModel(
            LlamaConfig.from_dict({**config, "attn_implementation": "eager"})
        ).float()
        return CountingTrainer(
            draft,
            selected_token_ids=torch.arange(vocab),
            selected_token_mask=torch.ones(vocab, dtype=torch.bool),
            num_depths=8,
            mask_token_id=3,
            sequence_partitions=partitions,
        )

    found: dict[str, Any] = {}
    first = None
    for attention in ("dense", "structured"):
        on_cpu.install(attention)
        for partitions in (1, 2, 4, 8):
            made = trainer(partitions)
            torch.manual_seed(7)
            if partitions == 1:
                parts = [made(**batch)]
                parts[0].loss.backward()
            else:
                cut = made.build_peagle_plan(batch["loss_mask"])
                parts = []
                for number in range(len(cut.units)):
                    parts.append(made(**batch, peagle_segment=(cut, number)))
                    parts[-1].loss.backward()
            gradient = torch.cat([each.grad.flatten() for each in made.parameters() if each.grad is not None])
            first = gradient if first is None else first
            valid = sum(float(part.valid_tokens) for part in parts)
            right = sum(float(part.accuracy) * float(part.valid_tokens) for part in parts)
            counts = made.take_counts(True)
            found[f"{attention} {partitions}"] = {
                "loss": sum(part.loss.item() for part in parts),
                "relative": ((gradient - first).norm() / first.norm()).item(),
                "largest": (gradient - first).abs().max().item(),
                "accuracy": right / valid,
                "counted": figures(counts),
                "by_depth": counts[1].tolist(),
            }
    return found


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
            made = model.generate(
                batch,
                attention_mask=torch.ones_like(batch),
                max_new_tokens=NEW,
                do_sample=False,
                eos_token_id=None,
            )
            for number, ids in enumerate(made.tolist()):
                mask = [0] * PROMPT + [1] * (len(ids) - PROMPT)
                opened.write(
                    json.dumps({"input_ids": ids, "loss_mask": mask, "conversation": str(number)}) + "\n"
                )
    held_out.write_text(json.dumps(rows[TRAINED : TRAINED + 16]))


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
    elif what == "rollouts":
        rollouts(*map(Path, paths))
    else:
        damage(*map(Path, paths))


if __name__ == "__main__":
    main(sys.argv[1:])
