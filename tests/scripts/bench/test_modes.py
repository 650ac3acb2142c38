"""`scripts/bench-modes`: its prompts and its endpoints. A run itself is tests/e2e/test_quickstart.py's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peagle_sm.core.errors import SpecError
from peagle_sm.core.plan.environment import RUNTIME_K
from peagle_sm.core.spec.endpoint_spec import MODES
from scripts.bench.comparison import COMPILED
from scripts.bench.modes import arguments, prompt_sets, specs_of


@pytest.mark.parametrize("words", [["--prompts", "1"], ["--held-out-prompts", "-1"]])
def test_too_few_prompts_are_refused(words: list[str]) -> None:
    with pytest.raises(SpecError, match="at least 2 prompts, and 0 or more held-out ones"):
        arguments(words)


def test_the_prompts_that_choose_k_are_not_compared(tmp_path: Path) -> None:
    sets = prompt_sets(arguments(["--prompts", "4"]), tmp_path / "absent.jsonl")
    assert {name: len(workload.items) for name, workload in sets.items()} == {"k": 16, "HumanEval": 4}
    ids = {name: {item.prompt_id for item in workload.items} for name, workload in sets.items()}
    assert not ids["k"] & ids["HumanEval"]


def test_held_out_code_joins_if_it_ships(tmp_path: Path) -> None:
    path = tmp_path / "held-out.jsonl"
    path.write_text("".join(json.dumps({"id": f"h{i}", "text": "def f():"}) + "\n" for i in range(5)))
    assert "held-out code" not in prompt_sets(arguments(["--held-out-prompts", "0"]), path)
    sets = prompt_sets(arguments(["--held-out-prompts", "8"]), path)
    items = sets["held-out code"].items
    assert {item.prompt_id for item in items} == {f"h{i}" for i in range(5)}
    assert {**sets["k"].items[0].body, "prompt": "def f():"} == items[0].body


def test_all_engines_are_compiled_or_none_and_heads_take_k_from_a_request() -> None:
    eager, compiled = specs_of("eager"), specs_of("compiled")
    assert [RUNTIME_K in eager[mode].serving.env for mode in MODES] == [False, True, True]
    assert not any(COMPILED.items() <= spec.serving.env.items() for spec in eager.values())
    assert all(COMPILED.items() <= spec.serving.env.items() for spec in compiled.values())
