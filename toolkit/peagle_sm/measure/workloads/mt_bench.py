"""MT-Bench: 80 conversations of two turns in 8 categories (lm-sys/FastChat, Apache-2.0)."""

from __future__ import annotations

from pathlib import Path

from peagle_sm.measure.prompt_files import empty, json_lines, read_bytes, sha256_of
from peagle_sm.measure.workloads.fetching import Fetch, cached, demand_sha256
from peagle_sm.measure.workloads.own import turns_of
from peagle_sm.measure.workloads.questions import Question, Source, refuse_repeated_ids

NAME = "mt-bench"
LICENSE = "Apache-2.0 (LMSYS, FastChat)"
URL = "https://raw.githubusercontent.com/lm-sys/FastChat/main/fastchat/llm_judge/data/mt_bench/question.jsonl"
SHA256 = "119565adbab82227089cefdb44c8d7e2cf04dc0a0ec233634c82e7d4e2a944f7"


def read_mt_bench(path: Path | None, *, fetch: Fetch, cache: Path) -> Source:
    """Read a file of questions (``question_id``, ``category``, ``turns``), or fetch the published one.

    Raises:
        NotFound: there is no such file.
        ServiceFault: it could not be fetched.
        SpecError: what was fetched is not the published file, or a line is not a question.
    """
    if path is None:
        content, kept = cached("mt-bench.jsonl", lambda: _fetched(fetch), cache)
        demand_sha256(content, SHA256, str(kept))
        origin = URL
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
    notes = () if digest == SHA256 else ("not the published MT-Bench file: its SHA-256 differs",)
    return Source(NAME, questions, URL if path is None else path.name, digest, LICENSE, notes)


def _fetched(fetch: Fetch) -> bytes:
    content = fetch(URL)
    demand_sha256(content, SHA256, URL)
    return content
