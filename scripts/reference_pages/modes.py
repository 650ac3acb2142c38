"""The tables of modes and of public heads in docs/how-to/which-drafter.md; its other text is by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.plan.environment import as_text
from peagle_sm.core.spec.modes import DRAFT_TOKENS, MODES, WITH_HEAD, Mode, Refusal, facts_of

_BEGIN, _END = "<!-- {}: scripts/reference writes this table -->", "<!-- end -->"
_DRAFTS_FROM = {
    "nothing": "-",
    "text": "the text so far",
    "head": "a head",
    "head or target": "a head, or weights inside the target",
    "model": "a small model with the target's vocabulary",
}


def drafters_page(text: str) -> str:
    """Return the page with its tables written anew.

    Raises:
        ValueError: the page has no place for a table.
    """
    for name, table in (("modes", modes_table()), ("fields", fields_table()), ("heads", heads_table())):
        begin = _BEGIN.format(name)
        place = re.compile(f"{re.escape(begin)}\n.*?{re.escape(_END)}", re.DOTALL)
        match = place.search(text)
        if match is None:
            raise ValueError(f"the page lacks {begin} and {_END}")
        start, end = match.span()
        text = "\n".join((text[:start] + begin, *table, _END + text[end:]))
    return text


def modes_table() -> list[str]:
    """Return what each mode drafts from, its first vLLM, memory, and whether it was run here."""
    engines = load_catalog().engines
    rows = []
    for mode in MODES:
        facts = facts_of(mode)
        rows.append(
            (
                f"`{mode}`",
                _DRAFTS_FROM[facts.drafter],
                "one pass" if facts.one_pass else "one token after the other" if facts.has_weights else "-",
                engines.mode(mode).since or ("before 0.16.0" if facts.speculates else "any"),
                " or ".join(runner.upper() for runner in facts.runners),
                facts.memory,
                "the target's own" if facts.exact else "not the target's own",
                "yes" if facts.runs_here else "not run here",
            )
        )
    heads = ("mode", "drafts from", "drafts in", "vLLM", "model runner", "memory beside the target")
    return _table((*heads, "answers", "real engine here"), rows)


def fields_table() -> list[str]:
    """Return the fields of each mode, its default K, and what vLLM refuses with it."""
    rows = []
    for mode in MODES:
        facts = facts_of(mode)
        if facts.speculates:
            fields = ", ".join(f"`{name}`" for name in facts.fields if name != DRAFT_TOKENS)
            refuses = "; ".join(_refusal(each) for each in facts.refuses) or "-"
            rows.append((f"`{mode}`", str(facts.draft_tokens), fields, refuses, _stages(facts.stages)))
    return _table(("mode", "K, if the model has none", "fields beside K", "refuses", "pipeline stages"), rows)


def _refusal(refusal: Refusal) -> str:
    allowed = " or ".join(as_text(each) for each in refusal.allowed)
    return (
        f"`{refusal.name}`"
        + (f" other than {allowed}" if allowed else "")
        + (f", with `{refusal.with_field}`" if refusal.with_field else "")
    )


def _stages(stages: str) -> str:
    known = {"never": "refused", "unknown": "not known"}
    return known.get(stages, f"from vLLM {stages}, model runner V2")


def heads_table() -> list[str]:
    """Return the catalogue's heads of each model on GPUs, by mode."""
    catalog = load_catalog()
    modes = [mode for mode in WITH_HEAD if any(head.method == mode for head in catalog.heads.values())]
    rows = [
        (f"`{name}`", *(_heads_of(name, mode) for mode in modes))
        for name, model in catalog.models.items()
        if model.image == "vllm"
    ]
    return _table(("model", *(f"`{mode}`" for mode in modes)), rows)


def _heads_of(model: str, mode: Mode) -> str:
    heads = load_catalog().heads_for(model).values()
    return ", ".join(str(head.hub_id) for head in heads if head.method == mode) or "-"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]
