"""JSON by schema and tool calls: as well formed as the baseline's. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from peagle_sm.measure.verify.answers import Answer
from peagle_sm.measure.verify.figures import rate_found
from peagle_sm.measure.verify.verdict import Verdict, counted, percent, undecided

Kind = Literal["object", "choice", "tool"]
TOOL = "record_choice"
#: Only closed values: any model that obeys it ends soon, and whether it obeys needs no library to tell.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "enum": ["red", "green", "blue"]},
        "urgent": {"type": "boolean"},
        "size": {"type": "integer", "enum": [1, 2, 3]},
    },
    "required": ["colour", "urgent", "size"],
    "additionalProperties": False,
}
#: A schema without a place for white space: a small model that would fill the object with it can only answer.
CHOICES = (
    "deliver it to the north-west corner of the building",
    "deliver it to the north-east corner of the building",
    "keep it at the post office until somebody asks for it",
)
CHOICE_SCHEMA: dict[str, Any] = {"type": "string", "enum": list(CHOICES)}


@dataclass(frozen=True)
class StructuredCase:
    """One request that demands `SCHEMA` (or `CHOICE_SCHEMA`).

    ``streamed`` is the candidate's answer to it as a stream.
    """

    name: str
    kind: Kind
    baseline: Answer
    candidate: Answer
    streamed: Answer | None = None


def conforms(kind: Kind, text: str) -> bool:
    """Whether ``text`` is one JSON value of the schema that goes with ``kind``."""
    try:
        value = json.loads(text)
    except ValueError:
        return False
    if kind == "choice":
        return value in CHOICES
    return (
        isinstance(value, dict)
        and set(value) == set(SCHEMA["required"])
        and value["colour"] in ("red", "green", "blue")
        and isinstance(value["urgent"], bool)
        and not isinstance(value["size"], bool)
        and value["size"] in (1, 2, 3)
    )


def judge_structured(cases: Sequence[StructuredCase], exact: bool) -> Verdict:
    """Whether the candidate obeys the schema wherever the baseline does.

    Only requests that the baseline itself answers whole and rightly are judged; were there none, the check
    could not be decided. Where the floor is exact, all answers are to be equal too, cut ones included.
    """
    sound = [case for case in cases if problem(case.kind, case.baseline) is None]
    faults = []
    for case in sound:
        answers = [("whole", case.candidate), *([("streamed", case.streamed)] if case.streamed else [])]
        for how, answer in answers:
            wrong = problem(case.kind, answer)
            if wrong is None and exact and content(case.kind, answer) != content(case.kind, case.baseline):
                wrong = "another answer than the baseline's"
            if wrong is not None:
                faults.append(f"{case.name} ({how}): {wrong}: {content(case.kind, answer)[:80]!r}")
    unequal = [
        c for c in cases if c not in sound and content(c.kind, c.candidate) != content(c.kind, c.baseline)
    ]
    if exact:
        faults += [f"{case.name}: a cut answer differs from the baseline's" for case in unequal]
    figures = {"requests": len(cases), "decidable": len(sound), "faults": len(faults)}
    said = f"{counted(len(sound), 'request')} of {len(cases)} answered by the baseline as the schema demands"
    power = (
        "an answer that breaks the schema is caught, of those tested; a fault that strikes by chance is met "
        f"with 90% if it touches {percent(rate_found(len(sound)))} of answers"
        + ("" if exact else "; which of the allowed values is chosen is not compared")
    )
    if faults:
        return Verdict(
            False, f"{said}, {counted(len(faults), 'fault')} of the candidate", power, figures, faults
        )
    if not sound:
        first = problem(cases[0].kind, cases[0].baseline) if cases else "nothing was asked"
        return undecided(
            f"the baseline itself meets the schema in none of {len(cases)} answers ({first})", figures
        )
    return Verdict(True, f"{said}, and by the candidate too", power, figures)


def content(kind: Kind, answer: Answer) -> str:
    """What is compared: the text, or the calls with their arguments."""
    return answer.text if kind != "tool" else json.dumps(answer.tool_calls)


def problem(kind: Kind, answer: Answer) -> str | None:
    """Why an answer is not what was demanded; None when it is."""
    if answer.finish_reason == "length":
        return "cut for length"
    if answer.finish_reason is None:
        return "no finish_reason came"
    if kind != "tool":
        return None if conforms(kind, answer.text) else "breaks the schema"
    if [name for name, _ in answer.tool_calls] != [TOOL]:
        return f"{len(answer.tool_calls)} calls of {TOOL}"
    return None if conforms(kind, answer.tool_calls[0][1]) else "arguments break the schema"
