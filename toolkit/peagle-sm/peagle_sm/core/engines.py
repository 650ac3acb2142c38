"""What each vLLM version has: model runners, draft settings, arguments, and which arguments are forbidden.

A version that ``core/data/engines.yaml`` does not list is treated like the nearest one that is; a check warns
about it. ``arguments.yaml`` is written by `scripts/engine-arguments` from vLLM's own sources and parser; its
names are those of `vllm serve --help`, with _ for -. ``forbidden.json`` is the gate's own list (a link to
``container/peagle_gate``).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from peagle_sm.core.forbidden import ForbiddenSettings, parse_forbidden
from peagle_sm.core.spec.modes import Mode, facts_of

Version = tuple[int, ...]
RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
"""The engine's variable for its model runner: 0 is V1, 1 is V2. vLLM ends on anything but a whole number."""
_ARGUMENT = "SM_VLLM_"


def version_of(text: str) -> Version:
    """Return "0.30.0" as (0, 30, 0)."""
    return tuple(int(part) for part in text.split("."))


class PackagedData(BaseModel):
    """A part of the packaged data: immutable, without unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def data_text(name: str, package: str = "peagle_sm.core") -> str:
    """Return the text of a file in the folder ``data`` of a package."""
    return resources.files(package).joinpath("data", name).read_text(encoding="utf-8")


def read_data(name: str, package: str = "peagle_sm.core") -> Any:
    """Return the content of a YAML file in the folder ``data`` of a package."""
    return yaml.load(data_text(f"{name}.yaml", package), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


class Floor(PackagedData):
    """Lowest version for a feature; check it again from ``expires`` (ISO) on."""

    version: str
    source: str
    date: str | None = None
    expires: str | None = None


class EngineEntry(PackagedData):
    """One vLLM version.

    ``runners`` is what the engine chooses by itself on a GPU; "by-model" is V2 for some architectures.
    ``p_eagle_on_v2`` is what V2 does with a P-EAGLE head: "sequential" drafts one token at a time and reports
    nothing, "refused" does not start, "parallel" works. ``v1`` is False if the version has only V2.
    """

    version: str
    aws: bool
    runners: Mapping[Mode, Literal["v1", "by-model", "v2"]]
    p_eagle_on_v2: Literal["sequential", "refused", "parallel"]
    v1: bool = True

    @property
    def chooses_v2(self) -> bool:
        """True if the engine takes V2 for some models or modes when the variable is not set."""
        return any(runner != "v1" for runner in self.runners.values())

    def pins_v1(self, mode: Mode) -> bool:
        """Return whether the plan sets the variable to 0: for some modes, where V2 could be chosen."""
        return facts_of(mode).pins_v1 and self.v1 and self.chooses_v2

    @property
    def runs_p_eagle(self) -> bool:
        """True if one of the version's runners drafts in parallel."""
        return self.v1 or self.p_eagle_on_v2 == "parallel"


class Range(PackagedData):
    """First (``since``) and last (``until``) version with a setting; None: as far as was read."""

    since: str | None = None
    until: str | None = None

    def covers(self, version: Version) -> bool:
        """Return whether a version has the setting."""
        return (self.since is None or version >= version_of(self.since)) and (
            self.until is None or version <= version_of(self.until)
        )

    @property
    def text(self) -> str:
        """The range as text: "vLLM 0.29.0 or newer"."""
        if self.since is None:
            return "any vLLM" if self.until is None else f"vLLM {self.until} or older"
        return f"vLLM {self.since} to {self.until}" if self.until else f"vLLM {self.since} or newer"


class PluginEntry(PackagedData):
    """This project's code inside the engine: the runner it needs, and the versions it was run with."""

    since: str | None = None
    runner: Literal["v1", "v2"] | None = None
    tested: tuple[str, ...]


