"""The limits of one request: what passes, what is refused, and that no request breaks the judgement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_gate.limits import NEVER, refuse, too_large
from peagle_gate.startup import Limits, SettingError, read_settings

LIMITS = Limits()
CHAT = {"messages": [{"role": "user", "content": "Hello"}]}
PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


def chat(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


@pytest.mark.parametrize(
    "request_",
    [
        CHAT,
        {**CHAT, "n": 16, "max_tokens": 32_768, "top_logprobs": 20, "logprobs": True},
        {"prompt": [1, 2, 3] * 100, "n": 16, "prompt_logprobs": 20},
        {"prompt": ["a", "b"], "n": 8},
        {**CHAT, "stop": ["x"] * 16, "chat_template_kwargs": {"enable_thinking": False}},
        {**CHAT, "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}},
        {**CHAT, "chat_template": None, "stop": None, "logprobs": None, "chat_template_kwargs": None},
        chat({"type": "text", "text": "an image_url is only text here"}),
        {"prompt": "x", "vllm_xargs": {"k": 3}},
        {"prompt": "x", "best_of": 1, "guided_json": None, "tools": []},
        {**CHAT, "stop": ["\U0001f600"], "repetition_detection": {"max_pattern_size": 64, "min_count": 2}},
    ],
)
def test_ordinary_requests_pass(request_: dict[str, Any]) -> None:
    assert refuse(request_, LIMITS) is None


@pytest.mark.parametrize(
    ("request_", "param", "words"),
    [
        ({**CHAT, "n": 17}, "n", "17 sequences"),
        ({**CHAT, "n": "17"}, "n", 'n is "17"; send an integer'),
        ({**CHAT, "n": "500.0"}, "n", 'n is "500.0"; send an integer'),
        ({**CHAT, "max_tokens": "99999.0"}, "max_tokens", 'max_tokens is "99999.0"; send an integer'),
        ({**CHAT, "min_tokens": "999999.0"}, "min_tokens", "send an integer"),
        ({**CHAT, "max_tokens": "\u0669" * 9}, "max_tokens", "send an integer"),
        ({**CHAT, "max_tokens": 3.0}, "max_tokens", "max_tokens is 3.0; send an integer"),
        ({**CHAT, "max_tokens": True}, "max_tokens", "max_tokens is true; send an integer"),
        ({**CHAT, "top_logprobs": "20"}, "top_logprobs", "send an integer"),
        ({**CHAT, "max_tokens": ["x" * 99]}, "max_tokens", f'max_tokens is ["{"x" * 38}...; send an integer'),
        ({"prompt": ["a"] * 9, "n": 2}, "n", "18 sequences"),
        ({"prompt": [[1]] * 17}, "n", "17 sequences"),
        ({"prompt": "x", "best_of": 40}, "best_of", "use n"),
        ({**CHAT, "guided_choice": ["yes", "no"]}, "guided_choice", 'structured_outputs: {"choice"'),
        ({**CHAT, "guided_json": {"type": "object"}}, "guided_json", "structured_outputs"),
        ({"prompt": "x", "top_logprobs": 9}, "top_logprobs", "use logprobs"),
        ({**CHAT, "prompt": "x"}, "prompt", "send one of them"),
        ({**CHAT, "logprob_token_ids": [1] * 21}, "logprob_token_ids", "21 entries"),
        ({**CHAT, "allowed_token_ids": [1] * 4097}, "allowed_token_ids", "4097 entries"),
        ({**CHAT, "logit_bias": {str(i): 1 for i in range(4097)}}, "logit_bias", "4097 entries"),
        ({**CHAT, "request_id": "x" * 513}, "request_id", "513 characters"),
        ({**CHAT, "stop": ["\ud800"]}, "stop", "U+D800"),
        ({**CHAT, "bad_words": ["a", "b\udfff"]}, "bad_words", "U+DFFF"),
        ({"prompt": "\udc00"}, "prompt", "lone surrogate"),
        (
            {**CHAT, "repetition_detection": {"max_pattern_size": 65, "min_count": 2}},
            "repetition_detection",
            "max_pattern_size is 65; at most 64",
        ),
        (
            {**CHAT, "repetition_detection": {"max_pattern_size": "99999.0", "min_count": 2}},
            "repetition_detection",
            "send an integer",
        ),
        ({**CHAT, "max_tokens": 32_769}, "max_tokens", "at most 32768"),
        ({**CHAT, "max_completion_tokens": 10**9}, "max_completion_tokens", "at most"),
        ({**CHAT, "top_logprobs": 21}, "top_logprobs", "21"),
        ({"prompt": "x", "logprobs": -1}, "logprobs", "whole vocabulary"),
        ({"prompt": "x", "prompt_logprobs": -1}, "prompt_logprobs", "whole vocabulary"),
        ({**CHAT, "stop": ["x"] * 17}, "stop", "17 entries"),
        ({**CHAT, "stop": "x" * 257}, "stop", "257 characters"),
        ({**CHAT, "bad_words": ["x"] * 17}, "bad_words", "17 entries"),
        ({**CHAT, "stop_token_ids": [1] * 17}, "stop_token_ids", "17 entries"),
        ({**CHAT, "tools": ["x" * 65_536]}, "tools", "65536 bytes"),
        ({**CHAT, "structured_outputs": {"regex": "a" * 65_536}}, "structured_outputs", "65536 bytes"),
        ({**CHAT, "structured_outputs": {"json": "[" * 34 + "]" * 34}}, "structured_outputs", "nests deeper"),
        ({**CHAT, "structured_outputs": {"json": "[" * 60_000}}, "structured_outputs", "nests deeper"),
        ({"prompt": ["1", 2, 3] * 9}, "n", "27 sequences"),
        ({**CHAT, "ec_transfer_params": {"a": 1}}, "ec_transfer_params", "inner protocol"),
        ({**CHAT, "vllm_xargs": {"kv_transfer_params": "x"}}, "kv_transfer_params", "inner protocol"),
        (chat({"prompt_embeds": "AAAA"}), "messages", "more than 0"),
        (chat({"type": "file_of_a_later_vllm", "data": "AAAA"}), "messages", "more than 0"),
        ({**CHAT, "chat_template": "{{ x }}"}, "chat_template", "code"),
        ({**CHAT, "chat_template_kwargs": {"tokenize": True}}, "chat_template_kwargs", "tokenize is not"),
        ({**CHAT, "chat_template_kwargs": {"thinking": [1]}}, "chat_template_kwargs", "single value"),
        ({**CHAT, "chat_template_kwargs": "x"}, "chat_template_kwargs", "not a JSON object"),
        ({"prompt_embeds": "AAAA"}, "prompt_embeds", "tensors"),
        ({**CHAT, "use_beam_search": True, "n": 2}, "use_beam_search", "beam"),
        (chat(PIXEL), "messages", "more than 0"),
        (chat({"type": "input_audio", "input_audio": {"data": "AA=="}}), "messages", "more than 0"),
        (chat({"image_url": "data:image/png;base64,AA=="}), "messages", "more than 0"),
        (chat({"type": "video_url", "video_url": {"url": "file:///etc/passwd"}}), "messages", "more than 0"),
    ],
)
def test_what_is_refused_says_which_field_and_why(request_: dict[str, Any], param: str, words: str) -> None:
    refusal = refuse(request_, LIMITS)
    assert refusal is not None
    assert (refusal.status, refusal.param) == (400, param)
    assert words in refusal.message


@pytest.mark.parametrize("name", sorted(NEVER))
def test_what_is_never_taken_has_a_reason(name: str) -> None:
    refusal = refuse({**CHAT, name: {"a": 1}}, LIMITS)
    assert refusal is not None
    assert NEVER[name] in refusal.message


def test_deep_schemas_are_refused_without_recursion() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5000):
        schema = {"items": schema}
    refusal = refuse({**CHAT, "response_format": schema}, LIMITS)
    assert refusal is not None
    assert "nests deeper than 32" in refusal.message


def test_media_pass_as_data_where_they_are_allowed_and_are_never_fetched() -> None:
    limits = Limits(max_media=1)
    assert refuse(chat(PIXEL), limits) is None
    assert refuse(chat(PIXEL, PIXEL), limits) is not None
    for address in ("http://169.254.169.254/latest/meta-data", "file:///etc/passwd", "s3://b/k", ""):
        refusal = refuse(chat({"type": "image_url", "image_url": {"url": address}}), limits)
        assert refusal is not None, address
        assert "fetches nothing" in refusal.message


@pytest.mark.parametrize("body", [[], "x", 3, None, [CHAT]])
def test_a_body_that_is_no_object_is_refused(body: object) -> None:
    refusal = refuse(body, LIMITS)
    assert refusal is not None
    assert refusal.status == 400


def test_the_size_of_a_body() -> None:
    assert too_large(6_291_456, LIMITS) is None
    refusal = too_large(6_291_457, LIMITS)
    assert refusal is not None
    assert refusal.status == 413


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
known = st.sampled_from(
    [
        *("n", "prompt", "messages", "stop", "logprobs", "max_tokens", "response_format", "tools", "best_of"),
        *("chat_template_kwargs", "content", "image_url", "bad_words", "stop_token_ids", *NEVER),
    ]
)


@given(st.dictionaries(known, json_values, max_size=6))
def test_no_request_breaks_the_judgement(request_: dict[str, Any]) -> None:
    refusal = refuse(json.loads(json.dumps(request_)), LIMITS)
    assert refusal is None or refusal.message


@given(st.integers(), st.integers(0, 100))
def test_the_limit_on_n_is_where_it_says(n: int, most: int) -> None:
    refused = refuse({**CHAT, "n": n}, Limits(max_sequences=most)) is not None
    assert refused == (max(n, 1) > most)


def test_each_limit_is_a_variable_of_the_environment() -> None:
    settings = read_settings(
        {"PEAGLE_GATE_MAX_SEQUENCES": "2", "PEAGLE_GATE_TEMPLATE_KEYS": "a, b", "PEAGLE_GATE_NAMESPACE": "x"}
    )
    assert settings.limits == Limits(max_sequences=2, template_keys=("a", "b"))
    assert settings.namespace == "x"


@pytest.mark.parametrize("text", ["", "-1", "1.5", "many", "²"])
def test_a_limit_that_is_no_number_is_an_error(text: str) -> None:
    with pytest.raises(SettingError, match="PEAGLE_GATE_MAX_TOKENS"):
        read_settings({"PEAGLE_GATE_MAX_TOKENS": text})


def schema_of(**keywords: Any) -> dict[str, Any]:
    return {**CHAT, "structured_outputs": {"json": keywords}}


def constrained(**constraint: Any) -> dict[str, Any]:
    return {**CHAT, "structured_outputs": constraint}


def response(**form: Any) -> dict[str, Any]:
    return {**CHAT, "response_format": form}


def options(count: int, **more: Any) -> dict[str, Any]:
    return schema_of(type="object", properties={f"k{i}": {"type": "string"} for i in range(count)}, **more)


DEEP = "(" * 31_000 + "a" + ")" * 31_000


def integers(names: list[str], **more: Any) -> dict[str, Any]:
    return schema_of(type="object", properties={name: {"type": "integer"} for name in names}, **more)


WORDS = [f"{sum(map(ord, str(i))) * 7919 % 9973:04}" * 25 for i in range(100)]
BOUNDED = {"type": "array", "items": {"enum": [0]}, "prefixItems": [{"type": "integer"}], "maxItems": 128}
ALTERNATIVES = {"anyOf": [{"properties": {f"a{i}": {"type": "integer"}}} for i in range(4)]}
#: CPU seconds in xgrammar 0.2.8 with 2,048 tokens, before the gate refused them.
COSTLY_TEXTS = (
    constrained(choice=["y" * 4000 + end for end in "ab"]),  # 1.6 s
    constrained(choice=["the quick brown fox " * 100 + end for end in "abcdefgh"]),  # 1.3 s
    schema_of(enum=["\u4e00" * 500 + str(i) for i in range(16)]),  # 1.5 s
    schema_of(anyOf=[{"const": "\x01" * 300 + str(i)} for i in range(8)]),  # 1.2 s
    schema_of(const={f"k{i}": i for i in range(4000)}),  # 0.8 s
    integers([f"{word}{i}" for i, word in enumerate(WORDS)], additionalProperties=True),  # over 8 s
    integers([f"{'x' * 26}{i}" for i in range(100)], required=[], unevaluatedProperties=True),
    integers([f"{'abcdefghijklmnopqrstuvwxyz'[i % 26] * 30}{i}" for i in range(400)]),  # 1.3 s
    schema_of(type="object", properties={f"k{i:06}": BOUNDED for i in range(60)}, minProperties=3),  # 1.0 s
)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (schema_of(type="string", pattern=DEEP), "json/pattern: a pattern of 62001 characters; at most 1024"),
        (schema_of(propertyNames={"pattern": DEEP}), "json/propertyNames/pattern: a pattern of 62001"),
        (schema_of(patternProperties={DEEP: {}}), "a pattern of 62001 characters"),
        (schema_of(patternProperties={"(" * 17 + "a" + ")" * 17: {}}), "nest 17 deep; at most 16"),
        (schema_of(type="string", pattern="(a|" * 300 + "a" + ")" * 300), "a pattern of 1201 characters"),
        (schema_of(type="string", pattern="a{129}"), "repeats up to 129 times; at most 128"),
        (schema_of(type="string", pattern="((a{100}){100}){100}"), "1000000 characters with its repetitions"),
        (schema_of(type="string", pattern="(a*)*"), "repeats what may be empty"),
        (schema_of(type="string", pattern=".?" * 21), "21 optional or repeated parts"),
        (schema_of(const="a" * 4097), "a text of 4097 characters; at most 4096"),
        (options(1200, minProperties=1, maxProperties=600), "at most 1800"),
        (options(100, minProperties=1), "the grammar up to here costs"),
        (schema_of(anyOf=[{"type": "string", "maxLength": 300 + i} for i in range(40)]), "anyOf/"),
        *((request_, "the grammar up to here costs") for request_ in COSTLY_TEXTS),
        (schema_of(type="integer", multipleOf=999_983), "multiples of 999983; at most 20000"),
        (schema_of(type="number", multipleOf=0.999983), "multiples of 0.999983; at most 20000"),
        (schema_of(allOf=[ALTERNATIVES] * 5), "have 1024 combinations; at most 256"),
        (
            schema_of(**{"$defs": {"a": ALTERNATIVES}, "allOf": [{"$ref": "#/$defs/a"}] * 5}),
            "have 1024 combinations",
        ),
        (schema_of(type="array", items={"multipleOf": 3}, maxItems=10**6), "up to here costs"),
        (constrained(json=json.dumps({"pattern": DEEP})), "json/pattern"),
        (constrained(regex=".*" * 11), "11 optional or repeated parts"),
        (constrained(regex="(.{0,9}){0,9}"), "what may be empty"),
        (constrained(choice=["a" * 60_000]), "choice/0: a text of 60000"),
        *(
            (constrained(**{name: "x"}), f"{name} is not supported; write the form as json, regex or choice")
            for name in ("grammar", "structural_tag")
        ),
        ({**CHAT, "response_format": {"type": "structural_tag"}}, "structural_tag is not supported"),
        (
            {
                **CHAT,
                "response_format": {"type": "json_schema", "json_schema": {"schema": {"pattern": DEEP}}},
            },
            "json_schema/schema/pattern",
        ),
        (
            {**CHAT, "tools": [{"function": {"name": "f", "parameters": {"pattern": DEEP}}}]},
            "tools:/0/function/parameters/pattern",
        ),
    ],
)
def test_a_costly_grammar_is_refused_with_its_place_and_the_limit(
    request_: dict[str, Any], words: str
) -> None:
    refusal = refuse(request_, LIMITS)
    assert refusal is not None
    assert words in refusal.message
    assert refusal.param in request_


@pytest.mark.parametrize(
    "request_",
    [
        options(60, minProperties=1),
        options(400),
        *(schema_of(type="number", multipleOf=step) for step in (0.01, 1, 4096, 10_000)),
        schema_of(allOf=[{"$ref": "#/definitions/base"}, {"properties": {"a": {"anyOf": [{}, {}]}}}]),
        integers([f"property{i:04}" for i in range(60)], additionalProperties=True),
        schema_of(enum=[f"arn:aws:iam::aws:policy/Policy{i}" for i in range(500)]),
        schema_of(
            type="string", pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
        ),
        schema_of(type="array", items={"type": "string", "maxLength": 100_000}, minItems=1, maxItems=10_000),
        schema_of(properties={"grammar": {"type": "string"}, "structural_tag": {"const": "grammar"}}),
        {**CHAT, "structured_outputs": {"choice": [f"choice {i}" for i in range(1000)]}},
    ],
)
def test_ordinary_grammars_pass(request_: dict[str, Any]) -> None:
    assert refuse(request_, LIMITS) is None


def test_real_schemas_pass() -> None:
    """Different schemas of CloudFormation and of tools' settings; each line has its source and licence."""
    lines = Path(__file__).with_name("real_schemas.jsonl").read_text(encoding="utf-8").splitlines()
    assert len({json.dumps(json.loads(line)["schema"], sort_keys=True) for line in lines}) == 100
    for entry in map(json.loads, lines):
        assert refuse(schema_of(**entry["schema"]), LIMITS) is None, entry["file"]
