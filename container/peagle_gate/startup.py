"""Checks before the server starts: settings, forbidden arguments, and added arguments. Pure.

The toolkit refuses the same arguments and variables before a deployment (check `forbidden-flags`); this
applies if the image is deployed by other means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

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
    """Speculation settings of the engine: K, parallel drafting or not, and the head's path.

    Attributes:
        tokens: K, the largest number of draft tokens of a step.
        parallel: whether they are drafted in one pass.
        head: the head's path.
        table: rows (first, last, K) of K by the number of running requests; empty if K is always ``tokens``.
    """

    tokens: int
    parallel: bool
    head: str
    table: tuple[tuple[int, int, int], ...] = ()

    @property
    def least(self) -> int:
        """Smallest K at any number of requests; below ``tokens`` only with a table."""
        return min((k for _, _, k in self.table), default=self.tokens)

    @property
    def shows_second_tokens(self) -> bool:
        """Whether each draft has a second token, so that its acceptance shows parallel drafting."""
        return self.parallel and all(k != 1 for _, _, k in self.table)


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Return the settings.

    Raises:
        SettingError: a value is not a number, or is negative.
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
    return Speculation(int(tokens), False, last_value(args, "--spec-model") or "")


def last_value(args: Sequence[str], flag: str) -> str | None:
    """Return the flag's last value, which argparse uses; None without one."""
    found = None
    for index, argument in enumerate(args):
        name, equals, value = argument.partition("=")
        if name == flag:
            found = value if equals else (args[index + 1] if index + 1 < len(args) else None)
    return found


_SECURITY = "https://docs.vllm.ai/en/latest/usage/security/"
_SERVER = "https://docs.vllm.ai/en/latest/cli/serve/"


@dataclass(frozen=True)
class Forbidden:
    """Forbidden setting: the reason, and its source."""

    why: str
    source: str = _SECURITY


FLAGS = {
    "--trust-remote-code": Forbidden("runs Python that comes with the weights"),
    "--enable-prompt-embeds": Forbidden("lets requests bring tensors, which have crashed the engine"),
    "--allowed-local-media-path": Forbidden("lets requests read files of the container"),
    "--trust-request-chat-template": Forbidden("lets requests bring a template, which is code"),
    "--trust-request-mm-kwargs": Forbidden("lets requests reconfigure the media processor", _SERVER),
    "--config": Forbidden("brings flags from a file, past this check: set each as SM_VLLM_*", _SERVER),
    "--api-key": Forbidden(
        "guards the paths under /v1 alone, not /invocations, and can be read by DescribeModel"
    ),
    "--enable-log-requests": Forbidden("writes what users ask into the log", _SERVER),
    "--enable-log-outputs": Forbidden("writes what users get into the log", _SERVER),
    "--disable-log-stats": Forbidden("stops the metrics by which acceptance is watched", _SERVER),
    "--tool-server": Forbidden("runs tools, and with `demo` code that the model wrote", _SERVER),
    "--tool-parser-plugin": Forbidden("runs a Python file", _SERVER),
    "--reasoning-parser-plugin": Forbidden("runs a Python file", _SERVER),
    "--logits-processors": Forbidden("runs Python by its name", _SERVER),
    "--worker-extension-cls": Forbidden("runs Python by its name", _SERVER),
    "--worker-cls": Forbidden("runs Python by its name", _SERVER),
    "--profiler-config": Forbidden("opens routes that record what the engine does", _SERVER),
    "--uds": Forbidden("listens where SageMaker does not ask", _SERVER),
    "--override-generation-config.": Forbidden(
        "replaces the limit of output tokens: write --override-generation-config as one JSON", _SERVER
    ),
}
VARIABLES = {
    "VLLM_ALLOW_INSECURE_SERIALIZATION": Forbidden("unpickles what it is sent"),
    "VLLM_SERVER_DEV_MODE": Forbidden("opens routes that pause and change the engine"),
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": Forbidden("lets requests load weights"),
    "VLLM_TORCH_PROFILER_DIR": Forbidden("opens routes that record what the engine does"),
    "VLLM_API_KEY": Forbidden("guards the paths under /v1 alone, not /invocations"),
    "VLLM_DEBUG_LOG_API_SERVER_RESPONSE": Forbidden("writes what users get into the log"),
}
_OFF = ("", "0", "false")


def refusals(args: Sequence[str], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each forbidden argument or variable."""
    for argument in args:
        # vLLM takes _ for - in a flag, and any beginning of one that is no other's.
        name = argument.partition("=")[0].replace("_", "-") if argument.startswith("--") else ""
        for flag, forbidden in FLAGS.items():
            if name and _means(name, flag):
                variable = "SM_VLLM_" + flag[2:].upper().replace("-", "_")
                yield f"{flag} ({variable}) is forbidden: it {forbidden.why} ({forbidden.source})"
    for name, forbidden in VARIABLES.items():
        if environ.get(name, "").strip().lower() not in _OFF:
            yield f"{name} is forbidden: it {forbidden.why} ({forbidden.source})"
    yield from runner_refusals(args, environ)


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


def _means(name: str, flag: str) -> bool:
    """Decide whether argparse reads ``name`` as ``flag``: in full, or as an unambiguous prefix.

    A ``flag`` that ends with a dot means all of vLLM's dotted forms (``--flag.key value``).
    """
    if flag.endswith("."):
        return name.startswith(flag)
    return name == flag or (len(name) > len("--") and flag.startswith(name) and name not in _FLAGS_THEMSELVES)


#: Flags of vLLM that are a prefix of a forbidden one.
_FLAGS_THEMSELVES = frozenset({"--reasoning-parser"})


MIDDLEWARE = "peagle_gate.asgi.Gate"
GENERATION_CONFIG = "--override-generation-config"
REQUEST_METRICS = "--per-request-spec-decode-metrics"
#: The first vLLM with this flag; without speculation it refuses to start with it.
_REQUEST_METRICS_FROM = (0, 29)


def is_on(environ: Mapping[str, str]) -> bool:
    """Decide whether the gate is on; ``PEAGLE_GATE=off`` removes it."""
    return environ.get(PREFIX, "on").strip().lower() != "off"


def gate_arguments(args: Sequence[str], settings: Settings, engine_version: str) -> list[str]:
    """Return the arguments to add after ``args``; the last middleware is the outermost."""
    added = []
    if not _has(args, "--shutdown-timeout"):
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
