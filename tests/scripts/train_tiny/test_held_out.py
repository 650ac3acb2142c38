from __future__ import annotations

import json
from pathlib import Path

import pytest

from peagle_bench.workloads import public_datasets
from scripts.train_tiny.held_out import held_out_prompts, main, opening

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
    ids = {prompt.id for prompt in held_out_prompts(documents)}
    assert ids == {"a/x.py#area", "a/z.py#one", "a/z.py#two"}
    source, target = tmp_path / "documents.jsonl", tmp_path / "prompts.jsonl"
    source.write_text("".join(json.dumps(document) + "\n" for document in documents))
    assert main([str(source), str(target)]) == 0
    assert public_datasets.read_prompts(target) == held_out_prompts(documents)
    assert main([]) == 2
