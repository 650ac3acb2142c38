"""Prompts from code that was kept out of training: a function's signature and docstring.

``python -m scripts.train_tiny.held_out DOCUMENTS OUT`` reads the documents that the training wrote
(JSON lines with ``source``, ``text``, ``held_out``) and writes prompts for measurements.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from peagle_bench.workloads.public_datasets import Prompt
from scripts.train_tiny.corpus import functions

_CHARACTERS = range(120, 1501)  #: shorter prompts say nothing, longer ones are mostly docstring


def held_out_prompts(documents: Sequence[Mapping[str, Any]]) -> list[Prompt]:
    """One prompt per function of the held-out files, ordered by the hash of their source.

    Whole files are held out, and one that was to be trained on whole holds functions too. An opening that
    stands word for word in a training document (packages copy from one another) is no held-out text.
    """
    prompts = {}
    for document in documents:
        if not document["held_out"]:
            continue
        source, text = document["source"], document["text"]
        pieces = (
            [(source, text)] if "#" in source else [(f"{source}#{name}", f) for name, f in functions(text)]
        )
        for name, function in pieces:
            start = opening(function)
            if start is not None and len(start) in _CHARACTERS:
                prompts[name] = Prompt(name, start)
    trained = "\0".join(document["text"] for document in documents if not document["held_out"])
    unseen = [prompt for prompt in prompts.values() if prompt.text not in trained]
    return sorted(unseen, key=lambda prompt: hashlib.sha256(prompt.id.encode()).digest())


def opening(source: str) -> str | None:
    """A function's text up to the end of its docstring; None when it is not a function with one."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    if not tree.body or not isinstance(tree.body[0], ast.FunctionDef):
        return None
    function = tree.body[0]
    if ast.get_docstring(function) is None or len(function.body) < 2:
        return None
    return "\n".join(source.splitlines()[: function.body[0].end_lineno])


def main(words: list[str]) -> int:
    """The command: documents in, prompts out."""
    if len(words) != 2:
        print("usage: python -m scripts.train_tiny.held_out DOCUMENTS OUT", file=sys.stderr)
        return 2
    with Path(words[0]).open(encoding="utf-8") as lines:
        prompts = held_out_prompts([json.loads(line) for line in lines])
    rows = [json.dumps({"id": prompt.id, "text": prompt.text}) + "\n" for prompt in prompts]
    Path(words[1]).write_text("".join(rows), encoding="utf-8")
    print(f"{len(rows)} prompts written to {words[1]}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
