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

from peagle_gate.limits import judged
from peagle_gate.startup import GENERATION_CONFIG, Limits, Settings, gate_arguments, last_value

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
CONTEXT, PROMPT = 1_000_000, 10  # tokens: the model's, above every limit, and the prompt's

# A refusal of the engine, or a fault in its own checks; in neither case does the request run.
REFUSED: tuple[type[Exception], ...] = (
    *(VLLMValidationError, ValidationError, ValueError, TypeError),
    *(AttributeError, KeyError, RecursionError, AssertionError),
)
TOKENS = ("max_tokens", "max_completion_tokens", "min_tokens")
LOGPROBS = ("logprobs", "top_logprobs", "prompt_logprobs")
STOPS = ("stop", "bad_words", "stop_token_ids")
NEVER = ("chat_template", "prompt_embeds", "use_beam_search", "mm_processor_kwargs", "media_io_kwargs")
# The fields with a limit are few among sixty: they are drawn more often.
OFTEN = (
    *("n", *TOKENS, *LOGPROBS, *STOPS, "structured_outputs", "response_format", "tools"),
    *("chat_template_kwargs", "chat_template", "vllm_xargs", "kv_transfer_params", "prompt_embeds"),
)


def excesses(kind: str, body: bytes, limits: Limits) -> Iterator[str]:
    """Yield each limit that a request exceeds as the engine reads it; nothing where the engine refuses it."""
    try:
        request = ADAPTERS[kind].validate_python(json.loads(body))
    except REFUSED:
        return
    fields = {name: getattr(request, name) for name in MODELS[kind].model_fields}  # vLLM ignores any other
    prompt = fields.get("prompt")
    prompts = len(prompt) if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else 1
    if (request.n or 1) * prompts > limits.max_sequences:
        yield f"{(request.n or 1) * prompts} sequences"
    if (tokens := output_tokens(fields, limits)) > limits.max_tokens:
        yield f"output tokens={tokens}"
    for name in TOKENS:
        if (fields.get(name) or 0) > limits.max_tokens:
            yield f"{name}={fields[name]}"
    for name in LOGPROBS:
        value = fields.get(name)
        if value is not None and value is not True and not 0 <= value <= limits.max_logprobs:
            yield f"{name}={value}"
    for name in STOPS:
        value = fields.get(name) or []
        entries = [value] if isinstance(value, str) else value
        if len(entries) > limits.max_stops:
            yield f"{len(entries)} entries of {name}"
        if any(isinstance(entry, str) and len(entry) > limits.max_stop_chars for entry in entries):
            yield f"a long entry of {name}"
    yield from (name for name in NEVER if fields.get(name))
    for key, value in (fields.get("chat_template_kwargs") or {}).items():
        if key not in limits.template_keys or isinstance(value, (dict, list)):
            yield f"chat_template_kwargs.{key}"
    yield from _schemas(request, fields, limits)
    if kind == "chat" and has_non_text_content(json.loads(body)["messages"]):
        yield "media"
    yield from _sampling(request, limits)


def output_tokens(fields: dict[str, Any], limits: Limits) -> int:
    """Return the maximum of output tokens that a server started by the gate gives a request.

    The steps are those of vLLM's serving classes, up to the sampling parameters.
    """
    flag = last_value(gate_arguments([], Settings(limits=limits), ""), GENERATION_CONFIG)
    given = json.loads(flag or "{}")
    model = SimpleNamespace(
        generation_config="auto", override_generation_config=given, try_get_generation_config=dict
    )
    completion_tokens = fields.get("max_completion_tokens")
    wanted = fields["max_tokens"] if completion_tokens is None else completion_tokens
    defaults = ModelConfig.get_diff_sampling_param(model)
    return int(get_max_tokens(CONTEXT, wanted, PROMPT, defaults, given.get("max_new_tokens")))


