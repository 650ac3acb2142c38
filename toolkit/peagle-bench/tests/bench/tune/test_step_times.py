"""Step times: the rate that they predict for an acceptance length, and the files that are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.results.records import Reading
from peagle_bench.results.result_file import read
from peagle_bench.step_times import StepTime, demand_target, read_step_times, step_time, step_times_of
from peagle_bench.tune.synthetic import demand_answered, rate_of
from peagle_sm.core.errors import ServiceFault, SpecError
from tests.bench.compare.simulating import request
from tests.bench.report import making

K = st.integers(1, 16)
MS = st.floats(0.01, 500)


def window(k: int, concurrency: int, length: float, token_ms: float) -> Reading:
    return Reading(k, concurrency, length, (), 1.0, 1000 * concurrency / token_ms, 100)


@given(K, st.integers(1, 64), MS, MS, st.data())
def test_the_rate_between_both_ends_is_the_one_of_the_law(
    k: int, concurrency: int, fixed: float, step: float, data: st.DataObject
) -> None:
    ends = [[window(k, concurrency, length, fixed + step / length)] for length in (1.0, k + 1.0)]
    cell = step_time(*ends)
    length = data.draw(st.floats(1, k + 1))
    assert cell.rate(length) == pytest.approx(1000 * concurrency / (fixed + step / length), rel=1e-6)


@given(K, MS, MS, st.data())
def test_the_rate_is_that_of_the_windows_at_both_ends_and_between_them_elsewhere(
    k: int, slow: float, fast: float, data: st.DataObject
) -> None:
    """Also where noise made the steps of accepted drafts slower: nothing is extrapolated."""
    cell = step_time([window(k, 4, 1.0, slow)], [window(k, 4, k + 1.0, fast)])
    assert cell.rate(1) == pytest.approx(4000 / slow, rel=1e-6)
    assert cell.rate(k + 1) == pytest.approx(4000 / fast, rel=1e-6)
    between = cell.rate(data.draw(st.floats(1, k + 1)))
    assert min(4000 / slow, 4000 / fast) * (1 - 1e-6) <= between <= max(4000 / slow, 4000 / fast) * (1 + 1e-6)


@given(K, MS, MS, st.floats(1, 17), st.floats(1, 17))
def test_a_longer_acceptance_is_never_slower_and_gains_less_than_its_share(
    k: int, fixed: float, step: float, one: float, other: float
) -> None:
    cell = StepTime(16, 8, fixed, step)
    low, high = sorted((one, other))
    assert cell.rate(low) <= cell.rate(high) * (1 + 1e-9)
    assert cell.rate(high) / cell.rate(low) <= high / low * (1 + 1e-9)


@pytest.mark.parametrize("length", [0.0, 0.999, 4.001, float("nan"), float("inf")])
def test_an_acceptance_length_that_no_head_has_is_an_error(length: float) -> None:
    with pytest.raises(ValueError, match="allowed 1 to 4"):
        StepTime(3, 1, 0.1, 5.0).rate(length)


def test_an_engine_that_ignores_the_setting_is_reported() -> None:
    with pytest.raises(ServiceFault, match=r"length of 4 was set, and 2\.10 was counted"):
        step_time([window(3, 1, 1.0, 6.0)], [window(3, 1, 2.1, 3.0)])


def test_repeats_are_averaged_and_the_baseline_is_kept() -> None:
    times = step_times_of(making.step_times(ks=(3, 7), noise=0.01), "s.jsonl")
    assert (times.ks, times.concurrencies, times.mode) == ((3, 7), (1, 8), "p-eagle")
    assert times.rates(3.0, 3)[8] == pytest.approx(8000 / (0.44 + 5.9 / 3), rel=0.01)
    assert times.plain[1] == pytest.approx(1000 / (0.23 + 4.2), rel=0.01)


def test_the_file_is_read_back_and_says_that_it_is_synthetic(tmp_path: Path) -> None:
    path = making.write(making.step_times(), tmp_path / "s.jsonl")
    times = read_step_times(path)
    assert times.cells == step_times_of(making.step_times(), str(path)).cells
    header = json.loads(path.read_text().splitlines()[0])
    assert header["command"] == "tune --synthetic"
    assert "Synthetic acceptance" in header["provenance"]["synthetic"]
    assert not read(path).points
    assert {each.mode for each in read(path).windows} == {"unknown"}


def test_a_window_that_the_client_slowed_down_is_named() -> None:
    whole = making.step_times()
    late = replace(whole.windows[3], untrusted="c=1: the client was late")
    times = step_times_of(replace(whole, windows=(*whole.windows[:3], late, *whole.windows[4:])), "s.jsonl")
    assert times.notes == ["do not publish: c=1: the client was late"]


def test_a_file_that_has_no_step_times_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is a results file of compare; allowed: one of tune --synthetic"):
        read_step_times(making.write(making.compared(), tmp_path / "c.jsonl"))
    whole = making.step_times()
    cut = making.write(replace(whole, windows=whole.windows[:7]), tmp_path / "cut.jsonl")
    with pytest.raises(SpecError, match="did not finish: 7 of 12 windows"):
        read_step_times(cut)


def test_a_run_that_was_interrupted_in_its_second_round_is_refused() -> None:
    """One round has every measurement, but a drift of the machine cancels only with the reversed round."""
    whole = making.step_times()
    first = [each for each in whole.windows if each.block == 0]
    with pytest.raises(SpecError, match="did not finish: 6 of 12 windows"):
        step_times_of(replace(whole, windows=tuple(first)), "s.jsonl")


@pytest.mark.parametrize("failed", [0, 1, 2, 20])
def test_a_load_at_which_requests_failed_has_no_rate(failed: int) -> None:
    """Half of the requests refused at once leave half of the load: its rate would look twice as high."""
    answered = [request("p-eagle", f"p{n}", seconds=1.0, tokens=10) for n in range(100 - failed)]
    refused = [request("p-eagle", f"r{n}", error="ThrottlingException") for n in range(failed)]
    if failed <= 1:
        assert rate_of(demand_answered([*answered, *refused], 3, 8), 8) == pytest.approx(80)
    else:
        with pytest.raises(ServiceFault, match=f"K=3, c=8: {failed} of 100 requests failed"):
            demand_answered([*answered, *refused], 3, 8)


def test_step_times_of_another_model_and_of_another_k_are_refused() -> None:
    times = step_times_of(making.step_times(ks=(3, 7)), "s.jsonl")
    demand_target(times, "gpt-oss-20b")
    with pytest.raises(SpecError, match="step times of gpt-oss-20b; they say nothing about qwen3-8b"):
        demand_target(times, "qwen3-8b")
    assert times.choose_k(7, None) == 7
    assert times.choose_k(None, 3) == 3
    for given_k, planned in ((5, 3), (None, 5), (None, None)):
        with pytest.raises(SpecError, match="has step times of K=3, 7"):
            times.choose_k(given_k, planned)
    assert step_times_of(making.step_times(), "s.jsonl").choose_k(None, 7) == 3
