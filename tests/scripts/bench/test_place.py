"""The card of a trained head: every figure of its training and of its acceptance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scripts.bench.stand_in.place import card
from tests.scripts.bench.making import HEADER, made

TRAINING: dict[str, Any] = {
    "settings": {
        "num_draft_layers": 2,
        "num_depths": 3,
        "grad_accumulation_steps": 4,
        "micro_batch_size": 1,
        "draft_vocab_size": 8192,
        "epochs": 1,
        "learning_rate": 0.001,
        "seed": 42,
    },
    "data": {
        "training": {"documents": 5727, "tokens": 1774001, "supervised_tokens": 1151867},
        "validation": {"documents": 80, "tokens": 20000, "supervised_tokens": 12345},
    },
    "history": {
        "validation": [
            {"step": 0, "loss": 14.18, "accuracy_1": 0.0, "accuracy_2": 0.0, "accuracy_3": 0.0},
            {"step": 9, "loss": 3.25, "accuracy_1": 0.5, "accuracy_2": 0.25, "accuracy_3": 0.125},
        ]
    },
    "steps": 1432,
    "parameters": 13349952,
    "libraries": {"nemo-automodel": "0.7.0", "torch": "2.13.0"},
}


def test_the_card_has_the_figures_of_the_training_and_the_acceptance_by_kind() -> None:
    provenance = {**HEADER.provenance, "machine": {"processor": "a CPU", "cores": 2}}
    results = replace(made(), header=replace(HEADER, provenance=provenance))
    text = card("p-eagle", TRAINING, results)
    for figure in ("Layers: 2", "13,349,952", "5,727", "1,151,867", "1,432 of 4", "seed 42", "14.18"):
        assert figure in text
    assert "| share | 0.500 | 0.250 | 0.125 |" in text
    # Of P-EAGLE's drafts 1 of 4 ends at each of 0, 1, 2 and 4 accepted tokens.
    assert "| chat | 2 | 2.75 | 0.75 | 0.50 | 0.25 | 0.25 | 0.00 | 0.00 | 0.00 |" in text
    assert "| all | 6 | 2.75 |" in text
    assert "all first choices so far" in card("eagle3", TRAINING, results)
