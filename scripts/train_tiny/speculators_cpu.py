"""``speculators train`` (0.9.0) on a machine without an accelerator: four repairs, then its own CLI.

Run as ``python -m scripts.train_tiny.speculators_cpu <arguments of speculators train>``.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from speculators.models.peagle.core import PEagleDraftModel
from speculators.train import trainer

from scripts.train_tiny import batched


def repair() -> None:
    """Make the trainer use the CPU where it takes an accelerator for granted."""
    # The step timer synchronizes with an accelerator that is not there.
    torch.accelerator.synchronize = lambda *_, **__: None
    # ``.to(0)`` means "accelerator 0"; the local rank is only ever used as that.
    trainer.get_local_rank = lambda: torch.device("cpu")
    original = trainer.Trainer.__init__

    def with_cpu(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        self.device_type = "cpu"  # autocast falls back to "cuda" otherwise

    trainer.Trainer.__init__ = with_cpu
    PEagleDraftModel.forward = batched.forward


def main() -> None:
    """Repair, then hand over to the package's own command line."""
    torch.set_num_threads(int(os.environ.get("TRAIN_THREADS", "1")))
    repair()
    from speculators.__main__ import app

    sys.argv = ["speculators", "train", *sys.argv[1:]]
    app()


if __name__ == "__main__":
    main()
