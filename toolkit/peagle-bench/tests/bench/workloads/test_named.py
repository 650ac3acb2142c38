"""HumanEval, MT-Bench, SPEED-Bench and synthetic lengths: read, fetched, checked, chosen."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from peagle_bench.workloads import load_workload
from peagle_bench.workloads.public_datasets import MT_BENCH_SHA256, MT_BENCH_URL
from peagle_sm.core.errors import SpecError


def unreachable(url: str) -> bytes:
    raise AssertionError(f"nothing is to be fetched, and {url} was asked for")


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def conversations(count: int = 8) -> list[dict[str, Any]]:
    return [
        {"question_id": n, "category": ("writing", "math")[n % 2], "turns": [f"q{n}", f"and then {n}"]}
        for n in range(count)
    ]


def test_humaneval_is_the_package_s_and_a_seed_chooses_the_same_prompts_in_every_version() -> None:
    found = load_workload("humaneval", seed=3, count=20)
    first = [f"HumanEval/{number}" for number in (120, 73, 136, 110)]
    assert [item.prompt_id for item in found.items[:4]] == first
    assert found.available == 164
    assert found.license is not None
    assert found.license.startswith("MIT")
    assert found.notes == ()
    assert found.items[0].body.keys() == {"prompt", "max_tokens", "temperature"}


def test_humaneval_from_another_file_says_that_it_is_another(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"task_id": "HumanEval/0", "prompt": "def f():\\n"}\n'))
    found = load_workload("humaneval", file=path, api="chat")
    assert "SHA-256 differs" in found.notes[0]
    assert found.items[0].body["messages"] == [{"role": "user", "content": "def f():"}]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"task_id": 3}\n', "line 1: not a HumanEval problem"),
        (b"def f():\n", "line 1: not JSON"),
        (gzip.compress(b"{}" * 99, mtime=0)[:-12], "cannot be read"),
        (b"\x1f\x8b\x08" + b"\x00" * 7 + b"\xff" * 9, "cannot be read"),
    ],
)
def test_a_file_that_is_no_humaneval_is_said_to_be_none(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "mine"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=says):
        load_workload("humaneval", file=path)


def test_humaneval_need_not_be_packed(tmp_path: Path) -> None:
    path = lines(tmp_path / "mine.jsonl", {"task_id": "HumanEval/0", "prompt": "def f():\n"})
    assert load_workload("humaneval", file=path).items[0].body["prompt"] == "def f():"


def test_mt_bench_asks_the_second_turn_with_the_first_answer(tmp_path: Path) -> None:
    found = load_workload("mt-bench", file=lines(tmp_path / "q.jsonl", *conversations()), fetch=unreachable)
    first = found.items[0]
    assert first.then is not None
    second = first.then("an answer")
    assert second is not None
    assert [message["role"] for message in second.body["messages"]] == ["user", "assistant", "user"]
    assert second.body["messages"][1]["content"] == "an answer"
    assert (second.turn, second.then, second.prompt_id) == (1, None, first.prompt_id)
    assert "SHA-256 differs" in found.notes[0]


def test_a_choice_is_balanced_over_categories_and_grows(tmp_path: Path) -> None:
    path = lines(tmp_path / "q.jsonl", *conversations(20))
    small, large = (load_workload("mt-bench", file=path, count=n, seed=5) for n in (6, 12))
    assert Counter(item.category for item in small.items) == {"writing": 3, "math": 3}
    assert [item.prompt_id for item in large.items][:6] == [item.prompt_id for item in small.items]
    other = load_workload("mt-bench", file=path, count=6, seed=6)
    assert [item.prompt_id for item in other.items] != [item.prompt_id for item in small.items]


def test_only_first_turns_may_go_as_completions(tmp_path: Path) -> None:
    path = lines(tmp_path / "q.jsonl", *conversations())
    with pytest.raises(SpecError, match="conversation of 2 turns"):
        load_workload("mt-bench", file=path, api="completion")
    found = load_workload("mt-bench", file=path, api="completion", first_turn_only=True, count=1)
    assert isinstance(found.items[0].body["prompt"], str)
    assert found.items[0].then is None


def test_a_fetched_file_that_is_not_the_published_one_is_refused(tmp_path: Path) -> None:
    asked: list[str] = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        return b'{"question_id": 1, "turns": ["changed"]}\n'

    with pytest.raises(SpecError, match=MT_BENCH_SHA256):
        load_workload("mt-bench", fetch=fetch, cache=tmp_path)
    assert asked == [MT_BENCH_URL]
    assert list(tmp_path.iterdir()) == []


class Rows:
    """The dataset server's /rows of a dataset with so many rows, every third hidden."""

    def __init__(self, total: int) -> None:
        self.total, self.asked = total, 0

    def __call__(self, url: str) -> bytes:
        self.asked += 1
        query = parse_qs(urlsplit(url).query)
        assert query["dataset"] == ["nvidia/SPEED-Bench"]
        start = int(query["offset"][0])
        rows = [self.row(n) for n in range(start, min(self.total, start + int(query["length"][0])))]
        return json.dumps({"rows": rows, "num_rows_total": self.total}).encode()

    @staticmethod
    def row(n: int) -> dict[str, Any]:
        hidden = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
        turns = [hidden] if n % 3 == 0 else [f"question {n}"]
        row = {"question_id": f"q{n}", "category": "coding", "turns": turns}
        return {"row_idx": n, "row": row, "truncated_cells": []}


