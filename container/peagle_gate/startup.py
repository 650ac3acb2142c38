"""Checks before the server starts: settings, forbidden arguments, and added arguments.

The toolkit refuses the same arguments and variables before a deployment (check `forbidden-flags`), by the
same list and rule (`forbidden`); this applies if the image is deployed by other means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from peagle_gate.forbidden import parse_forbidden
from peagle_gate.slice_values import read_chosen

PREFIX = "PEAGLE_GATE"
SPECULATIVE_FLAG = "--speculative-config"
RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"


class SettingError(ValueError):
    """Error: a setting has an invalid value."""


@dataclass(frozen=True)
class Limits:
    """Limits of one request. Each is a variable: ``PEAGLE_GATE_MAX_SEQUENCES`` and so on.

    Attributes:
        max_body_bytes: of the body; 6 MiB is what botocore lets InvokeEndpoint send.
        max_sequences: ``n`` times the prompts of one request.
        max_tokens: output tokens of an answer: ``max_tokens``, ``max_completion_tokens``, ``min_tokens``, and
            the maximum of a request without them.
        max_logprobs: of ``logprobs``, ``top_logprobs`` and ``prompt_logprobs``; 20 is vLLM's own default.
        max_stops: strings in ``stop`` and ``bad_words``, ids in ``stop_token_ids``.
        max_stop_chars: of one of those strings.
        max_token_ids: entries of ``logit_bias`` and of ``allowed_token_ids``.
        max_name_chars: of ``model``, ``request_id``, ``session_id`` and ``user``; each chunk of a stream
            repeats the first two.
        max_repeated_tokens: ``max_pattern_size`` of ``repetition_detection``; at every step the scheduler
            compares up to the square of that many tokens, in Python.
        max_format_bytes: ``response_format``, ``structured_outputs`` or ``tools``, as JSON.
        max_format_depth: how deep those may nest.
        max_pattern_chars: of one pattern, and of a key of a schema.
        max_pattern_depth: how deep groups of a pattern nest.
        max_pattern_size: characters of a pattern with its repetitions written out.
        max_pattern_choices: optional or repeated parts of a schema's pattern in a row; half of it in a regex.
        max_literal_chars: of one text of a schema, such as a const or a value of an enum.
        max_grammar_cost: of all the grammars of a field, in units of some 0.3 ms of CPU.
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
    max_token_ids: int = 4096
    max_name_chars: int = 512
    max_repeated_tokens: int = 64
    max_format_bytes: int = 65_536
    max_format_depth: int = 32
    max_pattern_chars: int = 1024
    max_pattern_depth: int = 16
    max_pattern_size: int = 1024
    max_pattern_choices: int = 20
    max_literal_chars: int = 4096
    max_grammar_cost: int = 1800
    max_media: int = 0
    template_keys: tuple[str, ...] = ("enable_thinking", "thinking", "reasoning_effort")


@dataclass(frozen=True)
class Settings:
    """Settings of the gate.

    Attributes:
        limits: of one request.
        canary_prompts: number of prompts before the first healthy ``/ping``; 0 for none.
        canary_tokens: greedy tokens for each.
        canary_at_once: of those requests.
        drain_s: seconds that running requests get after SIGTERM. SageMaker sends SIGKILL 30 s after it
            (https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-inference-code.html).
        sample_s: seconds between two scrapes of ``/metrics``; 0 for none.
        namespace: of the embedded metrics; "" prints none.
        slices: by which drafts are counted, between ``;``: ``format;script=latin,han``; "" counts none.
    """

    limits: Limits = field(default_factory=Limits)
    canary_prompts: int = 20
    canary_tokens: int = 128
    canary_at_once: int = 8
    drain_s: int = 25
    sample_s: int = 60
    namespace: str = ""
    slices: str = ""


@dataclass(frozen=True)
class Speculation:
    """Speculation settings of the engine: K, parallel drafting or not, and the head's path.

    Attributes:
        tokens: K, the largest number of draft tokens of a step.
        parallel: whether they are drafted in one pass.
        head: the head's path.
        table: rows (first, last, K) of K by the number of running requests; empty if K is always ``tokens``.
        from_text: whether drafts come from the text so far, which may have nothing to repeat.
    """

    tokens: int
    parallel: bool
    head: str
    table: tuple[tuple[int, int, int], ...] = ()
    from_text: bool = False


