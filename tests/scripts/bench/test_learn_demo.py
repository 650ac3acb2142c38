"""The tutorial's prompts and specs, and its one command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from peagle_learn.core.conversations import LearnPrompt, related, split
from peagle_learn.core.spec import parse_learn_spec
from peagle_sm.core.spec.endpoint_spec import parse_spec
from scripts.bench import house_style, learn_demo
from scripts.bench.learn_demo import STAGES, expected, run_stages, stages_left

WHOLE = {"server": 10.0, "deploy": 40.0, "data": 200.0, "train": 400.0, "prove": 800.0}


def read(text: str) -> list[LearnPrompt]:
    return [
        LearnPrompt(each["id"], {"messages": each["messages"]}) for each in map(json.loads, text.splitlines())
    ]


def test_the_questions_differ_and_enough_are_measured() -> None:
    questions = {each["messages"][-1]["content"] for each in house_style.shifted()}
    assert len(questions) == len(list(house_style.shifted()))
    texts, data = house_style.files(), parse_learn_spec(house_style.learn_yaml()).data
    traffic, general = (read(texts[name]) for name in ("traffic.jsonl", "general.jsonl"))
    parts = split(traffic, data.held_out, data.seed, general, data.general_trained)
    assert (parts.repeats, parts.near_repeats, parts.like_general) == (0, 0, 0)
    assert sum(len(each.prompts) for each in parts.held_out) >= 32
    assert sum(len(each.prompts) for each in related(parts.general)) >= 40
    assert sum(len(each.prompts) for each in parts.train) >= 100


def test_the_general_prompts_are_chats_of_all_kinds() -> None:
    names = [each["id"].partition("/")[0] for each in house_style.general()]
    counts = {name: names.count(name) for name in set(names)}
    assert counts == {"chat": 20, "json": 20, "HumanEval": house_style.CODE}


def test_the_tutorials_specs_are_valid_and_name_each_other() -> None:
    endpoint = parse_spec(house_style.ENDPOINT, "peagle.yaml")
    learn = parse_learn_spec(house_style.learn_yaml(), "learn.yaml")
    assert (learn.endpoint, learn.target.model) == (endpoint.name, endpoint.model)
    assert {Path(each).name for each in learn.data.prompts} == {"traffic.jsonl"}


def test_a_file_that_was_edited_stays(tmp_path: Path) -> None:
    texts = house_style.files(most_prompts=2, steps=3)
    assert len(house_style.write_missing(tmp_path, texts)) == 4
    (tmp_path / "learn.yaml").write_text("mine")
    (tmp_path / "peagle.yaml").unlink()
    assert house_style.write_missing(tmp_path, texts) == [tmp_path / "peagle.yaml"]
    assert (tmp_path / "learn.yaml").read_text() == "mine"


class Commands:
    """Commands that take the expected time on this clock; the one with ``fails`` in its words fails."""

    def __init__(self, fails: str = "") -> None:
        self.fails, self.now, self.asked = fails, 0.0, list[Sequence[str]]()

    def run(self, words: Sequence[str]) -> int:
        self.asked.append(words)
        stage = next(each for each in STAGES if each.words == words)
        self.now += WHOLE[stage.name]
        return 130 if self.fails and self.fails in words else 0

    def clock(self) -> float:
        return self.now


def test_a_run_that_was_stopped_continues_and_counts_all_its_seconds(tmp_path: Path) -> None:
    said: list[str] = []
    first, second = Commands(fails="train"), Commands()
    assert run_stages(tmp_path, first.run, WHOLE, said.append, first.clock) == 130
    assert len(first.asked) == 4
    assert run_stages(tmp_path, second.run, WHOLE, said.append, second.clock) == 0
    assert [each.words for each in STAGES] == second.asked
    spent = learn_demo.Spent.read(tmp_path / learn_demo.SPENT)
    assert (spent.sittings, spent.seconds["train"], spent.seconds["prove"]) == (2, 800.0, 800.0)
    assert any("about 24m10s left" in line for line in said)
    assert "$ peagle-sm learn run --until prove --local --yes" in said


def test_the_time_left_follows_the_pace_of_this_machine() -> None:
    assert stages_left(WHOLE, {}, "server") == 1450
    assert stages_left(WHOLE, {"server": 300.0, "deploy": 300.0}, "data") == 1400
    assert stages_left(WHOLE, {"data": 400.0}, "train") == 2400
    assert stages_left(WHOLE, {"data": 200.0, "train": 100.0}, "train") == 1100


def test_a_recorded_run_replaces_the_estimates() -> None:
    assert expected({"seconds": {"data": 7.0}})["data"] == 7
    assert expected(None) == {each.name: each.seconds for each in STAGES}


def test_files_only_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert learn_demo.main([str(tmp_path), "--files-only"]) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"traffic.jsonl", "general.jsonl", "peagle.yaml", "learn.yaml"}
    assert "$ peagle-sm" not in capsys.readouterr().err
