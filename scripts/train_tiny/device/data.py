"""Batches for training: rollouts of one length, with what the target says of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from scripts.train_tiny.device.drafting import Batch
from scripts.train_tiny.target import AUX_LAYERS

END = 0  #: the token that ends a text
BEHIND_END = 1  #: tokens that still count from the end token on: it, and nothing behind it
PROMPT_TAIL = 8  #: the last tokens of a prompt count too


def read(folder: Path, kind: str) -> dict[int, torch.Tensor]:
    """Rollouts [rollouts, length] by the length of their prompts; ``kind`` is ``train`` or ``held``."""
    found: dict[int, list[np.ndarray]] = defaultdict(list)
    for file in sorted(folder.glob("*.npz")):
        with np.load(file) as stored:
            for name in stored.files:
                sort, _, length = name.partition("_")
                if sort == kind:
                    found[int(length)].append(stored[name])
    return {
        length: torch.from_numpy(np.concatenate(rows).astype(np.int32))
        for length, rows in sorted(found.items())
    }


def order(groups: dict[int, torch.Tensor], size: int, seed: int) -> Iterator[tuple[int, torch.Tensor]]:
    """Endless batches [size, length] with the prompt's length: each epoch holds every rollout once.

    What is left of a length after its whole batches waits for the next epoch's order.
    """
    draws = np.random.default_rng(seed)
    while True:
        batches = []
        for length, rows in groups.items():
            places = draws.permutation(len(rows))
            whole = max(1, len(rows) // size)
            batches += [(length, part) for part in np.array_split(places, whole)]
        for place in draws.permutation(len(batches)):
            length, part = batches[place]
            yield length, groups[length][torch.from_numpy(part[: 2 * size])]


class Teacher:
    """The target, frozen, on the accelerator."""

    def __init__(self, target: torch.nn.Module) -> None:
        """Take a causal language model of transformers."""
        self.target = target.eval().requires_grad_(False)
        self._last: dict[str, torch.Tensor] = {}
        # The state before the final norm is no output of transformers, so it is caught on its way in.
        target.model.norm.register_forward_pre_hook(lambda _, given: self._last.update(h=given[0]))

    @torch.no_grad()
    def batch(self, rows: torch.Tensor, prompt: int) -> Batch:
        """States and targets of ``rows`` [B, T], whose first ``prompt`` tokens were given."""
        made = self.target.model(input_ids=rows, output_hidden_states=True, use_cache=False)
        states = torch.cat([made.hidden_states[i] for i in AUX_LAYERS], -1)
        targets = self.target.lm_head(self.target.model.norm(self._last["h"][:, 1:]))
        first = max(0, prompt - PROMPT_TAIL - 2)
        place = torch.arange(rows.shape[1], device=rows.device)
        ended = (rows == END) & (place >= prompt)
        # The slot's target is two tokens on; what follows the end of a text is another text.
        counts = (ended.cumsum(1) - ended.long()) < BEHIND_END
        live = torch.nn.functional.pad(counts[:, 2:], (0, 1), value=False)
        live[:, :first] = False
        return Batch(states[:, :-1], rows[:, 1:], targets, live, first)
