"""Slices of a request, checked from the issue's text and the public request formats, not from the code.

OpenAI's "Create chat completion" and "Create completion", and vLLM's own fields (docs.vllm.ai, "Structured
Outputs" and "OpenAI-Compatible Server"; `StructuredOutputsParams` of 0.32): content is a text or a list of
parts, of which vLLM also takes bare texts; a prompt is a text, token ids, or a batch of either; the format is
in `response_format` (text, json_object, json_schema, structural_tag) or in `structured_outputs` (json, regex,
choice, grammar, json_object, structural_tag), before 0.12 in `guided_*`. An absent field may also be null.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.compare.slices import DIMENSIONS, slices_of
from peagle_bench.load.answer import AnswerReader
from peagle_bench.results.records import Load, RequestRecord
from peagle_bench.results.result_file import from_line, to_line
from peagle_sm.core.slice_values import slices_of_body

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
        (user(HAN), "han"),
        (user([TEXT]), "han"),
        (user([TEXT, IMAGE]), "han"),
        (user([IMAGE]), "unknown"),
        (user([HAN]), "han"),
        (user([{"type": "input_text", "text": HAN}]), "han"),
        (user(None), "unknown"),
        ({"messages": [*user(HAN)["messages"], {"role": "assistant", "content": "sure, here it is"}]}, "han"),
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
        ({"prompt": HAN}, "han"),
        ({"prompt": [HAN]}, "han"),
        ({"prompt": [1, 2, 3]}, "unknown"),
        ({"prompt": [[1, 2], [3]]}, "unknown"),
        ({"prompt": HAN, "messages": None}, "han"),
        ({"prompt": "ｈｅｌｌｏ"}, "latin"),  # noqa: RUF001
        ({"prompt": "ｱｲｳｴｵ ｶｷｸｹｺ"}, "japanese"),
        ({"prompt": "𝒽𝑒𝓁𝓁𝑜 𝕨𝕠𝕣𝕝𝕕"}, "latin"),  # noqa: RUF001
        ({"prompt": "नमस्ते दुनिया, कैसे हो"}, "devanagari"),
        ({"prompt": "สวัสดีชาวโลกที่รัก"}, "thai"),
        ({"prompt": "\ud800\udfff" * 400}, "symbols"),
        ({"prompt": "\u200d" * 40}, "symbols"),
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
        ({"guided_decoding_backend": "xgrammar"}, "text"),
    ],
)
def test_the_format_is_what_the_engine_must_keep_to(fields: dict[str, Any], name: str) -> None:
    assert slices_of_body({"prompt": "x", **fields})["format"] == name


@pytest.mark.parametrize(
    ("fields", "dimension", "value"),
    [
        ({"messages": None, "prompt": "x"}, "api", "completion"),
        ({"messages": []}, "api", "chat"),
        ({"tools": [{"type": "function"}], "tool_choice": "none"}, "tools", "no"),
        ({"tools": [{"type": "function"}], "tool_choice": "required"}, "tools", "yes"),
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
def test_a_field_that_is_null_or_of_another_type(
    fields: dict[Any, Any], dimension: str, value: str | None
) -> None:
    assert slices_of_body(fields).get(dimension) == value


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
    load = Load("closed", concurrency=1)
    record = RequestRecord(
        "a", load, "p", "measured", 0, 0, None, None, 0, tokens, tokens, 0, slices=slices_of_body(body)
    )
    assert from_line(to_line(record).encode()) == record
    assert all(value.isprintable() and 0 < len(value) <= 64 for value in slices_of(record).values())
    assert ("prompt tokens" in slices_of(record)) == (tokens is not None)


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
    record = RequestRecord(
        "a", Load("closed", concurrency=1), "p", "measured", 0, 0, None, None, 0, answer.input_tokens,
        answer.output_tokens, 0, cached_tokens=answer.cached_tokens, slices={"api": "chat"},
    )  # fmt: skip
    assert set(slices_of(record)) <= set(DIMENSIONS)
