"""What each vLLM version has: model runners, draft settings, arguments. Data in core/data/engines.yaml.

A version that is not listed is treated like the nearest one that is; a check warns about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

from peagle_sm.core.spec.endpoint_spec import Mode

Version = tuple[int, ...]
RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
"""The engine's variable for its model runner: 0 is V1, 1 is V2. vLLM ends on anything but a whole number."""
_ARGUMENT = "SM_VLLM_"


def version_of(text: str) -> Version:
    """Return "0.30.0" as (0, 30, 0)."""
    return tuple(int(part) for part in text.split("."))


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Floor(_Entry):
    """Lowest version for a feature; check it again from ``expires`` (ISO) on."""

    version: str
    source: str
    date: str | None = None
    expires: str | None = None


class EngineEntry(_Entry):
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
        """Return whether the plan sets the variable to 0: with a draft head, where V2 could be chosen."""
        return mode != "none" and self.v1 and self.chooses_v2

    @property
    def runs_p_eagle(self) -> bool:
        """True if one of the version's runners drafts in parallel."""
        return self.v1 or self.p_eagle_on_v2 == "parallel"


class Range(_Entry):
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


class Support(Range):
    """The versions with a setting, and where that was read."""

    source: str


class PluginEntry(_Entry):
    """This project's code inside the engine: the runner it needs, and the versions it was run with."""

    since: str | None = None
    runner: Literal["v1", "v2"] | None = None
    tested: tuple[str, ...]


class EngineCatalog(_Entry):
    """All versions, oldest first, and the ranges of settings."""

    source: str
    date: str
    versions: tuple[EngineEntry, ...]
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

    def support(self, name: str) -> Support:
        """Return which versions have a setting.

        ``name`` is a field of vLLM's speculative config, an argument as the variable of AWS's image
        (SM_VLLM_MAX_MODEL_LEN), or a variable of the engine (VLLM_USE_V2_MODEL_RUNNER).

        Raises:
            KeyError: the setting is in none of the three lists.
        """
        if name.startswith(_ARGUMENT):
            found = self.arguments[name.removeprefix(_ARGUMENT).lower()]
        else:
            found = self.variables[name] if name in self.variables else self.speculative[name]
        return Support(since=found.since, until=found.until, source=f"{self.source}, {self.date}")

    def known(self, name: str) -> bool:
        """Return whether `support` knows a name."""
        lists = {*self.speculative, *self.variables, *(_ARGUMENT + each.upper() for each in self.arguments)}
        return name in lists

    @property
    def parallel_drafting(self) -> Floor:
        """The first version with P-EAGLE, which is the oldest of the matrix."""
        first = self.speculative["parallel_drafting"].since or self.versions[0].version
        return Floor(version=first, source=f"vLLM {first}: parallel_drafting")
