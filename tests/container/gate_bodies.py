"""Request bodies for gate_fuzz.py: JSON text made from the JSON schema of vLLM's request models."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Mapping
from typing import Any

_DIGITS = [[chr(zero + digit) for digit in range(10)] for zero in (0x30, 0x660, 0x966, 0xFF10, 0x1D7CE)]
_EDGES = [0, 1, -1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 20, 21, 50, 51, 500, 32_767, 32_768, 32_769, 99_999]
_EDGES += [2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**20, 10**300, 10**400]
STRUCTURED = {"stop", "bad_words", "stop_token_ids", "structured_outputs", "response_format", "tools"}
STRUCTURED |= {"chat_template_kwargs", "chat_template", "vllm_xargs", "kv_transfer_params", "prompt_embeds"}


class Writer:
    """Write JSON text by hand: numbers in every spelling, escaped and repeated keys."""

    def __init__(self, chance: random.Random, schemas: Mapping[str, Any], often: Collection[str]) -> None:
        self.chance = chance
        self.schemas = schemas
        self.often = sorted({*often, *STRUCTURED})
        self.definitions: dict[str, Any] = {}

    def number(self) -> str:
        """Return an integer in one of the ways in which JSON, or a lax reader, may spell it."""
        value = self.chance.choice([self.chance.choice(_EDGES), self.chance.randint(-5, 100_000)])
        text = str(value)
        spell = self.chance.randrange(24)
        if spell < 9:
            return text
        spelled = {
            9: f"{text}.0",
            10: f"{text}.0000000000000000000001",
            11: f"{text}e0",
            12: f"{text}E+0",
            13: f"{value % 1000}e{self.chance.choice([1, 2, 5, 30, 400])}",
            14: f"{text[:8]}.5",
            15: "NaN",
            16: self.chance.choice(["Infinity", "-Infinity"]),
            17: self.chance.choice(["true", "false", "null"]),
        }.get(spell)
        return spelled or self.number_in_a_string(text)

    def number_in_a_string(self, text: str) -> str:
        """Return a JSON string that a lax reader may take for a number."""
        digits = self.chance.choice(_DIGITS)
        forms: list[str] = [
            text,
            f"{text}.0",
            f"{text}.",
            f"{text}.00",
            f" {text} ",
            f"\t{text}\n",
            f"+{text.lstrip('-')}",
            f"000{text.lstrip('-')}",
            f"{text}e0",
            f"{text[:6]}e3",
            f"{text}.0e0",
            f"{int(text):_}",
            f"{int(text):,}",
            hex(int(text)),
            bin(int(text) % 2**70),
            "nan",
            "inf",
            text.translate({ord(str(number)): sign for number, sign in enumerate(digits)}),
            f"\u00a0{text}\u2003",
            f"{text}\x00",
            f"{text}n",
            f"{text} tokens",
        ]
        form = self.chance.choice(forms)
        ascii_only = self.chance.random() < 0.5
        return json.dumps(form, ensure_ascii=ascii_only)

    def text(self) -> str:
        """Return a JSON string; its lengths are around the limits."""
        length = self.chance.choice([0, 1, 2, 7, 8, 9, 255, 256, 257, 500])
        letters = "".join(self.chance.choice('a{["\\é\U0001f600 ') for _ in range(min(length, 40)))
        return json.dumps((letters * 40)[:length] if letters else "", ensure_ascii=self.chance.random() < 0.5)

    def nested(self) -> str:
        """Return an object or array of some depth."""
        depth = self.chance.choice([1, 2, 4, 5, 6, 7, 8, 31, 32, 33, 34, 40, 60, 70])
        kinds = [self.chance.choice(("{}", "[]")) for _ in range(depth)]
        opening = "".join('{"items":' if kind == "{}" else "[" for kind in kinds)
        closing = "".join("}" if kind == "{}" else "]" for kind in reversed(kinds))
        return f"{opening}{self.chance.choice(['1', 'null', self.text()])}{closing}"

    def any_value(self) -> str:
        """Return any JSON value, whatever the field's type."""
        make: Callable[[], str] = self.chance.choice(
            [self.number, self.text, self.nested, self.part, lambda: "null", lambda: "[]", lambda: "{}"]
        )
        return make()

    def part(self) -> str:
        """Return a content part of a message, by the keys and types that vLLM's parser knows."""
        kinds = ["text", "input_text", "refusal", "thinking", "image_url", "input_image", "image_embeds"]
        kinds += ["audio_embeds", "video_embeds", "prompt_embeds", "audio_url", "input_audio", "video_url"]
        kinds += ["tool_reference", "file", "image_pil", "TEXT", "", "unknown"]
        kind = self.chance.choice(kinds)
        fields = []
        if self.chance.random() < 0.7:
            fields.append(f'"type":{json.dumps(self.chance.choice([kind, kind, kind, "text"]))}')
        if self.chance.random() < 0.5:
            fields.append('"text":"x"')
        values = ['"data:image/png;base64,AA=="', '{"url":"http://h/x"}', '"AA=="', "null", '{"data":"AA=="}']
        fields.append(f"{json.dumps(kind or 'data')}:{self.chance.choice(values)}")
        if self.chance.random() < 0.2:
            fields.append('"uuid":"u"')
        return "{" + ",".join(fields) + "}"

    def key(self, name: str) -> str:
        """Return a key, sometimes with escapes that the parser removes."""
        if self.chance.random() < 0.1:
            at = self.chance.randrange(len(name))
            return f'"{name[:at]}\\u{ord(name[at]):04x}{name[at + 1 :]}"'
        return json.dumps(name)

    def typed(self, schema: dict[str, Any], depth: int = 0) -> str:
        """Return a value of a schema; one in six has another type."""
        if depth > 6:
            return "null"
        if self.chance.random() < 0.16:
            return self.any_value()
        if "$ref" in schema:
            return self.typed(self.definitions[schema["$ref"].rpartition("/")[2]], depth + 1)
        for several in ("anyOf", "oneOf", "allOf"):
            if several in schema:
                return self.typed(self.chance.choice(schema[several]), depth + 1)
        if "const" in schema or "enum" in schema:
            return json.dumps(self.chance.choice(schema.get("enum") or [schema["const"]]))
        kind = schema.get("type")
        if kind in ("integer", "number"):
            return self.number()
        if kind == "string":
            return self.text()
        if kind == "boolean":
            return self.chance.choice(["true", "false", "true", "false", "1", "0", '"true"', '"no"', "null"])
        if kind == "array":
            count = self.chance.choice([0, 1, 2, 3, 4, 5, 15, 16, 17, 18])
            items = schema.get("items") or {}
            one = self.typed(items, depth + 1)
            return (
                "[" + ",".join([one] * max(0, count - 1) + [self.typed(items, depth + 1)] * (count > 0)) + "]"
            )
        if kind == "object":
            return self.object(schema, depth)
        return "null" if kind == "null" else self.any_value()

    def object(self, schema: dict[str, Any], depth: int) -> str:
        """Return an object with its required fields and a few of the others; some fields come twice."""
        known = schema.get("properties", {})
        names = list(schema.get("required", []))
        names += self.chance.sample(sorted(known), min(len(known), self.chance.randint(0, 2)))
        fields = [f"{self.key(name)}:{self.typed(known.get(name, {}), depth + 1)}" for name in names]
        if not known:
            extra = schema.get("additionalProperties")
            inner = extra if isinstance(extra, dict) else {}
            some = self.chance.sample(["enable_thinking", "a", "tokenize", "kv_transfer_params", "b"], 2)
            fields += [f"{self.key(name)}:{self.typed(inner, depth + 1)}" for name in some]
        return "{" + ",".join(fields) + "}"

    def messages(self) -> str:
        """Return messages that vLLM usually accepts, with text or with parts."""
        contents = ['"Hello"', f"[{self.part()}]", f"[{self.part()},{self.part()}]", f'{{"0":{self.part()}}}']
        content = self.chance.choice([*contents[:1] * 3, *contents])
        role = self.chance.choice(["user", "system", "developer", "tool", "assistant", "critic"])
        more = ',"tool_call_id":"1"' if role == "tool" else ""
        return f'[{{"role":"{role}","content":{content}{more}}}]'

    def prompt(self) -> str:
        """Return a prompt, or several."""
        count = self.chance.choice([1, 2, 3, 4, 15, 16, 17, 40])
        one = self.chance.choice(['"a"', "1", "[1]", '"1"', "1.0", "true", '["1"]', "[true]"])
        first = self.chance.choice([one, one, one, "1", "true", '"x"', "[2]"])
        return self.chance.choice(['"Hello"', f"[{','.join([first] + [one] * (count - 1))}]"])

    def body(self) -> bytes:
        """Return one request body."""
        name = self.chance.choice(sorted(self.schemas))
        schema = self.schemas[name]
        self.definitions = schema.get("$defs", {})
        known = schema["properties"]
        base = "messages" if name == "chat" else "prompt"
        wanted = self.chance.sample(sorted(known), self.chance.choice([0, 0, 1, 1, 2, 4]))
        # The fields with a limit are few among sixty: draw them more often.
        wanted += self.chance.sample(self.often, self.chance.choice([0, 1, 1, 2]))
        wanted = [each for each in wanted if each != base]
        fields = [f"{self.key(base)}:{self.messages() if name == 'chat' else self.prompt()}"]
        for each in wanted:
            times = 2 if self.chance.random() < 0.1 else 1
            fields += [f"{self.key(each)}:{self.field(each, known)}" for _ in range(times)]
        if "top_logprobs" in wanted and self.chance.random() < 0.8:
            fields.append('"logprobs":true')
        self.chance.shuffle(fields)
        text = "{" + self.chance.choice([",", ", ", " ,\n"]).join(fields) + "}"
        encoding = (
            "utf-8" if self.chance.random() < 0.96 else self.chance.choice(["utf-8-sig", "utf-16", "utf-32"])
        )
        return text.encode(encoding, errors="surrogatepass")

    def field(self, name: str, known: dict[str, Any]) -> str:
        """Return the value of a field; the structured ones have forms of their own that vLLM accepts."""
        if name == "structured_outputs" and self.chance.random() < 0.7:
            schema = self.nested()
            return self.chance.choice(
                [
                    f'{{"json":{schema}}}',
                    f'{{"json":{json.dumps(schema)}}}',
                    f'{{"regex":{self.text()}}}',
                    f'{{"choice":[{",".join([self.text()] * 3)}]}}',
                    f'{{"grammar":{self.text()}}}',
                ]
            )
        if name == "response_format" and self.chance.random() < 0.6:
            return f'{{"type":"json_schema","json_schema":{{"name":"x","schema":{self.nested()}}}}}'
        if name == "tools" and self.chance.random() < 0.6:
            return f'[{{"type":"function","function":{{"name":"f","parameters":{{"a":{self.nested()}}}}}}}]'
        return self.typed(known.get(name, {}))