#: vLLM's methods without a head; with them a step may have no draft in good health.
_TEXT_METHODS = ("ngram", "suffix")


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Return the settings.

    Raises:
        SettingError: a value is not a number, or is negative, or names slices that do not exist.
    """
    limits = {entry.name: _value(environ, entry.name, entry.default) for entry in fields(Limits)}
    others = {
        entry.name: _value(environ, entry.name, entry.default)
        for entry in fields(Settings)
        if entry.name != "limits"
    }
    try:
        read_chosen(filter(None, others["slices"].split(";")))
    except ValueError as error:
        raise SettingError(f"{PREFIX}_SLICES is {others['slices']!r}; allowed: {error}") from None
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
    """Read speculation from the server's arguments; None without, or if vLLM will refuse them."""
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
    table = config.get("num_speculative_tokens_per_batch_size")
    return Speculation(
        tokens,
        config.get("parallel_drafting") is True,
        str(config.get("model") or ""),
        _rows(table, tokens) if isinstance(table, list) else (),
        config.get("method") in _TEXT_METHODS,
    )


def _rows(table: list[Any], tokens: int) -> tuple[tuple[int, int, int], ...]:
    """Return the rows in order, K limited to ``tokens`` as vLLM does; empty if vLLM will refuse them."""
    try:
        return tuple(sorted((int(first), int(last), min(int(k), tokens)) for first, last, k in table))
    except (TypeError, ValueError):
        return ()


def _by_single_flags(args: Sequence[str]) -> Speculation | None:
    """Read method, model and K from vLLM's three flags, which do not cover parallel drafting."""
    tokens = last_value(args, "--spec-tokens") or ""
    if not tokens.isdecimal() or int(tokens) < 1:
        return None
    from_text = last_value(args, "--spec-method") in _TEXT_METHODS
    return Speculation(int(tokens), False, last_value(args, "--spec-model") or "", (), from_text)


def last_value(args: Sequence[str], flag: str) -> str | None:
    """Return the flag's last value, which argparse uses; None without one."""
    last = None
    for index, argument in enumerate(args):
        name, equals, value = argument.partition("=")
        if name == flag:
            last = value if equals else (args[index + 1] if index + 1 < len(args) else None)
    return last


FORBIDDEN = parse_forbidden(Path(__file__).with_name("forbidden.json").read_text(encoding="utf-8"))
#: Replaced by `gate_arguments`, which reads the flag only as one JSON.
_DOTTED_LIMIT = "--override-generation-config."
# vLLM's second name of a flag; argparse takes the value in the same token, too.
_ALIAS, _ALIAS_MEANS = "-cc", "--compilation-config"


