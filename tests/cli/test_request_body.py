from __future__ import annotations

import json
from pathlib import Path

import pytest

from peagle_sm.cli.request_body import Question, parameters, question
from peagle_sm.core.errors import SpecError

MESSAGES = [{"role": "user", "content": "hello"}]


def test_a_prompt() -> None:
    assert question("def f", None, None, None) == Question(prompt="def f")


@pytest.mark.parametrize("content", [MESSAGES, {"messages": MESSAGES}], ids=["list", "object"])
def test_messages_from_a_file(tmp_path: Path, content: object) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps(content))
    assert question(None, path, None, None) == Question(messages=MESSAGES)


def test_a_body_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    path.write_text('{"prompt": "x", "n": 1}')
    assert question(None, None, path, None) == Question(body={"prompt": "x", "n": 1})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain text", Question(prompt="plain text")),
        ('{"prompt": "x"}', Question(body={"prompt": "x"})),
        (json.dumps(MESSAGES), Question(messages=MESSAGES)),
        ("42", Question(prompt="42")),
    ],
)
def test_stdin(text: str, expected: Question) -> None:
    assert question(None, None, None, text) == expected


def test_nothing_is_refused() -> None:
    with pytest.raises(SpecError, match="no question"):
        question(None, None, None, "  \n")


def test_two_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="--prompt and --body"):
        question("x", None, tmp_path / "b.json", None)


@pytest.mark.parametrize(
    ("content", "message"),
    [("nonsense", "not JSON"), ("[]", "found list"), ('["a"]', "found list"), (None, "cannot be read")],
)
def test_bad_message_files_are_named(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "m.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SpecError, match=message) as caught:
        question(None, path, None, None)
    assert "m.json" in str(caught.value)


def test_a_body_must_be_an_object(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    path.write_text("[1]")
    with pytest.raises(SpecError, match="allowed: a JSON object"):
        question(None, None, path, None)


def test_prompts_and_messages_stop_at_256_tokens_and_a_body_has_its_own_limit() -> None:
    prompt, chat, body = Question(prompt="x"), Question(messages=MESSAGES), Question(body={"prompt": "x"})
    assert parameters(prompt, None, None) == parameters(chat, None, None) == {"max_tokens": 256}
    assert parameters(body, None, None) == {}
    assert parameters(body, 8, 0.0) == {"max_tokens": 8, "temperature": 0.0}
