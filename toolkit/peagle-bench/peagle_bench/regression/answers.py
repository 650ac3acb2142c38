"""Did a mode's greedy answers change since the record. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from peagle_bench.compare.analysis import Key, key_of
from peagle_bench.dialogues import FEWEST_CONVERSATIONS
from peagle_bench.regression.checks import RecordCheck
from peagle_bench.regression.record import BASELINE
from peagle_bench.regression.sums import MeasuredRun
from peagle_bench.results.records import Load
from peagle_bench.verify.statistics import ALPHA, mcnemar_greater


def judge_answers(before: MeasuredRun, now: MeasuredRun, mode: str, loads: Sequence[Load]) -> RecordCheck:
    """Compare a mode's greedy answers with the record's, prompt by prompt.

    If the target gives the same answers twice (arm and A/A control, or two deployments), any other answer is
    a change. If not, answers at a near tie differ by rounding alone: then a mode fails only if more of its
    answers changed than the target's differ from themselves; changes that remain are undecided.
    """
    load = min(loads, key=lambda each: each.concurrency or 1)
    check = RecordCheck("answers", mode, load, None)
    greedy = {
        point.temperature for run in (before, now) for point in run.results.points if point.load == load
    }
    if greedy != {0.0}:
        reason = "sampled answers differ by chance: it needs --temperature 0 in both runs"
        return replace(check, applicable=False, reason=reason)
    old, new = (_digests(run, [arm.name for arm in run.sides[mode].arms], load) for run in (before, now))
    counted, changed = _compared(old, new)
    check = replace(check, record=float(len(counted)), run=float(len(counted) - len(changed)))
    unstable = _unstable(before, now, load)
    left = [key for key in changed if key not in unstable]
    if not left:
        if len(counted) < FEWEST_CONVERSATIONS:
            return replace(check, reason=f"both runs answered only {len(counted)} of the same requests")
        twice = f"{len(changed)} changed, to which the target itself gives two answers" if changed else ""
        return replace(check, passed=True, reason=twice)
    example = ", ".join(prompt for _, prompt, _ in left[:3])
    reason = f"{len(left)} of {len(counted)} answers changed: {example}{', …' if len(left) > 3 else ''}"
    if not unstable:
        return replace(check, passed=False, reason=reason)
    p = mcnemar_greater(len(left), len(unstable.intersection(counted) - set(changed)))
    if p < ALPHA:
        return replace(check, passed=False, reason=f"{reason}; the target differs from itself less often")
    needed = "`peagle-sm verify` or a load of one request at a time (--concurrency 1)"
    reason += f"; the target itself gave two answers to {len(unstable)}: it needs {needed}"
    return replace(check, reason=reason, needed=needed)


def _unstable(before: MeasuredRun, now: MeasuredRun, load: Load) -> set[Key]:
    """Return the requests to which the target gives two answers: an arm and its control, or two deployments.

    In the run itself only those of one deployment count: a deployment that answers differently is a change.
    """
    target = before.sides[BASELINE]
    groups = [(before, [*(arm.name for arm in target.arms), *target.controls])]
    side = now.sides[BASELINE]
    groups += [(now, side.same_endpoint(arm)) for arm in side.arms]
    return {
        key
        for run, names in groups
        for key, answers in _digests(run, names, load).items()
        if len(answers) > 1
    }


def _digests(run: MeasuredRun, arms: Sequence[str], load: Load) -> dict[Key, set[str]]:
    """Return the digests of each request's answers by these arms."""
    digests: dict[Key, set[str]] = defaultdict(set)
    for arm in arms:
        for record in run.requests(arm, load):
            if record.error is None and record.output_sha256 is not None:
                digests[key_of(record)].add(record.output_sha256)
    return digests


def _compared(old: Mapping[Key, set[str]], new: Mapping[Key, set[str]]) -> tuple[list[Key], list[Key]]:
    """Return the requests that both runs answered, and those whose answers changed.

    Of a prompt's turns only those up to the first change count: later ones had another history.
    """
    changed: dict[tuple[str, str], Key] = {}
    counted = []
    for key in sorted(old.keys() & new.keys()):
        if key[:2] not in changed:
            counted.append(key)
            if not new[key] <= old[key]:
                changed[key[:2]] = key
    return counted, list(changed.values())
