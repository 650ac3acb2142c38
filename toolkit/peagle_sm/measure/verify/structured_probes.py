"""Requests that demand JSON of a schema, or a call of a tool; sent as chats, as users send them."""

from __future__ import annotations

from typing import Any

from peagle_sm.core.errors import SpecError
from peagle_sm.measure.verify.answers import whole_or_cut
from peagle_sm.measure.verify.lab import GREEDY, Lab, SideFailed
from peagle_sm.measure.verify.structured import CHOICE_SCHEMA, SCHEMA, TOOL, Kind, StructuredCase

_ORDERS = (
    "A customer wants the small red one by tonight.",
    "Three large green crates, whenever you have time.",
    "The blue parcel is medium sized and must leave now.",
    "No hurry: one tiny green box.",
    "Send the biggest red container at once!",
    "A middling blue bag; next week is fine.",
)
_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": TOOL, "description": "Record what was ordered.", "parameters": SCHEMA},
}
_CHOICES: tuple[Any, ...] = ({"type": "function", "function": {"name": TOOL}}, "required", "auto")


#: What an engine without tool calls names as it refuses one (vLLM: "requires --tool-call-parser to be set").
_TOOLS_MISSING = "--tool-call-parser"


class NoTools(Exception):
    """Neither side has a tool parser; the message is the baseline's refusal."""


def _chat(order: str, demand: str, tokens: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"{demand}\n\n{order}"}]
    return {"messages": messages, "max_tokens": tokens, "return_token_ids": True, **GREEDY}


def probe_json(lab: Lab) -> list[StructuredCase]:
    """Half of the requests demand the object, half one of three long strings."""
    requests: list[tuple[str, Kind, dict[str, Any]]] = []
    for n in range(lab.options.structured):
        order = _ORDERS[n % len(_ORDERS)]
        kind: Kind = "object" if n % 2 == 0 else "choice"
        schema = SCHEMA if kind == "object" else CHOICE_SCHEMA
        demand = f"Sum up order {n + 1} as JSON."
        demanded = {"type": "json_schema", "json_schema": {"name": "order", "schema": schema, "strict": True}}
        body = _chat(order, demand, lab.options.structured_tokens)
        requests.append((f"order {n + 1} ({kind})", kind, {**body, "response_format": demanded}))
    return _cases(lab, requests)


def probe_tools(lab: Lab) -> list[StructuredCase]:
    """The tool by name, as required, and left to the model; choices that the baseline refuses are left out.

    Raises:
        NoTools: both sides refuse all three for want of a tool parser.
        SideFailed: the baseline refuses all three, and the candidate does not.
    """
    requests: list[tuple[str, Kind, dict[str, Any]]] = []
    refused: list[tuple[SideFailed, dict[str, Any]]] = []
    for choice in _CHOICES:
        how = choice if isinstance(choice, str) else "named"
        bodies = [
            {
                **_chat(_ORDERS[n % len(_ORDERS)], f"Record order {n + 1}.", lab.options.structured_tokens),
                "tools": [_TOOL],
                "tool_choice": choice,
            }
            for n in range(max(1, lab.options.structured // len(_CHOICES)))
        ]
        try:
            lab.ask("baseline", [{**bodies[0], "max_tokens": 1}])
        except SideFailed as failed:
            if not isinstance(failed.error, SpecError):
                raise
            refused.append((failed, bodies[0]))
            continue
        requests += [(f"order {n + 1} ({how})", "tool", body) for n, body in enumerate(bodies)]
    if not requests:
        if all(_lack_tools(lab, failed, body) for failed, body in refused):
            raise NoTools(str(refused[-1][0].error))
        raise refused[-1][0]
    return _cases(lab, requests)


def _lack_tools(lab: Lab, baseline: SideFailed, body: dict[str, Any]) -> bool:
    """Whether the candidate refuses, as the baseline did, because it has no tool parser."""
    try:
        lab.ask("candidate", [{**body, "max_tokens": 1}])
    except SideFailed as failed:
        return failed.refused and all(_TOOLS_MISSING in str(each.error) for each in (baseline, failed))
    return False


def _cases(lab: Lab, requests: list[tuple[str, Kind, dict[str, Any]]]) -> list[StructuredCase]:
    bodies = [body for _, _, body in requests]
    own, mine = lab.ask("baseline", bodies), lab.ask("candidate", bodies)
    streamed = lab.stream("candidate", bodies)
    return [
        StructuredCase(name, kind, its, answer, whole_or_cut(stream))
        for (name, kind, _), its, answer, stream in zip(requests, own, mine, streamed, strict=True)
    ]