class EngineCatalog(PackagedData):
    """All versions, oldest first, and the ranges of settings."""

    source: str
    date: str
    versions: tuple[EngineEntry, ...]
    methods: Mapping[str, Range]
    speculative: Mapping[str, Range]
    arguments: Mapping[str, Range]
    variables: Mapping[str, Range]
    vocabulary_embedded: Floor
    plugins: Mapping[str, PluginEntry]

    def entry(self, version: Version) -> EngineEntry | None:
        """Return a version's row; None if it is not listed."""
        return next((row for row in self.versions if version_of(row.version) == version), None)

    def nearest(self, version: Version | None) -> EngineEntry:
        """Return a version's row, else that of the newest older one, else the oldest.

        An unknown version (None) is assumed to be the newest.
        """
        older = [row for row in self.versions if version is None or version_of(row.version) <= version]
        return older[-1] if older else self.versions[0]

    def support(self, name: str) -> Range:
        """Return which versions have a setting; all versions for a setting that no list has.

        ``name`` is a field of vLLM's speculative config, an argument as the variable of AWS's image
        (SM_VLLM_MAX_MODEL_LEN), or a variable of the engine (VLLM_USE_V2_MODEL_RUNNER).
        """
        if name.startswith(_ARGUMENT):
            return self.arguments.get(name.removeprefix(_ARGUMENT).lower(), Range())
        return self.variables.get(name) or self.speculative.get(name, Range())

    def mode(self, mode: Mode) -> Range:
        """Return which versions have a mode; P-EAGLE's begin with the oldest of the matrix."""
        config = facts_of(mode).config
        if "parallel_drafting" in config:
            return Range(since=self.speculative["parallel_drafting"].since or self.versions[0].version)
        return self.methods.get(config.get("method", ""), Range())


class Bounds(PackagedData):
    """Bounds of a number, as pydantic names them."""

    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None

    def allow(self, value: float) -> bool:
        """Return whether a number is inside; NaN is not."""
        return (
            (self.gt is None or value > self.gt)
            and (self.ge is None or value >= self.ge)
            and (self.lt is None or value < self.lt)
            and (self.le is None or value <= self.le)
        )

    @property
    def text(self) -> str:
        """The bounds as text: "above 0, at most 1"."""
        words = {"above": self.gt, "at least": self.ge, "below": self.lt, "at most": self.le}
        return ", ".join(f"{word} {bound:g}" for word, bound in words.items() if bound is not None)


