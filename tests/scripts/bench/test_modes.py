"""The sweep, and the page and file that it writes, with endpoints that answer from a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from peagle_sm.core.errors import EngineError, SpecError
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.measure.workloads.public_datasets import Prompt
from scripts.bench.comparison.arms import COMPILED, arm_of, spec_of
from scripts.bench.comparison.run import Run
from scripts.bench.comparison.sample import Sample
from scripts.bench.comparison.summary import Arm
from scripts.bench.modes import command as bench_modes
from scripts.bench.modes.page import page
from scripts.bench.modes.sweep import EngineResult, best_k, sweep
from scripts.bench.progress import Reporter
from tests.scripts.bench.comparison.making import sample

PROMPTS = [Prompt(f"p{i}", "") for i in range(4)]
OTHERS = [Prompt(f"q{i}", "") for i in range(4)]
#: Seconds per answer of 16 tokens: EAGLE-3 is best at 3, P-EAGLE at 5.
SECONDS = {
    ("none", None): 0.08,
    ("eagle3", 3): 0.04,
    ("eagle3", 5): 0.05,
    ("p-eagle", 3): 0.04,
    ("p-eagle", 5): 0.03,
}


@dataclass
class Summary:
    num_speculative_tokens: int | None
    spec_hash: str = "abc"


@dataclass
class Status:
    summary: Summary


@dataclass
class ScriptedEndpoint:
    spec: EndpointSpec

    @property
    def name(self) -> str:
        return self.spec.name

    def status(self) -> Status:
        return Status(Summary(self.spec.speculation.num_speculative_tokens))


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

    def engines(self) -> list[dict[str, Any]]:
        return [{"endpoint": name, "engine_version": "0.32.0", "overrides": ["eager"]} for name in self.up]


def answer(title: str, arms: Sequence[Arm], endpoints: Mapping[str, Any], prompts: Sequence[Prompt]) -> Run:
    assert {arm.name for arm in arms} == set(endpoints)
    samples: list[Sample] = []
    for arm in arms:
        histogram = () if arm.mode == "none" else (1, 2, 1)
        seconds = SECONDS[arm.mode, arm.num_speculative_tokens]
        samples += [sample(arm.name, prompt.id, seconds, tuple(range(16)), histogram) for prompt in prompts]
    return Run(title, tuple(arms), tuple(samples), (0.5, 1.0))


def swept(stack: ScriptedStack, tmp_path: Path) -> EngineResult:
    with (tmp_path / "progress").open("w") as stream:
        reporter = Reporter(stream)
        return sweep(stack, "eager", [3, 5], PROMPTS, {"HumanEval": OTHERS}, answer, reporter)


def test_each_mode_meets_the_final_at_its_own_best_k_on_other_prompts(tmp_path: Path) -> None:
    stack = ScriptedStack()
    found = swept(stack, tmp_path)
    assert found.best == {"eagle3": 3, "p-eagle": 5}
    final = found.finals["HumanEval"]
    assert [arm.num_speculative_tokens for arm in final.arms] == [None, 3, 5]
    assert {row.prompt_id for row in final.samples} == {"q0", "q1", "q2", "q3"}
    assert final.report().speed_ups["tiny-p-eagle-k5"]["tiny-eagle3-k3"].value == pytest.approx(4 / 3)


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
    found = swept(ScriptedStack(), tmp_path)
    block = found.blocks[5]
    slow = [Sample(s.arm, s.prompt_id, 2 * s.seconds, s.output) for s in block.samples]
    blocks = {3: found.blocks[3], 5: Run(block.title, block.arms, tuple(slow), block.load)}
    assert best_k(blocks, "p-eagle") == 5


SETTINGS: dict[str, Any] = {
    "prompts": 4,
    "final_prompts": 4,
    "held_out_prompts": 6,
    "max_tokens": 16,
    "ks": [3, 5],
    "compiled_ks": [3],
    "stream": False,
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
    "engine": [{"engine_version": "0.32.0", "overrides": ["enforce_eager: true", "port: 1"]}],
    "weights_sha256": {"target/model.safetensors": "0123456789abcdef0123"},
}


def test_the_page_says_what_to_put_in_the_catalogue_and_how_to_do_it_again(tmp_path: Path) -> None:
    text = page([swept(ScriptedStack(), tmp_path)], SETTINGS, PROVENANCE)
    lines = text.splitlines()
    assert "**Small stand-in weights on a CPU.**" in text
    assert "- eager: eagle3 K=3, p-eagle K=5" in lines
    assert "| 5 | p-eagle | 533 | 2.00 | 312 | 250 | 2.67x [2.67, 2.67] | 1.67x [1.67, 1.67] |  |" in lines
    assert "| 3 | none | 200 | 1.00 | 1000 | 0 | - | - | 0.5 -> 1.0 |" in lines
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


def test_the_result_file_names_the_best_k_and_keeps_every_sample(tmp_path: Path) -> None:
    document = bench_modes.to_document([swept(ScriptedStack(), tmp_path)], SETTINGS)
    document = json.loads(json.dumps(document))
    assert document["stand_in_weights"] is True
    assert document["best_k"] == {"eager": {"eagle3": 3, "p-eagle": 5}}
    assert len(document["engines"]["eager"]["finals"]["HumanEval"]["samples"]) == 12
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
    assert (len(prompts.sweep), list(prompts.finals), len(prompts.finals["HumanEval"])) == (
        10,
        ["HumanEval"],
        20,
    )
    assert not {*prompts.sweep} & {*prompts.finals["HumanEval"]}
    assert not {*prompts.warm_up} & {*prompts.sweep, *prompts.finals["HumanEval"]}


def test_held_out_code_joins_the_final_when_it_ships(tmp_path: Path) -> None:
    path = tmp_path / "held-out.jsonl"
    path.write_text("".join(json.dumps({"id": f"h{i}", "text": "def f():"}) + "\n" for i in range(5)))
    options = bench_modes.arguments(["--quick"])
    prompts = bench_modes.choose_prompts(options, path)
    assert len(prompts.finals["held-out code"]) == 5
    assert (options.prompts, options.final_prompts, options.held_out_prompts, options.max_tokens) == (
        8,
        8,
        8,
        64,
    )


def test_specs_carry_k_the_head_and_the_wish_to_compile() -> None:
    spec = spec_of("p-eagle", 7, compiled=True)
    assert spec.name == "tiny-p-eagle-k7-compiled"
    assert spec.speculation.draft_head == "tiny-code-p-eagle"
    assert spec.serving.env == COMPILED
    assert spec_of("none").speculation.num_speculative_tokens is None


@pytest.mark.parametrize(("mode", "k"), [("p-eagle", None), ("none", 5)])
def test_an_endpoint_that_runs_another_mode_is_not_measured(mode: Any, k: int | None) -> None:
    """A speculative endpoint without drafts, or the reverse, would be reported under a wrong name."""

    class Odd(ScriptedEndpoint):
        def status(self) -> Status:
            return Status(Summary(k))

    with pytest.raises(EngineError, match=f"was asked for mode {mode} and runs num_speculative_tokens={k}"):
        arm_of(Odd(spec_of(mode)), mode)
