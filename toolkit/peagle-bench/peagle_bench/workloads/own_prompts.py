"""User's own prompts: OpenAI request bodies, or random tokens."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from peagle_bench.workloads.labels import refuse_many_values
from peagle_bench.workloads.prompt_files import (
    Question,
    Source,
    empty,
    is_placeholder,
    json_array,
    json_lines,
    read_bytes,
    refuse_repeated_ids,
    sha256_of,
)
from peagle_sm.aws.streams.refusals import CHAT, KNOWN, refuse_ignored
from peagle_sm.core.errors import SpecError
from peagle_sm.core.request_slices import checked_labels

#: Fields of a line that peagle-sm reads and that are not part of the request.
_OURS = ("id", "custom_id", "category", "labels", "conversation")
_SPELT = _OURS[1:]  #: those that a misspelt field can be meant for
_CLOSE = 0.75  #: likeness of such a field, as difflib counts it


def read_own(path: Path) -> Source:
    """Read a JSON lines file (or a JSON array) of request bodies.

    A line is an OpenAI body (``{"messages": …}`` or ``{"prompt": …}``), optionally with ``id``, ``category``,
    ``labels`` (``{"team": "search"}``, by which figures are split) and ``conversation`` (an id: turns of one
    conversation are not independent); or OpenAI's batch form
    ``{"custom_id": …, "body": {…}}``; or a conversation ``{"turns": ["…", "…"]}``; or one of ShareGPT,
    ``{"conversations": [{"from": "human", "value": "…"}, …]}``.

    The last answer of a body is left out, and all answers of a ShareGPT conversation: the endpoint gives its
    own.

    Raises:
        SpecError: a line is none of these, or the file has no prompts.
    """
    content = read_bytes(path)
    lines = _lines(content, path)
    _refuse_placeholders([(number, line) for _, number, line in lines], path)
    tally: Counter[str] = Counter()
    questions = [
        question
        for where, number, line in lines
        if (question := _own_question(line, where, number, tally)) is not None
    ]
    if not questions:
        raise empty(str(path))
    refuse_repeated_ids(questions, str(path))
    refuse_many_values((question.labels for question in questions), str(path))
    notes = tuple(f"{count:,} of {len(lines):,} {note}" for note, count in sorted(tally.items()) if count)
    return Source(path.name, tuple(questions), path.name, sha256_of(content), license=None, notes=notes)


_ANSWERED = "chats end with the assistant's answer: it is left out, and the endpoint gives its own"
_SILENT = "conversations have no message of the user and are left out"


def _lines(content: bytes, path: Path) -> list[tuple[str, int, Mapping[str, Any]]]:
    """Return the place, number and object of each line; a field with JSON null counts as not set."""
    array = json_array(content, str(path))
    lines = (
        [(f"{path}, line {number}", number, line) for number, line in json_lines(content, str(path))]
        if array is None
        else [(f"{path}, entry {number}", number, line) for number, line in enumerate(array, start=1)]
    )
    return [(where, number, _set_fields(line)) for where, number, line in lines]


def _set_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _refuse_placeholders(lines: list[tuple[int, Mapping[str, Any]]], path: Path) -> None:
    """Refuse rows of SPEED-Bench without their text, which would be measured as if they were prompts."""
    hidden = [number for number, line in lines if line.get("turns") and is_placeholder(line["turns"])]
    if hidden:
        raise SpecError(
            f"{path}: {len(hidden)} of {len(lines)} lines are placeholders without a prompt, the first is"
            f" line {hidden[0]}",
            next_step="fetch the texts with NVIDIA's prepare script for SPEED-Bench, or remove these lines",
            details={"placeholders": len(hidden), "lines": len(lines)},
        )


_SETTINGS = frozenset(
    {
        "add_generation_prompt",
        "bad_words",
        "chat_template_kwargs",
        "continue_final_message",
        "frequency_penalty",
        "ignore_eos",
        "logit_bias",
        "min_tokens",
        "presence_penalty",
        "reasoning_effort",
        "repetition_penalty",
        "response_format",
        "stop",
        "stop_token_ids",
        "structured_outputs",
        "temperature",
        "tool_choice",
        "top_k",
        "top_p",
    }
)
"""Fields of the engine that change an answer. A name close to one of them is taken for a misspelling."""
_VERY_CLOSE = 0.88


def _refuse_misspelt(fields: Mapping[str, Any], where: str, ours: Sequence[str] = ()) -> None:
    """Refuse a misspelt field: it would go to the engine, which ignores it. ``ours``: other allowed names."""
    for name in fields:
        if name in _OURS or name in KNOWN or (name == "conversations" and isinstance(fields[name], list)):
            continue
        plain = name.lower().replace("-", "_")
        near = [
            *(word for word in get_close_matches(plain, ours, 1, _CLOSE) if abs(len(plain) - len(word)) < 2),
            *get_close_matches(plain, _SETTINGS, 1, _VERY_CLOSE),
        ]  # `subcategory` and `customer_id` are near, too, and somebody's own
        if near and near[0] not in fields:
            raise SpecError(
                f"{where}: found the field {name!r}, which the engine ignores; did you mean {near[0]!r}?",
                next_step=f'write "{near[0]}", or remove it; the engine\'s go into {{"body": {{…}}}}',
                details={"found": name, "near": near[0]},
            )


def _own_question(line: Mapping[str, Any], where: str, number: int, tally: Counter[str]) -> Question | None:
    _refuse_misspelt(line, where, _SPELT)
    name = str(line.get("id", line.get("custom_id", f"line/{number:05}")))
    category = None if "category" not in line else str(line["category"])
    labels = checked_labels(line.get("labels") or {}, where)
    conversation = _conversation_of(line, where)
    if "turns" in line or ("conversations" in line and not line.get("messages")):
        system, turns = (None, turns_of(line["turns"], where)) if "turns" in line else _sharegpt(line, where)
        if not turns:
            tally[_SILENT] += 1
            return None
        return Question(
            name,
            turns=turns,
            system=system,
            settings=_settings(line, where),
            category=category,
            labels=labels,
            conversation=conversation,
        )
    body = line.get("body", line)
    if not isinstance(body, dict):
        raise SpecError(f"{where}: body is not a JSON object", next_step='write {"body": {"messages": […]}}')
    if body is not line:
        _refuse_misspelt(body, where)
    body = {key: value for key, value in body.items() if body is not line or key not in _OURS}
    checked = checked_body(body, where)
    _refuse_other_lengths({**line, **checked}, where)
    unanswered = _without_last_answer(checked, where)
    tally[_ANSWERED] += unanswered is not checked
    return Question(name, body=unanswered, category=category, labels=labels, conversation=conversation)


def _settings(line: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the request's fields beside the turns of a conversation."""
    _refuse_other_lengths(line, where)
    settings = {name: line[name] for name in line if name in CHAT - {"messages", *_STREAMING}}
    _refuse_misshapen(settings, where)
    return settings