class EngineArguments(PackagedData):
    """Arguments of the versions ``oldest`` to ``newest``.

    ``always`` are in all of these versions, ``sometimes`` only in those of a span. ``switches`` take no value
    and have a second name with `no_` in front, ``flags`` take no value, ``optional`` take one or none.
    ``sizes`` take whole numbers such as 2k and 2K, ``json_values`` JSON, those of ``fields`` a JSON object of
    these fields. ``choices`` are the texts of an argument, or of such a field ("argument.field").
    ``variables`` are read by the engine.
    """

    source: str
    date: str
    oldest: str
    newest: str
    always: frozenset[str]
    sometimes: Mapping[str, Range] = Field(default_factory=dict)
    switches: frozenset[str]
    flags: frozenset[str]
    optional: frozenset[str]
    integers: frozenset[str]
    numbers: frozenset[str]
    sizes: frozenset[str] = frozenset()
    json_values: frozenset[str] = frozenset()
    ranges: Mapping[str, Bounds] = Field(default_factory=dict)
    fields: Mapping[str, Mapping[str, Range]] = Field(default_factory=dict)
    choices: Mapping[str, Mapping[str, Range]] = Field(default_factory=dict)
    variables: frozenset[str] = frozenset()
    variables_sometimes: Mapping[str, Range] = Field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        """Return the names in any version, also the second names of switches."""
        return self.always | self.sometimes.keys() | {f"no_{name}" for name in self.switches}

    def is_bare(self, name: str) -> bool:
        """Return whether a known argument takes no value, so that only true and false make sense."""
        return name in self.flags | self.switches or not self._has(name)

    def needs_value(self, name: str) -> bool:
        """Return whether a known argument cannot be without a value."""
        return not self.is_bare(name) and name not in self.optional

    def number_needed(self, name: str, value: Any) -> str | None:
        """Return "a whole number" or "a number" if the argument needs one and the value is none."""
        if name not in self.integers | self.numbers or isinstance(value, bool):
            return None
        read, kind = (int, "a whole number") if name in self.integers else (float, "a number")
        try:
            if isinstance(value, int | str) or (read is float and isinstance(value, float)):
                read(value)
                return None
        except ValueError:
            pass
        return kind

    def allowed(self, name: str, value: Any, version: Version | None) -> str | None:
        """Return what a known argument allows if the value is refused; None if it is allowed.

        The caller has checked the value's kind. ``version`` None takes the values of all versions.
        """
        text = str(value)
        if name in self.sizes and not _SIZE.fullmatch(text):
            return "a whole number, also as 2k (2,000) or 2K (2,048)"
        if name in self.fields and not isinstance(value, dict):
            return "a JSON object"
        if name in self.json_values and not isinstance(value, dict | list):
            return None if _is_json(value) else "JSON"
        bounds = self.ranges.get(name)
        if bounds is not None and not bounds.allow(_number(text.rstrip("kKmMgGtT"))):
            return f"a number {bounds.text}"
        return self._outside(name, text, version)

    def _outside(self, name: str, text: str, version: Version | None) -> str | None:
        """Return the texts that an argument, or a field of it, has in a version; None if this is one."""
        spans = self.choices.get(name, {})
        texts = [choice for choice, span in spans.items() if version is None or span.covers(version)]
        spellings = {text}
        if name in ("attention_backend", "attention_config.backend"):
            spellings.add(text.upper())  # so does vLLM
        elif name.endswith("_backend"):
            spellings.add(text.lower().replace("-", "_"))  # so does vLLM's parser
        return None if not texts or spellings & set(texts) else ", ".join(texts)

    def wrong_fields(
        self, name: str, value: Mapping[str, Any], version: Version | None
    ) -> Iterator[tuple[str, Any, str]]:
        """Yield each wrong field of an argument that takes an object: its name, its value, what is allowed.

        A field whose name is wrong has the value None. ``version`` None takes the fields of all versions.
        """
        fields = self.fields.get(name, {})
        known_fields = {
            known_field for known_field, span in fields.items() if version is None or span.covers(version)
        }
        for field, field_value in value.items():
            if known_fields and field not in known_fields:
                yield field, None, ", ".join(sorted(known_fields))
            elif isinstance(field_value, str | int) and (
                texts := self._outside(f"{name}.{field}", str(field_value), version)
            ):
                yield field, field_value, texts

    def reads_variable(self, name: str, version: Version) -> bool:
        """Return whether an engine reads an environment variable."""
        span = self.variables_sometimes.get(name)
        return name in self.variables or (span is not None and span.covers(version))

    def covers(self, version: Version | None) -> bool:
        """Return whether the list was read for a version."""
        return version is not None and version_of(self.oldest) <= version <= version_of(self.newest)

    def _has(self, name: str) -> bool:
        return name in self.always or name in self.sometimes

    def missing_in(self, name: str, version: Version) -> Range | None:
        """Return the span of a known argument that a version lacks; None if it has it, or is not covered."""
        span = self.sometimes.get(name.removeprefix("no_") if name not in self.sometimes else name)
        if span is None or not self.covers(version):
            return None
        return None if span.covers(version) else span


_SIZE = re.compile(r"\d+[kKmMgGtT]?|\d+\.\d+[kmgt]")


def _is_json(value: Any) -> bool:
    try:
        json.loads(str(value))
    except (ValueError, RecursionError):
        return False
    return True


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


@cache
def load_arguments() -> EngineArguments:
    """Return the packaged list, which is cached and immutable."""
    return EngineArguments.model_validate(read_data("arguments"))


@cache
def load_forbidden() -> ForbiddenSettings:
    """Return the packaged list, which is cached and immutable."""
    return parse_forbidden(data_text("forbidden.json"))
