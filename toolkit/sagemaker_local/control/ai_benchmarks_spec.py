"""The workload specification of AI benchmark jobs: what AWS takes, and what it means to AIPerf. Pure.

Names and types are those of "Set up a workload configuration for generative AI inference recommendations"
(SageMaker developer guide), whose names are AIPerf's own options. Wordings of the refusals are ours.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from .errors import invalid, not_local

_KEYS = ("benchmark", "parameters", "secrets", "tooling")
_NUMBERS: dict[str, tuple[type, ...]] = {"Integer": (int,), "Float": (int, float)}
_INTEGERS = (
    "prompt_input_tokens_mean",
    "output_tokens_mean",
    "concurrency",
    "request_count",
    "benchmark_duration",
    "prefill_concurrency",
    "request_timeout_seconds",
    "benchmark_grace_period",
    "random_seed",
    "num_conversations",
    "warmup_duration",
    "warmup_request_count",
    "warmup_concurrency",
    "warmup_prefill_concurrency",
    "num_warmup_sessions",
)
_FLOATS = (
    "prompt_input_tokens_stddev",
    "output_tokens_stddev",
    "request_rate",
    "arrival_smoothness",
    "warmup_request_rate",
    "warmup_grace_period",
)
_STRINGS = (
    "request_rate_mode",
    "tokenizer",
    "goodput",
    "extra_inputs",
    "warmup_arrival_pattern",
    "public_dataset",
    "custom_dataset_type",
    "input_file",
    "dataset_sampling_strategy",
)
_BOOLEANS = ("streaming", "verbose")
# AWS has them; the local job runs text on the endpoint's one model.
_NOT_LOCAL = ("max_concurrency", "hf_token", "model_selection_strategy")
_NOT_LOCAL_PREFIXES = ("image_", "video_", "batch_size_")
TYPES: dict[str, str] = {
    **dict.fromkeys(_INTEGERS, "Integer"),
    **dict.fromkeys(_FLOATS, "Float"),
    **dict.fromkeys(_STRINGS, "String"),
    **dict.fromkeys(_BOOLEANS, "Boolean"),
}
ALIASES = {
    "synthetic_input_tokens_mean": "prompt_input_tokens_mean",
    "isl": "prompt_input_tokens_mean",
    "synthetic_input_tokens_stddev": "prompt_input_tokens_stddev",
    "isl_stddev": "prompt_input_tokens_stddev",
    "prompt_output_tokens_mean": "output_tokens_mean",
    "osl": "output_tokens_mean",
    "prompt_output_tokens_stddev": "output_tokens_stddev",
    "osl_stddev": "output_tokens_stddev",
    "num_requests": "request_count",
    "arrival_pattern": "request_rate_mode",
    "vllm_burstiness": "arrival_smoothness",
    "conversation_num": "num_conversations",
    "num_sessions": "num_conversations",
    "num_warmup_requests": "warmup_request_count",
}
# Where AIPerf's option is not the parameter with dashes.
_OPTIONS = {"num_conversations": "--conversation-num", "request_rate_mode": "--arrival-pattern"}
# Several values in one string.
_LISTS = ("extra_inputs", "goodput")


def parameters(inline: str) -> dict[str, Any]:
    """The parameters of an inline specification under their own names, defaults of AWS filled in.

    Raises:
        ApiError: it is neither JSON nor YAML, is not of AWS's form, or asks what is not local.
    """
    document = _document(inline)
    given = document.get("parameters") or {}
    if not isinstance(given, dict):
        raise invalid("WorkloadSpec: parameters must be a mapping.")
    known: dict[str, Any] = {}
    for name, value in given.items():
        own = ALIASES.get(str(name), str(name))
        if own in known:
            raise invalid(f"WorkloadSpec: the parameter {name} is given twice, as an alias of {own}.")
        known[own] = _checked(own, value)
    return {"streaming": True, "random_seed": 42, **known}


def arguments(values: Mapping[str, Any]) -> list[str]:
    """AIPerf's command line for parameters; an unset streaming or verbose has no argument."""
    return list(_arguments(values))


def _arguments(values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        option = _OPTIONS.get(name, "--" + name.replace("_", "-"))
        if isinstance(value, bool):
            if value:
                yield option
        elif name in _LISTS:
            for item in str(value).split():
                yield from (option, item)
        else:
            yield from (option, str(value))


def _document(inline: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(inline)  # JSON is YAML
    except yaml.YAMLError as error:
        raise invalid(f"WorkloadSpec is neither JSON nor YAML: {error}") from None
    if not isinstance(document, dict):
        raise invalid("WorkloadSpec must be a mapping.")
    unknown = [str(key) for key in document if key not in _KEYS]
    if unknown:
        raise invalid(f"WorkloadSpec: unknown keys {', '.join(unknown)}; allowed are {', '.join(_KEYS)}.")
    tool = document.get("benchmark")
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind != "aiperf":
        raise invalid(
            f"WorkloadSpec: benchmark/type {json.dumps(kind)} does not match the pattern ^(aiperf)$."
        )
    if document.get("secrets"):
        raise not_local("WorkloadSpec: secrets", "a public tokenizer, or one in a channel, needs none.")
    return document


def _checked(name: str, value: Any) -> Any:
    if name in _NOT_LOCAL or name.startswith(_NOT_LOCAL_PREFIXES):
        raise not_local(f"WorkloadSpec: the parameter {name}", "leave it out.")
    wanted = TYPES.get(name)
    if wanted is None:
        raise invalid(f"WorkloadSpec: unknown parameter {name}; known are {', '.join(TYPES)}.")
    if not _is(wanted, value):
        raise invalid(f"WorkloadSpec: {name} must be of type {wanted}, found {json.dumps(value)}.")
    return value


def _is(wanted: str, value: Any) -> bool:
    if wanted == "Boolean":
        return isinstance(value, bool)
    if wanted == "String":
        return isinstance(value, str) and bool(value)
    return isinstance(value, _NUMBERS[wanted]) and not isinstance(value, bool)
