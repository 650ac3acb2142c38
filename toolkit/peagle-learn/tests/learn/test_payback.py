"""When a head has paid for its training: the sum, and `learn plan --step-times` as typed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.decide.costs import Traffic
from peagle_bench.decide.prediction import Prediction
from peagle_bench.step_times import step_times_of
from peagle_learn.core.payback import Payback
from tests.bench.report import making
from tests.cli.running import run

TIMES = step_times_of(making.step_times(), "s.jsonl")
RATE = ("--otps", "3000")


def payback(
    now: float | None, then: float, otps: float, hourly: float | None = 4.2, training: float | None = 150.0
) -> Payback:
    sides = Prediction(TIMES, 3, now), Prediction(TIMES, 3, then)
    return Payback(*sides, Traffic(otps, 3.0), hourly, training, "given")


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return making.write(making.step_times(ks=(3,)), tmp_path / "made.jsonl")


def plan(*words: str | Path) -> Result:
    return run("learn", "plan", *words)


def test_fewer_instances_pay_for_the_training() -> None:
    result = payback(2.1, 3.0, 3000)
    assert [result.instances(side) for side in (result.now, result.then)] == [5, 4]
    assert result.saved_usd() == pytest.approx(4.2 * 730)
    assert result.weeks() == pytest.approx(150 / (4.2 * 730) * 730 / 168)
    assert result.verdict == "pays"
    assert "4 instances in place of 5 save 3,066.00 USD/month" in result.sentence


def test_never_has_its_reason() -> None:
    assert payback(2.1, 3.0, 30).sentence.startswith("Never: your rate needs 1 instance either way")
    assert payback(3.0, 2.1, 3000).sentence.startswith("Never: it is not faster")
    assert payback(3.0, 2.1, 3000).weeks() is None


def test_an_unknown_price_stays_unknown() -> None:
    for hourly, training, what in ((None, 150.0, "serving instance"), (4.2, None, "training")):
        result = payback(2.1, 3.0, 3000, hourly, training)
        assert result.verdict == "unknown"
        assert f"price of the {what} is not known" in result.sentence
        assert result.weeks() is None
        assert json.loads(json.dumps(result.to_dict()))["weeks"] is None
    assert payback(2.1, 3.0, 3000, None).saved_usd() is None
    assert payback(2.1, 3.0, 30, None).verdict == "never", "whatever an instance costs"


@given(st.floats(1, 4), st.floats(1, 4), st.floats(1, 1e6), st.floats(0.1, 100), st.floats(1, 1e5))
def test_a_longer_acceptance_never_costs_more(
    now: float, then: float, otps: float, hourly: float, training: float
) -> None:
    result = payback(min(now, then), max(now, then), otps, hourly, training)
    saved = result.saved_usd()
    assert saved is not None
    assert saved >= -1e-6
    weeks, slower = result.weeks(), result.weeks(0.95)
    assert (weeks is None) is (result.verdict == "never")
    if weeks is not None:
        assert weeks * saved / (730 / 168) == pytest.approx(training)
    if slower is not None:
        assert weeks is not None
        assert slower >= weeks * (1 - 1e-9)


def document(*words: str | Path) -> dict[str, Any]:
    done = plan(*words, "--format", "json")
    assert done.exit_code == 0, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def test_the_plan_adds_what_the_head_is_worth(made: Path) -> None:
    words = ("gpt-oss-20b", "--step-times", made, "--acceptance-length", "3", *RATE)
    answer = document(*words, "--now", "2.1")
    cheapest = min(row["usd"] for row in answer["options"] if row["fits"])
    assert answer["payback"]["training_usd"] == cheapest
    assert answer["payback"]["verdict"] == "pays"
    assert answer["payback"]["usd_per_hour"] == 4.2
    assert (answer["payback"]["now"]["instances"], answer["payback"]["then"]["instances"]) == (5, 4)
    plain = document(*words)["payback"]
    assert plain["now"]["acceptance_length"] is None
    assert plain["now"]["otps_by_concurrency"]["8"] == pytest.approx(8000 / (0.44 + 5.6))
    shown = plan(*words, "--now", "2.1", "--training-usd", "900")
    assert shown.exit_code == 0, shown.stderr
    block = shown.stdout[shown.stdout.index("Pays: ") :]
    lines = block.replace(str(made), "made.jsonl").splitlines()  # a path is not broken
    assert max(map(len, lines)) <= 80
    assert "given with --training-usd" in block
    assert "predicted, not measured" in " ".join(block.split())


def test_step_times_of_a_cpu_say_nothing_about_a_gpu(tmp_path: Path) -> None:
    times = making.step_times()
    header = replace(times.header, figures_of="gpt-oss-20b on a CPU")
    path = making.write(replace(times, header=header), tmp_path / "cpu.jsonl")
    done = plan("gpt-oss-20b", "--step-times", path, "--acceptance-length", "3", *RATE)
    assert done.exit_code == 2
    assert "found figures of gpt-oss-20b on a CPU" in " ".join(done.stderr.split())


def test_without_step_times_the_plan_is_what_it_was() -> None:
    assert "payback" not in document("gpt-oss-20b")


def test_traffic_gives_the_rate(made: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    rows = [{"time": 3600 * hour, "input_tokens": 600, "output_tokens": 7_200_000} for hour in range(25)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("gpt-oss-20b", "--step-times", made, "--acceptance-length", "3")
    payback = document(*words, "--traffic", path)["payback"]
    assert payback["traffic"]["otps"] == pytest.approx(2000 * 25 / 24)


def test_prices_of_the_local_sagemaker_are_no_prices(tmp_path: Path) -> None:
    local = making.write(making.step_times(usd_per_hour=0.0), tmp_path / "local.jsonl")
    words = ("gpt-oss-20b", "--step-times", local, "--acceptance-length", "3", *RATE)
    assert document(*words)["payback"]["usd_per_hour"] is None
    assert document(*words)["payback"]["verdict"] == "unknown"
    assert document(*words, "--usd-per-hour", "5")["payback"]["verdict"] == "pays"


@pytest.mark.parametrize(
    ("model", "words", "expected"),
    [
        ("gpt-oss-20b", ("--acceptance-length", "5", *RATE), "--acceptance-length: found 5; allowed at K=3"),
        ("gpt-oss-20b", ("--acceptance-length", "3", "--now", "0.5", *RATE), "--now: found 0.5; allowed"),
        ("gpt-oss-20b", ("--acceptance-length", "3", "--k", "7", *RATE), "has step times of K=3"),
        ("gpt-oss-20b", ("--acceptance-length", "3"), "one of --otps and --traffic"),
        ("gpt-oss-20b", (*RATE,), "--step-times needs --acceptance-length"),
        ("gpt-oss-120b", ("--acceptance-length", "3", *RATE), "they say nothing about gpt-oss-120b"),
    ],
)
def test_what_the_file_cannot_say_is_refused(
    made: Path, model: str, words: tuple[str, ...], expected: str
) -> None:
    done = plan(model, "--step-times", made, *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert expected in " ".join(done.stderr.split())


def test_its_options_need_step_times(tmp_path: Path) -> None:
    assert "--now needs --step-times" in plan("gpt-oss-20b", "--now", "2").stderr
    other = making.write(making.compared(), tmp_path / "c.jsonl")
    refused = plan("gpt-oss-20b", "--step-times", other, "--acceptance-length", "3", *RATE)
    assert refused.exit_code == 2
    assert "is a results file of compare" in refused.stderr
