"""Published measurements: the set-up of each table as its source gives it, and its figures.

The data is in ``data/published.yaml``. A figure is a ratio of tokens per second between two modes, the
tokens per second of one mode, or an acceptance length. `rows` gives one `Figure` for each number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, Self

from pydantic import Field, model_validator

from peagle_sm.core.catalog import Catalog
from peagle_sm.core.engines import PackagedData, read_data
from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.endpoint_spec import Mode, ServingSpec
from peagle_sm.core.spec.validation import suggest

Kind = Literal["ratio", "otps", "acceptance"]


class PublishedSource(PackagedData):
    """Where figures were published, its ISO date, and how it was read."""

    title: str
    url: str
    date: str
    checked: str


class PublishedWorkload(PackagedData):
    """Prompts of a table; ``category`` and ``instruction`` None: all prompts, without an instruction."""

    name: Literal["humaneval", "mt-bench", "speed-bench"]
    prompts: int | None = None
    category: str | None = None
    instruction: str | None = None
    first_turn_only: bool = False
    max_tokens: int


class FigureGroup(PackagedData):
    """Figures of one kind: by concurrency, or one value at an unstated concurrency.

    Exactly one of ``ratio`` (the first mode over the second), ``otps`` and ``acceptance`` is given.
    ``source`` None is the table's.
    """

    ratio: tuple[Mode, Mode] | None = None
    otps: Mode | None = None
    acceptance: Mode | None = None
    k: int | None = None
    value: float | None = None
    values: Mapping[int, float] = Field(default_factory=dict)
    source: str | None = None

    @model_validator(mode="after")
    def _one_kind_and_its_values(self) -> Self:
        kinds = [each for each in (self.ratio, self.otps, self.acceptance) if each is not None]
        if len(kinds) != 1 or (self.value is None) == (not self.values):
            raise ValueError("a group has one kind of figure, and either value or values")
        return self


@dataclass(frozen=True)
class Figure:
    """One published number; ``k`` has num_speculative_tokens of each of its modes (None for mode none)."""

    kind: Kind
    value: float
    mode: Mode
    over: Mode | None
    k: Mapping[Mode, int | None]
    concurrency: int | None
    source: str

    @property
    def label(self) -> str:
        """Name of the figure, such as ``p-eagle over eagle3``, or ``AL p-eagle, K=7`` (acceptance length)."""
        if self.kind == "ratio":
            return f"{self.mode} over {self.over}"
        if self.kind == "otps":
            return f"tokens/s {self.mode}"
        return f"AL {self.mode}, K={self.k[self.mode]}"

    @property
    def rounding(self) -> float:
        """Half of the last published digit: 0.005, or 0.5 tokens per second."""
        return 0.5 if self.kind == "otps" else 0.005

    @property
    def text(self) -> str:
        """The number with its published digits."""
        return f"{self.value:,.0f}" if self.kind == "otps" else f"{self.value:.2f}"


class PublishedTable(PackagedData):
    """One published table: its set-up and figures.

    ``gpu`` or ``engine`` None: not stated. ``k`` and ``heads`` are by mode; a head is an id of the catalogue,
    None if it is not stated, else words for one that the catalogue lacks. ``instance_type`` is SageMaker's
    instance with this GPU, or one that can hold the model.
    """

    title: str
    source: str
    model: str
    gpu: str | None = None
    engine: str | None = None
    instance_type: str
    precision: str
    k: Mapping[Mode, int | None]
    heads: Mapping[Mode, str | None]
    workload: PublishedWorkload
    concurrency: tuple[int, ...]
    serving: ServingSpec
    unstated: tuple[str, ...]
    figures: tuple[FigureGroup, ...]

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The measured modes, slowest first."""
        return tuple(self.k)

    def used_heads(self, catalog: Catalog) -> dict[Mode, str]:
        """Return the catalogue's head of each mode: the published one, else the model's own."""
        found: dict[Mode, str] = {}
        for mode in self.heads:
            of_mode = [name for name, head in catalog.heads_for(self.model).items() if head.method == mode]
            named = self.heads[mode]
            usual = catalog.model(self.model).default_heads.get(mode)
            found[mode] = named if named in of_mode else usual or of_mode[0]
        return found

    def rows(self) -> Iterator[Figure]:
        """Yield each figure, in the order of the data."""
        for group in self.figures:
            mode, over = group.ratio or (group.otps or group.acceptance, None)
            kind: Kind = "ratio" if group.ratio else "otps" if group.otps else "acceptance"
            assert mode is not None  # the validator demands one of the three
            k: dict[Mode, int | None] = {each: self.k[each] for each in (mode, over) if each is not None}
            if group.k is not None:
                k[mode] = group.k
            found = group.values.items() if group.values else [(None, group.value)]
            for concurrency, value in found:
                assert value is not None
                yield Figure(kind, value, mode, over, k, concurrency, group.source or self.source)


class Published(PackagedData):
    """All published tables by name, and their sources."""

    sources: Mapping[str, PublishedSource]
    tables: Mapping[str, PublishedTable]

    def table(self, name: str) -> PublishedTable:
        """Return one table.

        Raises:
            SpecError: the name is unknown; the message lists the known ones.
        """
        if name not in self.tables:
            raise SpecError(
                f"NAME: found {name!r}; allowed: {', '.join(self.tables)}.{suggest(name, self.tables)}",
                next_step="Run `peagle-sm reproduce` to list the published tables.",
                details={"field": "NAME", "allowed": list(self.tables)},
            )
        return self.tables[name]

    def sources_of(self, table: PublishedTable) -> dict[str, PublishedSource]:
        """Return the sources of a table's figures, its own first."""
        names = dict.fromkeys([table.source, *(figure.source for figure in table.rows())])
        return {name: self.sources[name] for name in names}


@cache
def load_published() -> Published:
    """Return the packaged tables, which are cached and immutable."""
    return Published.model_validate(read_data("published", "peagle_bench"))
