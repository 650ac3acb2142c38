"""Pack RAG: long retrieved contexts, with and without shared prefixes, and answers that quote them. Pure.

Each group of questions has its own documents, and is a unit of the intervals. The same questions are asked
with more and more documents, so the parts differ in length alone; a longer prompt begins with the documents
of the shorter one. A group's questions share their documents in the prefix cache. One of them is also asked
with a cache of its own, for the time to first token without sharing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from peagle_bench.load import WorkItem
from peagle_bench.packs.judges import (
    acceptance_by,
    answered,
    drafts_applicable,
    falls,
    no_fall,
    part_of,
    ttft_by,
)
from peagle_bench.packs.pack import Judgement, Make, Observed, Pack, PackNotMeasured, PackWork
from peagle_bench.packs.texts import (
    BETWEEN,
    SourceText,
    documents,
    enough,
    fitting,
    lengths,
    tokens_a_character,
)
from peagle_bench.results.records import RequestRecord
from peagle_bench.verify.statistics import CheckVerdict

GROUPS = 16
GROUP = 4  #: questions of a group, if so many documents fit into the shortest prompt
_SHORTEST, _SHORTEST_CHAT = 90, 320  #: tokens of a prompt, so that the document in question is whole
SHARED, ALONE = "shared", "own"  #: whether a question finds its documents in the prefix cache
_FULL = 4096  #: a context that shows what the pack is for
_SYSTEM = "Answer from the documents alone. Quote them word for word, and write nothing else."


def make(settings: Make) -> PackWork:
    """Make the questions at each length.

    Raises:
        PackNotMeasured: the context has no room for two lengths.
    """
    model, units = settings.model, settings.units or GROUPS
    answer = 96 if model.context >= 1024 else 64
    parts = lengths(model.context, answer, shortest=_SHORTEST if model.stand_in else _SHORTEST_CHAT)
    if len(parts) < 2:
        raise PackNotMeasured(
            f"the context of {model.context} tokens has no room for prompts of two lengths",
            next_step="give a --context, or deploy with a serving.max_model_len, of at least 768",
        )
    rate = tokens_a_character(model)
    items: list[WorkItem] = []
    facts: dict[str, Any] = {}
    for group in range(units):
        overhead = 0 if model.stand_in else len(_SYSTEM) + 60  # of the chat template
        source = documents(model, f"rag {settings.seed} {group}")
        own = enough(source, int(parts[-1] / rate))
        longest = max(len(document.question) for document in own)
        rooms = {part: int(part / rate) - 2 * len(BETWEEN) - overhead - longest for part in parts}
        # Two questions about one document would be the same prompt twice.
        questions = max(1, min(GROUP, fitting(own, rooms[parts[0]])))
        for part in parts:
            for number, document in enumerate(own[:questions]):
                body = _body(model.stand_in, _cut(own, rooms[part]), document)
                body |= {"max_tokens": answer, "temperature": 0.0}
                for prefix in (SHARED, ALONE) if number == 0 else (SHARED,):
                    name = f"{group}/{part}/{number}/{prefix}"
                    items.append(
                        WorkItem(
                            name,
                            body,
                            category=f"{part} tokens",
                            labels={"prefix": prefix},
                            share=f"rag {group}" if prefix == SHARED else f"rag {name}",
                        )
                    )
                    facts[name] = document.passage
    notes = [f"scaled down to the context of {model.context:,} tokens: prompts of up to {parts[-1]:,}"]
    return PackWork(tuple(items), tuple(notes) if model.context < _FULL else (), facts)


def _cut(own: list[SourceText], characters: int) -> str:
    """Return the first documents, cut at ``characters``, so that lengths are exact."""
    return BETWEEN.join(document.text for document in own)[: max(0, characters)]


def _body(stand_in: bool, context: str, document: SourceText) -> dict[str, Any]:
    if stand_in:
        return {"prompt": f"{context}{BETWEEN}{document.question}"}
    prompt = f"Documents:\n\n{context}{BETWEEN}Question: {document.question}"
    return {"messages": [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": prompt}]}


def judge(observed: Observed) -> Judgement:
    """Judge acceptance by length; report the time to first token and the quotes."""
    own = answered(observed.requests)
    parts = sorted({part_of(record) for record in own}, key=int)
    checks = {}
    if parts:
        shared = [record for record in own if record.prompt_id.endswith(f"/{SHARED}")]
        by_length = falls(shared, parts, alpha=observed.alpha, by="{} prompt tokens")
        by_length = _with_figures(by_length, observed, own)
        checks["acceptance by length"] = drafts_applicable(observed.arm.mode, by_length)
    return Judgement(checks, _figure(own, parts))


def _with_figures(verdict: CheckVerdict, observed: Observed, own: list[RequestRecord]) -> CheckVerdict:
    figures = dict(verdict.figures)
    summary = verdict.summary
    for prefix in (SHARED, ALONE):
        mine = [record for record in own if record.prompt_id.endswith(f"/{prefix}")]
        times = ttft_by(mine, part_of)
        figures |= {f"ttft_ms_{prefix}_at_{part}": value for part, value in times.items()}
        if times:
            by_length = ", ".join(f"{times[part]:.0f} at {part}" for part in sorted(times, key=int))
            summary += f"; TTFT in ms, prefix {prefix}: {by_length} prompt tokens"
    shown = [record for record in own if record.text is not None]
    if shown:
        quoted = sum(_quotes(record, observed) for record in shown)
        figures["quoted_share"] = quoted / len(shown)
    return replace(verdict, summary=summary, figures=figures)


def _quotes(record: RequestRecord, observed: Observed) -> bool:
    passage = str(observed.work.facts.get(record.prompt_id, "")).split()
    return bool(passage) and " ".join(passage[:12]) in " ".join((record.text or "").split())


def _figure(own: list[RequestRecord], parts: list[str]) -> str:
    lengths_ = acceptance_by(own, part_of)
    known = [part for part in parts if part in lengths_]
    figures = [f"acceptance {lengths_[known[0]]:.2f} at {int(known[0]):,} tokens"] if known else []
    if len(known) > 1:
        figures.append(f"{lengths_[known[-1]]:.2f} at {int(known[-1]):,}")
    return ", ".join(figures)


PACK = Pack(
    name="rag",
    shows="long retrieved contexts, with and without shared prefixes; answers quote the context",
    passes=(f"as prompts get longer, {no_fall('the shortest prompts')}; the answers are the target's own"),
    finds="a head that was trained on short sequences: its acceptance falls with the length of the prompt",
    needs=("a context of 768 tokens or more", "an arm without speculation, for the identity of answers"),
    make=make,
    judge=judge,
)
