"""Whether prompts fit the target: chat template, control tokens, token ids. Pure; before anything is sent."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from peagle_learn.core.conversations import LearnPrompt, text_of
from peagle_sm.core.errors import SpecError

#: Marks of turns in the templates of common models; text for people does not have them.
_CONTROL = re.compile(
    r"<\|[A-Za-z_]{2,32}\|>|<(?:start|end)_of_turn>|<turn\|>|<\|turn>|\[/?INST\]|<</?SYS>>"
    r"|<\uff5c[A-Za-z\u2581_ ]{2,40}\uff5c>"
)
_SHARE = 0.02  #: of the prompts with foreign marks; a few may quote another model's template


@dataclass(frozen=True)
class TargetTexts:
    """What the target's tokenizer files say; None where they are not known."""

    has_template: bool | None = None
    control_tokens: frozenset[str] | None = None
    vocab_size: int | None = None


def read_target(files: Mapping[str, bytes | None]) -> TargetTexts:
    """Read ``config.json``, ``tokenizer_config.json``, ``tokenizer.json`` and ``chat_template.jinja``.

    A file that is missing or not JSON leaves its facts unknown.
    """
    config, settings, tokenizer = (
        _object(files.get(name)) for name in ("config.json", "tokenizer_config.json", "tokenizer.json")
    )
    template: bool | None = None
    if settings is not None or files.get("chat_template.jinja") is not None:
        template = files.get("chat_template.jinja") is not None or bool((settings or {}).get("chat_template"))
    inner = (config or {}).get("text_config")
    size = (inner if isinstance(inner, Mapping) else config or {}).get("vocab_size")
    return TargetTexts(template, _control_tokens(settings, tokenizer), size if type(size) is int else None)


def _object(content: bytes | None) -> Mapping[str, Any] | None:
    try:
        document = None if content is None else json.loads(content)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, Mapping) else None


def _control_tokens(
    settings: Mapping[str, Any] | None, tokenizer: Mapping[str, Any] | None
) -> frozenset[str] | None:
    if settings is None and tokenizer is None:
        return None
    added = [
        each.get("content")
        for each in (tokenizer or {}).get("added_tokens") or ()
        if isinstance(each, Mapping)
    ]
    decoder = (settings or {}).get("added_tokens_decoder")
    if isinstance(decoder, Mapping):
        added += [each.get("content") for each in decoder.values() if isinstance(each, Mapping)]
    return frozenset(each for each in added if isinstance(each, str))


def refuse_unfit(prompts: Sequence[LearnPrompt], target: TargetTexts, origin: str) -> None:
    """Refuse prompts that were made for another model, before any is sent.

    Raises:
        SpecError: chats without a chat template, control tokens that the target does not have, or token ids
            outside its vocabulary.
    """
    if not prompts:
        raise SpecError(f"{origin} has no prompts", next_step="Give data.prompts at least one whole request.")
    chats = [each for each in prompts if each.is_chat]
    if chats and target.has_template is False:
        raise SpecError(
            f"{origin}: {len(chats):,} of {len(prompts):,} prompts are chats, and the target has no chat"
            " template;"
            f" the first: {chats[0].id}",
            next_step="Give the target's folder its chat_template.jinja, or prompts as text"
            ' ({"prompt": …}).',
        )
    _refuse_outside(prompts, target, origin)
    known = target.control_tokens
    if known is None:
        return
    strange: Counter[str] = Counter()
    prompts_with: list[str] = []
    for prompt in prompts:
        marks = (mark for text in _texts(prompt.body) for mark in _CONTROL.findall(text))
        foreign = [mark for mark in dict.fromkeys(marks) if mark not in known]
        strange.update(foreign)
        prompts_with += [prompt.id] if foreign else []
    count, of = len(prompts_with), len(prompts)
    if not count or (of > _FEW and count <= max(1, _SHARE * of)):
        return
    first = ", ".join(mark for mark, _ in strange.most_common(3))
    raise SpecError(
        f"{origin}: {count:,} of {of:,} prompts contain {first}, which the target's tokenizer does not know"
        f" as control tokens; the first: {prompts_with[0]}. They were written for another model's chat"
        " template",
        next_step='Give the messages of the chats instead ({"messages": [...]}); the endpoint applies the'
        " target's own template.",
        details={"found": [mark for mark, _ in strange.most_common(10)], "prompts": count},
    )


_FEW = 10  #: prompts, among which a single one with foreign marks is refused


def _refuse_outside(prompts: Sequence[LearnPrompt], target: TargetTexts, origin: str) -> None:
    size = target.vocab_size
    for prompt in prompts:
        ids = prompt.body.get("prompt")
        if not isinstance(ids, list | tuple):
            continue
        worst = max((each for each in ids if isinstance(each, int)), default=0)
        if size is not None and worst >= size:
            raise SpecError(
                f"{origin}: {prompt.id} has token id {worst:,}; the target's vocabulary has {size:,}. It was"
                " made with another tokenizer",
                next_step="Give the prompts as text.",
                details={"found": worst, "allowed": size - 1},
            )


def _texts(body: Mapping[str, Any]) -> Iterator[str]:
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        yield prompt
    for message in body.get("messages") or ():
        if isinstance(message, Mapping):
            yield text_of(message)


def is_token_ids(prompt: LearnPrompt) -> bool:
    """Return whether a prompt is token ids, in which secrets cannot be found."""
    return isinstance(prompt.body.get("prompt"), list | tuple)
