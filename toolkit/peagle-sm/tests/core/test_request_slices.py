"""Slices of a request: any body is accepted, scripts are told by their letters, labels are bounded.

The rows are from the public request formats: OpenAI's "Create chat completion" and "Create completion",
and vLLM's own fields (docs.vllm.ai, "Structured Outputs" and "OpenAI-Compatible Server";
`StructuredOutputsParams` of 0.32): content is a text or a list of parts, of which vLLM also takes bare
texts; a prompt is a text, token ids, or a batch of either; the format is in `response_format` or
`structured_outputs`, before 0.12 in `guided_*`. An absent field may also be null.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.compare.slices import DIMENSIONS, slices_of
from peagle_bench.load.answer import AnswerReader
from peagle_bench.results.records import Load, RequestRecord
from peagle_bench.results.result_file import from_line, to_line
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
        ("ｈｅｌｌｏ", "latin"),  # noqa: RUF001
        ("ｱｲｳｴｵ ｶｷｸｹｺ", "japanese"),
        ("𝒽𝑒𝓁𝓁𝑜 𝕨𝕠𝕣𝕝𝕕", "latin"),  # noqa: RUF001
        ("नमस्ते दुनिया, कैसे हो", "devanagari"),
        ("สวัสดีชาวโลกที่รัก", "thai"),
        ("\ud800\udfff" * 400, "symbols"),
        ("\u200d" * 40, "symbols"),
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


HAN = "请写一个排序函数"


def user(content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}


TEXT, IMAGE = (
    {"type": "text", "text": HAN},
    {"type": "image_url", "image_url": {"url": "https://e.org/a.png"}},
)


@pytest.mark.parametrize(
    ("body", "script"),
    [
        (user([TEXT]), "han"),
        (user([TEXT, IMAGE]), "han"),
        (user([IMAGE]), "unknown"),
        (user([HAN]), "han"),
        (user([{"type": "input_text", "text": HAN}]), "han"),
        (user(None), "unknown"),
        (
            {
                "messages": [
                    *user(HAN)["messages"],
                    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]},
                    {
                        "role": "tool",
                        "tool_call_id": "1",
                        "content": "not the user's words",
                    },
                ]
            },
            "han",
        ),
        ({"prompt": [HAN]}, "han"),
        ({"prompt": [1, 2, 3]}, "unknown"),
        ({"prompt": [[1, 2], [3]]}, "unknown"),
        ({"prompt": HAN, "messages": None}, "han"),
    ],
)
def test_the_script_is_that_of_the_users_last_text(body: dict[str, Any], script: str) -> None:
    assert slices_of_body(body)["script"] == script


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"response_format": None}, "text"),
        ({"response_format": {"type": "text"}}, "text"),
        ({"response_format": {"type": "json_object"}}, "json"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}, "json schema"),
        ({"response_format": {"type": "structural_tag", "structures": [], "triggers": []}}, "grammar"),
        ({"response_format": {"type": ["json_schema"]}}, "text"),
        ({"response_format": "json"}, "text"),
        ({}, "text"),
        ({"structured_outputs": None}, "text"),
        ({"structured_outputs": {}}, "text"),
        ({"structured_outputs": {"json": {}}}, "json schema"),
        ({"structured_outputs": {"json": '{"type": "object"}'}}, "json schema"),
        ({"structured_outputs": {"json_object": True}}, "json"),
        ({"structured_outputs": {"json_object": False}}, "text"),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, "grammar"),
        ({"structured_outputs": {"grammar": "root ::= x"}}, "grammar"),
        ({"structured_outputs": {"structural_tag": "{}"}}, "grammar"),
        ({"structured_outputs": {"disable_any_whitespace": True, "json": None}}, "text"),
        ({"guided_json": {"type": "object"}}, "json schema"),
        ({"guided_regex": None}, "text"),
        ({"guided_choice": ["a", "b"]}, "grammar"),
        ({"structured_outputs": {"regex": "a+"}}, "grammar"),
        ({"guided_decoding_backend": "xgrammar"}, "text"),
    ],
)
def test_the_format_is_what_the_engine_must_keep_to(fields: dict[str, Any], name: str) -> None:
    assert slices_of_body({"prompt": "x", **fields})["format"] == name


@pytest.mark.parametrize(
    ("fields", "dimension", "value"),
    [
        ({"prompt": [1, 2]}, "api", "completion"),
        ({"tools": [{"type": "function"}]}, "tools", "yes"),
        ({"tools": []}, "tools", "no"),
        ({"temperature": 0}, "temperature", "0"),
        ({"temperature": 0.5}, "temperature", "up to 0.5"),
        ({"temperature": 0.7}, "temperature", "up to 1"),
        ({"temperature": 1.5}, "temperature", "above 1"),
        ({"reasoning_effort": "high"}, "reasoning effort", "high"),
        ({"messages": None, "prompt": "x"}, "api", "completion"),
        ({"messages": []}, "api", "chat"),
        ({"tools": [{"type": "function"}], "tool_choice": "none"}, "tools", "no"),
        ({"tools": None}, "tools", "no"),
        ({"reasoning_effort": None}, "reasoning effort", None),
        ({"reasoning_effort": "none"}, "reasoning effort", "none"),
        ({"chat_template_kwargs": {"reasoning_effort": "high"}}, "reasoning effort", "high"),
        ({"reasoning": {"effort": "low"}}, "reasoning effort", "low"),
        ({"reasoning_effort": "high\nSLICE"}, "reasoning effort", "other"),
        ({"reasoning_effort": "\ud800"}, "reasoning effort", "other"),
        ({"reasoning_effort": "x" * 65}, "reasoning effort", "other"),
        ({"temperature": None}, "temperature", "model's default"),
        ({"temperature": float("nan")}, "temperature", "model's default"),
        ({"temperature": "0"}, "temperature", "model's default"),
        ({"temperature": True}, "temperature", "model's default"),
        ({"temperature": 10**400}, "temperature", "above 1"),
        ({1: 2, "prompt": "x"}, "format", "text"),
    ],
)
def test_each_dimension_of_a_body(fields: dict[Any, Any], dimension: str, value: str | None) -> None:
    assert slices_of_body(fields).get(dimension) == value


@given(st.integers(min_value=0, max_value=10**7))
def test_buckets_are_in_the_order_of_their_tokens(tokens: int) -> None:
    assert BUCKETS.index(token_bucket(tokens)) <= BUCKETS.index(token_bucket(tokens + 1))


def record(*, input_tokens: int | None = 300, output_tokens: int | None = 20, **more: Any) -> RequestRecord:
    load = Load("closed", concurrency=1)
    return RequestRecord("a", load, "p", "measured", 0, 0, 0, 1, 1, input_tokens, output_tokens, 3, **more)


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


def nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for _ in range(depth):
        inner = {"content": inner, "type": "json_schema", "text": [inner]}
    return inner


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "é" * 20_000_000},
        {"prompt": list(range(500_000))},
        {"messages": [{"role": "assistant", "content": "x"}] * 500_000},
        user([TEXT] * 500_000),
        user([IMAGE] * 500_000),
        {**user(nested(50_000)), "response_format": nested(50_000), "tools": nested(50_000)},
    ],
    ids=["text", "ids", "messages", "parts", "images", "nested"],
)
def test_a_huge_body_costs_no_more_than_a_large_one(body: dict[str, Any]) -> None:
    """CPU time, and far above what it takes: the load client and the gate do this between two chunks."""
    began = time.process_time()
    slices = slices_of_body(body)
    assert time.process_time() - began < 0.2
    assert set(slices) <= set(DIMENSIONS)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.sampled_from(["user", "json_schema", "text", "none", "\ud800", "a\nb"])
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "json", "effort"]), inner)
    ),
    max_leaves=12,
)
FIELDS = [
    "messages", "prompt", "tools", "tool_choice", "response_format", "structured_outputs", "guided_json",
    "temperature", "reasoning_effort", "reasoning", "chat_template_kwargs",
]  # fmt: skip


@given(st.dictionaries(st.sampled_from(FIELDS), JSON), st.none() | st.integers(0, 10**7))
def test_what_any_body_gives_can_be_written_and_read_again(body: dict[str, Any], tokens: int | None) -> None:
    """One request of a user must not end a run: no slice may be a text that a results file cannot hold."""
    request = record(input_tokens=tokens, output_tokens=tokens, slices=slices_of_body(body))
    assert from_line(to_line(request).encode()) == request
    assert all(value.isprintable() and 0 < len(value) <= 64 for value in slices_of(request).values())
    assert ("prompt tokens" in slices_of(request)) == (tokens is not None)


@given(
    st.dictionaries(st.sampled_from(["prompt_tokens", "completion_tokens", "prompt_tokens_details"]), JSON)
)
def test_an_answer_with_any_usage_has_slices(usage: dict[str, Any]) -> None:
    reader = AnswerReader(framed=False)
    chunk = {
        "choices": [{"index": 0, "text": "a", "finish_reason": "stop"}],
        "usage": usage,
        "metrics": usage,
    }
    try:
        reader.take([(b"data: " + json.dumps(chunk).encode() + b"\n\n", 0.0), (b"data: [DONE]\n\n", 1.0)])
        answer = reader.finish(2.0, sent=0.0)
    except UnicodeEncodeError:  # JSON with lone surrogates is no bytes that could arrive
        return
    request = record(
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
        cached_tokens=answer.cached_tokens,
        slices={"api": "chat"},
    )
    assert set(slices_of(request)) <= set(DIMENSIONS)
