"""No planted secret is in a recorded file, wherever it stands; ordinary text stays as it is."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_sm.traffic.file_target import FileTarget
from peagle_sm.traffic.reading import read
from peagle_sm.traffic.recorder import Recorder, TrafficSource
from peagle_sm.traffic.redaction import Redactor
from peagle_sm.traffic.secret_rules import passes_luhn
from tests.traffic.planted import FORMS, HARMLESS, Planted, pieces, planted
from tests.traffic.planted_passwords import ORDINARY, WRITTEN
from tests.traffic.planted_prefixes import PREFIXED

SECRETS = planted()


def leaks(text: str, secret: Planted) -> list[str]:
    return [piece for piece in pieces(secret.core) if piece in text]


@pytest.mark.parametrize("form", FORMS)
def test_no_piece_of_a_secret_stays(form: str) -> None:
    left = {
        secret.name: Redactor().text(FORMS[form](secret.text))
        for secret in SECRETS
        if leaks(Redactor().text(FORMS[form](secret.text)), secret)
    }
    assert left == {}


def test_there_are_enough_secrets_of_each_sort() -> None:
    names = [secret.name for secret in SECRETS]
    assert len(names) == len(set(names)) >= 50
    assert sum(name.startswith("card") for name in names) >= 5
    assert sum(name.startswith("e-mail") for name in names) >= 5


@pytest.mark.parametrize(("text", "secret"), WRITTEN)
def test_a_password_goes_however_it_is_written(text: str, secret: str) -> None:
    left = Redactor().text(text)
    assert secret in text
    assert left == text.replace(secret, "[REDACTED:password]")


@pytest.mark.parametrize("text", [*HARMLESS, *ORDINARY])
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    redactor = Redactor()
    assert redactor.text(text) == text
    assert not redactor.counts


def test_this_repository_s_own_code_and_pages_stay_readable(root: Path) -> None:
    """A sample of the files, without the tests' planted secrets: replacements are rare."""
    files = sorted([*root.glob("toolkit/*/*/**/*.py"), *root.glob("docs/**/*.md")])
    files = [path for path in files if "tests" not in path.relative_to(root).parts][::8]
    characters = replaced = 0
    for path in files:
        text = path.read_text()
        redactor = Redactor()
        redactor.text(text)
        characters += len(text)
        replaced += redactor.counts.total()
    assert len(files) > 40
    assert replaced <= characters / 50_000


def sse(*choices: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in choices)


def in_chunks(text: str, size: int, key: str = "content") -> bytes:
    """A streamed answer that is cut into pieces of ``size`` characters."""
    cut = [text[start : start + size] for start in range(0, len(text), size)]
    deltas = [{"choices": [{"index": 0, "delta": {key: piece}}]} for piece in cut]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return sse(*deltas, end) + b"data: [DONE]\n\n"


