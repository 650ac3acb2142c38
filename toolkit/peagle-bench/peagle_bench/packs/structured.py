"""Pack "structured-output": JSON schemas, regular expressions, choices and tool calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from peagle_bench.benchmark.acceptance import from_requests
from peagle_bench.load import WorkItem
from peagle_bench.packs.judges import answered
from peagle_bench.packs.pack import ALPHA, Judgement, Make, Observed, Pack, PackWork, Probe
from peagle_bench.results.records import RequestRecord
from peagle_bench.verify.answers import TokenAnswer
from peagle_bench.verify.engines import EnginePair, Options
from peagle_bench.verify.forms import (
    FORMS,
    TOOL_FORMS,
    FormDemand,
    StructuredAnswers,
    demands,
    judge_forms,
    judge_tools,
)
from peagle_bench.verify.statistics import CheckVerdict

UNITS = 6  #: demands of each form
MAX_TOKENS = 160
_SETTINGS = {"max_tokens": MAX_TOKENS, "temperature": 0.0}


def make(settings: Make) -> PackWork:
    """Make the demands; the load client sends those without tools, `probe` the others."""
    requests = demands(settings.seed, (settings.units or UNITS) * len(FORMS))
    texts = [request for request in requests if request.form not in TOOL_FORMS]
    items = tuple(
        WorkItem(request.name, {**request.body, **_SETTINGS}, category=request.form) for request in texts
    )
    return PackWork(items, facts={request.name: request for request in requests})


@dataclass(frozen=True)
class FormsProbed:
    """Answers without streaming, and the verdict on tool calls; None if none were asked for."""

    whole: Mapping[str, TokenAnswer]
    tools: CheckVerdict | None


def probe(context: Probe) -> FormsProbed:
    """Ask the arm for every form without streaming, and both engines for tool calls."""
    requests: list[FormDemand] = list(context.work.facts.values())
    engines = EnginePair(context.baseline, context.engine, Options(concurrency=1))
    texts = [request for request in requests if request.form not in TOOL_FORMS]
    whole = engines.ask("candidate", [{**request.body, **_SETTINGS} for request in texts])
    answers = {request.name: answer for request, answer in zip(texts, whole, strict=True)}
    tools = [request for request in requests if request.form in TOOL_FORMS]
    return FormsProbed(answers, judge_tools(engines, tools, MAX_TOKENS, ALPHA / 2) if tools else None)


def judge(observed: Observed) -> Judgement:
    """Judge the forms, and the tool calls; equal answers are counted and not demanded."""
    probed: FormsProbed = observed.probed
    checks = {"forms": judge_forms(_cases(observed, probed.whole), observed.alpha / 2)}
    if probed.tools is not None:
        checks["tools"] = probed.tools
    valid = checks["forms"].figures
    accepted = from_requests(answered(observed.requests))
    figure = f"{valid['answers']:.0f} answers in form" if checks["forms"].passed else ""
    if accepted is not None and accepted.per_step is not None:
        figure += f"{', ' if figure else ''}acceptance length {accepted.per_step:.2f}"
    return Judgement(checks, figure)


def _cases(observed: Observed, whole: Mapping[str, TokenAnswer]) -> list[StructuredAnswers]:
    theirs = {record.prompt_id: record for record in answered(observed.baseline_requests)}
    cases = []
    for record in answered(observed.requests):
        own = theirs.get(record.prompt_id)
        given = [("streamed", _answer(record))]
        if record.prompt_id in whole:
            given.append(("whole", whole[record.prompt_id]))
        if own is not None:
            cases.append(StructuredAnswers(observed.work.facts[record.prompt_id], _answer(own), tuple(given)))
    return cases


def _answer(record: RequestRecord) -> TokenAnswer:
    return TokenAnswer(record.text or "", (), record.finish_reason, output_tokens=record.output_tokens)


PACK = Pack(
    name="structured-output",
    shows="answers in a form: JSON schema, regular expression, choice, tool calls, parallel calls",
    passes="every answer follows its form wherever the answer without speculation does",
    finds="a form that is violated with speculation and kept without",
    needs=("an arm without speculation", "for tool calls: a tool parser on both"),
    make=make,
    judge=judge,
    probe=probe,
    least_context=512,
    identity=False,
)