def _schemas(request: Any, fields: dict[str, Any], limits: Limits) -> Iterator[str]:
    try:
        outputs = request.extract_structured_outputs()
    except REFUSED:
        outputs = None
    for name, value in vars(outputs).items() if outputs is not None else ():
        if _depth(_parsed(value) if name in ("json", "structural_tag") else value) > limits.max_format_depth:
            yield f"structured_outputs.{name} is too deep"
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if len(text.encode(errors="replace")) > limits.max_format_bytes:
            yield f"structured_outputs.{name} of {len(text)} characters"
    for tool in to_jsonable_python(fields.get("tools")) or []:
        # `tools` nests four levels before its schema: the list, the tool, its function, its parameters
        if _depth(tool) + 1 > limits.max_format_depth:
            yield "a tool's schema"


def _sampling(request: Any, limits: Limits) -> Iterator[str]:
    try:
        params = request.to_sampling_params(request.max_tokens or 16, {})
    except REFUSED:
        return  # vLLM refuses it here
    for name in ("logprobs", "prompt_logprobs"):
        value = getattr(params, name)
        if value is not None and not 0 <= value <= limits.max_logprobs:
            yield f"sampling {name}={value}"
    for name in ("kv_transfer_params", "ec_transfer_params"):
        if (params.extra_args or {}).get(name):
            yield f"extra_args {name}"


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


_ZEROS = (0x30, 0x660, 0x966, 0xFF10, 0x1D7CE)  # of ASCII, Arabic, Devanagari, full-width and bold digits
_EDGES = [0, 1, -1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 20, 21, 50, 51, 500, 32_767, 32_768, 32_769, 99_999]
_EDGES += [2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**20, 10**300, 10**400]
_PARTS = ["text", "input_text", "refusal", "thinking", "image_url", "input_image", "image_embeds"]
_PARTS += ["audio_embeds", "video_embeds", "prompt_embeds", "audio_url", "input_audio", "video_url"]
_PARTS += ["tool_reference", "file", "image_pil", "TEXT", "", "unknown"]
_DATA = ['"data:image/png;base64,AA=="', '{"url":"http://h/x"}', '"AA=="', "null", '{"data":"AA=="}']
_BOOLEANS = ["true", "false", "true", "false", "1", "0", '"true"', '"no"', "null"]


