"""Limits of grammars: the cost that a schema, a pattern or a choice of a request may have. Pure.

A grammar in EBNF or Lark and a structural tag are refused: their cost has no simple bound. vLLM parses a
grammar in the API server's event loop, where a slow one holds every request and a deep one ends the process;
then it compiles the grammar in the engine. The estimates are from measurements of xgrammar
(docs/explanation/container.md).
"""

from __future__ import annotations

import json
from bisect import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from math import prod
from typing import Any

from peagle_gate.patterns import cost_of_pattern
from peagle_gate.startup import Limits

Found = Iterator[str]

#: Fields of a request that become grammars.
FIELDS = ("structured_outputs", "response_format", "tools")
_PATTERN_REPEATS = 128  # above it xgrammar 0.2 fails to compile a schema's pattern, or takes seconds
_REGEX_REPEATS = 1024
_STRING_STATES = 256  # a longer string costs no more
_NOTES = {"description", "title", "$comment", "default", "examples", "example", "markdownDescription"}
_RANGES = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_FORMATS = {"uri-template": 60, "ipv6": 14, "email": 10, "uri": 8, "uri-reference": 8}
# Units of cost, each about 0.3 ms of CPU with a small vocabulary.
_INTEGER_RANGE, _NUMBER_RANGE, _FORMAT, _ITEM_BOUNDS = 6, 20, 4, 4
_OPTIONAL_KEYS = 860  # bytes of optional keys times their number that cost a unit
_COUNTED_KEYS = 20  # bytes in the copies that a count of properties makes that cost a unit
_COUNTED_ARRAY = 24  # bytes that a bounded array is worth in such a copy
_KEY_SIGNS = 4  # bytes around a key
_OTHER_KEYS = 1.16  # units, and states, of each byte of a key that further properties must not have
_MULTIPLE, _MULTIPLE_UNITS = 20_000, 50  # guidance's automaton has as many states; states that cost a unit
_PRODUCT = 256  # schemas that guidance makes of an allOf whose members have alternatives
_NOT_SUPPORTED = ("grammar", "structural_tag")


@dataclass
class _Schema:
    """Cost of a field so far.

    Attributes:
        states: of counted strings, patterns and keys that further properties must not have; together they
            cost their square.
        items: bounds of arrays, which guidance writes out; they cost their square.
        text: fixed text in bytes, without the beginning that it shares with another.
    """

    limits: Limits
    units: float = 0
    states: float = 0
    items: float = 0
    text: int = 0
    lengths: set[tuple[int, int]] = field(default_factory=set)
    literals: list[bytes] = field(default_factory=list)
    defined: dict[str, int] = field(default_factory=dict)

    def total(self) -> int:
        squares = self.states**2 / 7000 + self.text**2 / 1e6 + self.items**2 / 1e6
        return int(self.units + squares + self.text / 50 + self.items / 30)

    def alternatives(self, schema: Any) -> int:
        """Return the alternatives of a schema, or of the definition that it refers to; 1 without any."""
        if not isinstance(schema, Mapping):
            return 1
        name = str(schema.get("$ref", "")).rpartition("/")[2]
        return max(_alternatives(schema), self.defined.get(name, 1))

    def add_literal(self, value: Any) -> None:
        """Count a fixed text. A beginning shared with another costs its square: 4.5e-8 s for each byte²."""
        literal = json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")[:-1]
        place = bisect(self.literals, literal)
        neighbours = self.literals[max(place - 1, 0) : place + 1]
        shared = max((_shared(literal, near) for near in neighbours), default=0)
        self.literals.insert(place, literal)
        self.text += len(literal) - shared
        self.units += shared**2 / 6700


def _alternatives(schema: Any) -> int:
    """Return how many schemas the ``anyOf`` and ``oneOf`` of a schema combine to."""
    if not isinstance(schema, Mapping):
        return 1
    lists = [schema.get(name) for name in ("anyOf", "oneOf")]
    return prod(len(options) or 1 for options in lists if isinstance(options, list))


def _definitions(value: Any) -> dict[str, int]:
    """Return the alternatives of each definition in a field, by its name."""
    defined, pending = dict[str, int](), [value]
    while pending:
        node = pending.pop()
        if isinstance(node, Mapping):
            for part in (node.get("$defs"), node.get("definitions")):
                if isinstance(part, Mapping):
                    for name, schema in part.items():
                        defined[name] = max(defined.get(name, 1), _alternatives(schema))
            pending += node.values()
        elif isinstance(node, list):
            pending += node
        elif isinstance(node, str) and (parsed := _json_in("", node)):
            pending += parsed
    return defined


