"""Grammars for grammar_fuzz.py: schemas and patterns made to be slow or to end the engine."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

_ATOMS = ["a", ".", "[a-z]", "[^a]", r"\w", r"\d", r"\s", "é", "[\u4e00-\u9fff]", "ab", "-"]
_BOUNDS = [0, 1, 2, 5, 9, 30, 63, 64, 100, 127, 128, 129, 255, 500, 1000, 10_000, 10**6]
_KEYWORD_FORMATS = ["email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid"]
_KEYWORD_FORMATS += ["uri", "uri-reference", "uri-template"]


class Grammars:
    """Make grammars; the same chance makes the same ones."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self._names = 0

    def name(self, chars: int = 0) -> str:
        """Return a name that no other property has; ``chars`` are random letters before its number."""
        self._names += 1
        return f"k{self.letters(chars)}{self._names}"

    def letters(self, chars: int) -> str:
        """Return random letters."""
        return "".join(self.chance.choices("abcdefghijklmnopqrstuvwxyz_", k=chars))

    def texts(self) -> list[str]:
        """Return different texts; some begin alike, for a few or thousands of characters."""
        count = self.chance.choice([1, 2, 3, 8, 30, 200, 1000])
        chars = self.chance.choice([0, 3, 10, 30, 100, 500, 2000, 4000])
        chars = min(chars, 60_000 // count)
        shared = self.chance.choice(["", "", "y", "一", "\x01", '"', "the quick brown fox "])
        begin = (shared * chars)[:chars]
        return [f"{begin or self.letters(chars)}{each}" for each in range(count)]

    def quantifier(self) -> str:
        """Return one of every kind of repetition."""
        least = self.chance.choice(_BOUNDS[:8])
        bounds = [f"{{{least}}}", f"{{{least},}}", f"{{{least},{least + self.chance.choice(_BOUNDS[:11])}}}"]
        return self.chance.choice(["", "", "", "*", "+", "?", "*", "?", *bounds])

    def pattern(self, depth: int = 0) -> str:
        """Return a regular expression; some are built to be deep, long or ambiguous."""
        special = self.chance.random()
        if depth == 0 and special < 0.3:
            count = self.chance.choice([2, 5, 8, 10, 16, 17, 20, 50, 1000, 20_000])
            part = self.chance.choice(_ATOMS) + self.quantifier()
            return self.chance.choice(
                [
                    "(" * count + "a" + ")" * count,
                    "(a|" * count + "a" + ")" * count,
                    part * count,
                    f"({part}|x)" * count,
                    "|".join(f"{part}{each}" for each in range(min(count, 300))),
                    "(" * count + part + f"){self.quantifier()}" * count,
                ]
            )
        parts = []
        for _ in range(self.chance.choice([1, 1, 2, 3, 5])):
            if depth < 4 and self.chance.random() < 0.4:
                parts.append(
                    f"({'|'.join(self.pattern(depth + 1) for _ in range(self.chance.choice([1, 1, 2, 4])))})"
                )
            else:
                parts.append(self.chance.choice(_ATOMS))
            parts.append(self.quantifier())
        return "".join(parts)

    def schema(self, depth: int = 0) -> Any:
        """Return a JSON schema."""
        kinds: list[Callable[[int], Any]] = [self.text, self.number, self.choices, self.text]
        if depth < 5:
            kinds += [self.object, self.object, self.array, self.combined, self.references]
        return self.chance.choice(kinds)(depth)

    def text(self, depth: int) -> dict[str, Any]:
        """Return a schema of a string."""
        schema: dict[str, Any] = {"type": "string"}
        kind = self.chance.randrange(5)
        if kind == 0:
            schema["pattern"] = self.pattern()
        elif kind == 1:
            schema["format"] = self.chance.choice(_KEYWORD_FORMATS)
        elif kind == 2:
            schema["maxLength"] = self.chance.choice([*_BOUNDS, self.chance.randrange(3000)])
        elif kind == 3:
            least = self.chance.choice([*_BOUNDS, self.chance.randrange(300)])
            schema.update(minLength=least, maxLength=least + self.chance.randrange(500))
        return schema

    def number(self, depth: int) -> dict[str, Any]:
        """Return a schema of a number, often with a range."""
        schema: dict[str, Any] = {"type": self.chance.choice(["integer", "number"])}
        size = 10 ** self.chance.randrange(1, 18)
        if self.chance.random() < 0.6:
            schema[self.chance.choice(["minimum", "exclusiveMinimum"])] = -self.chance.randrange(size)
        if self.chance.random() < 0.6:
            schema[self.chance.choice(["maximum", "exclusiveMaximum"])] = self.chance.randrange(size)
        if schema["type"] == "number" and "maximum" in schema:
            schema["maximum"] += 0.123456
        return schema

    def choices(self, depth: int) -> dict[str, Any]:
        """Return an enum or a const."""
        count = self.chance.choice([1, 3, 30, 300, 2000])
        long = "x" * self.chance.choice([1, 10, 100, 4096, 30_000])
        return self.chance.choice(
            [
                {"enum": [f"{long[:100]}{each}" for each in range(min(count, 500))]},
                {"enum": list(range(count))},
                {"const": long},
                {"enum": ["x" * each for each in range(min(count, 300))]},
                {"enum": self.texts()},
                {"anyOf": [{"const": text} for text in self.texts()[:60]]},
                {"const": {text: each for each, text in enumerate(self.texts())}},
                {"const": [self.letters(9) for _ in range(count)]},
            ]
        )

    def object(self, depth: int) -> dict[str, Any]:
        """Return a schema of an object."""
        count = self.chance.choice([1, 2, 3, 5, 20] if depth else [1, 3, 10, 30, 60, 100, 200, 400, 1200])
        alike = self.schema(depth + 1) if count > 10 else None
        chars = self.chance.choice([0, 0, 0, 3, 8, 20, 60, 300])
        names = [self.name(min(chars, 30_000 // count)) for _ in range(count)]
        many = self.chance.random() < 0.3  # of different schemas
        properties = {name: alike or self.schema(depth + 1) for name in names}
        if many and alike is not None:
            properties = {name: self.small() for name in names}
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        schema["required"] = self.chance.choice([[], names, names[: count // 2]])
        if self.chance.random() < 0.35:
            schema["minProperties"] = self.chance.choice([1, 3, count // 2, count])
        if self.chance.random() < 0.35:
            schema["maxProperties"] = self.chance.choice([3, count // 2, count, count * 2, 10**6])
        if self.chance.random() < 0.3:
            schema["additionalProperties"] = self.chance.choice([True, False, {"type": "string"}])
        if self.chance.random() < 0.1:
            count = self.chance.choice([1, 3])
            schema["patternProperties"] = {self.pattern(): self.small() for _ in range(count)}
            schema.pop("properties")
        elif self.chance.random() < 0.05:
            schema = {"type": "object", "propertyNames": {"pattern": self.pattern()}}
        return schema

    def small(self) -> dict[str, Any]:
        """Return a small schema, unlike most others."""
        return self.chance.choice([self.text, self.number])(0)

    def array(self, depth: int) -> dict[str, Any]:
        """Return a schema of an array."""
        schema: dict[str, Any] = {"type": "array", "items": self.schema(depth + 1)}
        if self.chance.random() < 0.2:
            schema["prefixItems"] = [self.small() for _ in range(self.chance.choice([1, 5, 50]))]
        if self.chance.random() < 0.5:
            schema["maxItems"] = self.chance.choice(_BOUNDS)
        if self.chance.random() < 0.3:
            schema["minItems"] = self.chance.choice(_BOUNDS)
        return schema

    def combined(self, depth: int) -> dict[str, Any]:
        """Return alternatives."""
        count = self.chance.choice([1, 2, 3, 10, 100, 400] if not depth else [1, 2, 3])
        make = self.small if count > 10 else lambda: self.schema(depth + 1)
        return {self.chance.choice(["anyOf", "oneOf", "allOf"]): [make() for _ in range(count)]}

    def references(self, depth: int) -> dict[str, Any]:
        """Return definitions that name each other: chains, cycles and trees."""
        count = self.chance.choice([1, 2, 5, 20, 200])
        names = [self.name() for _ in range(count)]

        def reference() -> dict[str, str]:
            return {"$ref": f"#/$defs/{self.chance.choice(names)}"}

        definitions = {
            name: self.chance.choice(
                [
                    lambda: {"type": "object", "properties": {"a": reference(), "b": reference()}},
                    lambda: {"anyOf": [reference(), self.small()]},
                    lambda: {"allOf": [reference(), reference()]},
                    lambda: {"type": "array", "items": reference(), "maxItems": self.chance.choice(_BOUNDS)},
                    reference,
                    self.small,
                ]
            )()
            for name in names
        }
        return {"$defs": definitions, "$ref": f"#/$defs/{names[0]}"}

    def grammar(self) -> tuple[str, Any]:
        """Return the kind of a grammar (a field of ``structured_outputs``) and its value."""
        kind = self.chance.choice(["json"] * 12 + ["regex"] * 4 + ["choice"])
        if kind == "regex":
            return kind, self.pattern()
        if kind == "choice" and self.chance.random() < 0.7:
            return kind, self.texts()
        if kind == "choice":
            return kind, [
                f"{'y' * (each % 200)}{each}" for each in range(self.chance.choice([1, 20, 300, 2000]))
            ]
        return kind, self.schema()
