"""Container environment, from which the AWS image builds vLLM's arguments.

vLLM's speculative config is part of it, with vLLM's field names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from peagle_sm.core.catalog import SPECULATIVE_CONFIG
from peagle_sm.core.engines import RUNNER_VARIABLE, load_arguments
from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.spec.modes import (
    DRAFT_TOKENS,
    HEAD,
    SAMPLE_METHOD,
    SYNTHETIC,
    SYNTHETIC_LENGTH,
    TABLE,
)

MODEL_MOUNT = "/opt/ml/model"
CHANNEL_MOUNT = "/opt/ml/additional-model-data-sources"
REQUEST_METRICS = "SM_VLLM_PER_REQUEST_SPEC_DECODE_METRICS"
AUTO_RECOVERY = "PROCESS_AUTO_RECOVERY"
# Read by openai-harmony; JumpStart's spec of gpt-oss-20b sets it in the same way.
VOCABULARY_FOLDER = "TIKTOKEN_ENCODINGS_BASE"
# Read by the gate in container/, which AWS's images do not have: where its figures of drafting go.
GATE_NAMESPACE = "PEAGLE_GATE_NAMESPACE"
# Read by the gate, too: the slices by which it counts.
GATE_SLICES = "PEAGLE_GATE_SLICES"
# Read by the gate, too: how many prompts show before the first healthy /ping that drafting works.
GATE_CANARY = "PEAGLE_GATE_CANARY_PROMPTS"
# Read by the plugin in container/plugins/peagle_runtime_k, which AWS's images do not have: it lets K change
# in a running engine. Without it a table of K is broken for P-EAGLE (vllm#45695).
RUNTIME_K = "PEAGLE_SM_RUNTIME_K"

# Which field of the spec decides a variable; writing it into serving.env as well would make two truths.
OWNED = {
    SPECULATIVE_CONFIG: "speculation",
    "SM_VLLM_SPEC_METHOD": "speculation.mode",
    "SM_VLLM_SPEC_MODEL": "speculation.draft_head",
    "SM_VLLM_SPEC_TOKENS": "speculation.num_speculative_tokens",
    "SM_VLLM_TENSOR_PARALLEL_SIZE": "serving.tensor_parallel_size",
    "SM_VLLM_DATA_PARALLEL_SIZE": "serving.data_parallel_size",
    "SM_VLLM_MAX_MODEL_LEN": "serving.max_model_len",
    "SM_VLLM_KV_CACHE_DTYPE": "serving.kv_cache_dtype",
    "SM_VLLM_MODEL": "model_uri",
    GATE_SLICES: "metrics.slices",
}


def acceptance_namespace(endpoint: str) -> str:
    """Return the CloudWatch namespace of an endpoint's metrics."""
    return f"peagle-sm/{endpoint}"


def speculative_config(draft: Draft) -> dict[str, Any] | None:
    """Return vLLM's `--speculative-config` with its field names; None without speculation.

    Fields that are left out have vLLM's defaults. Without a model vLLM drafts from the text, or with weights
    inside the target's files.
    """
    if not draft.speculating or draft.num_speculative_tokens is None:
        return None
    facts, settings = draft.mode_facts, draft.spec.speculation
    fields = {
        "method": facts.config["method"],
        "model": _drafter(draft),
        DRAFT_TOKENS: draft.num_speculative_tokens,
        **facts.config,
        **{name: getattr(settings, name) for name in facts.fields if name not in (HEAD, DRAFT_TOKENS)},
    }
    if (length := draft.spec.synthetic_acceptance_length) is not None:
        fields |= {SAMPLE_METHOD: SYNTHETIC, SYNTHETIC_LENGTH: length}
    return {name: value for name, value in fields.items() if value is not None}


def _drafter(draft: Draft) -> str | None:
    """Return the path of the drafter's weights in the container; None if it has no files of its own."""
    if draft.drafts_inside_target or not draft.mode_facts.has_weights:
        return None
    beside = draft.head_beside_target
    return f"{MODEL_MOUNT}/{beside}" if beside else f"{CHANNEL_MOUNT}/{draft.channel}"


