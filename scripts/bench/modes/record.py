"""One JSON file for each kind of machine: the figures of the modes there, and how they were taken.

A kind of machine is a processor with its widest instructions, its number of cores, and the dtype that the
local engine chose. A new run replaces the figures of its own machine kind and engine setting, nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter

from peagle_bench.results.provenance import overrides_for_others
from peagle_bench.results.records import Interval
from peagle_bench.results.result_file import Results
from peagle_sm.core.spec.endpoint_spec import MODES, Mode
from scripts.bench.comparison import (
    THIRD,
    arm_of,
    differing,
    figures,
    measured_requests,
    speed_up,
    within,
)
from scripts.bench.machine_k import MachineK

Engine = Literal["eager", "compiled"]
ENGINES: tuple[Engine, ...] = ("eager", "compiled")
#: Instruction sets by the flag of /proc/cpuinfo, widest first.
INSTRUCTIONS = {
    "AMX": "amx_bf16",
    "AVX-512-BF16": "avx512_bf16",
    "AVX-512": "avx512f",
    "AVX2": "avx2",
}
_CPU_INFO = Path("/proc/cpuinfo")
_DTYPE = re.compile(r"^dtype: (\w+)")


class _Strict:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Machine(_Strict):
    """What the speed depends on; ``instructions``: None where it was not recorded."""

    processor: str
    family_and_model: str | None
    cores: int
    memory_gb: float
    system: str
    instructions: Mapping[str, bool | None]
    dtype: str

    @property
    def title(self) -> str:
        """Name for people, such as "AMD EPYC, AVX2, 2 cores, float32"."""
        return f"{self._processor}, {self._widest}, {self.cores} cores, {self.dtype}"

    @property
    def file_name(self) -> str:
        """Name of its record: the same for every machine of this kind."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") + ".json"

    @property
    def _processor(self) -> str:
        return re.sub(r"\((R|TM)\)|\bProcessor\b|\bCPU\b", "", self.processor).strip()

    @property
    def _widest(self) -> str:
        known = next((name for name in INSTRUCTIONS if self.instructions[name]), None)
        return known or ("instructions not recorded" if None in self.instructions.values() else "no AVX2")


@dataclass(frozen=True)
class Ratio(_Strict):
    """A speed-up with its 95% confidence interval; ``value`` None: only the interval was recorded."""

    value: float | None
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 1."""
        return not self.low <= 1.0 <= self.high


@dataclass(frozen=True)
class ModeFigures(_Strict):
    """Figures of one mode. Steps and passes are forward passes per 1,000 output tokens."""

    k: int | None
    otps: float
    acceptance_length: float | None
    target_steps: float
    draft_passes: float
    distinct_4_grams: float | None
    over_none: Ratio | None = None
    over_eagle3: Ratio | None = None


@dataclass(frozen=True)
class Comparison(_Strict):
    """The modes on one set of prompts; ``identical``: prompts with the same tokens in all modes."""

    prompts: int
    identical: int
    modes: Mapping[Mode, ModeFigures]


@dataclass(frozen=True)
class Final(_Strict):
    """One set of prompts; ``load``: 1-minute load averages, before and after."""

    all_prompts: Comparison
    least_repetitive_third: Comparison
    load: Sequence[float]


@dataclass(frozen=True)
class SweepBlock(_Strict):
    """All modes at one K, as `scripts/bench-modes` swept them before it chose K at run time."""

    k: int
    comparison: Comparison
    load: Sequence[float]


@dataclass(frozen=True)
class Choice(_Strict):
    """K of one head on this machine; ``tokens_per_s`` by K, empty where a sweep chose."""

    k: int
    catalogue: int | None
    how: str
    tokens_per_s: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class EngineRecord(_Strict):
    """One engine setting on one machine kind. ``notes`` say what is particular about this run."""

    answers: Literal["streamed", "whole"]
    command: str
    max_tokens: int
    choices: Mapping[Mode, Choice]
    finals: Mapping[str, Final]
    provenance: Mapping[str, Any]
    notes: Sequence[str] = ()
    sweep: Sequence[SweepBlock] = ()

    def other_weights(self, shipped: Mapping[str, str]) -> list[str]:
        """Weights that are not those that ship; the record may have only the first digits of a hash."""
        recorded: Mapping[str, str] = self.provenance["weights_sha256"]
        parts = sorted({*recorded, *shipped})
        return [part for part in parts if not _same(recorded.get(part, ""), shipped.get(part, ""))]


def _same(recorded: str, shipped: str) -> bool:
    return bool(recorded) and shipped.startswith(recorded)


@dataclass(frozen=True)
class MachineRecord(_Strict):
    """Everything recorded on one machine kind."""

    machine: Machine
    engines: Mapping[Engine, EngineRecord]


_ADAPTER = TypeAdapter(MachineRecord)


def read_records(folder: Path) -> list[MachineRecord]:
    """Read every record, by file name; none if the folder does not exist.

    Raises:
        ValueError: a file is not a record.
    """
    return [_ADAPTER.validate_json(path.read_bytes()) for path in sorted(folder.glob("*.json"))]


def write_record(folder: Path, machine: Machine, engine: Engine, record: EngineRecord) -> Path:
    """Write the figures of one engine setting; those of other settings and other machines stay.

    Raises:
        ValueError: the file of this machine kind is not a record.
    """
    path = folder / machine.file_name
    engines: dict[Engine, EngineRecord] = {}
    if path.is_file():
        engines |= _ADAPTER.validate_json(path.read_bytes()).engines
    engines[engine] = record
    engines = {name: engines[name] for name in ENGINES if name in engines}
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_ADAPTER.dump_json(MachineRecord(machine, engines), indent=1) + b"\n")
    return path


def machine_of(provenance: Mapping[str, Any], cpu_info: Path = _CPU_INFO) -> Machine:
    """Describe this machine: the provenance's facts, the processor's flags, and the engines' dtype.

    Raises:
        ValueError: the engines do not all say the same dtype.
    """
    facts = provenance["machine"]
    cpu = _cpu(cpu_info)
    flags = cpu["flags"].split() if "flags" in cpu else None
    overrides = [text for row in provenance["engine"] for text in row["overrides"]]
    dtypes = {found[1] for text in overrides if (found := _DTYPE.match(text))}
    if len(dtypes) != 1:
        raise ValueError(f"the engines ran with {sorted(dtypes) or 'no known dtype'}; expected one dtype")
    return Machine(
        processor=facts["processor"],
        family_and_model=f"{cpu['cpu family']}/{cpu['model']}"
        if {"cpu family", "model"} <= cpu.keys()
        else None,
        cores=facts["cores"],
        memory_gb=facts["memory_gb"],
        system=f"{facts['system']} {facts['architecture']}",
        instructions={name: None if flags is None else flag in flags for name, flag in INSTRUCTIONS.items()},
        dtype=dtypes.pop(),
    )


def _cpu(cpu_info: Path) -> dict[str, str]:
    """Return the fields of the first processor."""
    first = cpu_info.read_text(encoding="utf-8").partition("\n\n")[0] if cpu_info.is_file() else ""
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def origin_of(provenances: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the page names of the first run's provenance, with all engines' versions and overrides."""
    every = list(provenances)
    engines = [row for each in every for row in each["engine"]]
    names = ("date", "seed", "git_revision", "versions", "weights_sha256")
    return {
        **{name: every[0][name] for name in names},
        "engine_versions": sorted(
            {str(row["engine_version"]) for row in engines if row.get("engine_version")}
        ),
        "overrides": sorted({text for row in engines for text in overrides_for_others(row)}),
    }


