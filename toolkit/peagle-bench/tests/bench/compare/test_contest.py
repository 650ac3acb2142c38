"""Whole comparisons on simulated engines in virtual time: who is asked what, when, and what comes out."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.compare.alternating import TurnContext
from peagle_bench.compare.analysis import ArmDeployments, control_of
from peagle_bench.compare.measurement import Contest, Setup
from peagle_bench.load import LoadRun, LoadStopped, Silent, Timeouts, WorkItem
from peagle_bench.results.records import ArmRecord, ComparisonRecord, Header, Load
from peagle_bench.results.result_file import ResultWriter, read
from peagle_sm.core.errors import SpecError
from tests.bench.compare.simulating import ALONE, EIGHT
from tests.bench.compare.virtual import Engines, FakeTarget
from tests.bench.load.virtual import VirtualTime

ARMS = (
    ArmRecord("none", "none", None, "plain", usd_per_hour=3.6),
    ArmRecord("p-eagle", "p-eagle", 7, "fast", usd_per_hour=3.6),
)
ACCEPTANCE = {"none": 1.0, "p-eagle": 3.0}
STEP_S = {"none": 0.010, "p-eagle": 0.015}


def items(count: int = 60) -> tuple[WorkItem, ...]:
    return tuple(
        WorkItem(f"p{n}", {"prompt": f"prompt {n}"}, category=("code", "prose")[n % 2]) for n in range(count)
    )


class Play:
    """One contest between simulated engines, with the file that it writes."""

    def __init__(self, folder: Path, loads: tuple[Load, ...] = (ALONE,), **more: Any) -> None:
        setup = {name: more.pop(name) for name in ("blocks", "repeat") if name in more}
        self.setup = Setup(more.pop("prompts", items()), loads, **setup)
        self.time = VirtualTime()
        self.engines = Engines(self.time, ACCEPTANCE, STEP_S, **more)
        self.path = folder / "results.jsonl"
        self.writer = ResultWriter(self.path)
        self.writer.append(Header("run", "compare", {}, {}, True))
        self.contest = Contest(
            self.setup, self.writer, "salt", self.context, self.time.run, load_average=lambda: 0.5
        )
        control = control_of(ArmDeployments(ARMS[:1]))
        self.arms = (*ARMS, *control.arms)
        self.sides = [ArmDeployments((arm,)) for arm in self.arms]

    def context(self, on_run: Callable[[LoadRun], None]) -> TurnContext:
        return TurnContext(Timeouts(), 0.0, Silent(), on_run, self.time.clock, self.engines.connect)

    def measure(self) -> None:
        self.contest.measure(0, self.arms, lambda arm: FakeTarget(arm.name))

    def conclude(self) -> dict[str, ComparisonRecord]:
        result = self.contest.conclude(self.sides)
        self.writer.close()
        return {f"{row.faster} over {row.slower}, {row.load.label}": row for row in result}


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., Play]:
    return lambda *args, **more: Play(tmp_path, *args, **more)


def test_one_request_in_flight_is_paired_by_prompt(play: Callable[..., Play]) -> None:
    game = play(noise=0.05)
    game.measure()
    result = game.conclude()["p-eagle over none, c=1"]
    assert (result.over, result.units) == ("prompts", 60)
    assert result.ratio.low < 3 / 1.5 < result.ratio.high
    assert result.ratio.shown
    assert result.acceptance_ratio is not None
    assert result.acceptance_ratio.value == pytest.approx(3, rel=0.02)
    assert (result.identical_outputs, result.compared_outputs) == (60, 60)


def test_an_endpoint_beside_itself_is_no_difference(play: Callable[..., Play]) -> None:
    game = play((ALONE, EIGHT), noise=0.05, blocks=3)
    game.measure()
    comparisons = game.conclude()
    for load in ("c=1", "c=8"):
        result = comparisons[f"none (A/A) over none, {load}"]
        assert result.control
        assert not result.ratio.shown


def test_every_arm_gets_every_prompt_before_the_next_one_and_a_salt_of_its_own(
    play: Callable[..., Play],
) -> None:
    game = play(prompts=items(6))
    game.measure()
    sent = [(arm, body["prompt"], body["cache_salt"]) for arm, body in game.engines.bodies]
    measured = sent[2 * len(ARMS) + 2 :]
    for turn in range(6):
        group = measured[3 * turn : 3 * turn + 3]
        assert {prompt for _, prompt, _ in group} == {f"prompt {turn}"}
        assert {arm for arm, _, _ in group} == {"none", "p-eagle", "none (A/A)"}
        assert len({salt for _, _, salt in group}) == 3
    assert [measured[3 * turn][0] for turn in range(3)] == ["none", "p-eagle", "none (A/A)"]
    warm_up = sent[: 2 * len(ARMS) + 2]
    assert not {(prompt, salt) for _, prompt, salt in warm_up} & {
        (prompt, salt) for _, prompt, salt in measured
    }


def test_under_load_a_machine_that_slows_down_slows_all_arms_alike(play: Callable[..., Play]) -> None:
    """By 1% a second: measured one after the other, arms of equal speed would lie 20% apart and more."""
    game = play((EIGHT,), drift=0.01, blocks=3)
    game.measure()
    comparisons = game.conclude()
    result = comparisons["p-eagle over none, c=8"]
    assert (result.over, result.units) == ("blocks", 3)
    assert result.ratio.value == pytest.approx(2, rel=0.03)
    assert comparisons["none (A/A) over none, c=8"].ratio.value == pytest.approx(1, rel=0.03)


def test_under_load_all_arms_get_the_same_prompts_and_none_twice(play: Callable[..., Play]) -> None:
    game = play((EIGHT,), blocks=3)
    game.measure()
    by_arm: dict[str, list[str]] = {}
    for records in read(game.path).requests:
        if records.phase == "measured":
            by_arm.setdefault(records.arm, []).append(records.prompt_id)
    assert {tuple(sorted(prompts)) for prompts in by_arm.values()} == {tuple(sorted(by_arm["none"]))}
    assert len(set(by_arm["none"])) == len(by_arm["none"]) == 60
    salts = [(body["prompt"], body["cache_salt"]) for _, body in game.engines.bodies]
    assert len(set(salts)) == len(salts), "a prompt that comes again must not find itself in the prefix cache"


def test_the_file_holds_all_of_it(play: Callable[..., Play]) -> None:
    game = play((ALONE, EIGHT), blocks=2)
    game.measure()
    comparisons = game.conclude()
    results = read(game.path)
    assert [arm.name for arm in results.arms] == ["none", "p-eagle", "none (A/A)"]
    assert list(results.comparisons) == list(comparisons.values())
    assert [(point.arm, point.load.label) for point in results.points] == [
        (arm, load) for load in ("c=1", "c=8") for arm in ("none", "p-eagle", "none (A/A)")
    ]
    alone, loaded = results.points[1], results.points[4]
    seconds = sum(
        request.done_s - request.sent_s
        for request in results.requests
        if (request.arm, request.load, request.phase) == ("p-eagle", ALONE, "measured")
    )
    assert alone.seconds == pytest.approx(seconds)
    assert alone.otps == pytest.approx(alone.output_tokens / seconds)
    assert alone.acceptance is not None
    assert (alone.requests, loaded.requests) == (60, 60)
    assert alone.usd == pytest.approx(seconds / 1000)
    assert loaded.otps > 2 * alone.otps
    assert loaded.temperature == 0


def test_under_load_a_dead_endpoint_is_given_up_after_one_window(play: Callable[..., Play]) -> None:
    game = play((EIGHT,), blocks=3, dies_after={"p-eagle": 40})
    with pytest.raises(
        LoadStopped, match=r"p-eagle: every request of block 2 failed; last error: ModelError: gone"
    ):
        game.measure()
    game.conclude()
    assert "prompts or blocks measured in both arms: 1" in game.contest.notes[0], (
        "one whole block is not enough for an interval"
    )
    assert sum(request.error is not None for request in read(game.path).requests) > 18, (
        "what failed is written down"
    )


def test_salts_are_such_as_vllm_takes(play: Callable[..., Play]) -> None:
    game = play((ALONE, EIGHT), blocks=3)
    game.measure()
    for _, body in game.engines.bodies:
        assert re.fullmatch(r"[0-9a-z]{1,128}", body["cache_salt"])


def test_too_few_prompts_are_refused_before_anything_is_asked(tmp_path: Path) -> None:
    Setup(items(96), (EIGHT,), blocks=6).check()
    with pytest.raises(SpecError, match="95 prompts; c=8 needs 96 different ones"):
        Setup(items(95), (EIGHT,), blocks=6).check()
    Setup(items(2), (ALONE, EIGHT), blocks=6, repeat=True).check()
    with pytest.raises(SpecError, match="1 prompts and 6 blocks; a confidence interval needs at least 2"):
        Setup(items(1), (ALONE,)).check()


def test_repeated_prompts_come_under_another_salt(play: Callable[..., Play]) -> None:
    game = play((EIGHT,), prompts=items(10), blocks=2, repeat=True)
    game.measure()
    sent = [(body["prompt"], body["cache_salt"]) for _, body in game.engines.bodies]
    assert len(set(sent)) == len(sent)
    assert game.conclude()["p-eagle over none, c=8"].units == 2
