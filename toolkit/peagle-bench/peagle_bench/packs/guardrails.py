"""Pack "guardrails": a safety filter in the loop, cancelled requests and refusals.

With speculation an engine writes several tokens a step, and drafts more than it keeps. The user of a filtered
stream must notice neither: the policy cuts at the same token and the same character, the same answers are
refused, no token reaches the filter that the target did not verify, and a request whose client has left stops
generating. Every policy cuts before an e-mail address, which a third of the prompts ask for. The others are
made from the baseline's own answers, so they cut whatever the model writes.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from peagle_bench.load import WorkItem
from peagle_bench.packs.pack import Judgement, Make, Observed, Pack, PackNotMeasured, PackWork, Probe
from peagle_bench.packs.streaming_guard import (
    FilterOutcome,
    Policy,
    Rule,
    StreamGuard,
    guarded,
    pieces_of,
)
from peagle_bench.packs.texts import invented_name
from peagle_bench.verify.answer_format import choose_stop
from peagle_bench.verify.answers import TokenAnswer
from peagle_bench.verify.engines import (
    WITH_LOGPROBS,
    Engine,
    EnginePair,
    Options,
    TokenPrompt,
    ask_raw,
    failing,
    greedy_body,
)
from peagle_bench.verify.statistics import (
    CheckVerdict,
    NoiseFloor,
    counted,
    fisher_greater,
    floor_of,
    percent,
    rate_found,
    undecided,
)
from peagle_sm.core.errors import StreamError

MAX_TOKENS = 96
HOLD_BACKS = (0, 4, 16)  #: tokens; a fourth policy holds the whole answer back and refuses it
CANCELLED = 3  #: requests whose client leaves
LEFT_AFTER = 8  #: tokens read before the client leaves
MOST_ASKED = 4000  #: tokens of a request that is cancelled; a shorter context allows fewer
LEAST_CONTEXT = 2048  #: tokens, for requests that are cancelled
MOST_LEFT = 0.5  #: share of the tokens still to come that a cancelled request may generate
PERSONAL = Rule("e-mail address", r"[\w.+-]+@[\w-]+\.\w+")  #: a rule of every policy
_QUESTIONS = ("reset the password of", "delete", "rename", "protect", "share", "move", "print", "restore")
_TASKS = ("reads", "writes", "sorts", "filters", "merges", "counts", "validates", "parses")
_THINGS = ("orders", "log lines", "invoices", "sensor values", "user names", "dates", "links", "prices")
_FORMS = ("function", "class", "script", "test")


def make(settings: Make) -> PackWork:
    """Make short requests: a question, a programming task, and a letter with an e-mail address, in turns."""
    rng = random.Random(f"guardrails {settings.seed}")
    items = []
    for number in range(settings.units or UNITS):
        kind, maker = _MAKERS[number % len(_MAKERS)]
        messages = [{"role": "user", "content": maker(rng)}]
        body = {"messages": messages, "max_tokens": MAX_TOKENS, "temperature": 0.0}
        items.append(WorkItem(f"{number:03}/{kind}", body, category=kind))
    return PackWork(tuple(items))


UNITS = 16


def _question(rng: random.Random) -> str:
    return f"How do I {rng.choice(_QUESTIONS)} a file that I call {invented_name(rng)}?"


def _task(rng: random.Random) -> str:
    return f"Write a Python {rng.choice(_FORMS)} that {rng.choice(_TASKS)} {rng.choice(_THINGS)}."


def _letter(rng: random.Random) -> str:
    name, place = invented_name(rng), invented_name(rng)
    return (
        f"Write two sentences to {name}: order {rng.randint(100, 999)} is ready. Questions go to"
        f" {name.lower()}@{place.lower()}.example, so name this address in the first sentence."
    )


#: With three kinds, each third policy, which has no piece of the answer, is that of a letter.
_MAKERS = (("question", _question), ("task", _task), ("letter", _letter))


def policy_for(text: str, number: int, seed: int) -> Policy:
    """Make the policy of one prompt from the baseline's own answer.

    Two of three policies cut at a piece of the answer that may begin inside a word, so that it spans tokens.
    Each fourth refuses instead. The third policy of three only knows `PERSONAL`; without an e-mail address in
    the answer everything must be delivered.
    """
    rng = random.Random(f"policy {seed} {number}")
    piece = choose_stop(text, rng.uniform(0.1, 0.8)) if number % 3 != 2 else None
    rules = [PERSONAL]
    if number % 4 == 3 and piece is not None:
        return Policy((*rules, Rule("forbidden", re.escape(piece), "refuse")), None)
    if piece is not None:
        rules.append(Rule("forbidden", re.escape(piece)))
    return Policy(tuple(rules), HOLD_BACKS[number % len(HOLD_BACKS)])


@dataclass(frozen=True)
class Filtered:
    """One answer as it passed the filter: the outcome, the tokens read; ``broken`` is the stream's error."""

    outcome: FilterOutcome | None
    ids: tuple[int, ...]
    broken: str | None = None