def _base(draft: Draft) -> dict[str, str]:
    if draft.jumpstart is None:
        return {"SM_VLLM_MODEL": MODEL_MOUNT}
    return draft.jumpstart.environment_for(draft.instance_types[0])


def variable_of(argument: str) -> str:
    """Return the variable of an engine argument: `SM_VLLM_MAX_NUM_SEQS` of `max_num_seqs`."""
    return f"SM_VLLM_{argument.upper()}"


def as_text(value: Any) -> str:
    """Format an argument's value for its variable: true, 64, or compact JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return str(value)


def extra_variables(arguments: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return variable and value of each of `serving.extra_args`.

    The image drops an argument whose value is false, so a switch that is on by default is turned off by its
    second name: ``enable_prefix_caching: false`` becomes SM_VLLM_NO_ENABLE_PREFIX_CACHING=true.
    """
    if not arguments:
        return {}
    switches = load_arguments().switches
    return {
        name: (variable_of(f"no_{name}"), "true")
        if value is False and name in switches
        else (variable_of(name), as_text(value))
        for name, value in arguments.items()
    }


def given_arguments(draft: Draft) -> Iterator[tuple[str, str, Any]]:
    """Yield each engine argument that the spec gives by name: its field, its name and its value."""
    for name, value in draft.spec.serving.extra_args.items():
        is_json = isinstance(value, str) and value.startswith(("{", "["))
        yield f"serving.extra_args.{name}", name, _value_of(value) if is_json else value
    for variable, text in draft.spec.serving.env.items():
        if variable.startswith("SM_VLLM_") and variable == variable.upper():
            yield f"serving.env.{variable}", variable.removeprefix("SM_VLLM_").lower(), _value_of(text)


def _value_of(text: str) -> Any:
    """Read a variable's value as AWS's image does: true, false, JSON or text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return json.loads(text) if text.startswith(("{", "[")) else text
    except ValueError:
        return text


def pins_v1(draft: Draft) -> bool:
    """Return whether the plan sets the engine's model runner to V1."""
    if draft.image is None or draft.image.is_lmi:
        return False
    return draft.catalog.engines.nearest(draft.image.version).pins_v1(draft.mode)


def environment(draft: Draft) -> dict[str, str]:
    """Return the environment, sorted by name; `serving.env` overrides it."""
    serving = draft.spec.serving
    values = _base(draft)
    values["SM_VLLM_TENSOR_PARALLEL_SIZE"] = str(serving.tensor_parallel_size)
    if serving.data_parallel_size > 1:
        values["SM_VLLM_DATA_PARALLEL_SIZE"] = str(serving.data_parallel_size)
    if draft.max_model_len is not None:
        values["SM_VLLM_MAX_MODEL_LEN"] = str(draft.max_model_len)
    values.update(extra_variables(serving.extra_args).values())
    if serving.kv_cache_dtype is not None:
        values["SM_VLLM_KV_CACHE_DTYPE"] = serving.kv_cache_dtype
    config = speculative_config(draft)
    if config is not None:
        values[SPECULATIVE_CONFIG] = as_text(config)
        version = draft.image.version if draft.image else None
        # the engine refuses to start when this is set without speculation
        if version is not None and draft.catalog.engines.support(REQUEST_METRICS).covers(version):
            values.setdefault(REQUEST_METRICS, "summary")
        if pins_v1(draft):
            values[RUNNER_VARIABLE] = "0"
        if draft.has_own_image and draft.spec.synthetic_acceptance_length is not None:
            values[GATE_CANARY] = "0"  # a given acceptance shows nothing, and has no place among the metrics
        elif draft.has_own_image:
            values[GATE_NAMESPACE] = acceptance_namespace(draft.spec.name)
            if draft.spec.metrics.slices:
                values[GATE_SLICES] = ";".join(draft.spec.metrics.slices)
        if draft.has_own_image and draft.mode == "p-eagle" and TABLE in config:
            values[RUNTIME_K] = "1"
    if draft.needed_vocabulary is not None:
        values[VOCABULARY_FOLDER] = MODEL_MOUNT
    if draft.image is not None and draft.catalog.images.loses_quotes(draft.image):
        values[AUTO_RECOVERY] = "false"
    return dict(sorted({**values, **serving.env}.items()))