def choice_of(chosen: MachineK) -> Choice:
    """Record how K was chosen."""
    rates = {k: round(rate, 1) for k, rate in chosen.rates.items()}
    how = f"measured at run time in the engine that was then compared: {chosen.reason}"
    return Choice(chosen.k, chosen.catalogue, how, rates)


def final_of(results: Results, load: Sequence[float]) -> Final:
    """Record one comparison, and its least repetitive third."""
    third = within(results, THIRD)
    return Final(comparison_of(results), comparison_of(third), [round(value, 2) for value in load])


def comparison_of(results: Results) -> Comparison:
    """Record the figures, the speed-ups and how many outputs are identical."""
    modes: dict[Mode, ModeFigures] = {}
    for mode in MODES:
        found = arm_figures(results)[mode]
        modes[mode] = ModeFigures(
            k=found["num_speculative_tokens"],
            otps=round(found["otps"], 1),
            acceptance_length=_rounded(found["acceptance_length"]),
            target_steps=round(found["target_steps_per_1000_tokens"], 1),
            draft_passes=round(found["draft_passes_per_1000_tokens"], 1),
            distinct_4_grams=_rounded(found["distinct_4_grams"]),
            over_none=_ratio(speed_up(results, mode, "none")) if mode != "none" else None,
            over_eagle3=_ratio(speed_up(results, mode, "eagle3")) if mode == "p-eagle" else None,
        )
    count = len({row.prompt_id for row in measured_requests(results)})
    return Comparison(count, count - len(differing(results)), modes)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _ratio(interval: Interval | None) -> Ratio | None:
    if interval is None:
        return None
    return Ratio(round(interval.value, 4), round(interval.low, 4), round(interval.high, 4))


def arm_figures(results: Results) -> dict[Mode, dict[str, Any]]:
    """The figures of each mode: those that the product has too, and what a thousand output tokens took.

    Target steps: with speculation each request takes its prefill and one pass for each verified draft;
    without, one pass for each token. Draft passes: 1 for a draft of P-EAGLE, K for one of EAGLE-3.
    """
    found = figures(results)
    for mode, row in found.items():
        requests = [one for one in measured_requests(results) if one.arm == arm_of(results, mode).name]
        tokens = sum(one.output_tokens or 0 for one in requests)
        passes = {"none": 0, "eagle3": row["num_speculative_tokens"] or 0, "p-eagle": 1}[mode]
        shares = [one.distinct_4_grams for one in requests if one.distinct_4_grams is not None]
        steps = sum((one.output_tokens or 0) if one.drafts is None else 1 + one.drafts for one in requests)
        row["target_steps_per_1000_tokens"] = 1000 * steps / tokens
        row["draft_passes_per_1000_tokens"] = (
            1000 * passes * sum(one.drafts or 0 for one in requests) / tokens
        )
        row["distinct_4_grams"] = sum(shares) / len(shares) if shares else None
    return found
