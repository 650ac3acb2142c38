"""One verification: the checks in their order, each ending in a record, whatever happens to the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from peagle_sm.core.errors import PeagleError, ServiceFault, StreamError
from peagle_sm.measure.records import CheckRecord
from peagle_sm.measure.verify import probes, structured_probes
from peagle_sm.measure.verify.floor import LEAST_DELTA
from peagle_sm.measure.verify.greedy import judge_greedy
from peagle_sm.measure.verify.lab import Lab, Prompt, SideFailed, greedy_body
from peagle_sm.measure.verify.logprobs import judge_logprobs
from peagle_sm.measure.verify.long_context import judge_long_context
from peagle_sm.measure.verify.names import CHECKS
from peagle_sm.measure.verify.parameters import judge_parameters
from peagle_sm.measure.verify.probes import Greedy
from peagle_sm.measure.verify.sampled import judge_sampled
from peagle_sm.measure.verify.seeds import judge_seeds
from peagle_sm.measure.verify.stops import judge_stops
from peagle_sm.measure.verify.streaming import judge_streaming
from peagle_sm.measure.verify.structured import judge_structured
from peagle_sm.measure.verify.verdict import Verdict, not_applicable, undecided

Say = Callable[[str], None]


def verify(
    lab: Lab, items: Sequence[tuple[str, Mapping[str, Any]]], checks: Sequence[str], say: Say
) -> Iterator[CheckRecord]:
    """Run ``checks`` on the prompts of ``items`` (id and request body); yield each record as it ends.

    The greedy runs come first in any case: the other checks take their noise floor, end tokens and texts
    from them.

    Raises:
        SpecError, ServiceFault: a side refuses or fails in the greedy runs, where there is nothing to go on
            with, or the candidate stopped answering altogether; the message names the check.
    """
    say(f"greedy: {len(items)} prompts, twice on {lab.baseline.name} and once on {lab.candidate.name}")
    try:
        greedy = probes.probe_greedy(lab, lab.prompts(items))
    except SideFailed as failed:
        raise failed.error from failed
    say(greedy.floor.words)
    for name in CHECKS:
        if name not in checks:
            continue
        if name != "greedy":
            say(f"{name} …")
        yield _verdict(lab, name, greedy).record(name, lab.candidate.name, lab.baseline.name)


def _verdict(lab: Lab, name: str, greedy: Greedy) -> Verdict:
    try:
        return _judged(lab, name, greedy)
    except SideFailed as failed:
        if failed.side == "baseline":
            if failed.refused:
                return undecided(f"the baseline refuses the request: {failed.error}")
            raise failed.error from failed
        _demand_alive(lab, name, greedy.prompts[0], failed.error)
        what = "refuses" if failed.refused else "fails at"
        return Verdict(
            False,
            f"the endpoint {what} a request that the baseline answers",
            "any request of this check that is refused or fails is caught",
            {},
            [str(failed.error)],
        )


def _demand_alive(lab: Lab, name: str, prompt: Prompt, first: PeagleError) -> None:
    if not isinstance(first, ServiceFault | StreamError):
        return
    try:
        lab.ask("candidate", [greedy_body(prompt, 1)])
    except SideFailed as failed:
        raise ServiceFault(
            f"{lab.candidate.name} stopped answering during the check {name!r}: {first}",
            next_step=lab.candidate.log_hint,
            details={"check": name, "after": str(failed.error)},
        ) from failed


def _judged(lab: Lab, name: str, greedy: Greedy) -> Verdict:
    options, exact = lab.options, greedy.floor.exact
    if name == "greedy":
        return judge_greedy(greedy.cases, greedy.floor, options.max_tokens)
    if name == "sampled":
        unseeded, seeded, own = probes.probe_sampled(lab, greedy.prompts)
        repeated = probes.probe_places(lab, greedy)
        return judge_sampled(unseeded, seeded, own, greedy.ends, options.sample_tokens, repeated)
    if name == "parameters":
        noise = max(greedy.floor.delta, LEAST_DELTA)
        return judge_parameters(probes.probe_parameters(lab, greedy.prompts), noise)
    if name == "logprobs":
        return judge_logprobs(*probes.probe_logprobs(lab, greedy))
    if name == "stop-strings":
        return judge_stops(probes.probe_stops(lab, greedy), exact)
    if name == "seeds":
        return judge_seeds(probes.probe_seeds(lab, greedy.prompts, exact), exact)
    if name == "streaming":
        return judge_streaming(probes.probe_streaming(lab, greedy), exact)
    if name == "json-schema":
        return judge_structured(structured_probes.probe_json(lab), exact)
    if name == "tool-calls":
        try:
            return judge_structured(structured_probes.probe_tools(lab), exact)
        except structured_probes.NoTools as refused:
            return not_applicable(f"neither side has a tool parser: {refused}")
    context = probes.context_of(lab, greedy.prompts[0])
    if context is None:
        return undecided("the engine does not say how long its context is")
    return judge_long_context(probes.probe_long_context(lab, greedy, context), greedy.floor)
