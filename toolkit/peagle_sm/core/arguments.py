"""Arguments of vLLM's server, by name and version.

The data is ``core/data/arguments.yaml``, which `scripts/engine-arguments` writes from vLLM's own sources and
parser. Names are those of `vllm serve --help`, with _ for -.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources

import yaml
from pydantic import BaseModel, ConfigDict, Field

from peagle_sm.core.engines import Range, Version, version_of


class EngineArguments(BaseModel):
    """Arguments of the versions ``oldest`` to ``newest``.

    ``always`` are in all of these versions, ``sometimes`` only in those of a span. ``switches`` take no value
    and have a second name with `no_` in front, ``flags`` take no value, ``optional`` take one or none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str
    date: str
    oldest: str
    newest: str
    always: frozenset[str]
    sometimes: Mapping[str, Range] = Field(default_factory=dict)
    switches: frozenset[str]
    flags: frozenset[str]
    optional: frozenset[str]

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

    def _has(self, name: str) -> bool:
        return name in self.always or name in self.sometimes

    def missing_in(self, name: str, version: Version) -> Range | None:
        """Return the span of a known argument that a version lacks; None if it has it, or is not covered."""
        span = self.sometimes.get(name.removeprefix("no_") if name not in self.sometimes else name)
        if span is None or not version_of(self.oldest) <= version <= version_of(self.newest):
            return None
        return None if span.covers(version) else span


@cache
def load_arguments() -> EngineArguments:
    """Return the packaged list, which is cached and immutable."""
    text = resources.files("peagle_sm.core").joinpath("data", "arguments.yaml").read_text(encoding="utf-8")
    return EngineArguments.model_validate(
        yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    )