def filter_stream(engine: Engine, body: Mapping[str, Any], policy: Policy) -> Filtered:
    """Stream one answer through the filter; where it cuts, the stream is closed, so the request ends."""
    guard, ids = StreamGuard(policy), list[int]()
    unreadable: list[str] = []

    def read(event: Mapping[str, Any]) -> bool:
        for choice in (event.get("choices") or [])[:1]:
            try:
                pieces = pieces_of(choice)
            except ValueError as error:
                unreadable.append(str(error))
                return True
            for token, piece in pieces:
                ids.append(token)
                guard.feed(piece)
                if guard.ended:
                    return True
        return False

    try:
        engine.stream(body, until=read)
    except StreamError as error:
        return Filtered(None, tuple(ids), str(error))
    if unreadable:
        raise _without_tokens(engine, unreadable[0])
    guard.finish()
    return Filtered(guard.outcome, tuple(ids))


def _without_tokens(engine: Engine, why: str) -> PackNotMeasured:
    return PackNotMeasured(
        f"{engine.name} sends text without its tokens: {why}",
        next_step="use vLLM 0.10.2 or later (return_token_ids, logprobs)",
    )


@dataclass(frozen=True)
class GuardCase:
    """One prompt with its policy: outcomes on both engines, and the gaps of the tokens that were read.

    ``expected`` is the filter's outcome on the baseline's answer without streaming. ``gaps[t]`` is how much
    less likely (nats) the target without speculation finds token t than its own choice at that place.
    """

    prompt_id: str
    policy: Policy
    expected: FilterOutcome
    baseline: Filtered
    candidate: Filtered
    gaps: tuple[float, ...]


def judge_cuts(cases: Sequence[GuardCase], floor: NoiseFloor, alpha: float) -> CheckVerdict:
    """Judge whether speculation changes what the policy cuts, or when.

    Always faults: a stream that breaks; the same tokens with another outcome. With an exact floor any other
    outcome is a fault; else only more of them than on the baseline itself (Fisher).
    """
    sound = [case for case in cases if case.baseline.outcome == case.expected or not floor.exact]
    if not sound:
        return undecided("no stream of the baseline was cut as its answer without streaming")
    faults, differing = [], 0
    for case in sound:
        mine, own = case.candidate, case.baseline
        if mine.broken is not None:
            faults.append(f"{case.prompt_id}: the stream broke: {mine.broken}")
        elif mine.outcome != own.outcome:
            differing += 1
            if floor.exact or mine.ids == own.ids:
                faults.append(
                    f"{case.prompt_id}: {described(mine.outcome)}; baseline: {described(own.outcome)}"
                )
    itself = sum(case.baseline.outcome != case.expected for case in cases)
    p = fisher_greater(differing, len(sound), itself, len(cases))
    if not floor.exact and p < alpha:
        faults.append(f"{differing} of {len(sound)} outcomes differ (baseline: {itself}): p = {p:.1g}")
    cut = sum(case.expected.rule is not None for case in sound)
    leaked = sum(bool(case.expected.leaked) for case in sound)
    figures = {"answers": len(sound), "cut": cut, "differing": differing, "leaked_by_short_hold_back": leaked}
    summary = (
        f"{len(sound) - differing} of {len(sound)} filtered answers end alike, {cut} of them cut or refused"
    )
    power = (
        "detects, in each tested answer"
        + ("" if floor.exact else " that did not diverge before")
        + ", a cut at another token or character and text delivered that should not be; detects a random "
        f"fault with 90% probability if it affects {percent(rate_found(len(sound)))} of answers"
    )
    return CheckVerdict(not faults, summary, power, figures, faults)


def judge_verified(cases: Sequence[GuardCase], floor: NoiseFloor) -> CheckVerdict:
    """Judge whether the filter read a token that the target did not verify.

    A greedy target generates only its best token, up to the noise of its own arithmetic (``floor``). A draft
    token that leaked is far below it, unless the target would have written it anyway.
    """
    limit = floor.tie if floor.exact else floor.delta
    read = [case for case in cases if case.gaps]
    if not read:
        return undecided("no token of the candidate was scored by the baseline")
    faults = [
        f"{case.prompt_id}: token {at + 1} of {len(case.gaps)} reached the filter, "
        f"{case.gaps[at]:.2f} nats below the target's own"
        for case in read
        if (at := next((n for n, gap in enumerate(case.gaps) if gap > limit), None)) is not None
    ]
    tokens = sum(len(case.gaps) for case in read)
    figures = {"answers": len(read), "tokens": tokens, "answers_with_unverified_tokens": len(faults)}
    summary = (
        f"{counted(tokens, 'token')} read by the filter, unverified ones in {counted(len(faults), 'answer')}"
    )
    least = f"{max(limit, 1e-6):.2g} nats"
    power = f"detects each token that reaches the filter more than {least} below the target's own"
    return CheckVerdict(not faults, summary, power, figures, faults)


