"""Compare the gate with the engine's own request models on generated bodies.

``python -m tests.container.gate_fuzz --bodies 100000 --seed 1`` in the engine's Python, not in the toolkit's.
The fields and their types come from the JSON schema of vLLM's request models, so a field that a new vLLM adds
is generated without a change here. A body counts as a bypass when the gate passes it and vLLM reads a
value in it that exceeds a limit of docs/explanation/container.md. It prints one JSON object;
"bypasses" must be empty.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python
from vllm.config import ModelConfig
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.serve.utils.api_utils import get_max_tokens
from vllm.exceptions import VLLMValidationError
from vllm.renderers.chat_utils import has_non_text_content
from vllm.sampling_params import SamplingParams

from peagle_gate.limits import judged
from peagle_gate.startup import GENERATION_CONFIG, Limits, Settings, gate_arguments, last_value
from tests.container.gate_bodies import Writer

MODELS = {"chat": ChatCompletionRequest, "completion": CompletionRequest}
SCHEMAS = {name: model.model_json_schema() for name, model in MODELS.items()}
ADAPTERS = {name: TypeAdapter(model) for name, model in MODELS.items()}
SMALL = Limits(
    max_sequences=3,
    max_tokens=50,
    max_logprobs=4,
    max_stops=3,
    max_stop_chars=8,
    max_format_bytes=400,
    max_format_depth=6,
)
LIMITS = (Limits(), SMALL)
CONTEXT = 1_000_000  # tokens of the model, above every limit
PROMPT = 10  # tokens

# A refusal of the engine, or a fault in its own checks; in neither case does the request run.
REFUSED: tuple[type[Exception], ...] = (
    *(VLLMValidationError, ValidationError, ValueError, TypeError),
    *(AttributeError, KeyError, RecursionError, AssertionError),
)

# Numbers of the engine that cost nothing to raise, or that it checks itself. A new one must be classified.
FREE = {
    *("seed", "top_k", "priority", "truncate_prompt_tokens", "routed_experts_prompt_start"),
    *("stream_interval", "thinking_token_budget", "frequency_penalty", "presence_penalty", "temperature"),
    *("top_p", "min_p", "repetition_penalty", "length_penalty"),
}
_MEDIA_KWARGS = ("mm_processor_kwargs", "media_io_kwargs")
LIMITED = {
    *("n", "max_tokens", "max_completion_tokens", "min_tokens"),
    *("logprobs", "top_logprobs", "prompt_logprobs"),
}


def excesses(kind: str, body: bytes, limits: Limits) -> Iterator[str]:
    """Yield each limit that a request exceeds as the engine reads it; nothing where the engine refuses it."""
    try:
        raw = json.loads(body)
        request = ADAPTERS[kind].validate_python(raw)
    except REFUSED:
        return
    yield from _counts(kind, request, limits)
    if (tokens := output_tokens(request, limits)) > limits.max_tokens:
        yield f"output tokens={tokens}"
    yield from _structures(request, limits)
    if kind == "chat" and has_non_text_content(json.loads(body)["messages"]):
        yield "media"
    params = _sampling(request)
    if params is not None:
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(params, name)
            if value is not None and not 0 <= value <= limits.max_logprobs:
                yield f"sampling {name}={value}"
        for name in ("kv_transfer_params", "ec_transfer_params"):
            if (params.extra_args or {}).get(name):
                yield f"extra_args {name}"


def _field(request: Any, name: str) -> Any:
    """Return a field that the model declares; vLLM ignores any other."""
    return getattr(request, name) if name in type(request).model_fields else None


def output_tokens(request: Any, limits: Limits) -> int:
    """Return the maximum of output tokens that a server started by the gate gives a request.

    The steps are those of vLLM's serving classes, up to the sampling parameters.
    """
    flag = last_value(gate_arguments([], Settings(limits=limits), ""), GENERATION_CONFIG)
    given = json.loads(flag or "{}")
    model = SimpleNamespace(
        generation_config="auto", override_generation_config=given, try_get_generation_config=dict
    )
    defaults = ModelConfig.get_diff_sampling_param(model)
    completion_tokens = _field(request, "max_completion_tokens")
    wanted = request.max_tokens if completion_tokens is None else completion_tokens
    return int(get_max_tokens(CONTEXT, wanted, PROMPT, defaults, given.get("max_new_tokens")))


def _counts(kind: str, request: Any, limits: Limits) -> Iterator[str]:
    prompts = 1
    if kind == "completion" and isinstance(request.prompt, list) and request.prompt:
        prompts = 1 if isinstance(request.prompt[0], int) else len(request.prompt)
    sequences = (request.n or 1) * prompts
    if sequences > limits.max_sequences:
        yield f"{sequences} sequences"
    for name in ("max_tokens", "max_completion_tokens", "min_tokens"):
        value = _field(request, name)
        if value is not None and value > limits.max_tokens:
            yield f"{name}={value}"
    for name in ("logprobs", "top_logprobs", "prompt_logprobs"):
        value = _field(request, name)
        if value is not None and value is not True and not 0 <= value <= limits.max_logprobs:
            yield f"{name}={value}"
    for name in ("stop", "bad_words", "stop_token_ids"):
        value = _field(request, name) or []
        entries = [value] if isinstance(value, str) else value
        if len(entries) > limits.max_stops:
            yield f"{len(entries)} entries of {name}"
        if any(isinstance(entry, str) and len(entry) > limits.max_stop_chars for entry in entries):
            yield f"a long entry of {name}"


def _structures(request: Any, limits: Limits) -> Iterator[str]:
    for name in (
        "chat_template",
        "prompt_embeds",
        "use_beam_search",
        "mm_processor_kwargs",
        "media_io_kwargs",
    ):
        if _field(request, name):
            yield name
    for key, value in (_field(request, "chat_template_kwargs") or {}).items():
        if key not in limits.template_keys or isinstance(value, (dict, list)):
            yield f"chat_template_kwargs.{key}"
    try:
        wanted = request.extract_structured_outputs()
    except REFUSED:
        wanted = None
    for name, value in vars(wanted).items() if wanted is not None else ():
        parsed = _parsed(value) if name in ("json", "structural_tag") else value
        if _depth(parsed) > limits.max_format_depth:
            yield f"structured_outputs.{name} of depth {_depth(parsed)}"
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if len(text.encode(errors="replace")) > limits.max_format_bytes:
            yield f"structured_outputs.{name} of {len(text)} characters"
    for tool in to_jsonable_python(_field(request, "tools")) or []:
        # `tools` nests four levels before its schema: the list, the tool, its function, its parameters
        if _depth(tool) + 1 > limits.max_format_depth:
            yield "a tool's schema"


def _parsed(value: Any) -> Any:
    """Return a schema as the grammar compiler reads it: JSON in a string is JSON."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [
        inner
        for node in level
        for inner in (node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
    ]:
        depth += 1
    return depth


