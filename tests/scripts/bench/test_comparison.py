"""The product's comparison of the modes, and its prompts by how much their answers repeat."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from peagle_bench.benchmark.endpoint_arm import Described
from peagle_bench.compare.run import CompareDependencies
from peagle_bench.results.result_file import read
from peagle_bench.workloads import Workload
from peagle_sm.core.errors import SpecError
from peagle_sm.core.served_target import ServedTarget
from scripts.bench.comparison import (
    HEADS,
    KINDS,
    OWN_PROMPTS,
    figures,
    measured,
    measured_requests,
    prompts,
    spec_of,
    speed_up,
)
from tests.bench.compare.test_contest import items
from tests.bench.compare.virtual import Engines, FakeTarget
from tests.bench.load.virtual import VirtualTime
from tests.scripts.bench.making import ARMS, made, request


def test_each_mode_has_its_head_and_the_catalogues_k() -> None:
    for mode, head in HEADS.items():
        spec = spec_of(mode)
        assert (spec.name, spec.model) == (f"smollm2-{mode}", "smollm2-135m-instruct")
        assert spec.speculation.draft_head == head
        assert spec.speculation.num_speculative_tokens is None


def test_the_kinds_take_turns_and_every_prompt_is_a_greedy_chat() -> None:
    workload = prompts(7, max_tokens=32)
    assert [item.category for item in workload.items] == [*KINDS, *KINDS, KINDS[0]]
    assert workload.temperature == 0.0
    for item in workload.items:
        (message,) = item.body["messages"]
        assert message["role"] == "user"
        rest = {key: value for key, value in item.body.items() if key != "messages"}
        assert rest == {"max_tokens": 32, "temperature": 0.0, "return_token_ids": True}
    assert "```python\n" in workload.items[1].body["messages"][0]["content"]


@pytest.mark.parametrize("count", [-1, 2, 61])
def test_too_few_or_too_many_prompts_are_refused(count: int) -> None:
    with pytest.raises(SpecError, match=f"found {count}; allowed: 3 to 60"):
        prompts(count, max_tokens=32)


def test_the_questions_are_all_different_and_as_many_of_each_kind() -> None:
    items = prompts(60, max_tokens=8).items
    assert len({item.body["messages"][0]["content"] for item in items}) == 60
    assert Counter(item.category for item in items) == dict.fromkeys(KINDS, 20)
    assert OWN_PROMPTS.read_text(encoding="utf-8").count("\n") == 40


def around(time: VirtualTime) -> CompareDependencies:
    names = [arm.name for arm in ARMS]
    engines = Engines(
        time, dict(zip(names, (1.0, 3.0, 4.0), strict=True)), dict.fromkeys(names, 0.01), noise=0.01
    )

    def probe(target: FakeTarget, *_: object) -> object:
        histogram = () if target.arm == "smollm2-none" else (1, 1)
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
    assert len(measured_requests(found)) == len(measured_requests(read(file))) == 27
    ratio = speed_up(found, "p-eagle", "none")
    assert ratio is not None
    assert ratio.low < 4 < ratio.high
    assert speed_up(found, "none", "eagle3") is None
    assert any("one deployment only" in line for line in said)


def test_the_figures_are_of_each_mode() -> None:
    assert figures(made())["p-eagle"] == {
        "num_speculative_tokens": 7,
        "otps": pytest.approx(400),
        "acceptance_length": pytest.approx(2.75),
    }
    assert figures(made())["none"]["acceptance_length"] == 1.0
