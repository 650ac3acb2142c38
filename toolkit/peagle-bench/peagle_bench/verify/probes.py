"""Requests that each check sends, and the test cases built from their answers."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from peagle_bench.verify.answer_format import (
    StopCase,
    StreamCase,
    choose_stop,
)
from peagle_bench.verify.answers import Scored, TokenAnswer, whole_or_cut
from peagle_bench.verify.engines import (
    SAMPLED,
    WITH_LOGPROBS,
    EnginePair,
    SideFailed,
    TokenPrompt,
    greedy_body,
)
from peagle_bench.verify.greedy import GreedyCase, LongCase, ends_of
from peagle_bench.verify.probabilities import CUTS, TEMPERATURES, UNSUPPORTED, ParameterCase
from peagle_bench.verify.sampling import Repeated, SampleFit, find_positions, fit_places
from peagle_bench.verify.statistics import NoiseFloor, floor_of, largest_difference
from peagle_sm.core.errors import StreamError

_CONTEXT = re.compile(r"(?:max_model_len=|maximum context length is )(\d+)")
_SHARES = (0.25, 0.5, 0.9)  #: of the context; one more prompt reaches its last token
LONG_PROMPTS = len(_SHARES) + 1
LONG_ANSWER = 32  #: maximum tokens of an answer to a long prompt


@dataclass(frozen=True)
class Greedy:
    """Greedy runs, which the other checks use."""

    prompts: tuple[TokenPrompt, ...]
    cases: tuple[GreedyCase, ...]
    floor: NoiseFloor
    ends: frozenset[int]


def probe_greedy(engines: EnginePair, prompts: Sequence[TokenPrompt]) -> Greedy:
    """Run the baseline twice at different batch shapes and the candidate once; score all answers."""
    wide = engines.options.concurrency
    first = engines.greedy("baseline", prompts, wide, **WITH_LOGPROBS)
    repeat = engines.greedy("baseline", prompts, max(1, wide // 4))
    candidate = engines.greedy("candidate", prompts, wide)
    runs = (engines.score(prompts, answers) for answers in (first, repeat, candidate))
    cases = tuple(GreedyCase(p.id, *three) for p, *three in zip(prompts, *runs, strict=True))
    floor = floor_of([case.first for case in cases], [case.repeat for case in cases])
    return Greedy(tuple(prompts), cases, floor, ends_of(cases))


def probe_sampled(
    engines: EnginePair, prompts: Sequence[TokenPrompt]
) -> tuple[list[Scored], list[Scored], list[Scored]]:
    """Sample at temperature 1: the candidate without and with a seed, and the baseline."""
    options = engines.options
    drawn = [prompts[n % len(prompts)] for n in range(options.samples)]
    bodies = [_sampled_body(p, options.sample_tokens) for p in drawn]
    seeded = [{**body, "seed": options.seed + n} for n, body in enumerate(bodies)]
    half = len(bodies) // 2
    own = engines.score(drawn[:half], engines.ask("baseline", bodies[:half]))
    unseeded = engines.score(drawn[:half], engines.ask("candidate", bodies[:half]))
    with_seed = engines.score(drawn[half:], engines.ask("candidate", seeded[half:]))
    return unseeded, with_seed, own


def probe_places(engines: EnginePair, greedy: Greedy) -> Repeated:
    """Sample the next token repeatedly at positions of the baseline's greedy answers."""
    options = engines.options
    by_id = {prompt.id: prompt for prompt in greedy.prompts}
    places = [place for case in greedy.cases for place in find_positions(case.prompt_id, case.first, most=2)][
        : options.contexts
    ]
    bodies = [
        _sampled_body(TokenPrompt(place.prompt_id, (*by_id[place.prompt_id].ids, *place.before)), 3)
        for place in places
        for _ in range(options.repeats)
    ]

    def drawn(side: Literal["baseline", "candidate"]) -> SampleFit:
        answers = engines.ask(side, bodies) if bodies else []
        rows = [answers[n : n + options.repeats] for n in range(0, len(answers), options.repeats)]
        return fit_places(places, rows)

    return Repeated(drawn("candidate"), drawn("baseline"), len(places))


def probe_parameters(engines: EnginePair, prompts: Sequence[TokenPrompt]) -> list[ParameterCase]:
    """Sample both engines with each sampling parameter; score under the baseline."""
    options = engines.options
    sampled_prompts = [prompts[n % len(prompts)] for n in range(options.parameter_samples)]

    def drawn(side: Literal["baseline", "candidate"], fields: Mapping[str, Any]) -> list[Scored]:
        bodies = [{**_sampled_body(p, options.sample_tokens), **fields} for p in sampled_prompts]
        return engines.score(sampled_prompts, engines.ask(side, bodies))

    cases = []
    for name, fields, cut in CUTS:
        try:
            mine = drawn("candidate", fields)
        except SideFailed as failed:
            if not failed.refused or UNSUPPORTED not in str(failed.error):
                raise
            cases.append(ParameterCase(name, (), (), cut, refused=True))
            continue
        cases.append(ParameterCase(name, mine, drawn("baseline", fields), cut))
    for temperature in TEMPERATURES:
        fields = {"temperature": temperature}
        name = f"temperature {temperature:g}"
        both = drawn("candidate", fields), drawn("baseline", fields)
        cases.append(ParameterCase(name, *both, temperature=temperature))
    return cases