def _sampling(request: Any) -> SamplingParams | None:
    try:
        return request.to_sampling_params(request.max_tokens or 16, {})
    except REFUSED:
        return None  # vLLM refuses it here


def no_maximum(body: bytes) -> bool:
    """Return whether vLLM reads a body as a chat that says nothing of its maximum of output tokens."""
    try:
        request = ADAPTERS["chat"].validate_python(json.loads(body))
    except REFUSED:
        return False
    return request.max_tokens is None and request.max_completion_tokens is None


def unclassified() -> list[str]:
    """Return numeric fields of the engine's models that are neither limited nor known to be harmless."""
    names = set()
    for schema in SCHEMAS.values():
        for name, entry in schema["properties"].items():
            kinds = {entry.get("type")} | {each.get("type") for each in entry.get("anyOf", [])}
            if kinds & {"integer", "number"}:
                names.add(name)
    return sorted(names - LIMITED - FREE)


def campaign(bodies: int, seed: int) -> dict[str, Any]:
    """Judge ``bodies`` generated bodies; the same seed makes the same bodies."""
    writer = Writer(random.Random(seed), SCHEMAS, LIMITED)
    counts = {"bodies": 0, "passed": 0, "above": 0, "no_maximum": 0}
    bypasses: list[dict[str, Any]] = []
    for _ in range(bodies):
        body = writer.body()
        limits = writer.chance.choice(LIMITS)
        above = {kind: list(excesses(kind, body, limits)) for kind in MODELS}
        refusal = judged(body, limits)[1]
        counts["bodies"] += 1
        counts["passed"] += refusal is None
        counts["no_maximum"] += refusal is None and no_maximum(body)
        counts["above"] += any(above.values())
        if refusal is None and any(above.values()):
            bypasses.append({"body": body.decode("utf-8", "replace")[:400], "above": above})
    reasons = [
        reason
        for each in bypasses
        for reasons_of_kind in each["above"].values()
        for reason in reasons_of_kind
    ]
    return {
        **counts,
        "bypass_count": len(bypasses),
        "bypasses": bypasses[:20],
        "reasons": sorted({reason.partition("=")[0] for reason in reasons}),
        "unclassified": unclassified(),
    }


def main() -> None:
    """Run a campaign and print its result."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--bodies", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    result = campaign(given.bodies, given.seed)
    print(json.dumps(result))
    sys.exit(1 if result["bypasses"] else 0)


if __name__ == "__main__":
    main()
