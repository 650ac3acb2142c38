"""The pack structured-output: its demands, the check of each form, and the judge."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_bench.packs.pack import Make, Observed, Probe, ServedModel
from peagle_bench.packs.structured import PACK, judge, make, probe
from peagle_bench.results.records import ArmRecord
from peagle_bench.verify.answers import TokenAnswer
from peagle_bench.verify.forms import (
    FORMS,
    TOOL_FORMS,
    FormDemand,
    StructuredAnswers,
    demands,
    judge_forms,
    problem,
    violation,
)
from peagle_sm.core.errors import SpecError
from tests.bench.verify.toy_vllm import value_of

MADE = demands(7, 120)
ASKED = demands(0, 60)
MODEL = ServedModel(8192, True, lambda body: [0])
ARM = ArmRecord("fast", "p-eagle", 5, "fast")


def text_of(demand: FormDemand, rng: random.Random) -> str:
    """A text that the demand's regular expression matches."""
    if demand.form == "choice":
        return str(rng.choice(demand.body["structured_outputs"]["choice"]))
    digits = int(re.findall(r"\{(\d)\}-?", demand.pattern or "")[1])
    colours = re.findall(r"\( \(([a-z|]+)\)", demand.pattern or "")[0].split("|")
    return "AB-" + "1" * digits + "".join(f" {rng.choice(colours)}" for _ in range(rng.randint(1, 3)))


def valid(demand: FormDemand, rng: random.Random) -> TokenAnswer:
    if demand.form == "json-schema":
        text = json.dumps(value_of(dict(demand.schemas[""]), rng), indent=rng.choice((None, 2)))
        return TokenAnswer(text, (), "stop")
    if demand.form not in TOOL_FORMS:
        return TokenAnswer(text_of(demand, rng), (), "stop")
    names = [rng.choice(list(demand.schemas)) for _ in range(3 if demand.form == "parallel-tools" else 1)]
    calls = [(name, json.dumps(value_of(dict(demand.schemas[name]), rng))) for name in names]
    return TokenAnswer("", (), "tool_calls", tool_calls=tuple(calls))


def broken(demand: FormDemand, rng: random.Random) -> TokenAnswer:
    """The seeded fault: what a lost mask lets through, a token that the form excludes."""
    answer = valid(demand, rng)
    if demand.form not in TOOL_FORMS:
        at = rng.randrange(len(answer.text))
        return replace(answer, text=f"{answer.text[:at]}\u00a7{answer.text[at:]}")
    (name, arguments), *rest = answer.tool_calls
    at = rng.randrange(len(arguments))
    return replace(answer, tool_calls=((name, f"{arguments[:at]}\u00a7{arguments[at:]}"), *rest))


def test_every_schema_is_valid_and_every_form_has_its_check() -> None:
    for number, demand in enumerate(MADE):
        for schema in demand.schemas.values():
            jsonschema.Draft202012Validator.check_schema(schema)
        rng = random.Random(number)
        assert violation(demand, valid(demand, rng)) is None, demand
        assert len(json.dumps(demand.body)) < 4000


@given(st.sampled_from(MADE), st.integers(0, 1000))
def test_a_token_that_the_form_excludes_is_found(demand: FormDemand, seed: int) -> None:
    assert violation(demand, broken(demand, random.Random(seed))) is not None


@given(st.sampled_from(MADE), st.text(max_size=30))
def test_any_text_is_judged_without_an_error(demand: FormDemand, text: str) -> None:
    violation(demand, TokenAnswer(text, (), "stop"))
    violation(demand, TokenAnswer("", (), "stop", tool_calls=((text, text),)))


def of_form(form: str) -> FormDemand:
    return next(demand for demand in MADE if demand.form == form)


def test_tool_calls_are_counted_and_named() -> None:
    demand, several = of_form("tool"), of_form("parallel-tools")
    rng = random.Random(1)
    call = valid(demand, rng).tool_calls
    assert violation(demand, TokenAnswer("", (), "stop")) == "0 tool calls"
    assert violation(demand, TokenAnswer("", (), "stop", tool_calls=call * 2)) == "2 tool calls"
    assert violation(demand, TokenAnswer("", (), "stop", tool_calls=(("rm", "{}"),))) is not None
    three = valid(several, rng)
    cut = replace(three, finish_reason="length", tool_calls=(*three.tool_calls, ("lab", '{"re')))
    assert (problem(several, three), problem(several, cut)) == (None, None)
    assert problem(several, replace(cut, finish_reason="stop")) is not None
    assert problem(demand, replace(three, finish_reason=None)) == "finish_reason is missing"


def cases_of(seed: int, *, faults: int = 0, cut: float = 0.0) -> list[StructuredAnswers]:
    rng = random.Random(seed)
    some = rng.sample(MADE, 24)

    def answer(demand: FormDemand) -> TokenAnswer:
        own = valid(demand, rng)
        may_be_cut = demand.form not in TOOL_FORMS and rng.random() < cut
        return replace(own, finish_reason="length", text=own.text[:5]) if may_be_cut else own

    cases = []
    for number, demand in enumerate(some):
        mine = [answer(demand), broken(demand, rng) if number < faults else answer(demand)]
        cases.append(StructuredAnswers(demand, answer(demand), (("streamed", mine[0]), ("whole", mine[1]))))
    return cases


def test_clean_answers_pass_although_other_values_are_chosen() -> None:
    for seed in range(30):
        assert judge_forms(cases_of(seed), 0.005).passed


