"""Requests that are wrong before they are sent: typed errors that say what was most likely meant."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.workloads.own_prompts import read_own
from peagle_gate.limits import judged
from peagle_gate.startup import Limits
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.streams.refusals import CHAT, COMPLETION, KNOWN, check_fields
from peagle_sm.core.errors import SpecError
from peagle_sm.service import Endpoint
from sagemaker_local.engine.env import ensure_engine
from tests.aws.test_runtime import Runtime

MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture(params=["invoke", "stream", "astream"])
def send(request: pytest.FixtureRequest) -> Any:
    """Each way to send a request; the client raises nothing, and keeps what was sent."""
    return getattr(Endpoint("demo", Session.from_boto3(Runtime({}))), request.param)


@pytest.mark.parametrize(
    ("arguments", "words", "step"),
    [
        ((("x",), {}), "body: found str; allowed: a mapping", "prompt='…' for a text"),
        (((MESSAGES,), {}), "body: found list; allowed: a mapping", "messages=[…] for a chat"),
        (((3,), {}), "body: found int", "Give prompt="),
        (((), {"messages": "hi"}), "messages: found str; allowed: a list of mappings", "goes into prompt="),
        (((), {"messages": MESSAGES[0]}), "messages: found dict", "Write messages="),
        (((), {"messages": ["hi"]}), r"messages\[0\]: found str", "Write messages="),
        (((), {"prompt": 7}), "prompt: found int; allowed: text", "Give prompt="),
        (((), {"prompt": b"x"}), "prompt: found bytes", "Give prompt="),
        (((), {"prompt": "x", "max_tokns": 3}), "no field 'max_tokns'", "Use max_tokens instead."),
        (((), {"prompt": "x", "max_new_tokens": 3}), "did you mean 'max_tokens'", "Nothing was sent."),
        (((), {"messages": MESSAGES, "temprature": 0}), "'temprature'", "Use temperature instead."),
        ((({"prompt": "x", "Top_P": 1},), {}), "'Top_P'", "Use top_p instead."),
        ((({"prompt": "x", 1: 1},), {}), "a field 1 of type int", "Use text"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_wrong_request_is_a_spec_error_with_what_was_meant(
    send: Any, arguments: tuple[tuple[Any, ...], dict[str, Any]], words: str, step: str
) -> None:
    with pytest.raises(SpecError, match=words) as wrong:
        send(*arguments[0], **arguments[1])
    assert step in (wrong.value.next_step or "")


@pytest.mark.parametrize("name", ["script", "lora", "my_company_tag", "x"])
def test_a_field_that_resembles_none_is_left_to_the_engine(name: str) -> None:
    check_fields({"prompt": "x", name: 1})


@given(st.sampled_from(sorted(KNOWN)))
def test_every_known_field_is_taken(name: str) -> None:
    check_fields({name: None})


@pytest.mark.parametrize(
    ("body", "instead"),
    [
        ({"messages": MESSAGES, "guided_choice": ["yes", "no"]}, "structured_outputs"),
        ({"messages": MESSAGES, "guided_json": "{}"}, "structured_outputs"),
        ({"messages": MESSAGES, "guided_regex": "a"}, "structured_outputs"),
        ({"messages": MESSAGES, "guided_grammar": "a"}, "structured_outputs"),
        ({"messages": MESSAGES, "guided_decoding_backend": "outlines"}, "structured_outputs"),
        ({"messages": MESSAGES, "guided_whitespace_pattern": " "}, "structured_outputs"),
        ({"messages": MESSAGES, "best_of": 3}, "n;"),
        ({"messages": MESSAGES, "extra_body": {"top_k": 1}}, "beside messages"),
        ({"messages": MESSAGES, "enable_thinking": False}, "chat_template_kwargs"),
        ({"prompt": "x", "top_logprobs": 9}, "logprobs"),
    ],
)
def test_a_field_that_the_engine_ignores_is_refused_on_every_path(
    body: dict[str, Any], instead: str, tmp_path: Path
) -> None:
    workload = tmp_path / "prompts.jsonl"
    workload.write_text(json.dumps(body) + "\n")
    for send in (lambda: check_fields(body), lambda: read_own(workload)):
        with pytest.raises(SpecError, match="the engine ignores") as refused:
            send()
        assert instead in refused.value.message
    _, refusal = judged(json.dumps(body).encode(), Limits())
    assert refusal is not None
    assert instead in refusal.message


@given(st.sampled_from(sorted(name for name in KNOWN if len(name) > 5)), st.data())
def test_one_letter_too_few_is_never_silent(name: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(name) - 1))
    short = name[:place] + name[place + 1 :]
    if short not in KNOWN:
        with pytest.raises(SpecError, match=f"no field '{short}'"):
            check_fields({short: 1})


@pytest.mark.engine
def test_the_fields_are_those_of_the_engine() -> None:
    python = ensure_engine(lambda line: print(line, file=sys.stderr))
    (package,) = python.parent.parent.glob("lib/python3*/site-packages/vllm")
    classes = {
        node.name: node
        for path in package.glob("entrypoints/openai/*/protocol.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    for name, known in (("CompletionRequest", COMPLETION), ("ChatCompletionRequest", CHAT)):
        assert {field for field in _fields(classes[name]) if not field.startswith("_")} == known


def test_every_field_of_the_engine_has_a_limit_a_refusal_or_a_reason() -> None:
    """COMPLETION and CHAT are the engine's own fields; the test above holds that."""
    page = (Path(__file__).parents[4] / "docs/explanation/container.md").read_text(encoding="utf-8")
    section = page.partition("### Every field of vLLM's request classes")[2].partition("`scripts/fuzz-gate`")[
        0
    ]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "`" in line]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(COMPLETION | CHAT)


def _fields(declared: ast.ClassDef) -> Iterator[str]:
    for line in declared.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            yield line.target.id
