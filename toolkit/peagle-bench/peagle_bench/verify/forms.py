"""Check of answers in a form: JSON schemas, regular expressions, choices and tool calls.

A demand is a request for an answer of a form, with a check of that form: `jsonschema` for JSON and arguments,
a regular expression for the rest. The languages are finite and short, so an answer that follows its form ends
by itself. vLLM masks tokens by grammar at each draft position; releases have lost the mask there, for example
behind the end of reasoning (vllm pull request 36138), which only requests with speculation see. `verify` and
the pack "structured-output" use the same demands and the same judge.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from peagle_bench.verify.answers import TokenAnswer, whole_or_cut
from peagle_bench.verify.engines import EnginePair, Side, SideFailed
from peagle_bench.verify.statistics import (
    CheckVerdict,
    counted,
    fisher_greater,
    not_applicable,
    percent,
    rate_found,
    undecided,
)

Form = Literal["json-schema", "regex", "choice", "tool", "parallel-tools"]
FORMS: tuple[Form, ...] = ("json-schema", "regex", "choice", "tool", "parallel-tools")
TOOL_FORMS: tuple[Form, ...] = ("tool", "parallel-tools")

#: Fields of an order: choices, flags, numbers, and those that have fields or items of their own.
_CHOICES = {
    "colour": ("red", "green", "blue", "white"),
    "size": ("tiny", "small", "large", "huge"),
    "corner": ("north", "south", "east", "west"),
}
_FLAGS = ("paid", "express", "fragile")
_NUMBERS = ("quantity", "shelf", "floor")
_NESTED = ("labels", "discount", "delivery")
_NOUNS = ("boxes", "parcels", "crates", "letters", "pallets", "bags")
_VERBS = ("record", "cancel", "route", "price", "label", "weigh")


@dataclass(frozen=True)
class FormDemand:
    """One request for a form, without its model and sampling fields.

    ``schemas``: of the answer under "", or of the arguments of each tool by its name. ``pattern``: the
    regular expression that an answer matches as a whole, for forms that are not JSON; ``longest``: the
    characters of the longest such answer.
    """

    name: str
    form: Form
    body: Mapping[str, Any]
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    pattern: str | None = None
    longest: int | None = None


def demands(seed: int, count: int, forms: Sequence[Form] = FORMS) -> list[FormDemand]:
    """Make ``count`` demands, the forms in turn; the same for the same seed, and a larger count extends."""
    drawn = []
    for number in range(count):
        form = forms[number % len(forms)]
        drawn.append(
            _MAKERS[form](f"{form}/{number:03}", random.Random(f"structured {seed} {number} {form}"))
        )
    return drawn


def _messages(rng: random.Random, ask: str) -> dict[str, Any]:
    size, colour, corner = (rng.choice(_CHOICES[name]) for name in ("size", "colour", "corner"))
    order = (
        f"{rng.randint(2, 9)} {size} {colour} {rng.choice(_NOUNS)} to the {corner} corner, floor"
        f" {rng.randint(1, 9)}, {rng.choice(('paid', 'not paid'))}, order {rng.randint(100, 999)}"
    )
    return {"messages": [{"role": "user", "content": f"{ask}\n\n{order}"}]}


def _value_schema(rng: random.Random, name: str, depth: int) -> dict[str, Any]:
    """Make the schema of a field: enum, boolean, small integer, array, null, or object."""
    if name in _CHOICES:
        return {"type": "string", "enum": rng.sample(_CHOICES[name], 3)}
    if name in _FLAGS:
        return {"type": "boolean"}
    if name in _NUMBERS:
        return {"type": "integer", "minimum": 1, "maximum": rng.choice((9, 99))}
    if name == "labels":
        labels = {"type": "string", "enum": rng.sample([*_CHOICES["colour"], *_FLAGS], 3)}
        return {"type": "array", "minItems": 1, "maxItems": 3, "items": labels}
    if name == "discount":
        return {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 99}, {"type": "null"}]}
    return object_schema(rng, depth + 1)


def object_schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """Make a schema of an object with two or three required properties and no others."""
    fields = [*_CHOICES, *_FLAGS, *_NUMBERS, *(_NESTED if depth < 2 else ())]
    names = rng.sample(fields, rng.randint(2, 3))
    return {
        "type": "object",
        "properties": {name: _value_schema(rng, name, depth + 1) for name in names},
        "required": names,
        "additionalProperties": False,
    }


def _fields(schema: Mapping[str, Any]) -> str:
    return " and ".join(schema["properties"])


def _json(name: str, rng: random.Random) -> FormDemand:
    schema = object_schema(rng)
    demanded = {"type": "json_schema", "json_schema": {"name": "order", "schema": schema, "strict": True}}
    # A small model can fill an object with white space for ever; the penalty on what it repeats ends that.
    body = {
        **_messages(rng, f"Write this order as JSON, with {_fields(schema)}."),
        "response_format": demanded,
        "frequency_penalty": 1.0,
    }
    return FormDemand(name, "json-schema", body, {"": schema})


def _regex(name: str, rng: random.Random) -> FormDemand:
    colours, digits = rng.sample(_CHOICES["colour"], 3), rng.randint(2, 5)
    pattern = rf"[A-Z]{{2}}-[0-9]{{{digits}}}( ({'|'.join(colours)})){{1,3}}"
    ask = f"Write a code for this order: two letters, a dash, {digits} digits and the colour."
    body = {**_messages(rng, ask), "structured_outputs": {"regex": pattern}}
    longest = len("AB-") + digits + 3 * (1 + max(map(len, colours)))
    return FormDemand(name, "regex", body, pattern=pattern, longest=longest)


def _choice(name: str, rng: random.Random) -> FormDemand:
    places = rng.sample(_CHOICES["corner"], 4)
    choices = [f"deliver it to the {place} corner of the building" for place in places]
    body = {**_messages(rng, "What shall we do with this order?"), "structured_outputs": {"choice": choices}}
    longest = max(map(len, choices))
    return FormDemand(name, "choice", body, pattern="|".join(map(re.escape, choices)), longest=longest)


def _tool(name: str, rng: random.Random) -> FormDemand:
    schemas = {verb: object_schema(rng, 1) for verb in rng.sample(_VERBS, 2)}
    called = rng.choice(list(schemas))
    body = {
        **_messages(rng, f"Call the tool {called} for this order, with {_fields(schemas[called])}."),
        "tools": [_tool_of(verb, schema) for verb, schema in schemas.items()],
        "tool_choice": {"type": "function", "function": {"name": called}},
        "frequency_penalty": 1.0,
    }
    return FormDemand(name, "tool", body, {called: schemas[called]})


def _parallel(name: str, rng: random.Random) -> FormDemand:
    schemas = {verb: object_schema(rng, 2) for verb in rng.sample(_VERBS, 2)}
    body = {
        **_messages(rng, "Call every tool that this order needs, all at once."),
        "tools": [_tool_of(verb, schema) for verb, schema in schemas.items()],
        "tool_choice": "required",
        "parallel_tool_calls": True,
        "frequency_penalty": 0.5,
    }
    return FormDemand(name, "parallel-tools", body, schemas)


def _tool_of(verb: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    # Without "strict" vLLM lets a model write any arguments.
    described = {"name": verb, "description": f"To {verb} an order.", "parameters": schema, "strict": True}
    return {"type": "function", "function": described}


_MAKERS = {
    "json-schema": _json,
    "regex": _regex,
    "choice": _choice,
    "tool": _tool,
    "parallel-tools": _parallel,
}


@dataclass(frozen=True)
class StructuredAnswers:
    """Answers to one demand: of the baseline, and of the candidate.

    For parallel tools they are streams: only these show the calls of an answer that max_tokens cuts.
    """

    demand: FormDemand
    baseline: TokenAnswer
    answers: tuple[tuple[str, TokenAnswer], ...]  #: "whole" or "streamed", and the candidate's answer


def violation(demand: FormDemand, answer: TokenAnswer) -> str | None:
    """Describe how a complete answer violates its form; None if it follows it.

    Of parallel calls cut by max_tokens, all but the last are complete.
    """
    if demand.form not in TOOL_FORMS:
        return _violates_text(demand, answer.text)
    calls = answer.tool_calls
    if demand.form == "parallel-tools" and answer.finish_reason == "length":
        calls = calls[:-1]
    if not calls or (demand.form == "tool" and len(calls) != 1):
        return f"{counted(len(calls), 'tool call')}"
    for tool, arguments in calls:
        if tool not in demand.schemas:
            return f"calls {tool!r}, which the request does not allow"
        if wrong := _violates_schema(demand.schemas[tool], arguments):
            return f"arguments of {tool}: {wrong}"
    return None


def _violates_text(demand: FormDemand, text: str) -> str | None:
    if demand.pattern is None:
        return _violates_schema(demand.schemas[""], text)
    return None if re.fullmatch(demand.pattern, text) else f"does not match the {demand.form}"


def _violates_schema(schema: Mapping[str, Any], text: str) -> str | None:
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"is not JSON ({error})"
    violation = next(_validator(json.dumps(schema)).iter_errors(value), None)
    return None if violation is None else f"violates the schema: {violation.message}"


@lru_cache(maxsize=1024)
def _validator(schema: str) -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(schema))


def problem(demand: FormDemand, answer: TokenAnswer) -> str | None:
    """Describe why an answer cannot count as valid: incomplete, or a violation; None if it is valid."""
    if answer.finish_reason is None:
        return "finish_reason is missing"
    if answer.finish_reason == "length" and demand.form != "parallel-tools":
        return _beyond_repair(demand, answer.text) or TRUNCATED
    return violation(demand, answer)


def _beyond_repair(demand: FormDemand, text: str) -> str | None:
    """Describe how a truncated answer violates its form already, however it would have gone on."""
    if demand.form in TOOL_FORMS:
        return None  # what the tool parser leaves of a truncated call differs by parser
    if demand.longest is not None:
        return f"is longer than any {demand.form} of the request" if len(text) > demand.longest else None
    try:
        json.loads(text)
    except (RecursionError, ValueError) as error:
        if not isinstance(error, json.JSONDecodeError):  # too deep, or a number that is too long
            return None
        inside = error.msg.startswith(("Unterminated string", "Invalid"))
        if not inside and len(text) - error.pos > len("false"):
            return f"is not the beginning of JSON ({error})"
    return None


TRUNCATED = "truncated at max_tokens"


def judge_forms(cases: Sequence[StructuredAnswers], alpha: float) -> CheckVerdict:
    """Judge whether the candidate follows each form wherever the baseline does.

    Only demands with a valid answer of the baseline count. An answer that violates
    its form is always a fault: no rounding makes a token possible that a grammar excludes. Truncated answers
    that could still become valid are a fault only if there are more of them than the baseline's (Fisher): a
    tie may lead to another, longer answer.
    """
    own = [problem(case.demand, case.baseline) for case in cases]
    sound = [case for case, wrong in zip(cases, own, strict=True) if wrong is None]
    faults, truncated, given = [], 0, 0
    for case in sound:
        for how, answer in case.answers:
            given += 1
            wrong = problem(case.demand, answer)
            if wrong == TRUNCATED:
                truncated += 1
            elif wrong is not None:
                faults.append(f"{case.demand.name} ({how}): {wrong}: {content_of(answer)!r:.80}")
    cut = own.count(TRUNCATED)
    p = fisher_greater(truncated, given, cut, len(cases))
    if p < alpha:
        faults.append(f"{truncated} of {counted(given, 'answer')} truncated (baseline: {cut}): p = {p:.1g}")
    same = sum(
        content_of(answer) == content_of(case.baseline) for case in sound for _, answer in case.answers
    )
    figures: dict[str, float] = {
        "requests": len(cases),
        "decidable": len(sound),
        "answers": given,
        "identical": same,
        "faults": len(faults),
        "truncated": truncated,
    }
    for form in FORMS:
        if any(case.demand.form == form for case in cases):
            figures[f"decidable_{form}"] = sum(case.demand.form == form for case in sound)
    if not sound:
        first = own[0] if own else "no request was answered"
        return undecided(f"none of the baseline's {len(cases)} answers follows its form ({first})", figures)
    summary = f"{len(sound)} of {counted(len(cases), 'request')} answered validly by the baseline"
    summary += (
        f", {counted(len(faults), 'fault')} of the arm" if faults else f", and all {given} answers of the arm"
    )
    power = (
        "detects each tested answer that violates its form; detects a random fault with 90% probability "
        f"if it affects {percent(rate_found(given))} of answers; does not compare which answer is chosen"
    )
    return CheckVerdict(not faults, summary, power, figures, faults)


def content_of(answer: TokenAnswer) -> Any:
    """Return what is compared: the text or the tool calls, as JSON values where they are JSON."""
    if not answer.tool_calls:
        return answer.text
    return [(name, _value(arguments)) for name, arguments in answer.tool_calls]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


#: The option that vLLM names when it refuses tools ("requires --tool-call-parser to be set").
_TOOLS_MISSING = "--tool-call-parser"


def ask_forms(
    engines: EnginePair, requests: Sequence[FormDemand], max_tokens: int
) -> list[StructuredAnswers]:
    """Ask both engines greedily, the candidate with and without streaming.

    Raises:
        SideFailed: an engine refused a request, or failed.
    """
    bodies = {each.name: {**each.body, "max_tokens": max_tokens, "temperature": 0.0} for each in requests}
    own = engines.stream("baseline", list(bodies.values()))
    streamed = engines.stream("candidate", list(bodies.values()))
    alone = [each.name for each in requests if each.form != "parallel-tools"]
    whole = dict(zip(alone, engines.ask("candidate", [bodies[name] for name in alone]), strict=True))
    return [
        StructuredAnswers(
            demand,
            whole_or_cut(its),
            (
                ("streamed", whole_or_cut(stream)),
                *([("whole", whole[demand.name])] if demand.name in whole else []),
            ),
        )
        for demand, its, stream in zip(requests, own, streamed, strict=True)
    ]


def judge_tools(
    engines: EnginePair, requests: Sequence[FormDemand], max_tokens: int, alpha: float
) -> CheckVerdict:
    """Ask for tool calls and judge them; say so where an engine has no tool parser.

    Raises:
        SideFailed: an engine refused a request for another reason, or failed.
    """
    first = {**requests[0].body, "max_tokens": 1, "temperature": 0.0}
    plain, mine = (_refusal(engines, side, first) for side in ("baseline", "candidate"))
    if plain is not None and mine is not None:
        return not_applicable(f"neither endpoint has a tool parser: {plain}")
    if plain is not None:
        return undecided(f"the baseline refuses tools: {plain}")
    if mine is not None:
        summary = f"refuses tools, and the baseline does not: {mine}"
        return CheckVerdict(False, summary, "detects that tools are refused", {}, [mine])
    return judge_forms(ask_forms(engines, requests, max_tokens), alpha)


def _refusal(engines: EnginePair, side: Side, body: Mapping[str, Any]) -> str | None:
    """Return the engine's refusal of tools for want of a tool parser; None if it answers."""
    try:
        engines.ask(side, [body])
    except SideFailed as failed:
        if not failed.refused or _TOOLS_MISSING not in str(failed.error):
            raise
        return str(failed.error)
    return None