_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_LENGTHS = {"token", "tokens", "tok", "toks", "len", "length"}
_OF_ANSWERS = {"max", "new", "out", "output", "completion", "response", "answer", "reply"}
_OF_ANSWERS |= {"gen", "generate", "generated", "generation", "decode"}
_OF_OUTPUTS = {"out", "output"}  # output_seq_len is of the answer
_OF_PROMPTS = {"input", "prompt", "context", "model", "seq", "sequence", "min"}
#: Names in one word, without underscores.
_GLUED = {"osl", "maxtokens", "maxlen", "maxlength", "maxnewtokens", "maxoutputtokens", "outputtokens"}
_GLUED |= {
    "outlen",
    "maxtoks",
    "numgenerate",
    "outputlen",
    "outputlength",
    "genlen",
    "npredict",
    "numpredict",
}


def _is_other_length(name: str, value: Any) -> bool:
    """Decide whether a field is another tool's answer length: ``output_tokens``, ``osl``, ``maxLen``."""
    if name in KNOWN and name != "max_completion_tokens":
        return False
    if isinstance(value, bool) or not (isinstance(value, int | float) or str(value).strip().isdecimal()):
        return False
    words = {word.lower() for word in _WORD.findall(name)}
    if words & _OF_PROMPTS and not words & _OF_OUTPUTS:
        return False
    return bool(words & _OF_ANSWERS and words & _LENGTHS) or re.sub(r"[\W_]", "", name.lower()) in _GLUED


