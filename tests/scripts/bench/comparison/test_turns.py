from __future__ import annotations

from collections import Counter

import pytest

from peagle_sm.measure.workloads.public_datasets import Prompt
from scripts.bench.comparison.sample import Sample
from scripts.bench.comparison.turns import Answer, Ask, run_turns
from tests.scripts.bench.comparison.making import output

ARMS = ["none", "eagle3", "p-eagle"]
PROMPTS = [Prompt(f"p{i}", f"text {i}") for i in range(6)]


class Recorder:
    """Arms that note who was asked what, and fail when two are asked at once."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.busy = False

    def arm(self, name: str) -> Ask:
        def ask(prompt: Prompt) -> Answer:
            assert not self.busy
            self.busy = True
            self.asked.append((name, prompt.id))
            self.busy = False
            return Answer(output(), 0.5)

        return ask


def test_every_arm_answers_every_prompt_before_the_next_prompt_comes() -> None:
    recorder = Recorder()
    samples = run_turns(PROMPTS, {name: recorder.arm(name) for name in ARMS})
    assert [prompt for _, prompt in recorder.asked] == [prompt.id for prompt in PROMPTS for _ in ARMS]
    assert Counter(sample.arm for sample in samples) == dict.fromkeys(ARMS, len(PROMPTS))


def test_warm_up_is_asked_of_every_arm_and_not_recorded() -> None:
    recorder = Recorder()
    asks = {name: recorder.arm(name) for name in ARMS}
    samples = run_turns(PROMPTS[:1], asks, warm_up=[Prompt("warm", "")])
    assert recorder.asked[:3] == [(name, "warm") for name in ARMS]
    assert {sample.prompt_id for sample in samples} == {"p0"}


def test_samples_are_told_as_they_come_with_the_seconds_since_the_start() -> None:
    ticks = iter(range(100))
    seen: list[Sample] = []
    recorder = Recorder()
    run_turns(
        PROMPTS[:2],
        {"none": recorder.arm("none")},
        on_sample=seen.append,
        monotonic=lambda: float(next(ticks)),
    )
    assert [(sample.prompt_id, sample.started_at) for sample in seen] == [("p0", 1.0), ("p1", 2.0)]


def test_an_arm_that_fails_ends_the_run() -> None:
    def broken(prompt: Prompt) -> Answer:
        raise ConnectionError(prompt.id)

    with pytest.raises(ConnectionError, match="p0"):
        run_turns(PROMPTS, {"none": broken})