def refusals(args: Sequence[str], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each forbidden argument or variable."""
    for index, argument in enumerate(args):
        written, equals, value = argument.partition("=")
        if written.startswith(_ALIAS):
            written = _ALIAS_MEANS + written.removeprefix(_ALIAS)
        if not written.startswith("--"):
            continue
        if not equals:
            value = args[index + 1] if index + 1 < len(args) else ""
        yield from _argument_refusals(written, value)
    for name in FORBIDDEN.variables:
        if forbidden := FORBIDDEN.setting(name, environ.get(name, "")):
            yield f"{name} is forbidden: it {forbidden.why} ({forbidden.source})"
    yield from runner_refusals(args, environ)


def _argument_refusals(written: str, value: str) -> Iterator[str]:
    # vLLM takes _ for - in a flag, and any beginning of one that is no other's.
    name, dot, rest = written.partition(".")
    name = name.replace("_", "-")
    if dot and _DOTTED_LIMIT.startswith(name):
        yield (
            f"{_DOTTED_LIMIT}* is forbidden: it replaces the limit of output tokens; write "
            f"{_DOTTED_LIMIT[:-1]} as one JSON (https://docs.vllm.ai/en/latest/cli/serve/)"
        )
    for argument, forbidden in FORBIDDEN.meant_by(name.removeprefix("--").replace("-", "_")).items():
        # `--flag.a.b value` means `--flag {"a": {"b": value}}`.
        text = _nested(rest, value) if dot and forbidden.keys else value
        if forbidden.covers(text):
            flag, variable = "--" + argument.replace("_", "-"), f"SM_VLLM_{argument.upper()}"
            part = f" with {' or '.join(forbidden.keys)}" if forbidden.keys else ""
            yield f"{flag} ({variable}){part} is forbidden: it {forbidden.why} ({forbidden.source})"


def _nested(keys: str, value: str) -> str:
    """Return the JSON that a dotted flag means; a + at its end appends to a list."""
    nested: Any
    try:
        nested = json.loads(value)
    except (ValueError, RecursionError):
        nested = value
    for key in reversed(keys.removesuffix("+").split(".")):
        nested = {key: nested}
    return json.dumps(nested)


def runner_refusals(args: Sequence[str], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence if P-EAGLE would run on the V2 model runner, which has no parallel drafting.

    vLLM before 0.22 then drafts one token at a time and reports nothing; later versions do not start.
    """
    drafting, value = speculation(args), environ.get(RUNNER_VARIABLE, "0").strip()
    if drafting is not None and drafting.parallel and value != "0":
        yield (
            f"{RUNNER_VARIABLE}={value} is forbidden with P-EAGLE: the V2 model runner has no parallel "
            "drafting; set it to 0 (https://github.com/vllm-project/vllm/pull/43010)"
        )


MIDDLEWARE = "peagle_gate.asgi.Gate"
GENERATION_CONFIG = "--override-generation-config"
REQUEST_METRICS = "--per-request-spec-decode-metrics"
FORCED_USAGE = "--enable-force-include-usage"
#: The first vLLM with this flag; without speculation it refuses to start with it.
_REQUEST_METRICS_FROM = (0, 29)
#: The first vLLM with --shutdown-timeout; an older one does not start with it.
_SHUTDOWN_TIMEOUT_FROM = (0, 18)


def block_outlines(modules: MutableMapping[str, Any]) -> None:
    """Make vLLM answer 400 where it would otherwise compile a JSON schema with outlines.

    With its default settings vLLM gives a schema to outlines that has ``patternProperties`` and anything that
    xgrammar refuses. There ``(a|b)*a(a|b){20}`` fills the engine's memory; no time limit ends that thread.
    """
    for name in ("outlines_core", "outlines_core.json_schema"):
        modules[name] = None


def is_on(environ: Mapping[str, str]) -> bool:
    """Decide whether the gate is on; ``PEAGLE_GATE=off`` removes it."""
    return environ.get(PREFIX, "on").strip().lower() != "off"


def gate_arguments(args: Sequence[str], settings: Settings, engine_version: str) -> list[str]:
    """Return the arguments to add after ``args``; the last middleware is the outermost."""
    added = []
    drains = not engine_version or _at_least(engine_version, _SHUTDOWN_TIMEOUT_FROM)
    if drains and not _has(args, "--shutdown-timeout"):
        added += ["--shutdown-timeout", str(settings.drain_s)]
    added += _output_limit(args, settings.limits.max_tokens)
    drafting = speculation(args) is not None
    if drafting and _at_least(engine_version, _REQUEST_METRICS_FROM) and not _has(args, REQUEST_METRICS):
        added += [REQUEST_METRICS, "summary"]
    return [*added, "--middleware", MIDDLEWARE]


def _output_limit(args: Sequence[str], max_tokens: int) -> list[str]:
    """Return the flag that limits requests without ``max_tokens``, merged with the operator's value.

    Without it vLLM gives a chat the rest of the context. The gate does not write the field into the body:
    vLLM refuses a ``max_tokens`` above the context length, but with the flag it uses the smaller of both.
    """
    try:
        config = json.loads(last_value(args, GENERATION_CONFIG) or "{}")
    except ValueError:
        return []  # vLLM refuses it at start
    if not isinstance(config, dict):
        return []
    own = config.get("max_new_tokens")
    limit = min(own, max_tokens) if type(own) is int else max_tokens
    return [GENERATION_CONFIG, json.dumps({**config, "max_new_tokens": limit})]


def _has(args: Sequence[str], flag: str) -> bool:
    return any(arg.partition("=")[0] == flag for arg in args)


def _at_least(version: str, floor: tuple[int, ...]) -> bool:
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    return numbers >= floor