def _refuse_other_lengths(body: Mapping[str, Any], where: str) -> None:
    """Refuse a limit of the answer that the engine ignores: the answer would have another length.

    A completion ignores ``max_completion_tokens``. A body that also has a limit of the engine passes.
    """
    limits = ("max_tokens",) if "prompt" in body else ("max_tokens", "max_completion_tokens")
    if any(name in body for name in limits):
        return
    for name, value in body.items():
        if _is_other_length(name, value):
            raise SpecError(
                f"{where}: found the field {name!r}, which the engine ignores; allowed: max_tokens",
                next_step=f"write max_tokens instead of {name}, or remove it",
                details={"found": name, "allowed": "max_tokens"},
            )


def _without_last_answer(body: dict[str, Any], where: str) -> dict[str, Any]:
    """Return a chat without the answers at its end; unchanged if it has none, or is to continue one.

    Raises:
        SpecError: no message is left that the assistant could answer.
    """
    messages = body.get("messages") or []
    continues = body.get("continue_final_message") is True or body.get("add_generation_prompt") is False
    count = len(messages)
    while count and messages[count - 1]["role"] == "assistant":
        count -= 1
    if continues or count == len(messages):
        return body
    if not count or messages[count - 1]["role"] in ("system", "developer"):
        raise SpecError(
            f"{where}: the chat has the assistant's answer and no message before it to answer",
            next_step="write a message of the user before the answer; to continue the answer itself, add"
            ' "continue_final_message": true and "add_generation_prompt": false',
        )
    return {**body, "messages": messages[:count]}


_USERS = ("human", "user")
_SYSTEMS = ("system",)
_ASSISTANTS = ("gpt", "assistant", "chatgpt", "bing", "bard", "model", "bot")
_ROLES = (*_USERS, *_SYSTEMS, *_ASSISTANTS)


_ROLE_NAMES = {
    **dict.fromkeys((*_ASSISTANTS, "ai"), "assistant"),
    **dict.fromkeys(_USERS, "user"),
    "system": "system",
    "tool": "tool",
}
"""The engine's names of the roles, by the names that other tools give them, in small letters."""


def _sharegpt(line: Mapping[str, Any], where: str) -> tuple[str | None, tuple[str, ...]]:
    """Return the system message and the user's messages of a conversation of ShareGPT.

    Raises:
        SpecError: another form, or a role that needs more than the messages, such as a tool's.
    """
    messages = line["conversations"]
    form = 'write {"conversations": [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]}'
    if line.get("tools"):
        raise SpecError(f"{where}: found tools, which ShareGPT's form cannot send", next_step=_AS_MESSAGES)
    if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
        raise SpecError(
            f"{where}: conversations: found {messages!r:.60}; allowed: a list of objects", next_step=form
        )
    system = line.get("system") or None
    turns: list[str] = []
    for place, message in enumerate(messages):
        role, text = message.get("from", message.get("role")), message.get("value", message.get("content"))
        if role not in _ROLES or (role in _SYSTEMS and place):
            problem = "a system message after the first" if role in _SYSTEMS else f"the role {role!r}"
            raise SpecError(
                f"{where}: conversations: found {problem}; allowed: {', '.join(_ROLES)}",
                next_step=_AS_MESSAGES,
                details={"found": role, "allowed": list(_ROLES)},
            )
        if role in _ASSISTANTS:
            continue
        if not isinstance(text, str) or not (text.strip() or role in _SYSTEMS):
            raise SpecError(
                f"{where}: conversations: found {text!r:.60} of {role}; allowed: a text", next_step=form
            )
        if role in _SYSTEMS:
            system = text or system
        else:
            turns.append(text)
    if system is not None and not isinstance(system, str):
        raise SpecError(f"{where}: system: found {system!r:.60}; allowed: a text", next_step=form)
    return system, tuple(turns)


