"""The product's comparison of the modes, and its prompts by how much their answers repeat."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from peagle_bench.benchmark.endpoint_arm import Described
from peagle_bench.compare.run import CompareDependencies
from peagle_bench.results.result_file import read
from peagle_bench.workloads import Workload
from peagle_sm.core.served_target import ServedTarget
from scripts.bench.comparison import (
    COMPILED,
    REST,
    THIRD,
    Category,
    differing,
    figures,
    human_eval,
    identity_text,
    measured,
    measured_requests,
    spec_of,
    speed_up,
    within,
)
from tests.bench.compare.test_contest import items
from tests.bench.compare.virtual import Engines, FakeTarget
from tests.bench.load.virtual import VirtualTime
from tests.scripts.bench.making import ARMS, made, request, results


def test_specs_carry_k_the_head_and_the_wish_to_compile() -> None:
    spec = spec_of("p-eagle", 7, compiled=True)
    assert spec.name == "tiny-p-eagle-k7-compiled"
    assert spec.speculation.draft_head == "tiny-code-p-eagle"
    assert spec.serving.env == COMPILED
    assert spec_of("none").speculation.num_speculative_tokens is None


def test_every_mode_gets_humaneval_greedily_and_answers_with_token_ids() -> None:
    workload = human_eval(4, max_tokens=32, seed=1)
    assert (workload.name, len(workload.items), workload.temperature) == ("HumanEval", 4, 0.0)
    body = {key: value for key, value in workload.items[0].body.items() if key != "prompt"}
    assert body == {"max_tokens": 32, "temperature": 0.0, "return_token_ids": True}


def around(time: VirtualTime) -> CompareDependencies:
    names = [arm.name for arm in ARMS]
    engines = Engines(
        time, dict(zip(names, (1.0, 3.0, 4.0), strict=True)), dict.fromkeys(names, 0.01), noise=0.01
    )

    def probe(target: FakeTarget, *_: object) -> object:
        histogram = () if target.arm == "tiny-none" else (1, 1)
        return [request(target.arm, "probe", 1.0, histogram=histogram)], None

    return CompareDependencies(
        progress=lambda event: None,
        target_of=lambda arm: FakeTarget(arm.name),
        look=lambda arm: None,
        provenance=lambda: {"seed": 0},
        measure=probe,
        run=time.run,
        connect=engines.connect,
        clock=time.clock,
    )


def test_the_modes_answer_in_turns_and_the_file_of_the_last_run_is_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "results" / "r.jsonl"
    workload = Workload("mine", items(9), None, None, "a test", 9, temperature=0.0)
    described = [Described(arm, target=ServedTarget(stand_in=True)) for arm in ARMS]
    said: list[str] = []
    for _ in range(2):
        found = measured(described, workload, file, around(VirtualTime()), {"seed": 7}, said.append)
    assert [arm.mode for arm in found.arms] == ["none", "eagle3", "p-eagle"]
    assert (found.header.config["seed"], found.header.config["control"]) == (7, False)
    assert len(found.requests) == len(measured_requests(read(file))) == 27
    assert not differing(found)
    ratio = speed_up(found, "p-eagle", "none")
    assert ratio is not None
    assert ratio.low < 4 < ratio.high
    assert speed_up(found, "none", "eagle3") is None
    assert any("one deployment only" in line for line in said)


def test_the_least_repetitive_third_leaves_the_loops_out() -> None:
    results = made(prompts=24)  # an interval needs eight prompts
    by_category: dict[Category, set[str]] = {
        name: {row.prompt_id for row in within(results, name).requests} for name in (THIRD, REST)
    }
    third = {f"p{number}" for number in (1, 10, 11, 13, 14, 16, 17, 19)}
    assert by_category == {THIRD: third, REST: {f"p{number}" for number in range(24)} - third}
    alone = {(row.faster, row.slower): row.ratio for row in within(results, THIRD).comparisons}
    slices = [each for each in results.slices if each.value == THIRD]
    assert len(slices) == len(alone)
    for each in slices:
        assert each.speed_up is not None
        assert each.speed_up.value == alone[each.arm, each.baseline or ""].value


def test_the_mode_without_speculation_chooses_the_third() -> None:
    rows = list(made().requests)
    rows = [replace(row, distinct_4_grams=0.0) if row.arm != "tiny-none" else row for row in rows]
    assert {row.prompt_id for row in within(results(rows), THIRD).requests} == {"p1", "p2"}


def test_the_figures_of_the_third_are_of_its_requests_alone() -> None:
    rows = [
        replace(row, output_tokens=8) if row.prompt_id in ("p0", "p3", "p4", "p5") else row
        for row in made().requests
    ]
    third = figures(within(results(rows), THIRD))
    assert third["none"] == {
        "num_speculative_tokens": None,
        "otps": pytest.approx(200),
        "acceptance_length": 1.0,
        "distinct_4_grams": 1.0,
    }
    assert third["p-eagle"]["acceptance_length"] == pytest.approx(2.75)


def test_a_third_of_two_prompts_is_both_of_them() -> None:
    few = results([row for row in made().requests if row.prompt_id in ("p0", "p1")])
    assert len(within(few, THIRD).comparisons) == 3


def test_one_different_output_is_a_difference_and_so_is_a_request_that_failed() -> None:
    assert identity_text(made()) == "identical outputs: yes, 6 of 6 prompts (by token ids)"
    found = made(different=True)
    assert differing(found) == ["p4"]
    assert identity_text(found).endswith("NO, 5 of 6 prompts (by token ids); different on p4")
    rows = [
        request(row.arm, row.prompt_id, 0.1, error="ModelError")
        if (row.arm, row.prompt_id) == ("tiny-eagle3", "p1")
        else row
        for row in made().requests
    ]
    failed = results(rows)
    assert differing(failed) == ["p1"]
    assert len(within(failed, THIRD).comparisons) == 1, "a ratio over one prompt has no interval"
