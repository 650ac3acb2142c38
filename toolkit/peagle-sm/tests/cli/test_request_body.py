from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from peagle_sm.cli.commands.endpoints.invoke import InvokeInput, body_hint, parameters, read_request
from peagle_sm.core.errors import SpecError
from tests.cli.running import run

MESSAGES = [{"role": "user", "content": "hello"}]


REQUESTS = [
    ("plain text", InvokeInput(prompt="plain text")),
    ('{"prompt": "x", "n": 1}', InvokeInput(body={"prompt": "x", "n": 1})),
    (json.dumps({"messages": MESSAGES}), InvokeInput(body={"messages": MESSAGES})),
    (json.dumps(MESSAGES), InvokeInput(messages=MESSAGES)),
    ("42", InvokeInput(prompt="42")),
]


@pytest.mark.parametrize(("text", "expected"), REQUESTS)
def test_stdin_and_body_take_json(tmp_path: Path, text: str, expected: InvokeInput) -> None:
    assert read_request(None, None, text) == expected
    if expected.prompt is None:
        path = tmp_path / "b.json"
        path.write_text(text)
        assert read_request(None, path, None) == expected
    else:
        assert read_request(text, None, None) == expected


def test_nothing_is_refused() -> None:
    with pytest.raises(SpecError, match="no prompt was given"):
        read_request(None, None, "  \n")


def test_two_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="--prompt and --body"):
        read_request("x", tmp_path / "b.json", None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nonsense", "not JSON"),
        ("[]", "found list"),
        ('["a"]', "found list"),
        ("1", "found int"),
        (None, "cannot be read"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "m.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SpecError, match=message) as caught:
        read_request(None, path, None)
    assert "m.json" in str(caught.value)


def test_prompts_and_messages_stop_at_256_tokens_and_a_body_has_its_own_limit() -> None:
    prompt, chat, body = (
        InvokeInput(prompt="x"),
        InvokeInput(messages=MESSAGES),
        InvokeInput(body={"prompt": "x"}),
    )
    assert parameters(prompt, None, None) == parameters(chat, None, None) == {"max_tokens": 256}
    assert parameters(body, None, None) == {}
    assert parameters(body, 8, 0.0) == {"max_tokens": 8, "temperature": 0.0}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'[{"role": "user",\n"content": "caf\xe9"}]', ", line 2: found byte 0xe9, which is not UTF-8"),
        (b"\xff\xfe[\x00", " is UTF-16 text"),
    ],
)
def test_a_file_that_is_not_utf8_is_named_with_the_line_and_the_byte(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "m.json"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=f"m.json{message}; allowed: UTF-8 text"):
        read_request(None, path, None)


def test_a_prompt_that_is_not_utf8_is_refused_with_the_byte() -> None:
    """Python writes a byte of the command line that is not UTF-8 as half a character."""
    with pytest.raises(SpecError, match=r"--prompt: found byte 0xe9 \(position 3\), which is not UTF-8"):
        read_request(b"caf\xe9".decode(errors="surrogateescape"), None, None)


@pytest.mark.parametrize("arguments", [[], ["-p", "-"], ["--body", "-"]])
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_stdin_that_is_not_utf8_is_refused_in_every_locale(arguments: list[str], locale: str) -> None:
    """The C locale lets such bytes through as half characters."""
    ended = subprocess.run(
        [sys.executable, "-m", "peagle_sm", "invoke", "demo", *arguments],
        input=b'{"prompt":\n"caf\xe9"}',
        capture_output=True,
        check=False,
        env={**os.environ, "LC_ALL": locale, "AWS_DEFAULT_REGION": "us-east-1"},
    )
    assert ended.returncode == 2
    assert b"stdin, line 2: found byte 0xe9, which is not UTF-8; allowed: UTF-8 text." in ended.stderr
    assert b"Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("demo", '{"prompt": "x"}'), "--body FILE sends a JSON request body, --body - reads it from stdin"),
        (('{"prompt": "x"}',), "--body FILE sends a JSON request body, --body - reads it from stdin"),
        (("demo", "def f(n):"), "-p TEXT sends a prompt"),
    ],
)
def test_a_question_without_its_option_gets_that_option(words: tuple[str, ...], said: str) -> None:
    result = run("invoke", *words, "--local", stdin="ignored")
    assert result.exit_code == 2
    assert f"Unexpected argument {words[-1]!r}: {said}." in result.stderr


@pytest.mark.parametrize(
    ("prompt", "hinted"),
    [
        ('{"prompt": "x"}', True),
        (json.dumps({"messages": MESSAGES}), True),
        ('{"name": "a function"}', False),
        ("{", False),
        ("def f(n):", False),
    ],
)
def test_a_prompt_that_looks_like_a_body_is_pointed_out(prompt: str, hinted: bool) -> None:
    hint = body_hint(InvokeInput(prompt=prompt))
    assert (hint is not None) == hinted
    assert hint is None or "sent as plain text; --body FILE" in hint
    assert body_hint(InvokeInput(body={"prompt": "x"})) is None
