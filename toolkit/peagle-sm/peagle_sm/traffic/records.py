"""Format of recorded traffic, ``peagle-sm/traffic/1``: one JSON object a line, one line a request. Pure.

Every line is complete by itself, so files can be cut, joined and rotated. Texts are redacted: a secret is
``[REDACTED:kind]``. Unknown figures are None, never 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from peagle_sm.core.spec.modes import Mode as SpecMode
from peagle_sm.core.words import first_fault

SCHEMA = "peagle-sm/traffic/1"
Mode = Literal[SpecMode, "unknown"]
Outcome = Literal["whole", "cut", "cancelled", "failed"]
_STRICT = ConfigDict(extra="forbid", strict=True)
Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, config=_STRICT)
class RecordedCall:
    """One tool call; ``arguments`` is its JSON text, not validated."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, config=_STRICT)
class RecordedAnswer:
    """One choice of an answer, or its text so far."""

    index: int
    text: str
    finish_reason: str | None = None
    reasoning: str = ""
    tool_calls: tuple[RecordedCall, ...] = ()


@dataclass(frozen=True, config=_STRICT)
class RecordedUsage:
    """Token counts of the engine; None if not reported."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True, config=_STRICT)
class TrafficRecord:
    """One recorded request.

    ``time`` is seconds since 1970 (UTC). ``request`` is the OpenAI body as sent to SageMaker. ``outcome``:
    cut (the stream broke), cancelled (the caller left), failed (no answer). ``drafts`` are verification
    steps, ``drafted`` the draft tokens proposed in them, ``accepted`` those accepted; ``histogram[j]`` counts
    the steps that accepted exactly j. ``sample`` is the share of requests that the writer recorded.
    ``conversation`` is a hash of a chat's first message of the user: turns of a conversation share it.
    """

    id: str
    time: float
    endpoint: str
    request: Mapping[str, Any]
    component: str | None = None
    target: str | None = None
    mode: Mode = "unknown"
    num_speculative_tokens: int | None = None
    streamed: bool = False
    answers: tuple[RecordedAnswer, ...] = ()
    outcome: Outcome = "whole"
    error: str | None = None
    status: int | None = None
    usage: RecordedUsage | None = None
    ttft_ms: float | None = None
    total_ms: float | None = None
    slices: Mapping[str, str] = field(default_factory=dict)
    drafts: Count | None = None
    drafted: Count | None = None
    accepted: Count | None = None
    histogram: tuple[Count, ...] = ()
    redacted: Mapping[str, int] = field(default_factory=dict)
    sample: Annotated[float, Field(gt=0, le=1)] = 1.0
    conversation: str | None = None
    schema: Literal["peagle-sm/traffic/1"] = "peagle-sm/traffic/1"

    @property
    def acceptance_length(self) -> float | None:
        """Tokens per verification step, the bonus token included; None if not reported."""
        return 1 + (self.accepted or 0) / self.drafts if self.drafts else None


@cache
def _adapter() -> TypeAdapter[TrafficRecord]:
    return TypeAdapter(TrafficRecord)


def to_line(record: TrafficRecord) -> str:
    """Encode a record as one line, without its line end; fields with their default are left out.

    Raises:
        ValueError: a figure is not finite.
    """
    value = _adapter().dump_python(record, exclude_defaults=True, warnings=False)
    value = {"schema": SCHEMA, **value, "request": record.request}
    line = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A lone surrogate, which JSON can escape, is not valid UTF-8.
    return line if line.isascii() else line.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def from_line(line: str | bytes) -> TrafficRecord:
    """Decode one line.

    Raises:
        ValueError: not a record of this version, or a field is missing, unknown or has a wrong type.
    """
    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object")
    if value.get("schema") != SCHEMA:
        raise ValueError(f"schema: found {value.get('schema')!r:.60}; this version reads {SCHEMA}")
    try:
        return _adapter().validate_json(line)
    except ValidationError as error:
        raise ValueError(first_fault(error)) from None


def is_record(line: Mapping[str, Any]) -> bool:
    """Return whether a JSON line is recorded traffic, of any version."""
    return str(line.get("schema", "")).startswith("peagle-sm/traffic/")
