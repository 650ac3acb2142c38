"""A run from its plan to its file: loads in turn, an interruption, and refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.benchmark.endpoint_arm import Described
from peagle_bench.benchmark.plan import BenchPlan, loads_of, probed
from peagle_bench.benchmark.run import bench
from peagle_bench.results.records import Acceptance, Mode
from peagle_bench.results.result_file import Outcome, read
from peagle_sm.core.errors import Interrupted, ServiceFault, SpecError
from tests.bench.benchmark.making import TARGET, FakeClient, World, described, workload

PLAN = BenchPlan(loads_of([1, 2], []))


def run(path: Path, world: World, plan: BenchPlan = PLAN, **more: Any) -> Outcome:
    work = more.pop("work", workload())
    arm = described(**more)
    return bench(arm, TARGET, work, plan, path, world.around())


def test_every_load_has_its_point_and_every_request_its_line(tmp_path: Path) -> None:
    world = World()
    result = run(tmp_path / "r.jsonl", world)
    results = read(result.path)
    assert results.header.command == "bench"
    assert results.header.run_id.startswith("bench-20261120T130000Z-")
    assert results.header.stand_in_weights
    assert [point.load.label for point in results.points] == ["c=1", "c=2"]
    phases = [(request.load.label, request.phase) for request in results.requests]
    assert phases.count(("c=2", "warm-up")) == 2
    assert phases.count(("c=2", "measured")) == 6
    assert results.points[0].acceptance is not None
    assert results.points[0].acceptance.per_step == pytest.approx(1 + 5 / 4)
    assert all("the window is too short: 6 requests" in note for note in result.notes)


def test_a_prompt_is_sent_once_a_load_and_each_load_has_a_salt_of_its_own(tmp_path: Path) -> None:
    world = World()
    run(tmp_path / "r.jsonl", world)
    keys = [(item.prompt_id, item.body["cache_salt"]) for _, item in world.client.sent]
    assert len(set(keys)) == len(keys)
    measured = {item.body["cache_salt"] for label, item in world.client.sent if "#" not in item.prompt_id}
    assert len(measured) == 3, "of the probe and of each load"
    assert world.client.sent[0][1].prompt_id == "p/5"  # the longest first


def test_progress_tells_rate_acceptance_and_spend(tmp_path: Path) -> None:
    world = World()
    run(tmp_path / "r.jsonl", world)
    last = world.events[-1]
    assert last.message == "c=2: done, 6 requests in 6.0 s, 4 tokens/s, acceptance length 2.25"
    middle = [event for event in world.events if event.message.startswith("c=2: 3 of 6 requests")]
    assert "4 tokens/s" in middle[0].message
    assert middle[0].spent_usd == pytest.approx(36.0 * middle[0].elapsed_s / 3600)


def test_ctrl_c_keeps_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    world = World(FakeClient())
    plan = replace(PLAN, loads=loads_of([1, 3], []))
    world.client.interrupt_after = 8  # of c=3, whose warm-up is 3; c=1 sends 7
    with pytest.raises(Interrupted) as raised:
        run(path, world, plan)
    assert "1 finished load, and 5 answered requests of this load" in raised.value.message
    assert f"peagle-sm report {path}" in (raised.value.next_step or "")
    results = read(path)
    assert (len(results.points), len(results.requests), len(results.arms)) == (1, 7 + 8, 1)
    with pytest.raises(SpecError, match="exists already"):
        run(path, World())


def test_ctrl_c_before_the_first_load_leaves_no_empty_file_and_says_how_to_go_on(tmp_path: Path) -> None:
    def interrupted() -> dict[str, object]:
        raise KeyboardInterrupt

    path = tmp_path / "r.jsonl"
    with pytest.raises(Interrupted, match="nothing was saved") as raised:
        run(path, World(provenance=interrupted))
    assert raised.value.next_step == "run the same command again"
    assert not path.exists()


def test_an_endpoint_that_dies_is_told_with_its_reason_and_what_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    world = World(FakeClient(stop_after=4))
    with pytest.raises(ServiceFault) as raised:
        run(path, world)
    message = raised.value.message
    assert message.startswith("demo stopped answering at c=1 (the last 20 requests failed)")
    assert "the endpoint is Failed: out of memory" in message
    assert f"saved in {path}: 0 finished loads, and 3 answered requests" in message
    assert len(read(path).requests) == 4


def test_a_load_without_any_answer_is_no_point(tmp_path: Path) -> None:
    errors = {f"p/{n}": ("ModelError", "no") for n in range(6)}
    world = World(FakeClient(errors=errors, probe_works=True))
    with pytest.raises(ServiceFault, match="every request failed: 6 x ModelError"):
        run(tmp_path / "r.jsonl", world)
    assert read(tmp_path / "r.jsonl").points == ()


def test_failed_requests_are_counted_and_the_first_is_shown(tmp_path: Path) -> None:
    world = World(FakeClient(errors={"p/1": ("StreamError", "cut"), "p/2": ("StreamError", "cut")}))
    result = run(tmp_path / "r.jsonl", world, BenchPlan(loads_of([1], [])))
    assert result.notes[1:] == ("c=1: 2 of 6 requests failed (2 x StreamError); the first: cut",)


def test_a_first_request_that_fails_otherwise_is_a_fault(tmp_path: Path) -> None:
    world = World(FakeClient(errors={"p/5": ("ThrottlingException", "slow down")}))
    with pytest.raises(ServiceFault, match="first request"):
        run(tmp_path / "r.jsonl", world)


class Source:
    """An engine whose counters say so and so many drafts."""

    def __init__(self, drafts: bool | None, found: Acceptance | None = None) -> None:
        self.drafts, self.found = drafts, found
        self.begun = 0

    def begin(self) -> None:
        self.begun += 1

    def end(self) -> Acceptance | None:
        return self.found


@pytest.mark.parametrize(
    ("histogram", "counters", "expected", "refused"),
    [
        ((1, 1, 2), None, "none", "its engine drafts"),
        ((), True, "none", "its engine drafts"),
        ((), False, "p-eagle", "does not draft"),
        ((), False, "none", None),
        ((), None, "eagle3", None),
        ((1, 1, 2), None, "eagle3", None),
    ],
)
def test_the_mode_is_held_against_what_the_engine_shows(
    histogram: tuple[int, ...], counters: bool | None, expected: Mode, refused: str | None
) -> None:
    def probe() -> Described:
        return probed(
            TARGET,
            workload(),
            described(mode=expected, num_speculative_tokens=None),
            "salt",
            FakeClient(histogram=histogram),
            drafts_of=lambda: counters,
            expected=expected,
        )

    if refused is None:
        assert probe().arm.num_speculative_tokens == (2 if histogram else None)
        return
    with pytest.raises(SpecError, match=refused):
        probe()


def test_acceptance_comes_from_the_engine_when_answers_do_not_carry_it(tmp_path: Path) -> None:
    acceptance = Acceptance("metrics", 1.2, None, (0.6, 0.05), 4000, 800)
    source = Source(True, acceptance)
    result = run(tmp_path / "r.jsonl", World(FakeClient(histogram=()), source=source))
    assert [point.acceptance for point in result.results.points] == [acceptance, acceptance]
    assert source.begun == 2
    assert any("parallel drafting ineffective" in note for note in result.notes)
    silent = run(tmp_path / "s.jsonl", World(FakeClient(histogram=()), source=Source(None)))
    assert any("acceptance unknown" in note for note in silent.notes)
    plain = run(
        tmp_path / "n.jsonl", World(FakeClient(histogram=()), source=Source(False, acceptance)), mode="none"
    )
    assert [point.acceptance for point in plain.results.points] == [None, None]