def described(outcome: FilterOutcome | None) -> str:
    """Describe an outcome in a few words."""
    if outcome is None:
        return "no answer"
    if outcome.rule is None:
        return f"delivered whole, {counted(outcome.read, 'token')}"
    return f"ended at token {outcome.cut_token}, character {outcome.cut_at}, …{outcome.delivered[-20:]!r}"


@dataclass(frozen=True)
class Cancelled:
    """One request whose client left after ``read`` of ``asked`` tokens.

    ``generated`` is the number of tokens that the engine had generated when it was idle again, or at the end
    of the wait; ``idle``: whether it became idle; ``alone``: whether it served nothing else meanwhile.
    """

    read: int
    asked: int
    generated: int
    idle: bool
    alone: bool

    @property
    def share(self) -> float:
        """Share of the tokens still to come that were generated for nobody."""
        return max(0, self.generated - self.read) / max(1, self.asked - self.read)


def judge_cancelled(cases: Sequence[Cancelled]) -> CheckVerdict:
    """Judge whether a request whose client left goes on generating, and so goes on costing.

    The engine needs a moment to notice, and it generates meanwhile. A fault is a request that generates more
    than half of what was still to come, or that still generates at the end of the wait. A healthy engine
    stops within a few steps of thousands.
    """
    alone = [case for case in cases if case.alone]
    if not alone:
        return undecided("other requests were served meanwhile; the engine counts them together")
    faults = [
        f"{case.generated} of {case.asked} tokens generated, the client left after {case.read}"
        + ("" if case.idle else "; still generating")
        for case in alone
        if case.share > MOST_LEFT or not case.idle
    ]
    shares = [case.share for case in alone]
    figures = {
        "cancelled": len(alone),
        "went_on": len(faults),
        "share_generated_for_nobody": max(shares),
        "tokens_generated_for_nobody": sum(max(0, case.generated - case.read) for case in alone),
    }
    summary = f"{len(alone) - len(faults)} of {counted(len(alone), 'cancelled request')} stopped"
    summary += f"; at most {percent(max(shares))} of the tokens still to come were generated for nobody"
    power = (
        f"detects each tested request that generates over {MOST_LEFT:.0%} of its tokens after the client left"
    )
    return CheckVerdict(not faults, summary, power, figures, faults)


@dataclass(frozen=True)
class EngineCounts:
    """What an engine's metrics page says of its requests."""

    running: int
    waiting: int
    generated: int

    @property
    def idle(self) -> bool:
        """Whether no request is in the engine."""
        return self.running == 0 and self.waiting == 0


_COUNT = re.compile(
    r"^vllm:(num_requests_running|num_requests_waiting|generation_tokens_total)(?:\{[^}]*\})?\s+([0-9.eE+]+)",
    re.MULTILINE,
)


def read_counts(page: str) -> EngineCounts:
    """Read the metrics page of vLLM, summed over its engines.

    Raises:
        PackNotMeasured: the page lacks the counts.
    """
    sums: dict[str, float] = {}
    for name, value in _COUNT.findall(page):
        sums[name] = sums.get(name, 0.0) + float(value)
    if "num_requests_running" not in sums or "generation_tokens_total" not in sums:
        raise PackNotMeasured(
            "the metrics page has no vllm:num_requests_running or vllm:generation_tokens_total",
            next_step="measure an endpoint that serves vLLM's metrics",
        )
    running, waiting = sums["num_requests_running"], sums.get("num_requests_waiting", 0.0)
    return EngineCounts(round(running), round(waiting), round(sums["generation_tokens_total"]))


@dataclass
class Cancelling:
    """Cancels requests one after the other and watches the engine's counts; clock and sleep are injected."""

    engine: Engine
    metrics: Callable[[], str]
    wait_s: float = 60.0
    poll_s: float = 0.25
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def cancel(self, body: Mapping[str, Any], asked: int) -> Cancelled:
        """Send ``body``, leave after `LEFT_AFTER` tokens, and wait until the engine is idle."""
        before = self._settled()
        read = 0

        def enough(event: Mapping[str, Any]) -> bool:
            nonlocal read
            for choice in (event.get("choices") or [])[:1]:
                read += len(choice.get("token_ids") or ())
            return read >= LEFT_AFTER

        self.engine.stream(body, until=enough)
        after = self._settled()
        generated = after.generated - before.generated
        return Cancelled(read, asked, generated, after.idle, before.idle and generated <= asked)

    def _settled(self) -> EngineCounts:
        """Wait until two readings in a row show no request and no new token: the page lags behind a step."""
        until = self.monotonic() + self.wait_s
        counts = read_counts(self.metrics())
        while True:
            self.sleep(self.poll_s)
            earlier, counts = counts, read_counts(self.metrics())
            if (earlier.idle and counts == earlier) or self.monotonic() > until:
                return counts