def _sampled_body(prompt: TokenPrompt, tokens: int) -> dict[str, Any]:
    return {"prompt": list(prompt.ids), "max_tokens": tokens, "return_token_ids": True, **SAMPLED}


def probe_logprobs(engines: EnginePair, greedy: Greedy) -> tuple[list[Scored], list[Scored]]:
    """Get greedy answers of both engines with reported log-probabilities, scored."""
    some = greedy.prompts[: engines.options.features]
    answers = engines.greedy("candidate", some, engines.options.concurrency, **WITH_LOGPROBS)
    return engines.score(some, answers), [case.first for case in greedy.cases[: len(some)]]


def probe_stops(engines: EnginePair, greedy: Greedy) -> list[StopCase]:
    """Send greedy requests with a stop string from the middle of the baseline's answer."""
    places = random.Random(engines.options.seed)
    chosen: list[tuple[TokenPrompt, str, bool, str]] = []
    for prompt, case in zip(greedy.prompts, greedy.cases, strict=True):
        text = case.first.answer.text
        stop = choose_stop(text, places.uniform(0.2, 0.7))
        if stop is not None and len(chosen) < engines.options.features:
            chosen.append((prompt, stop, len(chosen) % 3 == 2, text))
    bodies = [
        greedy_body(prompt, engines.options.max_tokens, stop=[stop], include_stop_str_in_output=included)
        for prompt, stop, included, _ in chosen
    ]
    own, whole = engines.ask("baseline", bodies), engines.ask("candidate", bodies)
    streamed = [whole_or_cut(each) for each in engines.stream("candidate", bodies)]
    return [
        StopCase(prompt.id, stop, included, text, *answers)
        for (prompt, stop, included, text), *answers in zip(chosen, own, whole, streamed, strict=True)
    ]


def probe_streaming(engines: EnginePair, greedy: Greedy) -> list[StreamCase]:
    """Send the greedy requests again as streams to both engines."""
    some = greedy.prompts[: engines.options.features]
    bodies = [greedy_body(prompt, engines.options.max_tokens) for prompt in some]
    own, mine = engines.stream("baseline", bodies), engines.stream("candidate", bodies)
    cases = []
    for case, its, streamed in zip(greedy.cases, own, mine, strict=False):
        broken = str(streamed) if isinstance(streamed, StreamError) else None
        answer = streamed if isinstance(streamed, TokenAnswer) else None
        whole, first = case.candidate.answer, case.first.answer
        cases.append(StreamCase(case.prompt_id, first, whole_or_cut(its), whole, answer, broken))
    return cases


def context_of(engines: EnginePair, prompt: TokenPrompt) -> int | None:
    """Find the context length from the refusal of a too long prompt; None if it is not stated.

    If the engine accepts the longest tested prompt, that length is enough. (A too large ``max_tokens`` would
    also be refused, but possibly by the gate in front of the engine.)
    """
    longest = engines.options.longest_tokens
    ids = (prompt.ids * (longest // len(prompt.ids) + 1))[:longest]
    try:
        engines.ask("baseline", [greedy_body(TokenPrompt("long/refused", ids), 1)])
    except SideFailed as failed:
        stated = _CONTEXT.search(str(failed.error.details.get("original_message") or failed.error))
        return int(stated.group(1)) if stated else None
    return longest + 1


def probe_long_context(engines: EnginePair, greedy: Greedy, context: int) -> list[LongCase]:
    """Send prompts of growing length, made of the workload's texts; the last one fills the context."""
    longest = min(context, engines.options.longest_tokens)
    usual = max(len(prompt.ids) for prompt in greedy.prompts) + engines.options.max_tokens
    lengths = [int(share * longest) for share in _SHARES] + [longest - LONG_ANSWER // 2]
    lengths = [length for length in lengths if usual < length <= longest - LONG_ANSWER // 2]
    pool = [
        t for p, c in zip(greedy.prompts, greedy.cases, strict=True) for t in (*p.ids, *c.first.answer.ids)
    ]
    pool = [token for token in pool if token not in greedy.ends]
    text = (pool * (longest // len(pool) + 1))[:longest]
    cases = []
    for length in lengths:  # one at a time, shortest first: each is the beginning of the next
        prompt = TokenPrompt(f"long/{length}", tuple(text[:length]))
        answer_tokens = min(LONG_ANSWER, longest - length)
        body = greedy_body(prompt, answer_tokens)
        (own,) = engines.ask("baseline", [{**body, **WITH_LOGPROBS}], 1)
        (mine,) = engines.ask("candidate", [body], 1)
        room = context - 1 - length  # scoring writes a token of its own
        seen, judged = _scored(engines, prompt, own, room), None
        if own.ids != mine.ids:
            judged = _scored(engines, prompt, mine, room)
        noise = largest_difference(seen) if seen is not None else 0.0
        cases.append(
            LongCase(length, answer_tokens, own, mine, judged.gaps if judged is not None else (), noise)
        )
    return cases


def _scored(engines: EnginePair, prompt: TokenPrompt, answer: TokenAnswer, room: int) -> Scored | None:
    """Score the first ``room`` tokens of an answer under the baseline; None if it refuses."""
    try:
        return engines.score([prompt], [answer.begin(room)])[0]
    except SideFailed:
        return None  # reported by the check
