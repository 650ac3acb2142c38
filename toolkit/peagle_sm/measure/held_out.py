"""Prompts from code that was kept out of training: a function's signature and docstring.

``python -m peagle_sm.measure.held_out DOCUMENTS OUT`` reads the documents that the training wrote
(JSON lines with ``source``, ``text``, ``held_out``) and writes prompts for ``scripts/bench-modes``.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from peagle_sm.measure.workload import Prompt

_COUNT = 96
_CHARACTERS = range(120, 1501)  #: shorter prompts say nothing, longer ones are mostly docstring


def held_out_prompts(documents: Iterable[Mapping[str, Any]], count: int = _COUNT) -> list[Prompt]:
    """At most ``count`` prompts, one per held-out function, chosen by the hash of their source."""
    prompts = {}
    for document in documents:
        if document["held_out"] and "#" in document["source"]:
            text = opening(document["text"])
            if text is not None and len(text) in _CHARACTERS:
                prompts[document["source"]] = Prompt(document["source"], text)
    ranked = sorted(prompts, key=lambda source: hashlib.sha256(source.encode()).digest())
    return [prompts[source] for source in ranked[:count]]


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
        print("usage: python -m peagle_sm.measure.held_out DOCUMENTS OUT", file=sys.stderr)
        return 2
    with Path(words[0]).open(encoding="utf-8") as lines:
        prompts = held_out_prompts(json.loads(line) for line in lines)
    rows = [json.dumps({"id": prompt.id, "text": prompt.text}) + "\n" for prompt in prompts]
    Path(words[1]).write_text("".join(rows), encoding="utf-8")
    print(f"{len(rows)} prompts written to {words[1]}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
