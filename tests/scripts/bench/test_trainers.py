"""`scripts/bench-trainers`: budget to steps, the ratio, the decision and the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from peagle_bench.results.records import Interval
from peagle_sm.core.errors import EngineError, SpecError
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from scripts.bench.training.trainers import RATES, Run, equal_pair, precision_of, prompt_sets, steps_within
from scripts.bench.training.trainers_page import SPECULATORS, USERS, edges, length, page, ratios, verdict


def _runs(first_s: float, step_s: float) -> list[Run]:
    return [Run(SPECULATORS, steps, 2e-3, cpu_s=first_s + steps * step_s) for steps in (5, 25)]


def test_steps_end_within_the_budget_by_the_cost_of_finished_runs() -> None:
    steps = steps_within(600, _runs(12, 0.4))
    assert 600 * 0.99 < 12 + 0.4 * steps <= 600


@pytest.mark.parametrize("step_s", [0.4, 0.0])
def test_a_budget_below_the_cost_of_starting_is_refused(step_s: float) -> None:
    with pytest.raises(SpecError, match="too small"):
        steps_within(12, _runs(12, step_s))


class _Trained:
    """Stands for `Trainings.together`: a step of users' code costs more than short runs show."""

    def __init__(self, step_s: float) -> None:
        self.step_s, self.pairs = step_s, 0

    def __call__(self, runs: Sequence[Run]) -> list[Run]:
        self.pairs += 1
        costs = {SPECULATORS: 0.4, USERS: self.step_s}
        return [replace(run, cpu_s=12 + run.steps * costs[run.trainer]) for run in runs]


def test_a_pair_that_missed_the_budget_is_repeated_with_steps_known_better() -> None:
    costs = {name: [replace(run, trainer=name) for run in _runs(12, 0.4)] for name in RATES}
    wanted, trained = [Run(name, 20, 2e-3, seed=1) for name in RATES], _Trained(0.5)
    runs = equal_pair(trained, wanted, costs, 600, print)
    assert trained.pairs == 2
    assert all(570 <= run.cpu_s <= 630 and run.seed == 1 for run in runs)


def test_runs_that_never_meet_the_budget_give_no_comparison() -> None:
    class Erratic(_Trained):
        def __call__(self, runs: Sequence[Run]) -> list[Run]:
            self.step_s = 0.9 if self.step_s < 0.5 else 0.2
            return super().__call__(runs)

    costs = {name: [replace(run, trainer=name) for run in _runs(12, 0.4)] for name in RATES}
    wanted = [Run(name, 20, 2e-3) for name in RATES]
    with pytest.raises(EngineError, match="3 pairs of runs missed the budget"):
        equal_pair(Erratic(0.4), wanted, costs, 600, print)


def test_the_name_of_a_run_is_one_of_an_endpoint() -> None:
    names = [Run(name, 1200, rate, seed=1).name for name, rates in RATES.items() for rate in rates]
    assert len(set(names)) == 8
    assert all(EndpointSpec(name=name, model="tiny-code").name == name for name in names)


def test_the_precision_follows_the_processor(tmp_path: Path) -> None:
    for flags, expected in (("avx2 avx512f", "float32"), ("avx512f avx512_bf16", "bfloat16")):
        (tmp_path / "cpuinfo").write_text(f"flags\t\t: fpu {flags}\n")
        assert precision_of(tmp_path / "cpuinfo") == expected
    assert precision_of(tmp_path / "missing") == "float32"


def test_no_prompt_chooses_a_rate_and_decides() -> None:
    sets = prompt_sets(48, 160)
    tuning, final = ({item.prompt_id for item in items} for items in sets.values())
    assert (len(tuning), len(final), tuning & final) == (48, 160, set())


def test_the_ratio_is_paired_by_prompt_and_counts_the_seeds() -> None:
    tiny = [{f"p{n}": (40.0 + n, 10.0) for n in range(30)}] * 2
    worse = [{prompt: (0.9 * tokens, steps) for prompt, (tokens, steps) in one.items()} for one in tiny]
    both, prompts = ratios(worse, tiny)
    assert prompts.value == pytest.approx(0.9)
    assert prompts.low == pytest.approx(prompts.high)
    assert (both.low, both.high) == (pytest.approx(prompts.low), pytest.approx(prompts.high))
    worst = [worse[0], {prompt: (0.8 * tokens, steps) for prompt, (tokens, steps) in tiny[1].items()}]
    both, prompts = ratios(worst, tiny)
    assert both.high - both.low > prompts.high - prompts.low
    assert length(worst[0]) / length(tiny[0]) == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            Interval(0.9, 0.85, 0.95),
            "worse by 10.0% [5.0%, 15.0%] in the same budget, so speculators has to train",
        ),
        (Interval(1.01, 0.97, 1.05), "not worse in the same budget (1.010"),
        (Interval(1.10, 1.05, 1.15), "not worse in the same budget (1.100"),
        (Interval(0.98, 0.90, 1.06), "Undecided"),
    ],
)
def test_the_decision(found: Interval, expected: str) -> None:
    assert expected in verdict(found)


def test_the_page_shows_what_its_record_says() -> None:
    run = {"steps": 1000, "rate": 2e-3, "cpu_s": 655.0, "seed": 1, "acceptance_length": 4.5}
    interval = {"value": 0.9, "low": 0.85, "high": 0.95}
    rows = [{"trainer": name, **run} for name in (USERS, SPECULATORS)]
    text = page(
        {
            "origin": {
                "date": "2026-11-25T11:00:00",
                "machine": {"processor": "a processor", "cores": 2},
                "git_revision": "0123abc",
            },
            "command": "scripts/bench-trainers",
            "libraries": {"torch": "2"},
            "note": "Nothing else ran.",
            "budget_s": 660.0,
            "short_s": 150.0,
            "precision": {SPECULATORS: "float32", USERS: "float32"},
            "num_speculative_tokens": 11,
            "prompts": {"tuning": 48, "final": 160},
            "short": rows,
            "finals": rows,
            "references": {"start": 2.0, "shipped": 6.5},
            "ratio": interval,
            "ratio_over_prompts": interval,
            "decision": verdict(Interval(**interval)),
        }
    )
    assert "**automodel is worse by 10.0%" in text
    assert text.count("| 655 | 4.500 |") == 4
    assert text.index("| speculators |") < text.index("| automodel |")
    assert max(map(len, (line for line in text.splitlines() if not line.startswith("|")))) <= 120


def test_a_best_rate_at_the_edge_of_those_tried_is_said() -> None:
    short = [{"trainer": name, "rate": rate} for name, rates in RATES.items() for rate in rates]
    record = {
        "short": short,
        "finals": [{"trainer": SPECULATORS, "rate": 2e-3}, {"trainer": USERS, "rate": min(RATES[USERS])}],
    }
    assert edges(record) == ["That of automodel is the least that was tried, so another may be better still."]
