"""Requests: checked against botocore's own model of SageMaker; lists filtered, sorted and paged."""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any, TypeVar

from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, OperationModel, ServiceModel, Shape, StructureShape

from .errors import ApiError, invalid
from .records import Record

# botocore carries Java's Unicode classes, which Python's re does not know. They stand inside [...] in the
# patterns of tags, so each becomes characters of a class and not a class of its own.
_UNICODE_CLASSES = {
    r"\p{L}": r"\w",
    r"\p{N}": r"\w",
    r"\p{Z}": r" \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000",
    # Marks, punctuation and symbols of descriptions: the blocks where nearly all of them are.
    r"\p{M}": r"\u0300-\u036f",
    r"\p{P}": r"!-/:-@\[-`{-~\u00a1-\u00bf\u2010-\u2027\u2030-\u205e\u3001-\u303f",
    r"\p{S}": r"\u00d7\u00f7\u20a0-\u20bf\u2100-\u2bff",
    # The runtime's headers, and names of policies: inside [...], or alone.
    r"\p{ASCII}": r"[\x00-\x7f]",
    r"[\p{Print}": r"[\x20-\x7e",
    r"\p{Print}": r"[\x20-\x7e]",
    r"\z": r"\Z",
    r"\p{Alnum}": r"A-Za-z0-9",
    # Java writes what is beyond the first plane as surrogates, and takes the hyphen after a class literally.
    r"\uD800\uDC00-\uDBFF\uDFFF": r"\U00010000-\U0010ffff",
    r"[\w-_]": r"[\w\-_]",
}


@cache
def service_model(name: str = "sagemaker") -> ServiceModel:
    """A service's model as the installed botocore has it; read once (0.1 s)."""
    return ServiceModel(Loader().load_service_model(name, "service-2"), name)


@lru_cache(maxsize=64)
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of botocore's models, which are Java's."""
    for java, python in _UNICODE_CLASSES.items():
        pattern = pattern.replace(java, python)
    # Java repeats the end of a text as it repeats a letter: `…$ {1,256}` without the blank.
    return re.compile(re.sub(r"\$\{\d+,\d+\}", "$", pattern))


def operation(name: str) -> OperationModel:
    """The model of an operation that the caller knows to exist."""
    return service_model().operation_model(name)


def checked(name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body's members that the operation defines, after checking every constraint.

    Members that the operation does not know are dropped, as AWS's JSON protocol does.

    Raises:
        ApiError: `SerializationException` for a wrong type, `ValidationException` naming every constraint
            that fails.
    """
    shape = operation(name).input_shape
    return checked_by(shape, body) if isinstance(shape, StructureShape) else {}


def checked_by(shape: StructureShape, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body's members that the shape has, as `checked` does.

    Raises:
        ApiError: as `checked`.
    """
    known = _known(shape, body, "")
    problems = list(_problems(shape, known, ""))
    if problems:
        raise validation_error(problems)
    return dict(known)


def validation_error(problems: Sequence[str], code: str = "ValidationException") -> ApiError:
    """AWS's refusal of a request that breaks these constraints."""
    noun = "error" if len(problems) == 1 else "errors"
    return ApiError(code, f"{len(problems)} validation {noun} detected: " + "; ".join(problems))


def problems_of(shape: Shape, value: Any, member: str) -> Iterator[str]:
    """Each constraint of the shape that a member's value breaks, in AWS's words."""
    return _problems(shape, value, _join("", member))


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "structure": (dict,),
    "map": (dict,),
    "list": (list,),
    "string": (str,),
    "blob": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "timestamp": (int, float, str),
}


def _known(shape: Shape, value: Any, path: str) -> Any:
    """The value without unknown members and without nulls, its JSON types checked."""
    _check_type(shape, value, path)
    if isinstance(shape, StructureShape):
        return {
            key: _known(member, value[key], _join(path, key))
            for key, member in shape.members.items()
            if value.get(key) is not None
        }
    if isinstance(shape, ListShape):
        return [_known(shape.member, item, f"{path}.{i}.member") for i, item in enumerate(value, 1)]
    if isinstance(shape, MapShape):
        return {key: _known(shape.value, item, f"{path}.{key}.member") for key, item in value.items()}
    return value


def _check_type(shape: Shape, value: Any, path: str) -> None:
    allowed = _JSON_TYPES[shape.type_name]
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
        where = f" at '{path}'" if path else ""
        raise ApiError(
            "SerializationException", f"Expected {shape.type_name}{where}, found {type(value).__name__}."
        )


def _problems(shape: Shape, value: Any, path: str) -> Iterator[str]:
    shown = "" if shape.metadata.get("sensitive") else f"'{_shown(value)}' "
    for failed in _failed(shape, value):
        yield f"Value {shown}at '{path}' failed to satisfy constraint: {failed}"
    if isinstance(shape, StructureShape):
        for key in shape.required_members:
            if key not in value:
                where = _join(path, key)
                yield f"Value null at '{where}' failed to satisfy constraint: Member must not be null"
        for key, item in value.items():
            yield from _problems(shape.members[key], item, _join(path, key))
    elif isinstance(shape, ListShape):
        for i, item in enumerate(value, 1):
            yield from _problems(shape.member, item, f"{path}.{i}.member")
    elif isinstance(shape, MapShape):
        yield from _map_problems(shape, value, path)


