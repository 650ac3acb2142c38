"""Identical answers by slice of `verify`: where faults are, and no alarm from the baseline's own noise."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from peagle_bench.commands.options import render_slices
from peagle_bench.load.work import WorkItem
from peagle_bench.report.page import html_page
from peagle_bench.results.records import ArmRecord, Header, SliceRecord
from peagle_bench.results.result_file import Results, read
from peagle_bench.verify.answers import Scored, TokenAnswer
from peagle_bench.verify.greedy import GreedyCase, judge_greedy, wrong_prompts
from peagle_bench.verify.slices import slices_of_greedy
from peagle_bench.verify.statistics import NoiseFloor
from peagle_sm.aws.streams.answers import Acceptance
from tests.bench.verify.toy_vllm import serving
from tests.cli.running import run

EXACT = NoiseFloor(1, 0, 1, 0.0, 0.0, 0.01, exact=True, near=0.0)
NOISY = NoiseFloor(1, 0, 1, 0.05, 0.1, 0.1, exact=False, near=0.0)
PROMPTS = {"latin": "write a function that sorts", "han": "请写一个排序函数"}
DRAFTED = Acceptance(3.0, (1.0, 1.0, 0.0), 10, 30, 20, 3, (0, 0, 10, 0))


def scored(*ids: int, gap: float = 0.0) -> Scored:
    answer = TokenAnswer(f"{ids}", ids, "length", None, len(ids), acceptance=DRAFTED, cached_tokens=0)
    return Scored(answer, (-gap,) * len(ids), (0.0 if gap else -9.0,) * len(ids))


SAME, FLIPPED, WRONG = scored(1, 2), scored(1, 3, gap=0.05), scored(1, 4, gap=5.0)
Case = tuple[str, Scored, Scored]  #: script, the baseline's repeat, the endpoint's answer


def slices_of(answers: list[Case], floor: NoiseFloor, labels: int = 0, seed: int = 0) -> list[SliceRecord]:
    draw = random.Random(seed)
    cases = [GreedyCase(f"p{at}", SAME, again, mine) for at, (_, again, mine) in enumerate(answers)]
    items = {
        f"p{at}": WorkItem(
            f"p{at}",
            {"prompt": PROMPTS[script], "temperature": draw.random(), "response_format": {"type": "text"}},
            labels={f"l{n}": str(draw.randrange(4)) for n in range(labels)},
        )
        for at, (script, *_) in enumerate(answers)
    }
    wrong = wrong_prompts(cases, floor, 2)
    if not labels:
        verdict = judge_greedy(cases, floor, 2)
        assert (len(wrong) > 0) <= (verdict.passed is False), "what is a fault of a slice is one of the check"
    return slices_of_greedy(cases, dict.fromkeys(items, 20), wrong, items, ("mine", "plain"), 8)


def by_value(found: list[SliceRecord], dimension: str = "script") -> dict[str, SliceRecord]:
    return {one.value: one for one in found if one.dimension == dimension}


def test_the_slice_with_the_faults_is_named() -> None:
    answers: list[Case] = [("latin", SAME, SAME)] * 30 + [("han", SAME, SAME)] * 9 + [("han", SAME, WRONG)]
    found = by_value(slices_of(answers, EXACT))
    assert (found["han"].identical_outputs, found["han"].compared_outputs, found["han"].wrong_outputs) == (
        9, 10, 1,
    )  # fmt: skip
    assert found["latin"].wrong_outputs == 0
    assert found["latin"].identity is not None
    assert found["latin"].identity.value == found["latin"].identity.high == 1.0
    assert found["latin"].identity.low == pytest.approx(0.0075 ** (1 / 30)), "two slices: 98.5% each"
    assert found["han"].acceptance_length is not None
    assert found["han"].acceptance_length.value == pytest.approx(3.0)


def test_what_the_greedy_check_sets_for_itself_is_no_dimension() -> None:
    assert {one.dimension for one in slices_of([("latin", SAME, SAME), ("han", SAME, SAME)], EXACT)} == {
        "script"
    }


def test_flips_in_one_slice_are_found_that_are_too_few_for_the_greedy_check() -> None:
    """12 of 60 prompts differ, all in one slice, where the baseline differs from itself in 2 of 180."""
    answers: list[Case] = [("latin", SAME, SAME)] * 118 + [("latin", FLIPPED, SAME), ("latin", SAME, FLIPPED)]
    answers += [("han", SAME, FLIPPED)] * 12 + [("han", SAME, SAME)] * 48
    found = by_value(slices_of(answers, NOISY))
    assert (found["han"].differs, found["latin"].differs) == (True, False)
    assert (found["han"].wrong_outputs, found["han"].baseline_identical_outputs) == (0, 60)


def test_the_baselines_own_noise_raises_an_alarm_in_at_most_5_percent_of_runs() -> None:
    """100 runs of 22 slices, tiny and large, with the same noise on both sides."""
    draw, alarms = random.Random(15), 0
    same, flipped = (replace(one, answer=replace(one.answer, acceptance=None)) for one in (SAME, FLIPPED))
    for number in range(100):
        rate = draw.choice((0.02, 0.2, 0.6))
        answers: list[Case] = [
            (
                "han" if draw.random() < 0.1 else "latin",
                flipped if draw.random() < rate else same,
                flipped if draw.random() < rate else same,
            )
            for _ in range(100)
        ]
        alarms += any(one.differs for one in slices_of(answers, NOISY, labels=4, seed=number))
    assert alarms <= 11  # binomial with p = 0.05 and n = 100: more in 1 of 200 samples


def test_a_slice_of_few_prompts_has_counts_and_no_interval() -> None:
    answers: list[Case] = [("latin", SAME, SAME)] * 10 + [("han", SAME, WRONG)] * 3
    found = by_value(slices_of(answers, EXACT))["han"]
    assert (found.identity, found.identical_outputs, found.wrong_outputs) == (None, 0, 3)


def test_an_answer_that_tells_no_acceptance_has_none() -> None:
    untold = replace(SAME, answer=replace(SAME.answer, acceptance=None))
    found = by_value(slices_of([("latin", SAME, untold), ("han", SAME, SAME)] * 10, EXACT))
    assert found["latin"].acceptance_length is None


def test_the_page_says_why_it_has_no_speed_up() -> None:
    found = slices_of([("latin", SAME, SAME)] * 20 + [("han", SAME, SAME)] * 10, EXACT)
    arms = (ArmRecord("plain", "none", None, "e0"), ArmRecord("mine", "p-eagle", 3, "e1"))
    results = Results(Header("r", "verify", {}, {}, False), arms, slices=tuple(found))
    page = html_page([results])
    assert "No speed-up: verify does not time its answers. peagle-sm compare has it." in page
    said = render_slices(results).splitlines()
    assert max(map(len, said)) <= 80


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    rows = [
        {"id": f"p{n}", "prompt": f"{text} {n}", "labels": {"team": f"t{n % 2}"}}
        for n in range(10)
        for text in (PROMPTS["latin" if n % 2 else "han"],)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_the_command_tells_slices_in_the_terminal_the_data_the_file_and_the_page(
    workload: Path, tmp_path: Path
) -> None:
    words: list[str | Path] = ["--workload", workload, "--quick", "--max-tokens", "16", "--checks", "greedy"]
    with serving() as (baseline, _), serving("runner-up") as (candidate, _):
        shown = run("verify", candidate, "--baseline", baseline, *words, "--out", tmp_path / "a.jsonl")
        data = run("verify", candidate, "--baseline", baseline, *words, "--slices", "label:team", "--out",
                   tmp_path / "b.jsonl", "--format", "json")  # fmt: skip
        refused = run("verify", candidate, "--baseline", baseline, *words, "--slices", "temperature")
    assert shown.exit_code == 9
    assert "SLICE  " in shown.stdout
    assert "\nteam: t0" in shown.stdout
    assert "faults in " in shown.stdout
    table = shown.stdout.partition("by slice:")[2].partition("results:")[0]
    assert max(map(len, table.splitlines())) <= 80
    assert "differ in" not in table, "5 prompts are too few for a test"
    found = json.loads(data.stdout)["slices"]
    assert {(one["dimension"], one["value"]) for one in found} == {("label:team", "t0"), ("label:team", "t1")}
    assert {one["verdict"] for one in found} <= {"faults", "alike"}
    assert "(No speed-up: verify does not time its answers. peagle-sm compare has it.)" in table
    assert "does not time" in json.loads(data.stdout)["slices_note"]
    assert [one.value for one in read(tmp_path / "b.jsonl").slices] == ["t0", "t1"]
    page = run("report", tmp_path / "a.jsonl", "--html", tmp_path / "page.html")
    assert page.exit_code == 0, page.stderr
    assert "By slice of the traffic" in (tmp_path / "page.html").read_text()
    assert "team: t0" in run("report", tmp_path / "a.jsonl").stdout
    assert "By slice of the traffic" in run("report", tmp_path / "page.html", "--markdown").stdout
    assert refused.exit_code == 2
    assert "found 'temperature'; allowed: category, api, " in refused.stderr