def _shared(left: bytes, right: bytes) -> int:
    """Return the length of two texts' common beginning in bytes."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(left), len(right)))


def excessive(request: Mapping[str, Any], limits: Limits) -> Iterator[tuple[str, str]]:
    """Yield the field and the message of each grammar that could cost too much."""
    for name in FIELDS:
        if request.get(name) is not None:
            for message in _field(request[name], name, limits):
                yield name, message


def _not_supported(at: str, node: Mapping[str, Any]) -> Found:
    for name in _NOT_SUPPORTED:
        if node.get(name) is not None or node.get("type") == name:
            yield f"{at[:-1]}: {name} is not supported; write the form as json, regex or choice"


def _field(value: Any, name: str, limits: Limits) -> Found:
    cost = _Schema(limits, defined=_definitions(value))
    pending: list[tuple[str, str, Any]] = [(f"{name}:/", "", value)]
    while pending:
        at, key, node = pending.pop()
        if isinstance(node, str):
            if parsed := _json_in(key, node):
                pending.append((at, key, parsed[0]))
            else:
                yield from _string(at, key, node, cost)
        elif isinstance(node, Mapping):
            if at == f"{name}:/":
                yield from _not_supported(at, node)
            yield from _object(at, node, cost)
            pending += [(f"{at}{_step(inner)}/", inner, below) for inner, below in node.items()]
        elif isinstance(node, list):
            if key in ("choice", "enum"):
                for literal in node:
                    if not isinstance(literal, str) or len(literal) <= limits.max_literal_chars:
                        cost.add_literal(literal)  # a longer one is refused below
            pending += [(f"{at}{place}/", key, below) for place, below in enumerate(node)]
        if (total := cost.total()) > limits.max_grammar_cost:
            yield (
                f"{at[:-1]}: the grammar up to here costs {total} units (properties, bounds, patterns, ranges"
                f" and formats together); at most {limits.max_grammar_cost}"
            )
            return


def _step(key: str) -> str:
    """Return a key as a step of a JSON pointer, shortened."""
    shown = key if len(key) <= 40 else f"{key[:40]}…"
    return shown.replace("~", "~0").replace("/", "~1")


def _json_in(key: str, text: str) -> list[Any]:
    """Return the JSON of a string in a list; empty without JSON. vLLM takes schemas and tags as text, too."""
    if key in _NOTES or text.lstrip()[:1] not in ("{", "["):
        return []
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError):
        return []


def _string(at: str, key: str, text: str, cost: _Schema) -> Found:
    limits = cost.limits
    if key in ("pattern", "regex"):
        yield from _pattern(at, text, cost, _PATTERN_REPEATS if key == "pattern" else _REGEX_REPEATS)
    elif key not in _NOTES and len(text) > limits.max_literal_chars:
        yield f"{at[:-1]}: a text of {len(text)} characters; at most {limits.max_literal_chars}"


def _pattern(at: str, text: str, cost: _Schema, most_repeats: int) -> Found:
    limits = cost.limits
    if len(text) > limits.max_pattern_chars:
        yield f"{at[:-1]}: a pattern of {len(text)} characters; at most {limits.max_pattern_chars}"
        return
    pattern_cost = cost_of_pattern(text)
    shape = pattern_cost.shape
    cost.states += min(shape.size, _REGEX_REPEATS)
    cost.units += shape.choices * 4
    if pattern_cost.depth > limits.max_pattern_depth:
        deepest = limits.max_pattern_depth
        yield f"{at[:-1]}: groups of the pattern nest {pattern_cost.depth} deep; at most {deepest}"
    if pattern_cost.repeats > most_repeats:
        yield f"{at[:-1]}: the pattern repeats up to {pattern_cost.repeats} times; at most {most_repeats}"
    if pattern_cost.repeats_empty:
        yield f"{at[:-1]}: the pattern repeats what may be empty, as (a*)* does; let each turn have text"
    if shape.size > limits.max_pattern_size:
        yield (
            f"{at[:-1]}: the pattern has {shape.size} characters with its repetitions written out;"
            f" at most {limits.max_pattern_size}"
        )
    # A regex of its own is matched without the states that xgrammar makes of a schema's pattern.
    most_choices = limits.max_pattern_choices // (1 if most_repeats == _PATTERN_REPEATS else 2)
    if shape.choices > most_choices:
        yield (
            f"{at[:-1]}: the pattern has {shape.choices} optional or repeated parts in a row (a bounded"
            f" repetition counts twice, and its parts up to 8 times); at most {most_choices}"
        )


def _object(at: str, node: Mapping[str, Any], cost: _Schema) -> Found:
    limits = cost.limits
    cost.units += 1
    for key in node:
        if len(key) > limits.max_pattern_chars:
            yield f"{at[:-1]}: a key of {len(key)} characters; at most {limits.max_pattern_chars}"
    patterns = node.get("patternProperties")
    for key in patterns if isinstance(patterns, Mapping) else ():
        yield from _pattern(f"{at}patternProperties/{_step(key)}/", key, cost, _PATTERN_REPEATS)
    _count_ranges(node, cost)
    _count_lengths(node, cost)
    _count_properties(node, cost)
    if isinstance(form := node.get("format"), str):
        cost.units += _FORMATS.get(form, _FORMAT)
    least, most = _number(node.get("minItems")), _number(node.get("maxItems"))
    if least or most:
        cost.units += _ITEM_BOUNDS
        cost.items += max(most - least, 0) + least / 10
    yield from _guidance(at, node, cost)
    if "const" in node:
        cost.add_literal(node["const"])


def _guidance(at: str, node: Mapping[str, Any], cost: _Schema) -> Found:
    """Judge what vLLM gives to guidance, since xgrammar does not have it: multiples, and allOf of several."""
    multiple = node.get("multipleOf")
    if isinstance(multiple, int | float) and not isinstance(multiple, bool):
        digits, exponent = Decimal(str(multiple)).normalize().as_tuple()[1:]
        states = int("".join(map(str, digits))) * 10 ** min(max(int(exponent), 0), 9)
        cost.units += states / _MULTIPLE_UNITS
        if states > _MULTIPLE:
            yield f"{at[:-1]}: multiples of {multiple}; at most {_MULTIPLE}, decimal places counted as digits"
    members = node.get("allOf")
    if isinstance(members, list):
        product = prod(cost.alternatives(member) for member in members[:64])
        if product > _PRODUCT:
            yield (
                f"{at[:-1]}: the alternatives of the members of allOf have {min(product, 10**9)}"
                f" combinations; at most {_PRODUCT}"
            )


def _number(value: Any) -> int:
    """Return a bound as an integer from 0; 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e18:
        return 0
    return int(value)