_AS_MESSAGES = 'write this conversation as an OpenAI body: {"messages": […], "tools": […]}'


def _conversation_of(line: Mapping[str, Any], where: str) -> str | None:
    value = line.get("conversation")
    if value is None:
        return None
    if isinstance(value, list):
        raise SpecError(
            f"{where}: conversation is an id; found a chat: {value!r:.60}",
            next_step="write the chat as messages, or under the name conversations (ShareGPT)",
        )
    if type(value) not in (str, int) or not str(value).strip():
        raise SpecError(
            f"{where}: conversation: found {value!r:.60}; allowed: a text or a whole number",
            next_step="give all turns of a conversation the same id, or leave the field out",
        )
    return str(value)


def turns_of(value: Any, where: str) -> tuple[str, ...]:
    """Check the turns of a conversation; raise SpecError unless they are one or more texts."""
    if not isinstance(value, list) or not value or not all(isinstance(turn, str) for turn in value):
        raise SpecError(
            f"{where}: turns: found {value!r:.60}; allowed: a list of one or more texts",
            next_step='write {"turns": ["first question", "second question"]}',
        )
    return tuple(value)


def checked_body(body: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Check that a request body can be measured; return it without its streaming options.

    Raises:
        SpecError: not exactly one of messages and prompt, several answers requested at once, a value that
            no engine takes, or a field that the engine ignores.
    """
    body = _set_fields(body)
    has = [key for key in ("messages", "prompt") if body.get(key)]
    if len(has) != 1:
        blank = [key for key in ("messages", "prompt") if key in body and key not in has]
        present = " and ".join(has) or "neither messages nor prompt"
        if not has and len(blank) == 1:
            present = f"{blank[0]} without content"
        raise SpecError(
            f"{where}: found {present}"
            f" (fields: {', '.join(sorted(body)) or 'none'}); allowed: exactly one of messages, prompt",
            next_step="write OpenAI chat or completion bodies, one per line",
        )
    refuse_ignored(body, where)
    body = {key: value for key, value in body.items() if key in has or key not in ("messages", "prompt")}
    _refuse_misshapen(body, where)
    count = body.get("n", 1)
    if count != 1 and (type(count) is not int or count < 1):
        raise SpecError(f"{where}: n: found {count!r:.60}; allowed: 1", next_step="leave n out")
    is_several = count != 1
    batch = body.get("prompt")
    if isinstance(batch, list) and len(batch) == 1 and isinstance(batch[0], str | list):
        body["prompt"] = batch = batch[0]  # one prompt as a list is the same prompt
    if isinstance(batch, list) and any(isinstance(entry, float | bool | Mapping) for entry in batch):
        raise SpecError(
            f"{where}: prompt: found {batch!r:.60}; allowed: a text, or a list of token ids",
            next_step='write {"prompt": "…"}',
        )
    if is_several or (isinstance(batch, list) and not all(isinstance(token, int) for token in batch)):
        raise SpecError(
            f"{where}: {'n' if is_several else 'prompt'} requests several answers; allowed: one answer"
            " per request",
            next_step="write one line for each prompt, without n",
        )
    return {key: value for key, value in body.items() if key not in _STREAMING}


_STREAMING = ("stream", "stream_options")


def _refuse_misshapen(body: Mapping[str, Any], where: str) -> None:
    """Refuse values that no engine takes, or that would make a limit or an estimate wrong."""
    messages, prompt, temperature = body.get("messages"), body.get("prompt"), body.get("temperature")
    if messages and not (
        isinstance(messages, list)
        and all(isinstance(each, Mapping) and isinstance(each.get("role"), str) for each in messages)
    ):
        raise SpecError(
            f"{where}: messages: found {messages!r:.60}; allowed: a list of objects, each with a role",
            next_step='write {"messages": [{"role": "user", "content": "…"}]}',
        )
    for message in messages or ():
        if (role := _ROLE_NAMES.get(message["role"].lower())) is not None and message["role"] != role:
            raise SpecError(
                f"{where}: messages: found the role {message['role']!r}, which the engine passes to the chat "
                f"template as it is; did you mean {role!r}?",
                next_step=f'write "role": "{role}"',
                details={"found": message["role"], "near": role},
            )
    if prompt and not isinstance(prompt, str | list):
        raise SpecError(
            f"{where}: prompt: found {prompt!r:.60}; allowed: a text, or a list of token ids",
            next_step='write {"prompt": "…"}',
        )
    if isinstance(prompt, list) and all(isinstance(entry, Mapping) for entry in prompt):
        raise SpecError(
            f"{where}: prompt is a chat: found {prompt!r:.60}; allowed: a text, or a list of token ids",
            next_step='write it as messages: {"messages": [{"role": "user", "content": "…"}]}',
        )
    for name in ("max_tokens", "max_completion_tokens"):
        limit = body.get(name)
        if limit is not None and (type(limit) is not int or limit < 1):
            raise SpecError(
                f"{where}: {name}: found {limit!r:.60}; allowed: a whole number from 1",
                next_step=f"correct {name}, or leave it out",
            )
    if temperature is not None and not (type(temperature) in (int, float) and 0 <= temperature < math.inf):
        raise SpecError(
            f"{where}: temperature: found {temperature!r:.60}; allowed: a number from 0",
            next_step="correct temperature, or leave it out",
        )


#: Ids of ordinary tokens in all tokenizers of the catalogue (control tokens have lower or far higher ids).
_IDS = range(1000, 2000)
_COUNT = 256
_FORM = re.compile(r"(\d+)(?:-(\d+))?/(\d+)")


def make_synthetic(form: str, *, seed: int, count: int | None) -> Source:
    """Make random prompts: ``1024/128`` is 1,024 tokens in and 128 out, ``512-2048/128`` a range in.

    The token ids are random, so acceptance on them does not apply to real text. The output length is forced
    with ``ignore_eos``. ``count`` defaults to 256.

    Raises:
        SpecError: ``form`` is invalid.
    """
    match = _FORM.fullmatch(form)
    low, high, out = (int(match[1]), int(match[2] or match[1]), int(match[3])) if match else (0, 0, 0)
    if not 1 <= low <= high or out < 1:
        raise SpecError(
            f"found synthetic:{form}; allowed: synthetic:IN/OUT, lengths in tokens",
            next_step="write for example synthetic:1024/128 or synthetic:512-2048/128",
        )
    shuffler = random.Random(f"{seed}/{form}")
    questions = tuple(
        Question(
            f"synthetic/{number:05}",
            prompt=tuple(shuffler.choices(_IDS, k=shuffler.randint(low, high))),
            category=None,
        )
        for number in range(_COUNT if count is None else count)
    )
    return Source(
        name=f"synthetic:{form}",
        questions=questions,
        origin=f"made of random token ids, seed {seed}",
        sha256=None,
        license=None,
        notes=("random tokens: acceptance on them does not apply to real text; lengths are forced",),
        parameters={"max_tokens": out, "ignore_eos": True},
    )
