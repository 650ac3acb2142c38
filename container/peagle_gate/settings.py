"""The gate's settings, read from the container's environment. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

PREFIX = "PEAGLE_GATE"
SPECULATIVE_FLAG = "--speculative-config"


class SettingError(ValueError):
    """A setting has a value that it cannot have."""


@dataclass(frozen=True)
class Limits:
    """What one request may ask for. Each is a variable: ``PEAGLE_GATE_MAX_SEQUENCES`` and so on.

    Attributes:
        max_body_bytes: of the body; 6 MiB is what botocore lets InvokeEndpoint send.
        max_sequences: ``n`` times the prompts of one request.
        max_tokens: output tokens of an answer: ``max_tokens``, ``max_completion_tokens``, ``min_tokens``, and
            the maximum of a request without them.
        max_logprobs: of ``logprobs``, ``top_logprobs`` and ``prompt_logprobs``; 20 is vLLM's own default.
        max_stops: strings in ``stop`` and ``bad_words``, ids in ``stop_token_ids``.
        max_stop_chars: of one of those strings.
        max_format_bytes: ``response_format``, ``structured_outputs`` or ``tools``, as JSON.
        max_format_depth: how deep those may nest.
        max_media: images, sounds and videos in a request, as ``data:`` addresses; never by an address to
            fetch.
        template_keys: the keys that ``chat_template_kwargs`` may have.
    """

    max_body_bytes: int = 6_291_456
    max_sequences: int = 16
    max_tokens: int = 32_768
    max_logprobs: int = 20
    max_stops: int = 16
    max_stop_chars: int = 256
    max_format_bytes: int = 65_536
    max_format_depth: int = 32
    max_media: int = 0
    template_keys: tuple[str, ...] = ("enable_thinking", "thinking", "reasoning_effort")


@dataclass(frozen=True)
class Settings:
    """How the gate stands.

    Attributes:
        limits: of one request.
        canary_prompts: how many prompts are asked before the first healthy ``/ping``; 0 asks none.
        canary_tokens: greedy tokens for each.
        canary_at_once: of those requests.
        drain_s: seconds that running requests get after SIGTERM. SageMaker sends SIGKILL 30 s after it
            (https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-inference-code.html).
        sample_s: seconds between two looks at ``/metrics``; 0 looks never.
        namespace: of the embedded metrics; "" prints none.
    """

    limits: Limits = field(default_factory=Limits)
    canary_prompts: int = 20
    canary_tokens: int = 128
    canary_at_once: int = 8
    drain_s: int = 25
    sample_s: int = 60
    namespace: str = ""


@dataclass(frozen=True)
class Speculation:
    """What the engine was told of drafting: K, whether in one pass, and where the head lies."""

    tokens: int
    parallel: bool
    head: str


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Return the settings.

    Raises:
        SettingError: a number is none, or is negative.
    """
    limits = {entry.name: _value(environ, entry.name, entry.default) for entry in fields(Limits)}
    others = {
        entry.name: _value(environ, entry.name, entry.default)
        for entry in fields(Settings)
        if entry.name != "limits"
    }
    return Settings(limits=Limits(**limits), **others)


def _value(environ: Mapping[str, str], name: str, default: Any) -> Any:
    variable = f"{PREFIX}_{name.upper()}"
    text = environ.get(variable)
    if text is None:
        return default
    if isinstance(default, tuple):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if isinstance(default, str):
        return text
    if not (text.isascii() and text.isdigit()):
        raise SettingError(f"{variable} is {text!r}: a whole number from 0 on was expected")
    return int(text)


def speculation(args: Sequence[str]) -> Speculation | None:
    """Read the server's arguments; None without speculation, or where vLLM itself says what is wrong."""
    text = last_value(args, SPECULATIVE_FLAG)
    if text is None:
        return _by_single_flags(args)
    try:
        config = json.loads(text)
        tokens = config.get("num_speculative_tokens")
    except (ValueError, AttributeError):
        return None
    if not isinstance(tokens, int) or tokens < 1:
        return None
    return Speculation(tokens, config.get("parallel_drafting") is True, str(config.get("model") or ""))


def _by_single_flags(args: Sequence[str]) -> Speculation | None:
    """vLLM takes method, model and K as three flags too; parallel drafting cannot be asked for by them."""
    tokens = last_value(args, "--spec-tokens") or ""
    if not tokens.isdecimal() or int(tokens) < 1:
        return None
    return Speculation(int(tokens), False, last_value(args, "--spec-model") or "")


def last_value(args: Sequence[str], flag: str) -> str | None:
    """Return the flag's last value, which is the one that argparse takes; None without one."""
    found = None
    for index, argument in enumerate(args):
        name, equals, value = argument.partition("=")
        if name == flag:
            found = value if equals else (args[index + 1] if index + 1 < len(args) else None)
    return found
