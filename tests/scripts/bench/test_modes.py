"""The sweep, and the page and file that it writes, with endpoints that answer from a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.endpoint_spec import MODES, EndpointSpec, Mode
from peagle_sm.measure.load import WorkItem
from peagle_sm.measure.results.records import ArmRecord
from peagle_sm.measure.results.result_file import Results
from peagle_sm.measure.workloads import Workload
from scripts.bench.comparison import spec_of, speed_up
from scripts.bench.modes import command as bench_modes
from scripts.bench.modes.page import arm_figures, page, ratio_text, table
from scripts.bench.modes.sweep import EngineResult, best_k, sweep
from scripts.bench.progress import Reporter
from tests.scripts.bench.making import HEADER, made, request, results


def workload(letter: str) -> Workload:
    items = tuple(WorkItem(f"{letter}{number}", {"prompt": ""}) for number in range(4))
    return Workload(letter, items, None, None, "a test", 4)


PROMPTS, OTHERS = workload("p"), workload("q")
#: Seconds per answer of 16 tokens: EAGLE-3 is best at 3, P-EAGLE at 5.
SECONDS = {
    ("none", None): 0.08,
    ("eagle3", 3): 0.04,
    ("eagle3", 5): 0.05,
    ("p-eagle", 3): 0.04,
    ("p-eagle", 5): 0.03,
}


@dataclass
class ScriptedEndpoint:
    spec: EndpointSpec

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass
class ScriptedStack:
    """Remembers what is up, and the most that ever was."""

    up: dict[str, ScriptedEndpoint] = field(default_factory=dict)
    most: int = 0
    deployed: list[str] = field(default_factory=list)

    def deploy(self, specs: Mapping[str, EndpointSpec]) -> dict[str, Any]:
        made = {key: ScriptedEndpoint(spec) for key, spec in specs.items()}
        self.up.update({endpoint.name: endpoint for endpoint in made.values()})
        self.deployed += [endpoint.name for endpoint in made.values()]
        self.most = max(self.most, len(self.up))
        return made

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            del self.up[name]


def measure_on(stack: ScriptedStack, slowdown: float = 1.0) -> Any:
    """A function that answers from the table."""

    def measure(names: Mapping[Mode, str], prompts: Workload) -> Results:
        arms, requests = [], []
        for mode, name in names.items():
            k = stack.up[name].spec.speculation.num_speculative_tokens
            arms.append(ArmRecord(name, mode, k, name))
            histogram = () if mode == "none" else (1, 2, 1)
            seconds = slowdown * SECONDS[mode, k]
            requests += [
                request(name, item.prompt_id, seconds, histogram=histogram) for item in prompts.items
            ]
        return replace(results(requests, arms), header=replace(HEADER, provenance=PROVENANCE))

    return measure


def swept(stack: ScriptedStack, tmp_path: Path) -> EngineResult:
    with (tmp_path / "progress").open("w") as stream:
        return sweep(
            stack, "eager", [3, 5], PROMPTS, {"HumanEval": OTHERS}, measure_on(stack), Reporter(stream)
        )


def test_each_mode_meets_the_final_at_its_own_best_k_on_other_prompts(tmp_path: Path) -> None:
    stack = ScriptedStack()
    found = swept(stack, tmp_path)
    assert found.best == {"eagle3": 3, "p-eagle": 5}
    final = found.finals["HumanEval"]
    assert [arm.num_speculative_tokens for arm in final.arms] == [None, 3, 5]
    assert {row.prompt_id for row in final.requests} == {"q0", "q1", "q2", "q3"}
    ratio = speed_up(final, "p-eagle", "eagle3")
    assert ratio is not None
    assert ratio.value == pytest.approx(4 / 3)


def test_three_engines_at_most_and_none_left(tmp_path: Path) -> None:
    stack = ScriptedStack()
    swept(stack, tmp_path)
    assert (stack.most, stack.up) == (3, {})
    assert stack.deployed == [
        "tiny-none",
        *("tiny-eagle3-k3", "tiny-p-eagle-k3", "tiny-eagle3-k5", "tiny-p-eagle-k5"),
        *("tiny-eagle3-k3", "tiny-p-eagle-k5"),
    ]


def test_the_best_k_goes_by_the_gain_within_its_block_not_by_the_rate(tmp_path: Path) -> None:
    """A machine that was twice as slow during one block must not decide."""
    stack = ScriptedStack()
    found = swept(stack, tmp_path)
    stack.deploy({mode: spec_of(mode, None if mode == "none" else 5) for mode in MODES})
    slow = measure_on(stack, slowdown=2)(dict(zip(MODES, list(stack.up)[-3:], strict=True)), PROMPTS)
    assert best_k({3: found.blocks[3], 5: slow}, "p-eagle") == 5


SETTINGS: dict[str, Any] = {
    "prompts": 4,
    "final_prompts": 4,
    "held_out_prompts": 6,
    "max_tokens": 16,
    "ks": [3, 5],
    "compiled_ks": [3],
    "quick": False,
    "seed": 0,
}
PROVENANCE = {
    "date": "2026-11-20T09:00:00+00:00",
    "seed": 0,
    "git_revision": "abc",
    "machine": {
        "cores": 2,
        "processor": "a processor",
        "memory_gb": 24.0,
        "system": "Linux",
        "architecture": "x86_64",
    },
    "versions": {"peagle-sm": "0.1.0", "python": "3.11.9"},
    "spec_sha256": {"tiny-none": "abc"},
    "engine": [{"engine_version": "0.32.0", "overrides": ["enforce_eager: true", "port: 1"]}],
    "weights_sha256": {"target/model.safetensors": "0123456789abcdef0123"},
}


def test_the_page_says_what_to_put_in_the_catalogue_and_how_to_do_it_again(tmp_path: Path) -> None:
    text = page([swept(ScriptedStack(), tmp_path)], SETTINGS, PROVENANCE)
    lines = text.splitlines()
    assert "**Small stand-in weights on a CPU.**" in text
    assert "- eager: eagle3 K=3, p-eagle K=5" in lines
    assert "| 5 | p-eagle | 533 | 2.00 | 312 | 250 | 2.67x [2.67, 2.67] | 1.67x [1.67, 1.67] |  |" in lines
    assert "| 3 | none | 200 | 1.00 | 1000 | 0 | - | - | 0.75 |" in lines
    assert "### HumanEval, eager, each mode at its own best K (4 prompts)" in lines
    assert (
        "scripts/bench-modes --prompts 4 --final-prompts 4 --held-out-prompts 6"
        " --max-tokens 16 --ks 3,5 --seed 0" in lines
    )
    assert "- engine: vLLM 0.32.0" in lines
    assert "  - enforce_eager: true" in lines
    assert "port: 1" not in text
    assert "- weights: `target/model.safetensors` sha256 `0123456789abcdef…`" in lines
    assert "4 prompts a K; outputs identical in every block: yes." in lines


def test_the_result_file_names_the_best_k_and_keeps_every_request(tmp_path: Path) -> None:
    document = bench_modes.to_document([swept(ScriptedStack(), tmp_path)], SETTINGS)
    document = json.loads(json.dumps(document))
    assert document["stand_in_weights"] is True
    assert document["best_k"] == {"eager": {"eagle3": 3, "p-eagle": 5}}
    final = document["engines"]["eager"]["finals"]["HumanEval"]
    assert [record["kind"] for record in final["records"]].count("request") == 12
    assert (final["report"]["prompts"], final["report"]["arms"][2]["mode"]) == (4, "p-eagle")
    assert document["provenance"]["engine"] == PROVENANCE["engine"]
    assert set(document["engines"]["eager"]["blocks"]) == {"3", "5"}


def test_the_page_repeats_the_compiled_engines_too(tmp_path: Path) -> None:
    found = swept(ScriptedStack(), tmp_path)
    compiled = EngineResult("compiled", found.blocks, found.best, found.finals)
    text = page([found, compiled], SETTINGS, PROVENANCE)
    assert "--ks 3,5 --seed 0 --compiled --compiled-ks 3\n" in text
    assert "## Compiled engine" in text
    assert "- compiled: eagle3 K=3, p-eagle K=5" in text


@pytest.mark.parametrize("text", ["", "0", "3,-1", "3;5", "many"])
def test_ks_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="whole numbers from 1 up"):
        bench_modes.parse_ks(text)


def test_compiled_engines_try_the_same_ks_unless_told() -> None:
    assert bench_modes.arguments(["--ks", "3,7"]).compiled_ks == [3, 7]
    assert bench_modes.arguments(["--compiled-ks", "7"]).compiled_ks == [7]


def test_ks_are_ascending_and_once_each() -> None:
    assert bench_modes.parse_ks("9,3,5,3") == [3, 5, 9]


def test_the_sweeps_prompts_are_not_the_finals(tmp_path: Path) -> None:
    options = bench_modes.arguments(["--prompts", "10", "--final-prompts", "20"])
    prompts = bench_modes.choose_prompts(options, tmp_path / "absent.jsonl")
    final = prompts.finals["HumanEval"]
    assert (len(prompts.sweep.items), list(prompts.finals), len(final.items)) == (10, ["HumanEval"], 20)
    names = [{item.prompt_id for item in each.items} for each in (prompts.sweep, final)]
    assert not names[0] & names[1]


def test_held_out_code_joins_the_final_when_it_ships(tmp_path: Path) -> None:
    path = tmp_path / "held-out.jsonl"
    path.write_text("".join(json.dumps({"id": f"h{i}", "text": "def f():"}) + "\n" for i in range(5)))
    options = bench_modes.arguments(["--quick"])
    prompts = bench_modes.choose_prompts(options, path)
    held_out = prompts.finals["held-out code"]
    assert {item.prompt_id for item in held_out.items} == {f"h{i}" for i in range(5)}
    bodies = [item.body for item in (prompts.sweep.items[0], held_out.items[0])]
    assert {**bodies[0], "prompt": "def f():"} == bodies[1]
    assert (options.prompts, options.final_prompts, options.held_out_prompts, options.max_tokens) == (
        8,
        8,
        8,
        64,
    )


def test_steps_and_passes_per_thousand_tokens() -> None:
    """1 token of the prefill, then 3 steps that accept 0, 2 and 2 drafts: 1 + 1 + 3 + 3 = 8 tokens."""
    rows = [request("tiny-none", f"p{number}", 1.0, tokens=8) for number in range(2)]
    for arm in ("tiny-eagle3", "tiny-p-eagle"):
        rows += [request(arm, f"p{number}", 1.0, tokens=8, histogram=(1, 0, 2)) for number in range(2)]
    found = arm_figures(results(rows))
    assert [row["target_steps_per_1000_tokens"] for row in found.values()] == [1000, 500, 500]
    assert [row["draft_passes_per_1000_tokens"] for row in found.values()] == [0, 5 * 375, 375]


def test_the_table_of_a_page() -> None:
    lines = table(made()).splitlines()
    assert lines[2] == "| none | - | 200 | 1.00 | 1000 | 0 | - | - | 0.75 |"
    assert lines[3] == "| eagle3 | 5 | 400 | 3.50 | 312 | 1250 | 2.00x [1.73, 2.31] | - | 0.75 |"
    assert lines[4].endswith("| 2.00x [2.00, 2.00] | not shown [0.87, 1.15] | 0.75 |")
    assert lines[-1] == (
        "Identical outputs: yes, 6 of 6 prompts (by token ids). "
        "95% intervals over the prompts of this deployment only."
    )
    assert {line.count("|") for line in lines[:5]} == {10}
    assert ratio_text(None) == "-"
