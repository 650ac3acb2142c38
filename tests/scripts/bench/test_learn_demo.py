"""The tutorial's prompts and specs."""

from __future__ import annotations

from pathlib import Path

from peagle_learn.core.conversations import LearnPrompt, split
from peagle_learn.core.spec import parse_learn_spec
from peagle_sm.core.spec.endpoint_spec import parse_spec
from scripts.bench import learn_demo


def test_the_questions_differ_and_enough_are_held_out() -> None:
    prompts = list(learn_demo.shifted())
    questions = {each["messages"][-1]["content"] for each in prompts}
    assert len(questions) == len(prompts) == 288
    parts = split([LearnPrompt(each["id"], {"messages": each["messages"]}) for each in prompts], 0.2, 0)
    assert sum(len(each.prompts) for each in parts.held_out) >= 50


def test_the_general_prompts_are_chats_of_all_kinds() -> None:
    names = [each["id"].partition("/")[0] for each in learn_demo.general()]
    assert {name: names.count(name) for name in set(names)} == {"chat": 20, "json": 20, "HumanEval": 164}


def test_the_tutorials_specs_are_valid_and_name_each_other() -> None:
    endpoint = parse_spec(learn_demo.ENDPOINT, "peagle.yaml")
    learn = parse_learn_spec(learn_demo.LEARN.format(tokens=learn_demo.TOKENS, steps=150), "learn.yaml")
    assert (learn.endpoint, learn.target.model) == (endpoint.name, endpoint.model)
    assert {Path(each).name for each in learn.data.prompts} == {"traffic.jsonl"}