def tool_call_in_chunks(arguments: str, size: int) -> bytes:
    cut = [arguments[start : start + size] for start in range(0, len(arguments), size)]
    calls = [{"index": 0, "id": "c", "function": {"name": "send", "arguments": piece}} for piece in cut]
    deltas = [{"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]} for call in calls]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    return sse(*deltas, end) + b"data: [DONE]\n\n"


def bodies_and_answers(text: str) -> list[tuple[dict[str, Any], bytes]]:
    """The text in each place of a request and of an answer."""
    half = len(text) // 2
    user = {"role": "user", "content": "hello"}
    plain = in_chunks("hello", 2)
    arguments = json.dumps({"to": text, "nested": json.dumps({"deep": text})})
    call = {"id": "c", "type": "function", "function": {"name": "send", "arguments": arguments}}
    parts = [{"type": "text", "text": text[:half]}, {"type": "text", "text": text[half:]}]
    tool = {"type": "function", "function": {"name": "f", "description": text}}
    return [
        ({"prompt": text}, plain),
        ({"prompt": ["one", text]}, plain),
        ({"messages": [{"role": "system", "content": text}, user]}, plain),
        ({"messages": [{"role": "user", "content": text}]}, plain),
        ({"messages": [{"role": "user", "content": parts}]}, plain),
        ({"messages": [user, {"role": "assistant", "content": None, "tool_calls": [call]}]}, plain),
        ({"messages": [user, {"role": "tool", "tool_call_id": "c", "content": arguments}]}, plain),
        ({"messages": [user], "tools": [tool]}, plain),
        ({"messages": [user], "stop": [text], "metadata": {"note": text}, "user": text}, plain),
        ({"messages": [user], "chat_template_kwargs": {text: text}}, plain),
        ({"messages": [user]}, in_chunks(text, 1)),
        ({"messages": [user]}, in_chunks(text, 7)),
        ({"messages": [user]}, in_chunks(text, 7, "reasoning")),
        ({"messages": [user]}, tool_call_in_chunks(arguments, 5)),
        ({"messages": [user]}, in_chunks(text, 7).partition(b'"stop"')[0]),
        ({"messages": [user]}, sse({"error": {"message": f"bad input: {text}", "code": 400}})),
    ]


def texts() -> list[str]:
    """Each secret in a text; of those with a fixed prefix and in sentences six together, to be quicker."""
    short = {name for name, _, _ in PREFIXED}
    alone = [[each] for each in SECRETS if each.name not in short]
    rows = [each for each in SECRETS if each.name in short]
    together = [rows[start : start + 6] for start in range(0, len(rows), 6)]
    return ["\n".join(f"Here: {each.text} ok" for each in group) for group in (*alone, *together)]


def test_no_secret_is_in_a_recorded_file_wherever_it_stands(tmp_path: Path) -> None:
    """Through the recorder, its process and the file: every secret in every place of a request and answer."""
    path = tmp_path / "traffic.jsonl"
    recorder = Recorder(FileTarget(path, keep_days=None), TrafficSource("e"))
    sent = 0
    for text in texts():
        for body, answer in bodies_and_answers(text):
            recording = recorder.begin(json.dumps(body).encode(), streamed=True)
            assert recording is not None
            for start in range(0, len(answer), 333):
                recording.add(answer[start : start + 333])
            recording.end(problem=f"cut after {text}" if b"[DONE]" not in answer else None)
            sent += 1
    summary = recorder.close(120)
    assert (summary.recorded, dict(summary.lost)) == (sent, {})
    content = path.read_text()
    unescaped = content.encode().decode("unicode_escape")
    assert [secret.name for secret in SECRETS if leaks(content, secret) or leaks(unescaped, secret)] == []
    records = read(path).records
    assert len(records) == sent
    assert all(record.redacted for record in records if record.request != {"messages": [ASKED]})


ASKED = {"role": "user", "content": "hello"}

TEXT = st.text(max_size=300) | st.text(alphabet='\\%&{}[]"/u0123456789abcdefAKIA@.:=-_ \n', max_size=300)


@given(TEXT)
def test_any_text_is_accepted_and_a_second_pass_changes_nothing(text: str) -> None:
    once = Redactor().text(text)
    again = Redactor()
    assert again.text(once) == once


@given(st.text(alphabet="abc xyz,\n\\n%20&amp;{}\"'", max_size=200))
def test_text_without_secrets_is_untouched(text: str) -> None:
    assert Redactor().text(text) == text


@given(st.integers(10**11, 10**18 - 1))
def test_luhn_accepts_one_last_digit_in_ten(number: int) -> None:
    assert sum(passes_luhn(f"{number}{digit}") for digit in range(10)) == 1


@pytest.mark.parametrize(
    "account",
    [
        "DE89370400440532013000",
        "DE89 3704 0044 0532 0130 00",
        "de89 3704 0044 0532 0130 00",
        "GB29-NWBK-6016-1331-9268-19",
        "FR14 2004 1010 0505 0001 3M02 606",
        "NO93 8601 1117 947",
        "MT84 MALT 0110 0001 2345 MTLC AST0 01S",
        "BR18 0036 0305 0000 1000 9795 493C 1",
    ],
)
def test_a_bank_account_goes(account: str) -> None:
    """The examples of the SWIFT registry."""
    for text in (account, f"Pay to {account}, today", f'{{"iban": "{account}"}}', f"{account}\nx"):
        assert Redactor().text(text) == text.replace(account, "[REDACTED:bank account]")
    assert Redactor().text(account.replace(" ", "%20")) == "[REDACTED:bank account]"


@pytest.mark.parametrize(
    "text",
    [
        "DE88 3704 0044 0532 0130 00 has other check digits",
        "DE89 3704 0044 0532 0130 0 is short, ZZ89 3704 0044 0532 0130 00 is no country",
        "XDE89370400440532013000 and DE893704004405320130001 are longer words",
    ],
)
def test_what_only_looks_like_a_bank_account_stays(text: str) -> None:
    assert Redactor().text(text) == text


BEGINNINGS = (
    "sshpass -pa1b2 ",
    "smbclient -U a% login -p b ",
    "DE89 ",
    "de89",
    "a@",
    "://a:",
    "-----BEGIN " + "PRIVATE KEY-----",
    "password=",
    "4242 ",
    "eyJ",
    "password ",
    "password+",
    "password is ",
    "password is password1",
    "api key - ",
    "curl -u a:b1234 ",
    "curl -u 'a:",
    "curl \"-ua:b1234' ",
    'password="',
    "password='(",
    "**password:** ",
    "password:\n",
    "password:\n```\n",
    "password=a1,b;",
    "password=a1)];",
    "password: (",
    "token->",
    "password\u2014",
    "-uuuuuuuu",
    "4242.",
    "tvly-",
    "EAA",
    "A3-AAAAAA-",
    "0NRAL",
    "sk-",
    "\\",
    "%25",
    "{",
)


@pytest.mark.parametrize("text", BEGINNINGS)
def test_the_time_for_hostile_text_grows_with_its_length_only(text: str) -> None:
    """Twice the text may take four times as long, not sixteen; the recording's process has a limit, too."""

    def seconds(size: int) -> float:
        began = time.process_time()
        Redactor().text(text * (size // len(text)))
        return time.process_time() - began

    seconds(1000)
    assert min(seconds(40_000) for _ in range(3)) < 8 * min(seconds(10_000) for _ in range(3)) + 0.05
