"""Slices of a request: any body is accepted, scripts are told by their letters, labels are bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.compare.slices import slices_of
from peagle_bench.results.records import Load, RequestRecord
from peagle_bench.workloads import load_workload
from peagle_sm.core.errors import SpecError
from peagle_sm.core.slice_values import BUCKETS, slices_of_body, token_bucket


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("def fibonacci(n): return n", "latin"),
        ("Напиши функцию сортировки", "cyrillic"),
        ("写一个排序函数", "han"),
        ("ソート関数を書いてください", "japanese"),
        ("정렬 함수를 작성하세요", "hangul"),
        ("اكتب دالة للفرز", "arabic"),
        ("请写排序函数要快一点谢谢 please sort it", "mixed"),
        ("1 + 2 == 3; 4 * 5; {} [] ()", "symbols"),
        ("   \n", "unknown"),
    ],
)
def test_the_script_is_that_of_most_letters_of_the_last_user_message(text: str, script: str) -> None:
    assert slices_of_body({"prompt": text})["script"] == script
    chat = [
        {"role": "system", "content": "Отвечай кратко"},
        {"role": "user", "content": [{"type": "text", "text": text}]},
        {"role": "assistant", "content": "да"},
    ]
    assert slices_of_body({"messages": chat})["script"] == script


@pytest.mark.parametrize(
    ("body", "dimension", "value"),
    [
        ({"prompt": [1, 2]}, "api", "completion"),
        ({"tools": [{"type": "function"}]}, "tools", "yes"),
        ({"tools": []}, "tools", "no"),
        ({"structured_outputs": {"regex": "a+"}}, "format", "grammar"),
        ({"guided_choice": ["a", "b"]}, "format", "grammar"),
        ({}, "format", "text"),
        ({"temperature": 0}, "temperature", "0"),
        ({"temperature": 0.5}, "temperature", "up to 0.5"),
        ({"temperature": 0.7}, "temperature", "up to 1"),
        ({"temperature": 1.5}, "temperature", "above 1"),
        ({"reasoning_effort": "high"}, "reasoning effort", "high"),
    ],
)
def test_each_dimension_of_a_body(body: dict[str, Any], dimension: str, value: str) -> None:
    assert slices_of_body(body)[dimension] == value


@given(st.integers(min_value=0, max_value=10**7))
def test_buckets_are_in_the_order_of_their_tokens(tokens: int) -> None:
    assert BUCKETS.index(token_bucket(tokens)) <= BUCKETS.index(token_bucket(tokens + 1))


def record(**more: Any) -> RequestRecord:
    return RequestRecord(
        "a",
        Load("closed", concurrency=1),
        "p",
        "measured",
        0,
        0,
        0,
        1,
        1,
        more.pop("input_tokens", 300),
        20,
        3,
        **more,
    )


def test_a_request_adds_its_lengths_its_turn_and_its_cached_tokens() -> None:
    slices = slices_of(record(slices={"api": "chat"}, category="code", turn=1, cached_tokens=160))
    assert slices == {
        "api": "chat",
        "category": "code",
        "turn": "2",
        "prompt tokens": "256 to 1k",
        "cached prompt": "half or more",
        "output tokens": "below 256",
    }
    assert "cached prompt" not in slices_of(record(slices={"api": "chat"})), "the engine did not report it"


def test_a_request_of_an_earlier_version_has_only_its_category() -> None:
    assert slices_of(record(category="code")) == {"category": "code"}


def workload(tmp_path: Path, *labels: str) -> Path:
    path = tmp_path / "own.jsonl"
    lines = [f'{{"prompt": "p{number}", "labels": {each}}}' for number, each in enumerate(labels)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_labels_of_a_workload_are_slices_and_not_sent(tmp_path: Path) -> None:
    items = load_workload(str(workload(tmp_path, '{"team": "search"}', '{"team": "ads"}'))).items
    assert sorted(item.labels["team"] for item in items) == ["ads", "search"]
    assert all("labels" not in item.body for item in items)
    assert slices_of_body(items[0].body, items[0].labels)["label:team"] in ("ads", "search")


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ("3", "labels: found 3; allowed: an object with at most 4 names"),
        ('{"a":"1","b":"1","c":"1","d":"1","e":"1"}', "found 5 labels; allowed"),
        ('{"": "x"}', "found the name ''"),
        ('{"team!": "x"}', "found the name 'team!'"),
        ('{"team": 3}', "labels.team: found 3; allowed: a text of 1 to 64 characters"),
        ('{"team": ""}', "labels.team: found ''"),
        (f'{{"team": "{"x" * 65}"}}', f"labels.team: found '{'x' * 40}'… (65 characters); allowed: a text"),
    ],
)
def test_labels_that_are_none_are_refused_with_their_line(tmp_path: Path, labels: str, said: str) -> None:
    with pytest.raises(SpecError) as refused:
        load_workload(str(workload(tmp_path, labels)))
    assert "line 1" in refused.value.message
    assert said in refused.value.message


def test_a_label_with_a_thousand_values_is_refused(tmp_path: Path) -> None:
    path = workload(tmp_path, *(f'{{"user": "u{number}"}}' for number in range(1000)))
    with pytest.raises(SpecError, match="label 'user' has 1,000 values; allowed: 20"):
        load_workload(str(path))
