"""Train a head of the stand-in, P-EAGLE or EAGLE-3, by the same library on the same data and settings.

    PYTHONPATH=container:. PEAGLE_ML_ROOT=FOLDER PYTHON -m scripts.bench.stand_in.training p-eagle|eagle3

FOLDER is what ``/opt/ml`` is for `peagle_train`, and PYTHON that of the trainer's environment. P-EAGLE is
trained as `peagle_train` does it. For EAGLE-3 the library's ``TrainEagle3Recipe`` unrolls the draft
``num_depths`` steps (its ``ttt_steps``), each on its own output of the step before, as the head drafts in
vLLM. For both, the target computes each document once. After SIGTERM the training saves a checkpoint and ends
with 143; call it again to go on.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from peagle_train import Mistake, heads, masters
from peagle_train.job import MISTAKEN, ROOT_VARIABLE, run
from peagle_train.launch import Stop
from peagle_train.plan import Folders, Plan, make_plan
from peagle_train.recipe import HeadRecipe
from peagle_train.token_map import write_token_map
from scripts.bench.stand_in.remembered import Remembering


class Eagle3Recipe(Remembering, HeadRecipe):
    """The library's EAGLE-3 with `HeadRecipe`'s data, log and checkpoints; one process, a head from nothing.

    ``accuracy_K`` in its log is the share of positions where the first K drafts are all the target's.
    """

    def __init__(self, plan: Plan, stop: Stop, say: Callable[[str], None] = print) -> None:
        super().__init__(plan, stop, say)
        self._counts = {mode: self._zeros() for mode in (True, False)}

    def _library_recipe(self) -> dict[str, Any]:
        document = super()._library_recipe()
        steps = self.plan.settings.num_depths
        document["recipe_args"] |= {"parallel_drafting": False, "ttt_steps": steps, "num_draft_layers": 1}
        return document

    def _zeros(self) -> Any:
        return torch.zeros(3, self.plan.settings.num_depths, dtype=torch.float64)

    def setup(self) -> None:
        """Load the target, build the head, and resume from the newest checkpoint."""
        super().setup()
        if self.runtime.global_step == 0:
            heads.start_output(self.draft_model, self.plan.target, self.trainer_module.selected_token_ids)
        masters.compute_in(self.target_dtype, self.draft_model)
        self.trainer_module.register_forward_hook(self._count)
        self.trainer_module.take_counts = self._take_counts

    def _setup_colocated_target(self, recipe_cfg: Any, target_path: Any, draft_base_config: Any) -> None:
        super()._setup_colocated_target(recipe_cfg, target_path, draft_base_config)
        # As for P-EAGLE: the head is built in float32, and computed in the target's dtype.
        self.compute_dtype, self.target_dtype = torch.float32, self.compute_dtype

    def _count(self, module: Any, _: Any, metrics: Any) -> None:
        counts = self._counts[module.training]
        counts[0] += metrics.step_prefix_hits
        counts[1] += metrics.step_valid
        counts[2, 0] += metrics.loss.detach() * metrics.step_valid.sum()

    def _take_counts(self, training: bool) -> Any:
        counts, self._counts[training] = self._counts[training], self._zeros()
        return counts

    def vllm_config(self) -> dict[str, Any]:
        """Return the ``config.json`` that vLLM reads: one layer, and one token at a time."""
        config = super().vllm_config() | {"num_hidden_layers": 1}
        return {
            key: value for key, value in config.items() if key not in ("ptd_token_id", "parallel_drafting")
        }


class PEagleRecipe(Remembering, HeadRecipe):
    """The recipe of users' jobs."""


KINDS = {"p-eagle": PEagleRecipe, "eagle3": Eagle3Recipe}


def main(head: str) -> int:
    """Train, or go on."""
    with tempfile.TemporaryDirectory(prefix="peagle-training-") as work:
        stop = Stop(Path(work) / "stop")
        stop.listen()
        try:
            plan = make_plan(Folders(Path(os.environ[ROOT_VARIABLE])), Path(work), world=1)
            write_token_map(plan)
            return run(plan, stop, KINDS[head])
        except Mistake as error:
            print(f"error: {error}", file=sys.stderr)
            return MISTAKEN


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