def test_speed_bench_is_fetched_once_in_pages_and_hidden_rows_are_told(tmp_path: Path) -> None:
    server = Rows(250)
    found = load_workload("speed-bench", fetch=server, cache=tmp_path)
    assert server.asked == 3
    assert len(found.items) == 166
    assert found.notes == ("84 of 250 rows are placeholders and were skipped",)
    assert found.license == "NVIDIA Evaluation Dataset License"
    again = load_workload("speed-bench:qualitative", fetch=unreachable, cache=tmp_path)
    assert again.sha256 == found.sha256


def test_speed_bench_from_a_prepared_file(tmp_path: Path) -> None:
    row = {"question_id": "a", "category": "rag", "messages": [{"role": "user", "content": "hello"}]}
    found = load_workload("speed-bench", file=lines(tmp_path / "p.jsonl", row), fetch=unreachable)
    assert found.items[0].body["messages"] == [{"role": "user", "content": "hello"}]
    assert found.items[0].category == "rag"


def test_speed_bench_without_any_text_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="all of its 1 rows") as raised:
        load_workload("speed-bench", fetch=Rows(1), cache=tmp_path)
    assert "prepare" in (raised.value.next_step or "")
    with pytest.raises(SpecError, match="no split 'tiny'"):
        load_workload("speed-bench:tiny", fetch=unreachable, cache=tmp_path)
    with pytest.raises(SpecError, match="not found"):
        load_workload("speed-bench", file=tmp_path / "none.parquet")


def test_one_category_of_speed_bench_and_how_many_of_its_texts_are_missing(tmp_path: Path) -> None:
    hidden = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"
    rows = [
        {"question_id": "a", "category": "coding", "turns": ["one"]},
        {"question_id": "b", "category": "coding", "turns": [hidden]},
        {"question_id": "c", "category": "math", "turns": [hidden]},
    ]
    path = lines(tmp_path / "p.jsonl", *rows)
    code = load_workload("speed-bench", file=path, category="coding")
    assert (code.name, len(code.items), code.hidden) == ("speed-bench:qualitative, coding", 1, 1)
    assert load_workload("speed-bench", file=path).hidden == 2
    with pytest.raises(SpecError, match="no rows of category 'cooking'; it has: coding, math"):
        load_workload("speed-bench", file=path, category="cooking")


def test_an_instruction_is_a_line_before_each_text_but_not_before_conversations() -> None:
    told = load_workload("humaneval", count=1, api="chat", instruction="Only output the code.")
    plain = load_workload("humaneval", count=1, api="chat")
    (message,), (text,) = told.items[0].body["messages"], plain.items[0].body["messages"]
    assert message["content"] == f"Only output the code.\n{text['content']}"


def test_synthetic_lengths_are_exact_and_seeded() -> None:
    found = load_workload("synthetic:16-32/64", seed=1, count=50)
    lengths = [len(item.body["prompt"]) for item in found.items]
    assert min(lengths) >= 16
    assert max(lengths) <= 32
    assert len(set(lengths)) > 5
    assert {(i.body["max_tokens"], i.body["ignore_eos"]) for i in found.items} == {(64, True)}
    assert len({tuple(item.body["prompt"]) for item in found.items}) == 50
    assert found.items == load_workload("synthetic:16-32/64", seed=1, count=50).items
    assert len(load_workload("synthetic:4/4").items) == 256


@pytest.mark.parametrize("form", ["", "8", "0/4", "9-8/4", "8/0", "x/y"])
def test_a_wrong_pair_of_lengths_is_told(form: str) -> None:
    with pytest.raises(SpecError, match="allowed: synthetic:IN/OUT"):
        load_workload(f"synthetic:{form}")


def test_wrong_names_and_numbers_are_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="humaneval, mt-bench"):
        load_workload("human-evil")
    with pytest.raises(SpecError, match="--prompts: found 165; this workload has 164"):
        load_workload("humaneval", count=165)
    with pytest.raises(SpecError, match="allowed: 1 or more"):
        load_workload("humaneval", count=0)
    with pytest.raises(SpecError, match="--workload-file works only with"):
        load_workload("synthetic:4/4", file=tmp_path)