@dataclass(frozen=True)
class GuardProbed:
    """What the pack observed beside the load: filtered answers, the noise floor, cancelled requests.

    ``unmeasured``: why no cancelled request was measured.
    """

    cases: tuple[GuardCase, ...]
    floor: NoiseFloor
    cancelled: tuple[Cancelled, ...] = ()
    unmeasured: str | None = None


def probe(context: Probe) -> GuardProbed:
    """Filter each answer on both engines; then cancel requests on the arm's.

    Raises:
        PackNotMeasured: an engine's stream does not name its tokens.
    """
    options = Options(max_tokens=MAX_TOKENS, concurrency=4, seed=context.make.seed)
    engines = EnginePair(context.baseline, context.engine, options)
    prompts = engines.prompts([(item.prompt_id, item.body) for item in context.work.items])
    first = engines.score(prompts, engines.greedy("baseline", prompts, 4, **WITH_LOGPROBS))
    repeat = engines.score(prompts, engines.greedy("baseline", prompts, 1))
    cases = [_filtered(engines, prompt, number, context.make.seed) for number, prompt in enumerate(prompts)]
    probed = GuardProbed(tuple(cases), floor_of(first, repeat))
    if context.metrics is None:
        return replace(probed, unmeasured="the engine's metrics cannot be read here")
    if context.make.model.context < LEAST_CONTEXT:
        reason = f"cancelled requests need a context of {LEAST_CONTEXT:,} tokens: a short one ends by itself"
        return replace(probed, unmeasured=reason)
    cancelling = Cancelling(context.engine, context.metrics)
    cancelled = []
    for prompt in prompts[:CANCELLED]:
        room = min(MOST_ASKED, context.make.model.context - len(prompt.ids) - 1)
        with failing("candidate"):
            cancelled.append(cancelling.cancel(greedy_body(prompt, room, ignore_eos=True), room))
    return replace(probed, cancelled=tuple(cancelled))


def _filtered(engines: EnginePair, prompt: TokenPrompt, number: int, seed: int) -> GuardCase:
    body = greedy_body(prompt, MAX_TOKENS, logprobs=0)
    with failing("baseline"):
        (choice,) = ask_raw(engines.baseline, [body], 1)[0]["choices"]
    try:
        pieces = [piece for _, piece in pieces_of(choice)]
    except ValueError as error:
        raise _without_tokens(engines.baseline, str(error)) from error
    policy = policy_for("".join(pieces), number, seed)
    with failing("baseline"):
        own = filter_stream(engines.baseline, body, policy)
    with failing("candidate"):
        mine = filter_stream(engines.candidate, body, policy)
    (scored,) = engines.score([prompt], [TokenAnswer("", mine.ids, None)])
    return GuardCase(prompt.id, policy, guarded(pieces, policy), own, mine, scored.gaps)


def judge(observed: Observed) -> Judgement:
    """Judge the cuts, the tokens that the filter read, and the cancelled requests."""
    probed: GuardProbed = observed.probed
    checks = {
        "cuts": judge_cuts(probed.cases, probed.floor, observed.alpha),
        "verified": judge_verified(probed.cases, probed.floor),
        "cancelled": (
            judge_cancelled(probed.cancelled) if probed.unmeasured is None else undecided(probed.unmeasured)
        ),
    }
    cuts = checks["cuts"].figures
    alike = f"{cuts.get('answers', 0) - cuts.get('differing', 0):.0f} of {cuts.get('answers', 0):.0f}"
    return Judgement(checks, f"{alike} filtered answers end alike")


PACK = Pack(
    name="guardrails",
    shows="whether a safety filter in the loop cuts, refuses and cancels as without speculation",
    passes=(
        "each policy ends each answer at the same token and character as without speculation, the filter"
        " reads no token that the target did not verify, and a request stops generating when its client"
        " leaves"
    ),
    finds="a filter that reads draft tokens; a cancelled request that goes on generating",
    needs=(
        "an arm without speculation",
        "for cancelled requests: the engine's metrics, which AWS does not show",
    ),
    make=make,
    judge=judge,
    probe=probe,
    least_context=512,
)
