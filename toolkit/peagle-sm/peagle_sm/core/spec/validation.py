"""Validation errors of spec files: value found, values allowed, and the line.

Pydantic's errors become `SpecError`. The YAML loader rejects duplicate keys and finds the line of a field.
"""

from __future__ import annotations

import datetime as dt
import difflib
import json
import re
import types
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Annotated, Any, Union, get_args, get_origin

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic_core import ErrorDetails

from peagle_sm.core.errors import SpecError
from peagle_sm.core.slice_values import read_chosen


def _countable(value: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse slices that the gate cannot count; raises ValueError."""
    read_chosen(value)
    return value


#: Dimensions by which the gate counts acceptance; see `read_chosen`.
SliceChoices = Annotated[tuple[str, ...], AfterValidator(_countable)]
SLICES_DESCRIPTION = (
    "Slices by which the gate counts acceptance, at most 4: format, script=latin,han or "
    "label:team=search,support. Needs an image with this project's gate."
)


_KINDS = {bool: "true or false", int: "a whole number", float: "a number"}


def _kinds(annotation: Any) -> set[Any]:
    """Return the types of a field: the members of a union, without their annotations."""
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return {kind for member in get_args(annotation) for kind in _kinds(member)}
    return {annotation}


class SpecPart(BaseModel):
    """A part of a spec: no unknown field, no change after reading, and no value of another kind.

    pydantic would read yes as 1, 1 as true, and "yes" and "8" in quotes as true and 8. Here a text is never
    a number or a boolean, and a boolean is never a number.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _of_the_fields_kind(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse a text, a boolean or a number in a field of another kind."""
        if isinstance(value, bool | str | int | float) and info.field_name is not None:
            kinds = _kinds(cls.model_fields[info.field_name].annotation)
            allowed = [text for kind, text in _KINDS.items() if kind in kinds]
            is_number = type(value) in (int, float) and bool(kinds & {int, float})
            if allowed and kinds <= {*_KINDS, type(None)} and type(value) not in kinds and not is_number:
                raise ValueError(" or ".join(allowed))
        return value


def _allowed_in_tag(char: str) -> bool:
    return char in "_.:/=+-@" or unicodedata.category(char)[0] in "LZN"


def _own_tags(value: dict[str, str]) -> dict[str, str]:
    """Refuse tags that AWS would not take, or that are peagle-sm's own; raises ValueError."""
    for key, text in value.items():
        if key.lower().startswith(("aws:", "peagle-sm:")):
            raise ValueError(f"tag keys that do not begin with aws: or peagle-sm: (found {key!r})")
        if not all(_allowed_in_tag(char) for char in key + text):
            raise ValueError(f"letters, digits, spaces and _ . : / = + - @ (found {key!r}: {text!r})")
        if not 1 <= len(key) <= 128 or len(text) > 256:
            raise ValueError("keys of 1 to 128 characters and values of at most 256")
    if len(value) > 30:
        raise ValueError("at most 30 tags (AWS allows 50, and peagle-sm uses up to 20)")
    return value


#: The user's own tags.
OwnTags = Annotated[dict[str, str], AfterValidator(_own_tags)]


class UniqueKeys(yaml.SafeLoader):
    """YAML loader that rejects duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Read a mapping; raise ConstructorError at a duplicate key."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # the base class refuses it, with its line
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value!r} is given twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """YAML dumper that quotes every text which `UniqueKeys` would read as another type."""


# YAML 1.1 reads 1e-6 as text since it has no point; YAML 1.2 and JSON read a number.
for _class in (UniqueKeys, _Dumper):
    _class.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
    )


def to_yaml(value: Any, **options: Any) -> str:
    """Format a value as YAML that `UniqueKeys` reads back; ``options`` are PyYAML's."""
    text: str = yaml.dump(value, Dumper=_Dumper, **options)
    return text


_OCTAL = re.compile(r"[-+]?0[0-7_]+")
_BASE_60 = re.compile(r"[-+]?\d[\d_]*(:[0-5]?\d)+(\.[\d_]*)?")


def _number(loader: UniqueKeys, node: yaml.ScalarNode) -> int | float:
    """Read a number; raise ConstructorError if YAML 1.1 reads another number than a person would."""
    is_integer = node.tag == "tag:yaml.org,2002:int"
    value = loader.construct_yaml_int(node) if is_integer else loader.construct_yaml_float(node)
    octal = is_integer and _OCTAL.fullmatch(node.value) and int(node.value) != value
    if octal or _BASE_60.fullmatch(node.value):
        reason = "a leading 0 makes it octal" if octal else "colons make it base 60"
        raise yaml.constructor.ConstructorError(
            None,
            None,
            f"found {node.value}, which YAML reads as {value} ({reason}); write the number that you mean, "
            f'or the text "{node.value}" in quotes',
            node.start_mark,
        )
    return value


UniqueKeys.add_constructor("tag:yaml.org,2002:int", _number)
UniqueKeys.add_constructor("tag:yaml.org,2002:float", _number)


# Begins the tags of a union's members. pydantic puts these tags into the location of an error.
UNION_TAG = "|"

# More than any spec has; nested aliases can expand to billions.
_MOST_VALUES = 100_000


def load_yaml(text: str) -> Any:
    """Read YAML without duplicate keys.

    Raises:
        YAMLError: not YAML, a duplicate key, aliases that expand to too many values or name what they are in,
            or lists and mappings that are nested too deeply.
    """
    try:
        data = yaml.load(text, Loader=UniqueKeys)  # a SafeLoader
        _count(data, {})
    except RecursionError as error:
        raise yaml.YAMLError("lists or mappings are nested too deeply") from error
    return data


def read_mapping(text: str, origin: str, *, example: str, advice: str, not_yaml: str) -> dict[str, Any]:
    """Read a spec's fields from YAML; ``example`` names two of them, the others are next steps.

    Raises:
        SpecError: not YAML, or not a mapping.
    """
    try:
        data = load_yaml(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise SpecError(
            f"{origin}: not YAML{where}: {getattr(error, 'problem', None) or error}", next_step=not_yaml
        ) from error
    if not isinstance(data, dict):
        raise SpecError(
            f"{origin}: found {show(data)}; allowed: a mapping of fields such as {example}", next_step=advice
        )
    return {str(key): value for key, value in data.items()}


def _count(value: Any, counts: dict[int, int]) -> int:
    if not isinstance(value, dict | list):
        return 1
    count = counts.get(id(value))
    if count is None:
        counts[id(value)] = 0  # still being counted
        items = value.values() if isinstance(value, dict) else value
        count = counts[id(value)] = 1 + sum(_count(item, counts) for item in items)
    elif count == 0:
        raise yaml.YAMLError("an alias is inside of what it names")
    if count > _MOST_VALUES:
        raise yaml.YAMLError(f"aliases expand to more than {_MOST_VALUES:,} values")
    return count


def line_of(text: str, field: str) -> int | None:
    """Return the line of a dotted field in YAML, or of its nearest parent.

    None if the text lacks even the first part, as for a missing top-level field.
    """
    lines = [mark.line + 1 for _, _, mark, _ in _path_to(text, field)]
    return lines[-1] if lines else None


def _path_to(text: str, field: str) -> Iterator[tuple[yaml.Node, str, yaml.Mark, yaml.Node]]:
    """Yield parent, name, mark and node of each part of a dotted field that YAML has."""
    node, rest = yaml.compose(text, Loader=yaml.SafeLoader), field
    while rest and node is not None:
        step = max(_steps(node, rest), key=lambda step: len(step[0]), default=None)
        if step is None:
            return
        yield node, *step
        rest, node = rest[len(step[0]) + 1 :], step[2]


def _cut_text(text: str, field: str) -> str | None:
    """Return the field whose text ended at a comma inside { }, if an empty ``field`` is the rest of it."""
    path = [*_path_to(text, field)]
    if not path or ".".join(name for _, name, _, _ in path) != field:
        return None
    parent, _, _, node = path[-1]
    is_flow = isinstance(parent, yaml.MappingNode) and parent.flow_style
    if not is_flow or not isinstance(node, yaml.ScalarNode) or node.value or node.style is not None:
        return None
    before = list(takewhile(lambda pair: pair[1] is not node, parent.value))
    key, value = next(((key, value) for key, value in reversed(before) if value.value), (None, None))
    is_text = isinstance(value, yaml.ScalarNode) and value.style is None and value.tag.endswith(":str")
    return ".".join([*(name for _, name, _, _ in path[:-1]), key.value]) if key and is_text else None


def _steps(node: yaml.Node, rest: str) -> Iterator[tuple[str, yaml.Mark, yaml.Node]]:
    """Yield the children that may start ``rest``; names of tags may have dots."""
    children: list[tuple[str, yaml.Mark, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        children = [
            (key.value, key.start_mark, value)
            for key, value in node.value
            if isinstance(key, yaml.ScalarNode)
        ]
    elif isinstance(node, yaml.SequenceNode):
        children = [(str(index), item.start_mark, item) for index, item in enumerate(node.value)]
    return (step for step in children if rest == step[0] or rest.startswith(f"{step[0]}."))


_ALLOWED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a mapping of names to values",
    "list_type": "a list",
    "tuple_type": "a list",
    "model_type": "a mapping of fields",
    "finite_number": "a finite number",
    "greater_than_equal": "{ge} or more",
    "greater_than": "more than {gt}",
    "less_than_equal": "{le} or less",
    "less_than": "less than {lt}",
    "string_too_short": "at least {min_length} character(s)",
    "string_too_long": "at most {max_length} characters",
    "too_long": "at most {max_length} items",
    "too_short": "at least {min_length} item(s)",
    "value_error": "{error}",
}
# Patterns of names, in words.
_PATTERNS = {
    r"^[a-z][a-z0-9_]*$": "small letters, digits and _: max_num_seqs for --max-num-seqs",
    r"^[a-zA-Z_][a-zA-Z0-9_]*$": "letters, digits and _, and no digit first",
}


def suggest(word: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the closest known word, or an empty string."""
    close = difflib.get_close_matches(word.lower(), sorted(known), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def show(value: Any, limit: int = 80) -> str:
    """Format a value on one line, shortened to ``limit`` characters."""
    text = str(value) if isinstance(value, dt.date) else repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _submodel(annotation: Any) -> type[BaseModel] | None:
    if get_origin(annotation) is Annotated:
        return _submodel(get_args(annotation)[0])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, types.UnionType):
        return next((model for arg in get_args(annotation) if (model := _submodel(arg))), None)
    return None


def _as_yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else show(value)


def _within(annotation: Any, part: int | str) -> Any:
    """Return the type of a part of a value: a model's field, an item of a list, or a mapping's value."""
    model, origin, arguments = _submodel(annotation), get_origin(annotation), get_args(annotation)
    if model is not None:
        info = model.model_fields.get(str(part))
        return None if info is None else info.annotation
    if origin is Annotated:
        return _within(arguments[0], part)
    if origin in (Union, types.UnionType):
        return next((kind for each in arguments if (kind := _within(each, part)) is not None), None)
    if isinstance(origin, type) and issubclass(origin, Mapping | Sequence):
        return arguments[1] if issubclass(origin, Mapping) else arguments[0]
    return None


def _fields_at(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """Return the field names of the model that has ``location``'s last part."""
    kind: Any = model
    for part in location[:-1]:
        kind = _within(kind, part)
    inner = _submodel(kind)
    return sorted(inner.model_fields) if inner else []


def _places_of(name: str, model: type[BaseModel], parent: str = "") -> list[str]:
    """Return where a model has a field of that name: at the top or in one of its parts."""
    places = [f"{parent}{name}"] if name in model.model_fields else []
    for part, info in model.model_fields.items():
        if (inner := _submodel(info.annotation)) is not None:
            places += _places_of(name, inner, f"{parent}{part}.")
    return places


def _step_for_unknown(field: str, model: type[BaseModel], siblings: Sequence[str]) -> str:
    """Return how to correct the name or the place of an unknown field."""
    parent, _, name = field.rpartition(".")
    if places := _places_of(name, model):
        top = " (not indented)" if places[0] == name else ""
        return f"Move it: the field is {' or '.join(map(repr, places))}{top}."
    remove = f"Remove {field!r} or correct its name"
    if "extra_args" in siblings:
        return f"{remove}; an argument of the engine goes below '{parent}.extra_args'."
    return f"{remove}."


def _allowed(error: ErrorDetails) -> str:
    context, kind = error.get("ctx", {}), error["type"]
    if kind in ("literal_error", "enum"):
        return str(context["expected"]).replace(" or ", ", ").replace("'", "")
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(context["pattern"], f"a text that matches {context['pattern']}")
    return _ALLOWED[kind].format(**context) if kind in _ALLOWED else error["msg"]


def _line(error: ErrorDetails, model: type[BaseModel]) -> tuple[str, str, str]:
    """Return the field, its validation error, and the next step."""
    location = tuple(part for part in error["loc"] if not str(part).startswith(UNION_TAG))
    if location and location[-1] == "[key]":
        parent = ".".join(str(part) for part in location[:-2])
        return (
            ".".join(str(part) for part in location[:-1]),
            f"{parent}: found the name {show(error['input'])}; allowed: {_allowed(error)}.",
            f"Correct the name in {parent!r}.",
        )
    field = ".".join(str(part) for part in location) or "the whole"
    fields = _fields_at(model, location)
    if error["type"] == "extra_forbidden":
        known = ", ".join(fields)
        return (
            field,
            (
                f"unknown field {field!r} (found {_as_yaml(error['input'])}); "
                f"allowed here: {known}.{suggest(str(location[-1]), fields)}"
            ),
            _step_for_unknown(field, model, fields),
        )
    if error["type"] == "missing":
        return field, f"field {field!r} is missing; allowed: a value for it", f"Add {field!r}."
    allowed = _allowed(error)
    if error["type"] == "model_type" and (names := _fields_at(model, (*location, ""))):
        allowed = f"{allowed}: {', '.join(names)}"
    if error["type"] == "value_error" and isinstance(error["input"], dict) and ": found " in allowed:
        # the message of a rule over several fields already has field and value
        named = f"{field}.{allowed}" if location else allowed
        culprit = named.partition(":")[0]
        return culprit, named, f"Change {culprit!r}."
    options = allowed.split(", ") if error["type"] in ("literal_error", "enum") else []
    hint = suggest(error["input"], options) if isinstance(error["input"], str) and len(options) > 1 else ""
    value = error["input"]
    return field, f"{field}: found {_as_yaml(value)}; allowed: {allowed}.{hint}", _step(field, value, allowed)


def _step(field: str, value: Any, allowed: str) -> str:
    """Return how to correct a field; quotes decide what YAML reads."""
    if allowed == "a text" and isinstance(value, bool | int | float | dt.date):
        reads = "it as a date" if isinstance(value, dt.date) else "it as a number"
        if isinstance(value, bool):
            reads = "yes, no, on and off as true or false"
        return f"Put the value of {field!r} in quotes: YAML reads {reads}."
    if allowed == "a list" and isinstance(value, bool | int | float | str):
        return f"Write a list: {field.rpartition('.')[2]}: [{value}]."
    if isinstance(value, str) and allowed in _KINDS.values():
        number = re.fullmatch(r"\d+" if allowed == "a whole number" else r"\d+(\.\d+)?", value)
        example = "true" if allowed == "true or false" else value if number else "8"
        without = " without quotes" if _reads_as(value, allowed) else f" as {allowed}"
        return f"Write the value of {field!r}{without}, for example {example}."
    return f"Change {field!r}."


def _reads_as(text: str, allowed: str) -> bool:
    """Return whether a text in quotes would be of the allowed kind without them."""
    value = yaml.load(f"[{text}]", Loader=UniqueKeys)[0] if re.fullmatch(r"[\w.+-]+", text) else text
    return isinstance(value, bool) if allowed == "true or false" else type(value) in (int, float)


def _message(origin: str, problems: Sequence[str]) -> str:
    return f"{origin}: {problems[0]}" if len(problems) == 1 else "\n  ".join((f"{origin}:", *problems))


def with_lines(error: SpecError, text: str, origin: str) -> SpecError:
    """Add the YAML line of each invalid field to an error of `explain`, and what only the text shows."""
    problems = [{**problem, "line": line_of(text, problem["field"])} for problem in error.details["problems"]]
    for problem in problems:
        if (cut := _cut_text(text, problem["field"])) is not None:
            problem["next_step"] = f"Put the text of {cut!r} in quotes: inside {{ }}, a comma ends it."
    placed = [
        f"line {problem['line']}: {problem['message']}" if problem["line"] else problem["message"]
        for problem in problems
    ]
    return SpecError(
        _message(origin, placed),
        next_step=" ".join(dict.fromkeys(problem["next_step"] for problem in problems)),
        details={**error.details, "origin": origin, "problems": problems},
    )


def explain(error: ValidationError, *, origin: str, model: type[BaseModel]) -> SpecError:
    """Convert to a SpecError that names all invalid fields, also in ``problems``."""
    lines = [_line(item, model) for item in error.errors(include_url=False)]
    return SpecError(
        _message(origin, [text for _, text, _ in lines]),
        next_step=" ".join(dict.fromkeys(step for _, _, step in lines)),
        details={
            "origin": origin,
            "problems": [{"field": field, "message": text, "next_step": step} for field, text, step in lines],
        },
    )


def environment_text(value: Any) -> Any:
    """Convert YAML's bools and numbers to text, as the environment needs."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value) if isinstance(value, int | float) else value
    if isinstance(text, str) and not _fits_environment(text):
        raise ValueError("a text without NUL and without half a surrogate pair")
    return text


def _fits_environment(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


def argument_value(value: Any) -> Any:
    """Refuse null, which no argument means, and what JSON cannot hold."""
    if not isinstance(value, bool | int | float | str | list | dict):
        raise ValueError("true or false, a number, a text, a list or a mapping")
    try:
        text = value if isinstance(value, str) else json.dumps(value, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError("true or false, a number, a text, or a list or mapping of these") from error
    if not _fits_environment(text):
        raise ValueError("texts without NUL and without half a surrogate pair")
    return value
