"""The model cards: written from ``training.json`` alone, and true to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sagemaker_local.paths import PACKAGE
from scripts.train_tiny import card, facts

SHIPPED = PACKAGE / "weights"
QUICK = {
    "whole": {"minutes": 41.5, "cores": 2},
    "target": {
        "minutes": 12.1,
        "steps": 900,
        "tokens": 5_000_000,
        "held_out_loss": 2.9,
        "held_out_loss_512_1023": 2.8,
        "held_out_loss_4096_8191": 2.7,
    },
    "heads": {"steps": 780, "minutes": {"eagle3-first": 4.0, "eagle3": 4.5, "p-eagle": 9.25}},
    "rollouts": {"sequences": 1200},
    "acceptance": [
        {
            "prompts": "HumanEval, 112",
            "mode": "p-eagle",
            "num_speculative_tokens": 5,
            "acceptance_length": 3.456,
            "distinct_4_grams": 0.3,
        }
    ],
}


@pytest.mark.parametrize("part", ["target", "eagle3", "p-eagle"])
def test_a_shipped_card_is_what_its_facts_give(part: str) -> None:
    known = json.loads((SHIPPED / facts.NAME).read_text())
    assert (SHIPPED / part / "README.md").read_text() == card.card(part, known)


def test_the_quick_family_is_told_beside_the_shipped_one() -> None:
    assert card.quick_section(QUICK) == (
        "## A smaller family, made again by anybody\n\n"
        "`scripts/train-tiny --quick` makes one of the same shape from nothing: "
        "41.5 minutes on 2 CPU cores,\n"
        "12.1 of them for the target (900 steps, 5,000,000 tokens) and\n"
        "17.8 for the heads (780 steps each, 1,200 sequences).\n\n"
        "| held-out loss of its target, nats a token | |\n|---|---|\n"
        "| stretches of 512 tokens | 2.9 |\n"
        "| positions 512 to 1,023 of 8,192 | 2.8 |\n"
        "| positions 4,096 to 8,191 of 8,192 | 2.7 |\n\n"
        "### Acceptance, in vLLM on a CPU, temperature 0\n\n"
        "| prompts | mode | K | acceptance length | distinct 4-grams |\n|---|---|---:|---:|---:|\n"
        "| HumanEval, 112 | p-eagle | 5 | 3.46 | 0.30 |\n"
    )


def test_facts_are_gathered_from_what_the_steps_left(tmp_path: Path) -> None:
    work, weights = tmp_path / "work", tmp_path / "weights"
    work.mkdir()
    weights.mkdir()
    for name in ("corpus", "target", "rollouts", "heads"):
        (work / f"{name}.json").write_text(json.dumps({"of": name}))
    gathered = facts.update(weights, work=work, seconds=90, quick=None)
    assert (gathered["heads"], gathered["whole"]["minutes"]) == ({"of": "heads"}, 1.5)
    assert facts.update(weights, work=None, seconds=None, quick=None) == gathered


def test_a_head_by_the_trainer_of_users_heads_says_so() -> None:
    known = json.loads((SHIPPED / facts.NAME).read_text())
    heads = {**known["heads"], "peagle_trainer": "NeMo AutoModel 0.7.0", "peagle_rate": 3e-4}
    assert (
        "  in one pass, 2,938 steps, by NeMo AutoModel 0.7.0 in place of `speculators`\n"
        "  (the code of users' heads: AdamW, rate 0.0003). It starts from EAGLE-3's layer"
    ) in card.head_section(heads, known["rollouts"])
