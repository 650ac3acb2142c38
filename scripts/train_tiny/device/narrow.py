"""Take heads out of a trained P-EAGLE head: ``python -m scripts.train_tiny.device.narrow --work W``.

What ``copying`` and ``anchoring`` plant takes 16 query and 8 key/value heads in each layer, and after
training about half of them add nearly nothing. Each costs time in every step of the engine. So each layer
keeps the groups (a key/value head with its query heads) that together reproduce best what the layer's
attention added to the stream, and its output matrix is fitted anew by least squares. Then training goes on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from scripts.train_tiny.device import data
from scripts.train_tiny.device.drafting import Batch, Sampling, p_eagle
from scripts.train_tiny.device.head import Head, Shape
from scripts.train_tiny.heads import MASK_TOKEN_ID, last_checkpoint

GROUPS = 4  #: key/value heads that stay in each layer
SAMPLED_ROLLOUTS = 50
SAMPLING = Sampling(12, ratio=0.15, floor=0.15)  #: mask slots are what is sampled, so all depths count alike
RIDGE = 1e-4  #: share of the mean square, against groups that are almost copies of one another


@dataclass(frozen=True)
class Kept:
    """The groups that a layer keeps, ascending, its new output matrix, and the share of the sum lost."""

    groups: tuple[int, ...]
    output: torch.Tensor
    lost: float


@torch.no_grad()
def products(head: Head, batches: Iterable[Batch]) -> list[torch.Tensor]:
    """The sum over all slots of x x^T [heads * width, heads * width] of what each output matrix reads."""
    sums: list[torch.Tensor] = []
    hooks = []
    for layer in head.layers:
        matrix = layer.self_attn.o_proj
        total = torch.zeros(matrix.in_features, matrix.in_features, dtype=torch.float64)

        def add(_: Any, inputs: tuple[torch.Tensor], total: torch.Tensor = total) -> None:
            rows = inputs[0].flatten(0, -2).double()
            total.add_(rows.T @ rows)

        sums.append(total)
        hooks.append(matrix.register_forward_pre_hook(add))
    for batch in batches:
        p_eagle(head, batch, SAMPLING, MASK_TOKEN_ID)
    for hook in hooks:
        hook.remove()
    return sums


def best(total: torch.Tensor, output: torch.Tensor, groups: int, width: int) -> Kept:
    """The ``groups`` groups of ``width`` columns whose least-squares fit loses least of ``output``."""
    wanted = output.double()
    whole = (wanted @ total @ wanted.T).trace()
    fits = []
    for chosen in combinations(range(output.shape[1] // width), groups):
        columns = columns_of(chosen, width)
        own = total[columns][:, columns]
        ridge = RIDGE * own.diagonal().mean() * torch.eye(len(columns), dtype=torch.float64)
        fitted = torch.linalg.solve(own + ridge, total[columns] @ wanted.T).T
        lost = whole - 2 * (fitted @ total[columns] @ wanted.T).trace() + (fitted @ own @ fitted.T).trace()
        fits.append(Kept(chosen, fitted.float(), float(lost / whole)))
    return min(fits, key=lambda fit: fit.lost)


def columns_of(groups: Sequence[int], width: int) -> torch.Tensor:
    """The indices of the groups' columns."""
    return torch.cat([torch.arange(group * width, (group + 1) * width) for group in groups])


def narrowed(head: Head, kept: Sequence[Kept]) -> Head:
    """The head with the kept groups alone."""
    shape, groups = head.shape, len(kept[0].groups)
    shared = shape.heads // shape.key_value_heads
    state = head.state_dict()
    for number, layer in enumerate(kept):
        name = f"layers.{number}.self_attn"
        for matrix, width in (
            ("q_proj", shared * shape.width),
            ("k_proj", shape.width),
            ("v_proj", shape.width),
        ):
            state[f"{name}.{matrix}.weight"] = state[f"{name}.{matrix}.weight"][
                columns_of(layer.groups, width)
            ]
        state[f"{name}.o_proj.weight"] = layer.output
    made = Head(replace(shape, heads=shared * groups, key_value_heads=groups), parallel=True)
    made.load_state_dict(state)
    return made


def narrow(head: Head, batches: Iterable[Batch], groups: int = GROUPS) -> tuple[Head, list[Kept]]:
    """The head with ``groups`` key/value heads a layer, and what each layer kept."""
    shared = head.shape.heads // head.shape.key_value_heads * head.shape.width
    matrices = [layer.self_attn.o_proj.weight.data for layer in head.layers]
    sums = products(head, batches)
    kept = [best(total, matrix, groups, shared) for total, matrix in zip(sums, matrices, strict=True)]
    return narrowed(head, kept), kept


def batches_of(work: Path, count: int) -> list[Batch]:
    """The first ``count`` rollouts of ``work``, each with what the target says of it."""
    target = AutoModelForCausalLM.from_pretrained(work / "target", dtype=torch.float32)
    teacher, folder = data.Teacher(target), work / "rollouts" / "hidden_states"
    rows = [load_file(folder / f"hs_{number}.safetensors")["token_ids"] for number in range(count)]
    prompt = json.loads((work / "rollouts.json").read_text())["prompt_tokens"]
    return [teacher.batch(row[None].long(), prompt) for row in rows]


def main() -> None:
    """Write ``W/checkpoints/p-eagle/narrow``, then the newest, and ``W/narrow.json`` for the cards."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--groups", type=int, default=GROUPS, help="key/value heads a layer (default 4)")
    options = parser.parse_args()
    work = options.work
    start, out = (
        last_checkpoint(work / "checkpoints" / "p-eagle"),
        work / "checkpoints" / "p-eagle" / "narrow",
    )
    config = json.loads((start / "config.json").read_text())
    stored = load_file(start / "model.safetensors")
    head = Head(Shape.of(config), parallel=True)
    head.load_state_dict({name: stored[name].float() for name in head.state_dict()})
    made, kept = narrow(head, batches_of(work, SAMPLED_ROLLOUTS), options.groups)
    shape = config["transformer_layer_config"]
    shape["num_attention_heads"], shape["num_key_value_heads"] = made.shape.heads, made.shape.key_value_heads
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=1))
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in made.state_dict().items()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    facts = {
        "heads": made.shape.heads,
        "kv_heads": made.shape.key_value_heads,
        "kept": [layer.groups for layer in kept],
        "lost": [round(layer.lost, 4) for layer in kept],
    }
    (work / "narrow.json").write_text(json.dumps(facts, indent=1))
    print(facts)


if __name__ == "__main__":
    main()
