"""The whole use case in virtual time: its file, its notes, and every way in which it can end early."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.benchmark.endpoint_arm import Described
from peagle_bench.compare.deployments import Round
from peagle_bench.compare.measurement import Setup
from peagle_bench.compare.run import CompareDependencies, compare
from peagle_bench.load import ClientUsage, LoadRun, Window
from peagle_bench.load.points import make_point
from peagle_bench.results.records import ArmRecord, Load
from peagle_bench.results.result_file import Outcome, read
from peagle_bench.workloads import Workload
from peagle_sm.core.errors import (
    BillableLeft,
    EndpointFailed,
    Interrupted,
    PeagleError,
    ServiceFault,
    SpecError,
)
from peagle_sm.core.served_target import ServedTarget
from peagle_sm.service.progress import Event
from tests.bench.compare.simulating import ALONE, request
from tests.bench.compare.test_contest import ACCEPTANCE, ARMS, STEP_S, items
from tests.bench.compare.virtual import Engines, FakeTarget
from tests.bench.load.virtual import VirtualTime


class Play:
    """A comparison of two simulated endpoints, in one or several deployments."""

    def __init__(
        self, folder: Path, prompts: int = 24, loads: tuple[Load, ...] = (ALONE,), **more: Any
    ) -> None:
        self.path = folder / "results" / "r.jsonl"
        self.workload = Workload("mine", items(prompts), None, None, "a test", prompts, ("mind this",), 0.0)
        self.setup = Setup(self.workload.items, loads, blocks=2)
        self.time = VirtualTime()
        names = [f"{arm.name}{ending}" for arm in ARMS for ending in ("", "@2")]
        speeds = {name: (ACCEPTANCE[name.split("@")[0]], STEP_S[name.split("@")[0]]) for name in names}
        self.engines = Engines(
            self.time,
            {name: acceptance for name, (acceptance, _) in speeds.items()},
            {name: step for name, (_, step) in speeds.items()},
            **more,
        )
        self.events: list[Event] = []
        self.closed: list[int] = []
        self.drafts: dict[str, int] = {"none": 0, "p-eagle": 7}

    def around(self) -> CompareDependencies:
        return CompareDependencies(
            progress=self.events.append,
            target_of=lambda arm: FakeTarget(arm.name),
            look=lambda arm: f"{arm.endpoint} does not exist any more",
            provenance=lambda: {"seed": 0},
            drafts_of=lambda arm: self.drafts[arm.name.split("@")[0]] > 0,
            measure=self.probe,
            run=self.time.run,
            connect=self.engines.connect,
            clock=self.time.clock,
            token=lambda: "salt",
        )

    def probe(self, target: FakeTarget, load: Load, work: Any, options: Any) -> Any:
        histogram = (1,) * (self.drafts[target.arm.split("@")[0]] + 1)
        record = replace(request(target.arm, "p0"), histogram=histogram if len(histogram) > 1 else ())
        run = LoadRun(target.arm, load, 0, (record,), Window(0, 1, 1), ClientUsage((), 0))
        return [record], make_point(run)

    def arms(self, number: int) -> list[Described]:
        ending = "" if number == 0 else f"@{number + 1}"
        return [
            Described(replace(arm, name=arm.name + ending), ServedTarget(stand_in=True), {"image": "x"})
            for arm in ARMS
        ]

    @contextmanager
    def deployment(self, number: int, error: BaseException | None = None) -> Iterator[Sequence[Described]]:
        if error is not None:
            raise error
        try:
            yield self.arms(number)
        finally:
            self.closed.append(number)

    def compare(self, *rounds: Round, **more: Any) -> Outcome:
        chosen = rounds or (self.deployment(0),)
        return compare(chosen, self.setup, self.workload, self.path, self.around(), **more)


def test_a_comparison_in_one_deployment(tmp_path: Path) -> None:
    game = Play(tmp_path, noise=0.02)
    outcome = game.compare(config={"seed": 3})
    header = outcome.results.header
    assert (header.command, header.stand_in_weights, header.config["seed"]) == ("compare", True, 3)
    assert header.provenance["endpoints"]["p-eagle"] == {"image": "x"}
    assert [comparison.faster for comparison in outcome.results.comparisons] == ["p-eagle", "none (A/A)"]
    assert outcome.notes[0] == "mind this"
    assert any("one deployment only" in note for note in outcome.notes)
    assert game.events[-1].phase == "done"
    assert "72 of 72 requests; tokens/s per request: none " in game.events[-1].message
    assert game.closed == [0]


def test_progress_has_the_time_left(tmp_path: Path) -> None:
    game = Play(tmp_path, noise=0.02)
    game.compare()
    left = {each.done: each.left_s for each in game.events if each.total == 72}
    assert left[36] == pytest.approx(game.events[-1].elapsed_s / 2, rel=0.2)
    assert left[72] is None
    message = next(each.message for each in game.events if each.done == 36)
    assert message.endswith("s left")


def test_two_deployments_give_an_interval_over_deployments(tmp_path: Path) -> None:
    game = Play(tmp_path, noise=0.02)
    outcome = game.compare(game.deployment(0), game.deployment(1))
    assert [(comparison.over, comparison.deployments) for comparison in outcome.results.comparisons] == 2 * [
        ("deployments", 2)
    ]
    assert [arm.name for arm in outcome.results.arms] == [
        *("none", "p-eagle", "none (A/A)"),
        *("none@2", "p-eagle@2", "none@2 (A/A)"),
    ]
    assert not any("one deployment only" in note for note in outcome.notes)
    assert game.closed == [0, 1]


def test_without_a_control_the_arms_alone_are_asked(tmp_path: Path) -> None:
    outcome = Play(tmp_path).compare(control=False)
    assert [comparison.faster for comparison in outcome.results.comparisons] == ["p-eagle"]


def test_a_comparison_keeps_no_answers(tmp_path: Path) -> None:
    """They were kept, since an option was passed in the place of another one."""
    outcome = Play(tmp_path).compare()
    assert {slice.dimension for slice in outcome.results.slices} == {"category"}
    assert {request.text for request in outcome.results.requests} == {None}


def test_ctrl_c_says_what_was_saved(tmp_path: Path) -> None:
    game = Play(tmp_path, interrupt_after=6 + 3 * 10)
    with pytest.raises(Interrupted, match=f"Interrupted; saved in {game.path}: 2 comparisons") as caught:
        game.compare()
    assert caught.value.next_step == f"peagle-sm report {game.path}"
    assert read(game.path).comparisons[0].units == 10
    assert game.closed == [0], "its endpoints are deleted before anything else"


def test_ctrl_c_in_a_deployment_says_what_became_of_it_and_of_the_figures(tmp_path: Path) -> None:
    game = Play(tmp_path)
    deleted = Interrupted("Interrupted; deleted: cmp-none", details={"deleted": ["cmp-none"]})
    with pytest.raises(Interrupted, match=r"^Interrupted; deleted: cmp-none; saved in .*: 2 comp") as caught:
        game.compare(game.deployment(0), game.deployment(1, deleted))
    assert caught.value.next_step == f"peagle-sm report {game.path}"
    assert caught.value.details == {"deleted": ["cmp-none"], "file": str(game.path)}


def test_a_dead_endpoint_is_told_with_how_it_looks_and_what_was_saved(tmp_path: Path) -> None:
    game = Play(tmp_path, dies_after={"p-eagle": 12})
    with pytest.raises(ServiceFault) as caught:
        game.compare()
    message = str(caught.value)
    assert message.startswith("p-eagle: the last 5 prompts failed; last error: ModelError: gone")
    assert "; fast does not exist any more; saved in" in message
    assert read(game.path).comparisons[0].units == 10


def test_a_second_deployment_that_fails_keeps_the_first(tmp_path: Path) -> None:
    game = Play(tmp_path)
    failed = EndpointFailed("cmp-none did not come up")
    with pytest.raises(EndpointFailed, match=r"did not come up \(saved in .*: 2 comparisons"):
        game.compare(game.deployment(0), game.deployment(1, failed))
    assert [comparison.deployments for comparison in read(game.path).comparisons] == [1, 1]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (partial(EndpointFailed, "no"), "no"),
        (partial(BillableLeft, "left"), "left"),
        (KeyboardInterrupt, "nothing was measured"),
        (
            partial(Interrupted, "Interrupted; deleted: a."),
            "^Interrupted; deleted: a; nothing was measured.$",
        ),
    ],
    ids=["failed", "left", "ctrl-c", "interrupted"],
)
def test_nothing_measured_leaves_no_file(
    tmp_path: Path, error: Callable[[], BaseException], told: str
) -> None:
    game = Play(tmp_path)
    with pytest.raises(PeagleError, match=told):
        game.compare(game.deployment(0, error()))
    assert not game.path.exists()


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    game = Play(tmp_path)
    game.compare()
    with pytest.raises(SpecError, match="exists already"):
        game.compare(nullcontext(game.arms(0)))
    assert game.closed == [0]


def test_k_is_learnt_from_the_engine_where_nothing_else_tells(tmp_path: Path) -> None:
    game = Play(tmp_path)
    nameless = [
        replace(arm, arm=replace(arm.arm, mode="unknown", num_speculative_tokens=None))
        for arm in game.arms(0)
    ]
    outcome = game.compare(nullcontext(nameless))
    arms: dict[str, ArmRecord] = {arm.name: arm for arm in outcome.results.arms}
    assert (arms["none"].num_speculative_tokens, arms["p-eagle"].num_speculative_tokens) == (None, 7)
