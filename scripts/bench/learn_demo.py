"""What the tutorial "Train a head for your model" begins with: prompts, the endpoint's spec and learn.yaml.

The traffic shifts from Python, which the stand-in's target and heads were trained on, to AWS CloudFormation's
resource schemas: JSON in one house's style, from the wheel of cfn-lint that requirements/toolkit.lock pins
(MIT-0). A prompt is a part of one file, and there is one of each file, so a split by prompt is one by file.
The general prompts are Python that neither target nor heads were trained on: the functions that were kept
out, HumanEval (MIT), and functions of packages that the lock pins too.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.resources
import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from peagle_bench.workloads.public_datasets import human_eval_file, read_human_eval
from peagle_sm.aws.files import write_file
from peagle_sm.aws.session.local_server import stand_in_weights

#: Packages whose functions are general prompts; none is in the stand-in's corpus.
PACKAGES = {
    "aiohttp": "Apache-2.0",
    "botocore": "Apache-2.0",
    "click": "BSD-3-Clause",
    "moto": "Apache-2.0",
    "pydantic": "MIT",
    "rich": "MIT",
}
OTHERS = 1200  #: general prompts of these packages
CHARACTERS = 240  #: of a schema's part, in whole lines
LONGEST = 600  #: characters of a general prompt
TOKENS = 64  #: of an answer
_LONGEST_LINE = 160
ENDPOINT = """\
# The endpoint that serves: the stand-in's own head, 11 draft tokens.
name: learn-demo
model: tiny-code
speculation:
  mode: p-eagle
lifecycle:
  max_lifetime_hours: 2
"""
LEARN = """\
# What `peagle-sm learn run` does: data, training, proof, promotion.
name: schemas
target: {{model: tiny-code}}
endpoint: learn-demo
bucket: s3://peagle-sm-local-us-east-1/learn   # the local SageMaker has it
data:
  prompts: [traffic.jsonl]
  general: general.jsonl
  general_trained: 0.8        # of these a share is trained on, too, so that the head forgets less
  held_out: 0.1
  max_tokens: {tokens}
  concurrency: 32
train:
  max_hours: 1
  sequence_length: 384        # the longest prompt with its answer
  micro_batch_size: 8
  grad_accumulation_steps: 1
  epochs: 10
  max_steps: {steps}
  learning_rate: 0.0002
  checkpoint_every_steps: 100
  log_every_steps: 20
prove:
  max_tokens: {tokens}
"""


@dataclass(frozen=True)
class Prompt:
    """One prompt: a stable id, and the text that the model continues."""

    id: str
    text: str


def shifted() -> Iterator[Prompt]:
    """Yield a part of every schema that is long enough; where it begins, its name's hash decides."""
    folder = importlib.resources.files("cfnlint") / "data" / "schemas" / "resources"
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        if not file.name.endswith(".json"):
            continue
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        if len(lines) < 30:
            continue
        at = int(hashlib.sha256(file.name.encode()).hexdigest(), 16) % (len(lines) - 20)
        text = ""
        while len(text) < CHARACTERS and at < len(lines):
            text, at = text + lines[at], at + 1
        if len(text) >= CHARACTERS and max(map(len, text.splitlines())) <= _LONGEST_LINE:
            yield Prompt(f"{file.name}:{at}", text)


def general() -> Iterator[Prompt]:
    """Yield Python: the stand-in's held-out functions, HumanEval, and functions of `PACKAGES`."""
    held_out = (stand_in_weights() / "held-out.jsonl").read_text(encoding="utf-8").splitlines()
    known = [Prompt(row["id"], row["text"]) for row in map(json.loads, held_out)]
    known += [Prompt(each.id, str(each.prompt)) for each in read_human_eval(human_eval_file())]
    yield from (prompt for prompt in known if len(prompt.text) <= LONGEST)
    by_id: dict[str, Prompt] = {}
    for package in PACKAGES:
        top = Path(str(importlib.resources.files(package)))
        for file in sorted(top.rglob("*.py")):
            name = file.relative_to(top.parent).as_posix()
            for function, source in functions(file.read_text(encoding="utf-8", errors="replace")):
                start = opening(source)
                if start is not None and len(start) <= LONGEST:
                    prompt = Prompt(f"{name}#{function}", start)
                    by_id.setdefault(prompt.id, prompt)
    yield from sorted(by_id.values(), key=_by_hash)[:OTHERS]


def functions(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and dedented source of each function in ``text`` that has a docstring and a body."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    lines = text.splitlines(keepends=True)
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or not ast.get_docstring(node):
            continue
        if len(node.body) < 3 or node.end_lineno is None:
            continue
        source = textwrap.dedent("".join(lines[node.lineno - 1 : node.end_lineno]))
        if 150 < len(source) < 6000:
            yield node.name, source


def opening(source: str) -> str | None:
    """Return a function's text up to the end of its docstring; None if it is no function with one."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    if not tree.body or not isinstance(tree.body[0], ast.FunctionDef):
        return None
    return "\n".join(source.splitlines()[: tree.body[0].body[0].end_lineno])


def _by_hash(prompt: Prompt) -> bytes:
    return hashlib.sha256(prompt.id.encode()).digest()


def lines_of(prompts: Iterator[Prompt], limit: int | None) -> str:
    """Return prompts as OpenAI bodies, one a line, in an order by hash."""
    drawn = sorted(prompts, key=_by_hash)[:limit]
    bodies = ({"id": each.id, "prompt": each.text, "max_tokens": TOKENS, "temperature": 0} for each in drawn)
    return "".join(json.dumps(body) + "\n" for body in bodies)


def main(words: Sequence[str] | None = None) -> int:
    """Write the four files of the tutorial."""
    parser = argparse.ArgumentParser(prog="scripts/learn-demo", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the files are written")
    parser.add_argument("--prompts", type=int, help="most prompts of each kind; left out, all")
    parser.add_argument("--steps", type=int, default=400, help="steps of the training (%(default)s)")
    options = parser.parse_args(words)
    files = {
        "traffic.jsonl": lines_of(shifted(), options.prompts),
        "general.jsonl": lines_of(general(), options.prompts),
        "peagle.yaml": ENDPOINT,
        "learn.yaml": LEARN.format(tokens=TOKENS, steps=options.steps),
    }
    for name, text in files.items():
        write_file(options.folder / name, text, parents=True)
        print(f"written: {options.folder / name} ({text.count(chr(10)):,} lines)", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