def _count_ranges(node: Mapping[str, Any], cost: _Schema) -> None:
    if any(isinstance(node.get(name), int | float) for name in _RANGES):
        cost.units += _INTEGER_RANGE if node.get("type") == "integer" else _NUMBER_RANGE


def _count_lengths(node: Mapping[str, Any], cost: _Schema) -> None:
    bounds = _number(node.get("minLength")), _number(node.get("maxLength"))
    if any(bounds) and bounds not in cost.lengths:  # equal bounds share their states
        cost.lengths.add(bounds)
        cost.states += min(bounds[1] or bounds[0] * 2, _STRING_STATES)


def _count_properties(node: Mapping[str, Any], cost: _Schema) -> None:
    properties = node.get("properties")
    if not isinstance(properties, Mapping):
        return
    required = node.get("required")
    listed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    lengths = {name: len(name.encode(errors="surrogatepass")) for name in properties}
    optional = [length for name, length in lengths.items() if name not in listed]
    for name in properties:
        cost.add_literal(name)
    cost.units += len(optional) * sum(optional) / _OPTIONAL_KEYS
    if any(node.get(name, False) is not False for name in ("additionalProperties", "unevaluatedProperties")):
        cost.units += sum(lengths.values()) * _OTHER_KEYS
        cost.states += sum(lengths.values()) * _OTHER_KEYS
    if optional and ("minProperties" in node or "maxProperties" in node):
        cost.units += _copies(node, len(optional)) * _copied_bytes(lengths, properties) / _COUNTED_KEYS


def _copies(node: Mapping[str, Any], optional: int) -> float:
    """Return how many copies of a property an object with a number of properties is compiled to."""
    properties = len(node["properties"])
    most = _number(node.get("maxProperties")) or properties
    is_open = node.get("additionalProperties", False) is not False or "patternProperties" in node
    return (optional + 1) * min(most, properties * (4 if is_open else 1)) / 2


def _copied_bytes(lengths: Mapping[str, int], properties: Mapping[str, Any]) -> float:
    """Return the bytes of one copy; a bounded array is copied with its property."""
    bounded = sum(
        isinstance(value, Mapping) and ("minItems" in value or "maxItems" in value)
        for value in properties.values()
    )
    return (sum(lengths.values()) + _COUNTED_ARRAY * bounded) / len(lengths) + _KEY_SIGNS