def test_answers_that_are_cut_as_often_as_the_baselines_seldom_fail() -> None:
    alarms = sum(judge_forms(cases_of(seed, cut=0.2), 0.005).passed is False for seed in range(200))
    assert alarms <= 1


def test_one_violation_fails_and_is_shown() -> None:
    for seed in range(30):
        cases = cases_of(seed, faults=1)
        verdict = judge_forms(cases, 0.005)
        assert verdict.passed is False
        assert len(verdict.examples) == 1
        assert verdict.examples[0].startswith(f"{cases[0].demand.name} (whole): ")


@given(
    st.sampled_from([demand for demand in MADE if demand.form not in TOOL_FORMS]),
    st.integers(0, 1000),
    st.data(),
)
def test_the_beginning_of_a_valid_answer_is_only_truncated(
    demand: FormDemand, seed: int, data: st.DataObject
) -> None:
    whole = valid(demand, random.Random(seed)).text
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert problem(demand, TokenAnswer(cut, (), "length")) == "truncated at max_tokens"


@pytest.mark.parametrize("form", [form for form in FORMS if form not in TOOL_FORMS])
def test_free_text_is_a_violation_also_where_max_tokens_cuts_it(form: str) -> None:
    """As a model writes it that lost the mask: 160 tokens that never end."""
    text = "Here is the order that you asked for. " * 12
    wrong = problem(of_form(form), TokenAnswer(text, (), "length"))
    assert wrong is not None
    assert wrong.startswith(("is longer than any ", "is not the beginning of JSON (Expecting value"))


@pytest.mark.parametrize(
    "text",
    [
        "9" * 5000,
        "[" * 100_000,
        "",
        "{",
        '{"a',
        '{"a": tru',
        '{"a": "\\',
        '{"a": "\\u12',
        '{"a": -',
        '{"a": [1,   ',
        " " * 99,
    ],
)
def test_json_that_may_go_on_is_only_truncated(text: str) -> None:
    assert problem(of_form("json-schema"), TokenAnswer(text, (), "length")) == "truncated at max_tokens"


def test_the_longest_answer_is_as_long_as_stated() -> None:
    for demand in MADE:
        if demand.longest is not None:
            lengths = [len(text_of(demand, random.Random(seed))) for seed in range(300)]
            assert max(lengths) <= demand.longest <= max(lengths) + 12, demand


def test_many_more_truncated_answers_fail() -> None:
    cases = [
        replace(each, answers=(("streamed", TokenAnswer("{", (), "length")),))
        for each in cases_of(1)
        if each.demand.form not in TOOL_FORMS
    ]
    assert "truncated (baseline: 0): p = " in judge_forms(cases, 0.005).examples[0]


def test_what_the_baseline_violates_is_not_judged() -> None:
    rng = random.Random(2)
    cases = [
        StructuredAnswers(demand, broken(demand, rng), (("whole", broken(demand, rng)),))
        for demand in MADE[:12]
    ]
    verdict = judge_forms(cases, 0.005)
    assert verdict.passed is None
    assert verdict.summary.startswith(
        "could not be decided: none of the baseline's 12 answers follows its form"
    )
    assert judge_forms([], 0.005).passed is None


class Tools:
    """An engine that answers every request validly, with or without a tool parser."""

    log_hint = ""

    def __init__(self, name: str, parser: bool = True) -> None:
        self.name, self.parser = name, parser

    def ask(self, body: Any) -> Any:
        return {"choices": [{"message": self.message(body), "finish_reason": "stop"}]}

    def stream(self, body: Any, until: Any = None) -> Any:
        message = self.message(body)
        calls = [{"index": at, **call} for at, call in enumerate(message.get("tool_calls", ()))]
        return [{"choices": [{"delta": {**message, "tool_calls": calls}, "finish_reason": "stop"}]}]

    def message(self, body: Any) -> dict[str, Any]:
        if body.get("tools") and not self.parser:
            raise SpecError(
                '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            )
        demand = next(demand for demand in ASKED if demand.body["messages"] == body["messages"])
        answer = valid(demand, random.Random(0))
        calls = [{"function": {"name": name, "arguments": told}} for name, told in answer.tool_calls]
        return {"content": answer.text, **({"tool_calls": calls} if calls else {})}


def judged(mine: Tools, plain: Tools) -> Any:
    request = Make(MODEL, units=2)
    work = make(request)
    probed = probe(Probe(mine, plain, work, request))
    observed = Observed(work, ARM, (), replace(ARM, name="plain", mode="none"), (), probed=probed)
    return judge(observed).checks


@pytest.mark.parametrize(
    ("arm", "baseline", "passed", "applicable"),
    [
        (True, True, True, True),
        (False, False, None, False),
        (False, True, False, True),
        (True, False, None, True),
    ],
)
def test_tools_are_judged_by_who_has_a_parser(
    arm: bool, baseline: bool, passed: bool | None, applicable: bool
) -> None:
    tools = judged(Tools("fast", parser=arm), Tools("plain", parser=baseline))["tools"]
    assert (tools.passed, tools.applicable) == (passed, applicable)
    assert passed is None or passed or "--tool-call-parser" in tools.examples[0]
    assert not passed or tools.figures["decidable"] == 4


@pytest.mark.parametrize("units", [1, 3])
def test_the_load_client_sends_what_needs_no_tools(units: int) -> None:
    work = make(Make(MODEL, seed=3, units=units))
    assert len(work.items) == units * (len(FORMS) - len(TOOL_FORMS))
    assert all(item.body["temperature"] == 0.0 and "tools" not in item.body for item in work.items)
    assert PACK.name == "structured-output"
