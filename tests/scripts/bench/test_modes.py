"""The modes of one machine kind: how they are measured, recorded and shown, with made-up endpoints."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.load import WorkItem
from peagle_bench.results.records import ArmRecord
from peagle_bench.results.result_file import Results
from peagle_bench.workloads import Workload
from peagle_sm.core.errors import SpecError
from peagle_sm.core.plan.environment import RUNTIME_K
from peagle_sm.core.spec.endpoint_spec import MODES, EndpointSpec, Mode
from scripts.bench.comparison import COMPILED
from scripts.bench.machine_k import MachineK
from scripts.bench.modes import command as bench_modes
from scripts.bench.modes.command import Measured, Prompts, Steps, measure_engine
from scripts.bench.modes.page import page, ratio_text, table
from scripts.bench.modes.record import (
    EngineRecord,
    Machine,
    MachineRecord,
    Ratio,
    arm_figures,
    comparison_of,
    machine_of,
    read_records,
    write_record,
)
from scripts.bench.progress import Reporter
from tests.scripts.bench.making import HEADER, made, request, results


def workload(letter: str) -> Workload:
    items = tuple(WorkItem(f"{letter}{number}", {"prompt": ""}) for number in range(4))
    return Workload(letter, items, None, None, "a test", 4)


K_ITEMS, FINAL = workload("k").items, workload("q")
#: Seconds of an answer of 16 tokens, at the K that is chosen below.
SECONDS: Mapping[Mode, float] = {"none": 0.08, "eagle3": 0.04, "p-eagle": 0.03}
CHOSEN: Mapping[Mode, MachineK] = {
    "eagle3": MachineK("eagle3", 5, 7, {3: 90.0, 5: 100.0}, "fastest of 2"),
    "p-eagle": MachineK("p-eagle", 9, 11, {7: 110.0, 9: 120.0}, "fastest of 2"),
}
PROVENANCE: dict[str, Any] = {
    "date": "2026-11-20T09:00:00+00:00",
    "seed": 0,
    "git_revision": "abc",
    "machine": {
        "cores": 2,
        "processor": "Example(R) CPU",
        "memory_gb": 24.0,
        "system": "Linux",
        "architecture": "x86_64",
    },
    "versions": {"peagle-sm": "0.1.0", "python": "3.11.9"},
    "engine": [{"engine_version": "0.32.0", "overrides": ["dtype: float32, because it is a CPU", "port: 1"]}],
    "weights_sha256": {"target/model.safetensors": "0123456789abcdef0123"},
}
SHIPPED = {"target/model.safetensors": "0123456789abcdef0123"}


@dataclass
class ScriptedEndpoint:
    spec: EndpointSpec

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass
class ScriptedStack:
    deployed: dict[str, ScriptedEndpoint] = field(default_factory=dict)

    def deploy(self, specs: Mapping[str, EndpointSpec]) -> dict[str, Any]:
        self.deployed |= {key: ScriptedEndpoint(spec) for key, spec in specs.items()}
        return dict(self.deployed)


def measured(tmp_path: Path, engine: Any = "eager") -> tuple[Measured, ScriptedStack, list[Any]]:
    asked: list[Any] = []
    loads = iter([0.5, 0.75])

    def choose(endpoints: Mapping[str, Any], items: Sequence[WorkItem]) -> dict[Mode, MachineK]:
        asked.append([item.prompt_id for item in items])
        return dict(CHOSEN)

    def compare(names: Mapping[Mode, str], prompts: Workload, ks: Mapping[Mode, int]) -> Results:
        asked.append([item.prompt_id for item in prompts.items])
        arms = [ArmRecord(name, mode, ks.get(mode), name) for mode, name in names.items()]
        rows = [
            request(name, item.prompt_id, SECONDS[mode], histogram=() if mode == "none" else (1, 2, 1))
            for mode, name in names.items()
            for item in prompts.items
        ]
        return replace(results(rows, arms), header=replace(HEADER, provenance=PROVENANCE))

    stack = ScriptedStack()
    steps = Steps(choose, compare, lambda: next(loads), lambda found: asked.append(list(found.finals)))
    with (tmp_path / "progress").open("w") as stream:
        found = measure_engine(stack, engine, Prompts(K_ITEMS, {"HumanEval": FINAL}), steps, Reporter(stream))
    return found, stack, asked


def options(tmp_path: Path, *words: str) -> argparse.Namespace:
    places = ["--page", str(tmp_path / "modes.md"), "--output", str(tmp_path / "out.json")]
    return bench_modes.arguments([*places, "--prompts", "4", "--held-out-prompts", "0", *words])


CPU = (
    "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 1\nflags\t\t: fpu avx2{more}\n\n"
    "processor\t: 1\nflags\t\t: none\n"
)


def machine(tmp_path: Path, more: str = "", provenance: Mapping[str, Any] = PROVENANCE) -> Machine:
    path = tmp_path / "cpuinfo"
    path.write_text(CPU.format(more=more))
    return machine_of(provenance, path)


def record(tmp_path: Path, found: Measured, *words: str) -> Any:
    provenances = [final.header.provenance for final in found.finals.values()]
    return bench_modes.record_of(options(tmp_path, *words), found, provenances)


def test_k_is_chosen_in_the_engines_that_are_compared_and_with_other_prompts(tmp_path: Path) -> None:
    found, stack, asked = measured(tmp_path)
    assert asked == [["k0", "k1", "k2", "k3"], ["q0", "q1", "q2", "q3"], ["HumanEval"]]
    final = found.finals["HumanEval"]
    assert [arm.num_speculative_tokens for arm in final.arms] == [None, 5, 9]
    assert found.loads == {"HumanEval": (0.5, 0.75)}
    specs = {mode: endpoint.spec for mode, endpoint in stack.deployed.items()}
    assert [RUNTIME_K in specs[mode].serving.env for mode in MODES] == [False, True, True]
    assert not any(COMPILED.items() <= spec.serving.env.items() for spec in specs.values())


def test_compiled_engines_are_all_compiled(tmp_path: Path) -> None:
    _, stack, _ = measured(tmp_path, "compiled")
    assert all(COMPILED.items() <= one.spec.serving.env.items() for one in stack.deployed.values())


@pytest.mark.parametrize(
    ("more", "title"),
    [
        ("", "Example, AVX2, 2 cores, float32"),
        (" avx512f", "Example, AVX-512, 2 cores, float32"),
        (" avx512f avx512_bf16", "Example, AVX-512-BF16, 2 cores, float32"),
        (" avx512f avx512_bf16 amx_bf16", "Example, AMX, 2 cores, float32"),
    ],
)
def test_a_machine_kind_is_named_by_its_widest_instructions(tmp_path: Path, more: str, title: str) -> None:
    found = machine(tmp_path, more)
    assert found.title == title
    assert found.family_and_model == "25/1"
    assert found.instructions["AVX2"] is True


def test_a_machine_without_proc_has_no_known_instructions_and_no_family(tmp_path: Path) -> None:
    found = machine_of(PROVENANCE, tmp_path / "absent")
    assert found.family_and_model is None
    assert set(found.instructions.values()) == {None}
    assert found.title == "Example, instructions not recorded, 2 cores, float32"


def test_engines_of_several_dtypes_are_no_machine_kind(tmp_path: Path) -> None:
    other = {"engine_version": "0.32.0", "overrides": ["dtype: bfloat16, because it can"]}
    with pytest.raises(ValueError, match=r"\['bfloat16', 'float32'\]; expected one dtype"):
        machine(tmp_path, provenance={**PROVENANCE, "engine": [*PROVENANCE["engine"], other]})


def test_a_run_replaces_its_own_figures_and_keeps_all_others(tmp_path: Path) -> None:
    found, *_ = measured(tmp_path)
    ours, theirs = machine(tmp_path), machine(tmp_path, " avx512f")
    first = record(tmp_path, found)
    folder = tmp_path / "modes"
    write_record(folder, theirs, "eager", first)
    write_record(folder, ours, "compiled", first)
    write_record(folder, ours, "eager", replace(first, max_tokens=1))
    write_record(folder, ours, "eager", replace(first, max_tokens=2))
    records = {one.machine.title: one.engines for one in read_records(folder)}
    assert set(records) == {ours.title, theirs.title}
    assert list(records[ours.title]) == ["eager", "compiled"]
    assert records[ours.title]["eager"].max_tokens == 2
    assert records[ours.title]["compiled"] == records[theirs.title]["eager"]


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    found, *_ = measured(tmp_path)
    ours = record(tmp_path, found)
    write_record(tmp_path / "modes", machine(tmp_path), "eager", ours)
    (again,) = read_records(tmp_path / "modes")
    assert again.machine == machine(tmp_path)
    assert again.engines["eager"].finals == ours.finals
    assert again.engines["eager"].choices == ours.choices


def test_a_file_that_is_no_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text('{"machine": {}, "engines": {}, "more": 1}')
    with pytest.raises(ValueError, match="validation error"):
        read_records(tmp_path)


def test_the_page_has_every_machine_side_by_side_and_then_in_detail(tmp_path: Path) -> None:
    found, *_ = measured(tmp_path)
    kinds = [machine(tmp_path), machine(tmp_path, " avx512f")]
    ours = record(tmp_path, found)
    lines = page([MachineRecord(one, {"eager": ours}) for one in kinds], SHIPPED).splitlines()
    assert (
        "| [Example, AVX2, 2 cores, float32](#example-avx2-2-cores-float32) | Example(R) CPU"
        " (family/model 25/1) | no | no | no | yes | 2 | float32 | eager: 2026-11-20, answers streamed |"
        in lines
    )
    for kind in kinds:
        assert (
            f"| {kind.title} | 4 | 5 | 9 | 200 | 400 | 533 | 1.33x [1.33, 1.33] | 2.67x [2.67, 2.67]"
            " | 1.33x [1.33, 1.33] | 2.67x [2.67, 2.67] | 4 of 4 |" in lines
        )
        assert f"## {kind.title}" in lines
    chosen = "measured at run time in the engine that was then compared: fastest of 2"
    assert lines.count(f"| p-eagle | 9 | 11 | 7: 110, 9: 120 | {chosen} |") == 2
    assert (
        "- command: `scripts/bench-modes --engine eager --prompts 4 --held-out-prompts 0 --max-tokens 128"
        " --seed 0`" in lines
    )
    assert "Load average (1 min), from before to after: 0.50 -> 0.75." in lines
    assert "    - dtype: float32, because it is a CPU" in lines
    assert not [line for line in lines if "port: 1" in line]
    assert lines.count("- weights: those that ship now") == 2


def test_the_page_says_which_figures_are_of_other_weights(tmp_path: Path) -> None:
    found, *_ = measured(tmp_path)
    records = [MachineRecord(machine(tmp_path), {"eager": record(tmp_path, found)})]
    text = page(records, {"target/model.safetensors": "another"})
    assert "float32, eager, was measured with other weights than those that ship now:**" in text
    assert "- weights: not those that ship now (target/model.safetensors)" in text
    assert "other weights than" not in page(records, SHIPPED)


def test_the_page_says_which_figures_are_of_a_busy_machine(tmp_path: Path) -> None:
    found, *_ = measured(tmp_path)
    busy = replace(found, loads={"HumanEval": (1.5, 4.5)})
    text = page([MachineRecord(machine(tmp_path), {"eager": record(tmp_path, busy)})], SHIPPED)
    assert (
        "eager, was measured while the machine was busy with other work:** load average 4.5 on 2 cores"
        in text
    )
    assert "busy" not in page([MachineRecord(machine(tmp_path), {"eager": record(tmp_path, found)})], SHIPPED)


@given(st.text("0123456789abcdef", min_size=64, max_size=64), st.integers(0, 64))
def test_a_hash_of_which_only_the_first_digits_are_recorded_is_compared_by_them(
    hash: str, digits: int
) -> None:
    same = replace(SAMPLE, provenance={"weights_sha256": {"a": hash[:digits]}})
    assert (same.other_weights({"a": hash}) == []) == (digits > 0)
    other = replace(SAMPLE, provenance={"weights_sha256": {"a": "g" + hash[:digits]}})
    assert other.other_weights({"a": hash, "b": hash}) == ["a", "b"]


SAMPLE = EngineRecord("streamed", "", 1, {}, {}, {})


def test_the_result_file_keeps_every_request_and_what_the_cards_need(tmp_path: Path) -> None:
    found, *_ = measured(tmp_path)
    document = json.loads(json.dumps(bench_modes.to_document("eager", found)))
    assert document["stand_in_weights"] is True
    assert document["k"] == {"eager": {"eagle3": 5, "p-eagle": 9}}
    final = document["engines"]["eager"]["finals"]["HumanEval"]
    assert [row["kind"] for row in final["records"]].count("request") == 12
    assert (final["report"]["prompts"], final["report"]["arms"][2]["mode"]) == (4, "p-eagle")


def test_a_run_writes_the_requests_the_record_and_the_page(tmp_path: Path) -> None:
    found, *_ = measured(tmp_path)
    bench_modes.write(options(tmp_path), found, lambda line: None)
    (one,) = read_records(tmp_path / "modes")
    assert f"## {one.machine.title}" in (tmp_path / "modes.md").read_text()
    assert json.loads((tmp_path / "out.json").read_text())["engines"]["eager"]


@pytest.mark.parametrize("words", [["--prompts", "1"], ["--held-out-prompts", "-1"]])
def test_too_few_prompts_are_refused(words: list[str]) -> None:
    with pytest.raises(SpecError, match="allowed are at least 2 prompts, and 0 or more held-out ones"):
        bench_modes.arguments(words)


def test_the_prompts_that_choose_k_are_not_compared(tmp_path: Path) -> None:
    prompts = bench_modes.choose_prompts(options(tmp_path), tmp_path / "absent.jsonl")
    final = prompts.finals["HumanEval"]
    assert (len(prompts.k), list(prompts.finals), len(final.items)) == (16, ["HumanEval"], 4)
    assert not {item.prompt_id for item in prompts.k} & {item.prompt_id for item in final.items}


def test_held_out_code_joins_if_it_ships(tmp_path: Path) -> None:
    path = tmp_path / "held-out.jsonl"
    path.write_text("".join(json.dumps({"id": f"h{i}", "text": "def f():"}) + "\n" for i in range(5)))
    assert list(bench_modes.choose_prompts(options(tmp_path), path).finals) == ["HumanEval"]
    prompts = bench_modes.choose_prompts(options(tmp_path, "--held-out-prompts", "8"), path)
    held_out = prompts.finals["held-out code"]
    assert {item.prompt_id for item in held_out.items} == {f"h{i}" for i in range(5)}
    bodies = [item.body for item in (prompts.k[0], held_out.items[0])]
    assert {**bodies[0], "prompt": "def f():"} == bodies[1]


def test_steps_and_passes_per_thousand_tokens() -> None:
    """1 token of the prefill, then 3 steps that accept 0, 2 and 2 drafts: 1 + 1 + 3 + 3 = 8 tokens."""
    rows = [request("tiny-none", f"p{number}", 1.0, tokens=8) for number in range(2)]
    for arm in ("tiny-eagle3", "tiny-p-eagle"):
        rows += [request(arm, f"p{number}", 1.0, tokens=8, histogram=(1, 0, 2)) for number in range(2)]
    found = arm_figures(results(rows))
    assert [row["target_steps_per_1000_tokens"] for row in found.values()] == [1000, 500, 500]
    assert [row["draft_passes_per_1000_tokens"] for row in found.values()] == [0, 5 * 375, 375]


def test_the_table_of_a_comparison() -> None:
    lines = table(comparison_of(made())).splitlines()
    assert lines[2] == "| none | - | 200 | 1.00 | 1000 | 0 | - | - | 0.75 |"
    assert lines[3] == "| eagle3 | 5 | 400 | 3.50 | 312 | 1250 | 2.00x [1.73, 2.32] | - | 0.75 |"
    assert lines[4].endswith("| 2.00x [2.00, 2.00] | not significant [0.86, 1.15] | 0.75 |")
    assert lines[-1] == (
        "Identical outputs: yes, 6 of 6 prompts (by token ids). "
        "95% intervals over the prompts of this deployment only."
    )
    assert {line.count("|") for line in lines[:5]} == {10}


def test_a_ratio_of_which_only_the_interval_is_recorded() -> None:
    assert ratio_text(Ratio(None, 0.96, 1.01)) == "not significant [0.96, 1.01]"
    assert ratio_text(Ratio(1.2, 1.1, 1.3)) == "1.20x [1.10, 1.30]"
    assert ratio_text(None) == "-"