class Writer:
    """Write JSON text by hand: numbers in every spelling, escaped and repeated keys."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.pick = self.chance.choice
        self.definitions: dict[str, Any] = {}

    def sometimes(self, share: float) -> bool:
        return self.chance.random() < share

    def number(self) -> str:
        """Return an integer in one of the ways in which JSON, or a lax reader, may spell it."""
        value = self.pick([self.pick(_EDGES), self.chance.randint(-5, 100_000)])
        text, plain, zero = str(value), str(abs(value)), self.pick(_ZEROS)
        digits = text.translate({0x30 + digit: zero + digit for digit in range(10)})
        spelled = (
            *(text, f"{text}.0", f"{text}.", f"{text}.00", f" {text} ", f"\t{text}\n", f"+{plain}"),
            *(f"000{plain}", f"{text}e0", f"{text[:6]}e3", f"{text}.0e0", f"{value:_}", f"{value:,}"),
            *(hex(value), bin(value % 2**70), digits, f"\u00a0{text}\u2003", f"{text}\x00", f"{text}n"),
            *("nan", "inf"),
        )
        quoted = self.pick(spelled)
        return self.pick(
            [text] * 9
            + [f"{text}.0", f"{text}.0000000000000000000001", f"{text}e0", f"{text}E+0", f"{text[:8]}.5"]
            + [f"{value % 1000}e{self.pick([1, 2, 5, 30, 400])}", "NaN", "Infinity", "-Infinity", "null"]
            + [json.dumps(quoted, ensure_ascii=self.sometimes(0.5))] * 6
        )

    def text(self) -> str:
        """Return a JSON string; its lengths are around the limits."""
        length = self.pick([0, 1, 2, 7, 8, 9, 255, 256, 257, 500])
        letters = "".join(self.pick('a{["\\é\U0001f600 ') for _ in range(40))
        return json.dumps((letters * 40)[:length], ensure_ascii=self.sometimes(0.5))

    def nested(self) -> str:
        """Return an object or array of some depth."""
        depth = self.pick([1, 2, 4, 5, 6, 7, 8, 31, 32, 33, 34, 40, 60, 70])
        kinds = [self.pick((('{"items":', "}"), ("[", "]"))) for _ in range(depth)]
        inner = self.pick(["1", "null", self.text()])
        return "".join(kind[0] for kind in kinds) + inner + "".join(kind[1] for kind in reversed(kinds))

    def any_value(self) -> str:
        """Return any JSON value, whatever the field's type."""
        return self.pick([self.number(), self.text(), self.nested(), self.part(), "null", "[]", "{}"])

    def part(self) -> str:
        """Return a content part of a message, by the keys and types that vLLM's parser knows."""
        kind = self.pick(_PARTS)
        fields = [f'"type":{json.dumps(self.pick([kind, kind, kind, "text"]))}'] * self.sometimes(0.7)
        fields += ['"text":"x"'] * self.sometimes(0.5)
        fields += [f"{json.dumps(kind or 'data')}:{self.pick(_DATA)}"] + ['"uuid":"u"'] * self.sometimes(0.2)
        return "{" + ",".join(fields) + "}"

    def key(self, name: str) -> str:
        """Return a key, sometimes with an escape that the parser removes."""
        at = self.chance.randrange(len(name))
        escaped = f'"{name[:at]}\\u{ord(name[at]):04x}{name[at + 1 :]}"'
        return escaped if self.sometimes(0.1) else json.dumps(name)

    def typed(self, schema: dict[str, Any], depth: int = 0) -> str:
        """Return a value of a schema; one in six has another type."""
        kind = schema.get("type")
        several = next((schema[name] for name in ("anyOf", "oneOf", "allOf") if name in schema), None)
        if depth > 6 or kind == "null":
            return "null"
        if self.sometimes(0.16):
            return self.any_value()
        if "$ref" in schema:
            return self.typed(self.definitions[schema["$ref"].rpartition("/")[2]], depth + 1)
        if several:
            return self.typed(self.pick(several), depth + 1)
        if "const" in schema or "enum" in schema:
            return json.dumps(self.pick(schema.get("enum") or [schema["const"]]))
        if kind in ("integer", "number"):
            return self.number()
        if kind == "boolean":
            return self.pick(_BOOLEANS)
        if kind == "array":
            items = schema.get("items") or {}
            count = self.pick([0, 1, 2, 3, 4, 5, 15, 16, 17, 18])
            entries = [self.typed(items, depth + 1)] * (count - 1) + [self.typed(items, depth + 1)]
            return f"[{','.join(entries[:count])}]"
        if kind == "object":
            return self.object(schema, depth)
        return self.text() if kind == "string" else self.any_value()

    def object(self, schema: dict[str, Any], depth: int) -> str:
        """Return an object with its required fields and a few of the others; some fields come twice."""
        known = schema.get("properties", {})
        names = list(schema.get("required", []))
        names += self.chance.sample(sorted(known), min(len(known), self.chance.randint(0, 2)))
        if not known:
            names += self.chance.sample(["enable_thinking", "a", "tokenize", "kv_transfer_params", "b"], 2)
        extra = schema.get("additionalProperties")
        extra = extra if isinstance(extra, dict) else {}
        fields = [f"{self.key(name)}:{self.typed(known.get(name, extra), depth + 1)}" for name in names]
        return "{" + ",".join(fields) + "}"

    def messages(self) -> str:
        """Return messages that vLLM usually accepts, with text or with parts."""
        part = self.part()
        content = self.pick(['"Hello"'] * 4 + [f"[{part}]", f"[{part},{self.part()}]", f'{{"0":{part}}}'])
        role = self.pick(["user", "system", "developer", "tool", "assistant", "critic"])
        return f'[{{"role":"{role}","content":{content},"tool_call_id":"1"}}]'

    def prompt(self) -> str:
        """Return a prompt, or several."""
        entry = self.pick(['"a"', "1", "[1]", '"1"', "1.0", "true", '["1"]', "[true]"])
        first = self.pick([entry, entry, entry, "1", "true", '"x"', "[2]"])
        several = [first] + [entry] * (self.pick([1, 2, 3, 4, 15, 16, 17, 40]) - 1)
        return self.pick(['"Hello"', f"[{','.join(several)}]"])

    def field(self, name: str, schema: dict[str, Any]) -> str:
        """Return the value of a field; the structured ones have forms of their own that vLLM accepts."""
        nested, text = self.nested(), self.text()
        forms = {
            "structured_outputs": (
                *(f'{{"json":{nested}}}', f'{{"json":{json.dumps(nested)}}}', f'{{"grammar":{text}}}'),
                *(f'{{"regex":{text}}}', f'{{"choice":[{text},{text},{text}]}}'),
            ),
            "response_format": [f'{{"type":"json_schema","json_schema":{{"name":"x","schema":{nested}}}}}'],
            "tools": [f'[{{"type":"function","function":{{"name":"f","parameters":{{"a":{nested}}}}}}}]'],
        }
        return self.pick(forms[name]) if name in forms and self.sometimes(0.65) else self.typed(schema)

    def body(self) -> bytes:
        """Return one request body."""
        kind = self.pick(sorted(SCHEMAS))
        known = SCHEMAS[kind]["properties"]
        self.definitions = SCHEMAS[kind].get("$defs", {})
        base = "messages" if kind == "chat" else "prompt"
        names = self.chance.sample(sorted(known), self.pick([0, 0, 1, 1, 2, 4]))
        names += self.chance.sample(OFTEN, self.pick([0, 1, 1, 2]))
        names += [name for name in names if self.sometimes(0.1)]  # twice
        fields = [f"{self.key(base)}:{self.messages() if kind == 'chat' else self.prompt()}"]
        fields += [
            f"{self.key(name)}:{self.field(name, known.get(name, {}))}" for name in names if name != base
        ]
        fields += ['"logprobs":true'] * ("top_logprobs" in names and self.sometimes(0.8))
        self.chance.shuffle(fields)
        text = "{" + self.pick([",", ", ", " ,\n"]).join(fields) + "}"
        encoding = "utf-8" if self.sometimes(0.96) else self.pick(["utf-8-sig", "utf-16", "utf-32"])
        return text.encode(encoding, errors="surrogatepass")


def no_maximum(body: bytes) -> bool:
    """Return whether vLLM reads a body as a chat that says nothing of its maximum of output tokens."""
    try:
        request = ADAPTERS["chat"].validate_python(json.loads(body))
    except REFUSED:
        return False
    return request.max_tokens is None and request.max_completion_tokens is None


def campaign(bodies: int, seed: int) -> dict[str, Any]:
    """Judge ``bodies`` generated bodies; the same seed makes the same bodies."""
    writer = Writer(seed)
    counts = {"bodies": bodies, "passed": 0, "above": 0, "no_maximum": 0}
    bypasses: list[dict[str, Any]] = []
    for _ in range(bodies):
        body, limits = writer.body(), writer.pick((Limits(), SMALL))
        above = {kind: list(excesses(kind, body, limits)) for kind in MODELS}
        passed = judged(body, limits)[1] is None
        counts["passed"] += passed
        counts["no_maximum"] += passed and no_maximum(body)
        counts["above"] += any(above.values())
        if passed and any(above.values()):
            bypasses.append({"body": body.decode("utf-8", "replace")[:400], "above": above})
    return {**counts, "bypass_count": len(bypasses), "bypasses": bypasses[:20]}


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
