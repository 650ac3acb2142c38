"""HumanEval, MT-Bench and synthetic lengths: read, fetched, checked, chosen."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

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
    workload = load_workload("humaneval", seed=3, count=20)
    first = [f"HumanEval/{number}" for number in (120, 73, 136, 110)]
    assert [item.prompt_id for item in workload.items[:4]] == first
    assert workload.available == 164
    assert workload.license is not None
    assert workload.license.startswith("MIT")
    assert workload.notes == ()
    assert workload.items[0].body.keys() == {"prompt", "max_tokens", "temperature"}


def test_mt_bench_asks_the_second_turn_with_the_first_answer(tmp_path: Path) -> None:
    workload = load_workload(str(lines(tmp_path / "q.jsonl", *conversations())))
    first = workload.items[0]
    assert first.then is not None
    second = first.then("an answer")
    assert second is not None
    assert [message["role"] for message in second.body["messages"]] == ["user", "assistant", "user"]
    assert second.body["messages"][1]["content"] == "an answer"
    assert (second.turn, second.then, second.prompt_id) == (1, None, first.prompt_id)


def test_a_choice_is_balanced_over_categories_and_grows(tmp_path: Path) -> None:
    path = lines(tmp_path / "q.jsonl", *conversations(20))
    small, large = (load_workload(str(path), count=n, seed=5) for n in (6, 12))
    assert Counter(item.category for item in small.items) == {"writing": 3, "math": 3}
    assert [item.prompt_id for item in large.items][:6] == [item.prompt_id for item in small.items]
    other = load_workload(str(path), count=6, seed=6)
    assert [item.prompt_id for item in other.items] != [item.prompt_id for item in small.items]


def test_a_file_in_the_cache_needs_no_network_and_must_be_the_published_one(tmp_path: Path) -> None:
    lines(tmp_path / "mt-bench.jsonl", *conversations())
    with pytest.raises(SpecError, match="was changed or is incomplete") as caught:
        load_workload("mt-bench", fetch=unreachable, cache=tmp_path)
    assert "--workload FILE" in (caught.value.next_step or "")


def test_a_fetched_file_that_is_not_the_published_one_is_refused(tmp_path: Path) -> None:
    requests: list[str] = []

    def fetch(url: str) -> bytes:
        requests.append(url)
        return b'{"question_id": 1, "turns": ["changed"]}\n'

    with pytest.raises(SpecError, match=MT_BENCH_SHA256):
        load_workload("mt-bench", fetch=fetch, cache=tmp_path)
    assert requests == [MT_BENCH_URL]
    assert list(tmp_path.iterdir()) == []


def test_synthetic_lengths_are_exact_and_seeded() -> None:
    workload = load_workload("synthetic:16-32/64", seed=1, count=50)
    lengths = [len(item.body["prompt"]) for item in workload.items]
    assert min(lengths) >= 16
    assert max(lengths) <= 32
    assert len(set(lengths)) > 5
    assert {(i.body["max_tokens"], i.body["ignore_eos"]) for i in workload.items} == {(64, True)}
    assert len({tuple(item.body["prompt"]) for item in workload.items}) == 50
    assert workload.items == load_workload("synthetic:16-32/64", seed=1, count=50).items
    assert len(load_workload("synthetic:4/4").items) == 256


@pytest.mark.parametrize("form", ["", "8", "0/4", "9-8/4", "8/0", "x/y"])
def test_a_wrong_pair_of_lengths_is_told(form: str) -> None:
    with pytest.raises(SpecError, match="allowed: synthetic:IN/OUT"):
        load_workload(f"synthetic:{form}")


def test_wrong_names_and_numbers_are_told() -> None:
    with pytest.raises(SpecError, match="humaneval, mt-bench"):
        load_workload("human-evil")
    with pytest.raises(SpecError, match="--prompts: found 165; this workload has 164"):
        load_workload("humaneval", count=165)
    with pytest.raises(SpecError, match="allowed: 1 or more"):
        load_workload("humaneval", count=0)