def _map_problems(shape: MapShape, value: Mapping[str, Any], path: str) -> Iterator[str]:
    """Return a map's constraints; AWS names all of its keys' or values', also those that hold."""
    for what, member, items in (("keys", shape.key, value.keys()), ("value", shape.value, value.values())):
        if any(not holds for item in items for _, holds in _constraints(member, item)):
            constraints = ", ".join(text for text, _ in _constraints(member, ""))
            yield (
                f"Value '{_shown(value)}' at '{path}' failed to satisfy constraint: "
                f"Map {what} must satisfy constraint: [{constraints}]"
            )


def _failed(shape: Shape, value: Any) -> Iterator[str]:
    return (text for text, holds in _constraints(shape, value) if not holds)


def _constraints(shape: Shape, value: Any) -> Iterator[tuple[str, bool]]:
    """Each constraint of the shape in AWS's words, and whether it holds for this value."""
    limits = shape.metadata
    low, high = limits.get("min"), limits.get("max")
    measure = None
    if shape.type_name in ("string", "list", "map"):
        measure, size = "length", len(value)
    elif shape.type_name in ("integer", "long", "float", "double"):
        measure, size = "value", value
    if measure and high is not None:
        yield f"Member must have {measure} less than or equal to {high}", size <= high
    if measure and low is not None:
        yield f"Member must have {measure} greater than or equal to {low}", size >= low
    if shape.type_name == "string":
        if "enum" in limits:
            yield (
                f"Member must satisfy enum value set: [{', '.join(limits['enum'])}]",
                value in limits["enum"],
            )
        if "pattern" in limits:
            matches = compiled(limits["pattern"]).fullmatch(value) is not None
            yield f"Member must satisfy regular expression pattern: {limits['pattern']}", matches


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}={_shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_shown(item) for item in value) + "]"
    return str(value)


def _join(path: str, member: str) -> str:
    name = member[:1].lower() + member[1:]
    return f"{path}.{name}" if path else name


DEFAULT_PAGE = 10  # ListEndpointsInput$MaxResults: "This value defaults to 10."

R = TypeVar("R", bound=Record)


def page(
    rows: Iterable[R], request: Mapping[str, Any], summary: Callable[[R], dict[str, Any]]
) -> tuple[list[dict[str, Any]], str | None]:
    """One page of summaries and the token of the next page, None on the last.

    The token names the last row of this page, so rows that come or go between two pages neither repeat nor
    hide the others.

    Raises:
        ApiError: the token is not one of ours.
    """
    key = _SORT_KEYS[request.get("SortBy", "CreationTime")]
    descending = request.get("SortOrder", "Descending") == "Descending"
    wanted = sorted((row for row in rows if _wanted(row, request)), key=key, reverse=descending)
    if "NextToken" in request:
        after = _decoded(request["NextToken"])
        try:
            wanted = [row for row in wanted if (key(row) < after if descending else key(row) > after)]
        except TypeError:
            raise bad_token() from None
    size = request.get("MaxResults", DEFAULT_PAGE)
    shown = wanted[:size]
    token = _encoded(key(shown[-1])) if len(wanted) > size else None
    return [summary(row) for row in shown], token


def _by_time(row: Record) -> tuple[Any, ...]:
    return (row.created.timestamp(), row.number)


def _by_name(row: Record) -> tuple[Any, ...]:
    return (row.name, row.number)


def _by_status(row: Record) -> tuple[Any, ...]:
    return (getattr(row, "status", ""), row.number)


_SORT_KEYS: dict[str, Callable[[Record], tuple[Any, ...]]] = {
    "CreationTime": _by_time,
    "Name": _by_name,
    "Status": _by_status,
}


def _wanted(row: Record, request: Mapping[str, Any]) -> bool:
    return (
        request.get("NameContains", "").lower() in row.name.lower()
        and _in_time(row.created, request.get("CreationTimeAfter"), request.get("CreationTimeBefore"))
        and _in_time(
            row.modified, request.get("LastModifiedTimeAfter"), request.get("LastModifiedTimeBefore")
        )
        and ("StatusEquals" not in request or getattr(row, "status", None) == request["StatusEquals"])
    )


def _in_time(moment: datetime, after: float | str | None, before: float | str | None) -> bool:
    return (after is None or moment >= _moment(after)) and (before is None or moment < _moment(before))


def _moment(value: float | str) -> datetime:
    """A timestamp of the JSON protocol: epoch seconds, or ISO 8601 from a hand-written client."""
    try:
        if isinstance(value, str):
            parsed = datetime.fromisoformat(value)
            return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        raise invalid(f"Invalid timestamp '{value}': expected epoch seconds or ISO 8601.") from None


def _encoded(key: tuple[Any, ...]) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode()


def _decoded(token: str) -> tuple[Any, ...]:
    try:
        value = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (ValueError, binascii.Error):
        raise bad_token() from None
    if not isinstance(value, list):
        raise bad_token()
    return tuple(value)


def bad_token() -> ApiError:
    """Return the error of a token that is another call's, or that this server did not issue."""
    return invalid("Invalid NextToken: use the token of the previous answer, unchanged.")
