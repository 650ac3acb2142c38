"""SPEED-Bench: 880 questions in 11 categories, and splits of 1k to 32k input tokens (NVIDIA).

It lives on Hugging Face alone (``nvidia/SPEED-Bench``, NVIDIA Evaluation Dataset License), and we ship none
of it. Its public rows are read through the dataset server's ``/rows``, 100 at a time. Where NVIDIA may not
pass a text on (494 of the 880), the row holds a placeholder; NVIDIA's own ``prepare`` script fills them in
from their sources, and what it writes is read from a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from peagle_sm.core.errors import NotFound, ServiceFault, SpecError
from peagle_sm.measure.prompt_files import json_lines, read_bytes, sha256_of
from peagle_sm.measure.workloads.fetching import Fetch, cached
from peagle_sm.measure.workloads.own import turns_of
from peagle_sm.measure.workloads.questions import Question, Source, refuse_repeated_ids

NAME = "speed-bench"
LICENSE = "NVIDIA Evaluation Dataset License"
SPLITS = ("qualitative", *(f"throughput_{size}k" for size in (1, 2, 8, 16, 32)))
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
    if split not in SPLITS:
        raise SpecError(
            f"SPEED-Bench has no split {split!r}; it has {', '.join(SPLITS)}",
            next_step="write for example speed-bench:qualitative",
        )
    if path is None:
        origin = f"Hugging Face nvidia/SPEED-Bench, {split}"
        content, _ = cached(f"speed-bench-{split}.jsonl", lambda: _fetched(split, fetch), cache)
    else:
        origin = str(path)
        content = _parquet(path) if path.suffix == ".parquet" else read_bytes(path)
    rows = list(json_lines(content, origin))
    questions = [
        _question(row, f"{origin}, line {number}", number) for number, row in rows if not _is_hidden(row)
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
    return Source(f"{NAME}:{split}", tuple(questions), said, sha256_of(content), LICENSE, notes)


def _is_hidden(row: Mapping[str, Any]) -> bool:
    return _PLACEHOLDER in json.dumps(row.get("turns", row.get("messages")))


def _question(row: Mapping[str, Any], where: str, number: int) -> Question:
    # NVIDIA's specdec_bench writes turns, NeMo-Skills the same as messages of a user.
    turns = row.get("turns")
    if turns is None and isinstance(row.get("messages"), list):
        turns = [message.get("content") for message in row["messages"] if message.get("role") == "user"]
    name = f"{NAME}/{row.get('question_id', number)}"
    return Question(name, turns=turns_of(turns, where), category=row.get("category"))


def _fetched(split: str, fetch: Fetch) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in _rows(split, fetch))


def _rows(split: str, fetch: Fetch) -> Iterator[Mapping[str, Any]]:
    offset, total = 0, 1
    while offset < total:
        query = {"dataset": "nvidia/SPEED-Bench", "config": split, "split": "test"}
        url = f"{_ROWS}?{urlencode({**query, 'offset': offset, 'length': _PAGE})}"
        total, found = _page(fetch(url))
        if not found or any(entry.get("truncated_cells") for entry in found):
            raise ServiceFault(
                f"{url}: the dataset server left out rows or cut texts",
                operation="fetch",
                next_step="give the split's Parquet file, or what NVIDIA's prepare script writes, with"
                " --workload-file",
            )
        yield from (entry["row"] for entry in found)
        offset += len(found)


def _page(content: bytes) -> tuple[int, list[Any]]:
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
