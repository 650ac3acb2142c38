"""Faults put into recorded outputs, one a call, and whether the check states that it finds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from peagle_bench.verify.answer_format import (
    StopCase,
    StreamCase,
    choose_stop,
    judge_stops,
    judge_streaming,
)
from peagle_bench.verify.answers import Scored, TokenAnswer
from peagle_bench.verify.greedy import GreedyCase, judge_greedy
from peagle_bench.verify.probabilities import judge_logprobs
from peagle_bench.verify.sampling import judge_sampled, shift_of
from peagle_bench.verify.statistics import CheckVerdict, NoiseFloor, z_limit
from tests.bench.verify.worlds import END, SAMPLED, World, recorded, samples, true_shift

SURE = 3.72  #: standard deviations beyond the limit at which a shift is missed once in 10,000 runs


@dataclass(frozen=True)
class Outcome:
    """``stated``: the check says that it finds such a fault every time."""

    verdict: CheckVerdict
    stated: bool
    what: str


Corrupt = Callable[[np.random.Generator, World], Outcome]


def _judged(world: World, changed: dict[int, Scored], what: str, stated: bool) -> Outcome:
    cases = [replace(case, candidate=changed.get(at, case.candidate)) for at, case in enumerate(world.cases)]
    return Outcome(judge_greedy(cases, world.floor, world.max_tokens), stated, what)


def _rewritten(scored: Scored, at: int, token: int, logprob: float, other: float) -> Scored:
    """The answer with another token at ``at``; what follows stays as the target would go on."""

    def put(values: tuple[float, ...], value: float) -> tuple[float, ...]:
        return (*values[:at], value, *values[at + 1 :])

    ids = (*scored.answer.ids[:at], token, *scored.answer.ids[at + 1 :])
    return Scored(replace(scored.answer, ids=ids), put(scored.logprobs, logprob), put(scored.others, other))


def runner_up(rng: np.random.Generator, world: World) -> Outcome:
    """The second-best token, at a share of the tokens where it is near."""
    near, rate = 10 ** rng.uniform(-2, 0.7), 10 ** rng.uniform(-2, 0)
    cases, count = struck(rng, world, near, rate)
    largest = max((max(case.candidate.gaps) for case in cases), default=0.0) if count else 0.0
    stated = count > 0 and (world.floor.exact or largest > world.floor.delta)
    verdict = judge_greedy(cases, world.floor, world.max_tokens)
    return Outcome(verdict, stated, f"{count} runners-up up to {largest:.3g} nats")


def struck(rng: np.random.Generator, world: World, near: float, rate: float) -> tuple[list[GreedyCase], int]:
    """The cases with a runner-up in place of ``rate`` of the tokens that have one within ``near`` nats."""
    cases, count = [], 0
    for case, picked in zip(world.cases, world.picked, strict=True):
        scored, tops = case.candidate, recorded()["greedy_top_ids"][picked]
        for at, margin in enumerate(case.candidate.margins):
            if not 0 < margin < near or rng.random() >= rate or scored.answer.ids[at] == END:
                continue
            second = int(tops[at][1] if tops[at][0] == scored.answer.ids[at] else tops[at][0])
            if second != END:
                scored = _rewritten(scored, at, second, scored.others[at], scored.logprobs[at])
                count += 1
        cases.append(replace(case, candidate=scored))
    return cases, count


def dropped(rng: np.random.Generator, world: World) -> Outcome:
    """A token is lost; the answer is as long as before."""
    n, at = _place(rng, world)
    scored = world.cases[n].candidate
    token = scored.answer.ids[at + 1]
    ids = (*scored.answer.ids[:at], *scored.answer.ids[at + 1 :], scored.answer.ids[-1])
    moved = _spliced(scored, ids, at, *_seen(world, n, at, token), keep=at + 1)
    return _shifted(world, n, at, scored, moved, "a lost token")


def doubled(rng: np.random.Generator, world: World) -> Outcome:
    """A token comes twice; the answer is as long as before."""
    n, at = _place(rng, world)
    scored = world.cases[n].candidate
    token = scored.answer.ids[at]
    ids = (*scored.answer.ids[: at + 1], token, *scored.answer.ids[at + 1 : -1])
    moved = _spliced(scored, ids, at + 1, *_seen(world, n, at + 1, token), keep=at + 1)
    return _shifted(world, n, at + 1, scored, moved, "a doubled token")


def _place(rng: np.random.Generator, world: World) -> tuple[int, int]:
    long = [n for n, case in enumerate(world.cases) if case.candidate.answer.finish_reason == "length"]
    n = int(rng.choice(long))
    return n, int(rng.integers(1, len(world.cases[n].candidate.answer.ids) - 2))


def _seen(world: World, n: int, at: int, token: int) -> tuple[float, float]:
    """The recorded log-probability of ``token`` there (at most the sixth's, if it is not among the six)."""
    data, answer = recorded(), world.picked[n]
    names, values = data["greedy_top_ids"][answer][at], data["greedy_top_logprobs"][answer][at]
    place = np.flatnonzero(names == token)
    own = float(values[place[0]]) if len(place) else float(values[-1])
    rest = float(values[1] if len(place) and place[0] == 0 else values[0])
    return own, rest


def _spliced(
    scored: Scored, ids: tuple[int, ...], at: int, logprob: float, other: float, *, keep: int
) -> Scored:
    after = len(ids) - at - 1
    logprobs = (*scored.logprobs[:at], logprob, *scored.logprobs[keep : keep + after])
    others = (*scored.others[:at], other, *scored.others[keep : keep + after])
    pad = len(ids) - len(logprobs)  # beyond the recording: as the target would go on
    return Scored(replace(scored.answer, ids=ids), (*logprobs, *[0.0] * pad), (*others, *[-9.0] * pad))


def _shifted(world: World, n: int, at: int, before: Scored, after: Scored, what: str) -> Outcome:
    gap = after.gaps[at]
    differs = after.answer.ids != world.cases[n].first.answer.ids
    same_as_before = after.answer.ids == before.answer.ids
    stated = not same_as_before and (
        gap > world.floor.delta or (world.floor.exact and differs and gap > world.floor.tie)
    )
    return _judged(world, {n: after}, f"{what}, gap {gap:.3g} nats", stated)


def truncated(rng: np.random.Generator, world: World) -> Outcome:
    """The answer ends early, with the reason that a finished one has."""
    n, at = _place(rng, world)
    scored = world.cases[n].candidate
    reason = str(rng.choice(["length", "stop"]))
    answer = replace(scored.answer, ids=scored.answer.ids[:at], finish_reason=reason, output_tokens=at)
    cut = Scored(answer, scored.logprobs[:at], scored.others[:at])
    return _judged(
        world, {n: cut}, f"cut for {reason}", reason == "length" or world.floor.exact or bool(world.ends)
    )


def altered_logprobs(rng: np.random.Generator, world: World) -> Outcome:
    """One reported log-probability is off, or all of an answer's are by a factor."""
    size = 10 ** rng.uniform(-3, 1) * rng.choice([-1, 1])
    candidate = [case.candidate for case in world.cases]
    baseline = [case.first for case in world.cases]
    if rng.random() < 0.5:
        n = int(rng.integers(len(candidate)))
        rows = list(candidate[n].answer.logprobs)
        rows[int(rng.integers(len(rows)))] += size
        candidate[n] = _telling(candidate[n], tuple(rows))
    else:
        candidate = [_telling(s, tuple(v * (1 + size) for v in s.answer.logprobs)) for s in candidate]
    verdict = judge_logprobs(candidate, baseline)
    worst = max(
        abs(rows - seen) for s in candidate for rows, seen in zip(s.answer.logprobs, s.logprobs, strict=True)
    )
    return Outcome(
        verdict, worst > verdict.figures["tolerance_nats"], f"log-probabilities {worst:.3g} nats off"
    )


def _telling(scored: Scored, logprobs: tuple[float, ...]) -> Scored:
    return Scored(replace(scored.answer, logprobs=logprobs), scored.logprobs, scored.others)


def leaked_stop(rng: np.random.Generator, world: World) -> Outcome:
    """A part of the stop string, or all of it and more, stays in the text; or the text is cut too early."""
    cases = stop_cases(rng, world)
    n, how = int(rng.integers(len(cases))), rng.integers(4)
    case = replace(cases[n], included=False)
    same = _stopped(case)
    case = replace(case, baseline=same, candidate=same, streamed=same)
    text = case.expected
    if how == 0:
        text += case.stop[: int(rng.integers(1, len(case.stop)))]
    elif how == 1:
        text += case.stop
    elif how == 2:
        text = case.full[: len(text) + len(case.stop) + 5]
    else:
        text = text[: -int(rng.integers(1, 6))]
    wrong = replace(same, text=text)
    cases[n] = replace(case, candidate=wrong) if rng.random() < 0.5 else replace(case, streamed=wrong)
    return Outcome(judge_stops(cases, world.floor.exact), True, f"stop string, way {how}")


def stop_cases(rng: np.random.Generator, world: World) -> list[StopCase]:
    """Sound requests with stop strings, from the texts of the recorded answers."""
    rows = []
    for case in world.cases[:24]:
        full = text_of(case.first.answer)
        stop = choose_stop(full, rng.uniform(0.2, 0.7))
        if stop is not None:
            blank = StopCase(case.prompt_id, stop, bool(rng.integers(2)), full, *[case.first.answer] * 3)
            same = _stopped(blank)
            rows.append(replace(blank, baseline=same, candidate=same, streamed=same))
    return rows


def text_of(answer: TokenAnswer) -> str:
    """A text for token ids: the stand-in's own does not matter here."""
    return "".join(f"{token:x} " for token in answer.ids)


def _stopped(case: StopCase) -> TokenAnswer:
    count = len(case.expected.split()) + 1
    return TokenAnswer(case.expected, (1,) * count, "stop", case.stop, count)


def odd_stream(rng: np.random.Generator, world: World) -> Outcome:
    """A chunk of a stream is lost or comes twice, with its token ids or without."""
    cases = stream_cases(world.cases)
    n, with_ids = int(rng.integers(len(cases))), bool(rng.integers(2))
    whole = cases[n].whole
    at = int(rng.integers(len(whole.ids) - 1))
    times = int(rng.choice([0, 2]))
    ids = (*whole.ids[:at], *[whole.ids[at]] * times, *whole.ids[at + 1 :])
    streamed = replace(whole, text=text_of(replace(whole, ids=ids)), ids=ids if with_ids else whole.ids)
    cases[n] = replace(cases[n], streamed=streamed)
    return Outcome(judge_streaming(cases, world.floor.exact), True, f"a chunk {times} times")


def stream_cases(cases: list[GreedyCase]) -> list[StreamCase]:
    """Sound streams of the recorded answers."""
    rows = []
    for case in cases[:24]:
        its, mine = (replace(s.answer, text=text_of(s.answer)) for s in (case.first, case.candidate))
        rows.append(StreamCase(case.prompt_id, its, its, mine, mine))
    return rows


def wrong_sampling(rng: np.random.Generator, world: World) -> Outcome:
    """Another temperature than asked for, or a nucleus that was not."""
    temperature, top_p = 1.0, 1.0
    if rng.random() < 0.7:
        temperature = float(np.exp(rng.uniform(-0.5, 0.5)))
    else:
        top_p = float(rng.uniform(0.5, 0.999))
    drawn = samples(rng, temperature, top_p, times=1)
    half = len(drawn) // 2
    verdict = judge_sampled(drawn[:half], drawn[half:], drawn_soundly(), frozenset(), SAMPLED)
    whole = shift_of(drawn)
    sure = (z_limit() + SURE) * whole.variance**0.5 / whole.count
    return Outcome(
        verdict,
        abs(true_shift(temperature, top_p)) > sure,
        f"temperature {temperature:.2f}, top_p {top_p:.2f}",
    )


def drawn_soundly() -> list[Scored]:
    """The baseline's own samples, as they should be."""
    return samples(np.random.default_rng(11), 1.0, 1.0, times=1)


KINDS: dict[str, tuple[Corrupt, int]] = {
    "runner-up": (runner_up, 220),
    "dropped": (dropped, 140),
    "doubled": (doubled, 140),
    "truncated": (truncated, 100),
    "stop string": (leaked_stop, 100),
    "stream": (odd_stream, 60),
    "log-probabilities": (altered_logprobs, 120),
    "sampling": (wrong_sampling, 120),
}


def floor_kind(floor: NoiseFloor) -> str:
    """``exact`` or ``noisy``."""
    return "exact" if floor.exact else "noisy"
