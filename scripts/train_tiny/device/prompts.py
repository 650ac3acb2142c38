"""What rollouts begin with: functions up to the end of their docstring, and files cut at a line.

A draft head learns where its traffic is. Prompts that stop in the middle of a signature, 80 tokens long, gave
heads that were good at their own kind and level with EAGLE-3 on HumanEval, whose prompts are signatures with
whole docstrings. None of HumanEval is used: the corpus was checked for it (``corpus.contamination``).
"""

from __future__ import annotations

import argparse
import ast
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from transformers import AutoTokenizer

from scripts.train_tiny import corpus

SHORTEST, LONGEST = 24, 320  #: tokens
HEADERS = (
    "from typing import List\n\n\n",
    "import math\n\n\n",
    "from typing import List, Tuple, Optional\n\n\n",
    "from typing import Any, Dict\n\n\n",
    "import re\nimport collections\n\n\n",
)
HEADER_SHARE, BODY_SHARE = 0.3, 0.35
CUTS = 14  #: of each whole file


def opening(source: str) -> tuple[str, str] | None:
    """A function's text up to the end of its docstring, and the first line behind it."""
    try:
        function = ast.parse(source).body[0]
    except (SyntaxError, IndexError):
        return None
    if not isinstance(function, ast.FunctionDef) or len(function.body) < 2:
        return None
    end = function.body[0].end_lineno or 0
    lines = source.splitlines()
    return "\n".join(lines[:end]), "\n".join(lines[: end + 1])


def texts(documents: list[corpus.Document], draws: random.Random) -> Iterator[str]:
    """Prompts of every document, in no order."""
    seen: set[str] = set()
    for document in documents:
        if document.text in seen:
            continue
        seen.add(document.text)
        whole = "#" not in document.source
        for source in [body for _, body in corpus.functions(document.text)] if whole else [document.text]:
            opened = opening(source)
            if opened is None:
                continue
            header = draws.choice(HEADERS) if draws.random() < HEADER_SHARE else ""
            yield header + opened[0]
            if draws.random() < BODY_SHARE:
                yield opened[1]
        lines = document.text.splitlines()
        for _ in range(CUTS if whole else 1):
            start = draws.randrange(len(lines))
            yield "\n".join(lines[start : start + draws.randint(4, 30)])


def main() -> None:
    """Write ``--out``: ``ids`` of all prompts end to end, ``lengths``, and ``held_out`` of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most", type=int, help="as many of the corpus at random (default: all)")
    parser.add_argument("--seed", type=int, default=2)
    options = parser.parse_args()
    draws = random.Random(options.seed)
    tokenizer = AutoTokenizer.from_pretrained(options.work / "target")
    everything = corpus.read(options.work / "documents.jsonl")
    rows: list[list[int]] = []
    # One held-out prompt to fifty others, as the corpus divides by itself.
    held: list[bool] = []
    for held_out in (False, True):
        found = list(texts([d for d in everything if d.held_out == held_out], draws))
        if options.most is not None:
            found = draws.sample(found, min(options.most // (50 if held_out else 1), len(found)))
        made = tokenizer(found, add_special_tokens=False)["input_ids"]
        kept = [[0, *row][:LONGEST] for row in made if len(row) >= SHORTEST]
        rows += kept
        held += [held_out] * len(kept)
    ids = np.concatenate([np.array(row, dtype=np.uint16) for row in rows])
    lengths = np.array([len(row) for row in rows], dtype=np.int32)
    np.savez_compressed(options.out, ids=ids, lengths=lengths, held_out=np.array(held))
    print(f"{len(rows)} prompts, {sum(held)} of them held out, {len(ids)} tokens")


if __name__ == "__main__":
    main()
