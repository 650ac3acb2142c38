"""Judges that several packs share. Pure.

Each decides from samples with a stated chance of error. A judge of n looks gives each look the confidence
1 - alpha/n (Bonferroni), so that all of them together fail an arm without the fault in at most alpha of runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import median

from peagle_bench.benchmark.acceptance import from_requests
from peagle_bench.compare.confidence_intervals import ratio
from peagle_bench.results.records import Interval, RequestRecord
from peagle_bench.verify.statistics import CheckVerdict, counted, not_applicable, undecided

#: A fall of acceptance below this share of the first part's is a fault, if it is significant.
FALLEN = 0.7
#: A pass needs that a fall below this share is excluded; else there were too few prompts.
EXCLUDED = 0.35
FEWEST_UNITS = 6  #: of an interval of a pack: below it the jackknife's spread is itself uncertain
BUSY = 2.0  #: plain decoding's time a token, p90 over p10, from which a time says nothing about an arm
FEWEST_TOKENS = 16  #: of an answer whose time a token counts
MOST_FAILED = 0.05  #: of the requests; more of them on the arm alone are a fault


Key = Callable[[RequestRecord], str]


def no_fall(first: str) -> str:
    """Say what a pass of `falls` means, for the list of packs."""
    return (
        f"no fall of acceptance below {FALLEN:.0%} of that at {first} was shown, and one below"
        f" {EXCLUDED:.0%} is excluded"
    )


def unit_of(record: RequestRecord) -> str:
    """Return the unit of a request: what its prompt id has before the first slash."""
    return record.prompt_id.partition("/")[0]


def part_of(record: RequestRecord) -> str:
    """Return the part of a request: the second word of its prompt id."""
    return record.prompt_id.partition("/")[2].partition("/")[0]


def answered(records: Sequence[RequestRecord]) -> list[RequestRecord]:
    """Return the measured requests that were answered."""
    return [
        record
        for record in records
        if record.phase == "measured" and record.error is None and record.output_tokens
    ]


def acceptance_by(records: Sequence[RequestRecord], key: Key) -> dict[str, float]:
    """Return the acceptance length of each part that reports its drafts."""
    by_part: dict[str, list[RequestRecord]] = defaultdict(list)
    for record in answered(records):
        by_part[key(record)].append(record)
    acceptances = {part: from_requests(own) for part, own in by_part.items()}
    return {
        part: acceptance.per_step
        for part, acceptance in acceptances.items()
        if acceptance is not None and acceptance.per_step
    }


def ttft_by(records: Sequence[RequestRecord], key: Key) -> dict[str, float]:
    """Return the median time to first token in milliseconds of each part."""
    by_part: dict[str, list[float]] = defaultdict(list)
    for record in answered(records):
        if record.first_s is not None:
            by_part[key(record)].append((record.first_s - record.sent_s) * 1000)
    return {part: median(values) for part, values in by_part.items()}


def unsteady(baseline: Sequence[RequestRecord]) -> str | None:
    """Say that other work slowed plain decoding now and then; None if it was steady.

    Plain decoding of one request takes the same time for each token. Where other work shares the machine it
    does not, and an arm with longer steps suffers more from it: its ratio is then not the arm's own.
    """
    times = sorted(
        (record.last_s - record.first_s) / ((record.output_tokens or 0) - 1) * 1000
        for record in answered(baseline)
        if record.first_s is not None
        and record.last_s is not None
        and (record.output_tokens or 0) >= FEWEST_TOKENS
    )
    if len(times) < FEWEST_UNITS:
        return None
    low, high = times[len(times) // 10], times[-1 - len(times) // 10]
    if high <= BUSY * low:
        return None
    return (
        f"plain decoding was not steady, {low:.1f} to {high:.1f} ms a token (p10, p90): the machine was busy,"
        " or chunks came in batches"
    )


def falls(
    records: Sequence[RequestRecord],
    parts: Sequence[str],
    *,
    alpha: float,
    by: str,
    part: Key = part_of,
    unit: Key = unit_of,
) -> CheckVerdict:
    """Judge whether the acceptance length falls from the first of ``parts`` to a later one.

    Each unit has requests in several parts, so the parts are compared on the same units. A part fails if its
    interval is below `FALLEN`, and passes if the interval excludes a fall below `EXCLUDED`. ``by`` says what
    a part is: ``turn {}``.
    """
    own = answered(records)
    if not any(record.drafts for record in own):
        return undecided("the answers do not report drafts; this needs vLLM 0.29 or later")
    ratios = _ratios(own, parts, alpha, part, unit)
    lengths = acceptance_by(own, part)
    figures = {f"acceptance_length_at_{name}": lengths[name] for name in parts if name in lengths}
    figures |= {f"ratio_at_{name}": ratio.value for name, ratio in ratios.items()}
    first = parts[0]
    if not ratios:
        return undecided(f"fewer than {FEWEST_UNITS} units were answered in several parts", figures)
    bad = {name: ratio for name, ratio in ratios.items() if ratio.high < FALLEN}
    open_ = [name for name, ratio in ratios.items() if ratio.low <= EXCLUDED and name not in bad]
    last = list(ratios)[-1]
    worst = min(ratios, key=lambda name: ratios[name].value)
    power = (
        f"detects acceptance at {by.format(last)} below"
        f" {FALLEN * ratios[last].low / ratios[last].value:.2f} of that at {by.format(first)}"
    )
    summary = f"{by.format(worst)}: {_x(ratios[worst])} of the acceptance length at {by.format(first)}"
    if bad:
        examples = [f"{by.format(name)}: {_x(ratio)}" for name, ratio in bad.items()]
        return CheckVerdict(False, f"falls; {summary}", power, figures, examples)
    if open_:
        return undecided(f"{summary}; too few prompts to exclude a fall below {EXCLUDED:g}", figures)
    return CheckVerdict(True, f"holds; {summary}", power, figures)


def _x(interval: Interval) -> str:
    return f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _ratios(
    records: Sequence[RequestRecord], parts: Sequence[str], alpha: float, part: Key, unit: Key
) -> dict[str, Interval]:
    """Compute acceptance in each later part over that in the first, over the units that have both."""
    sums: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for record in records:
        if record.drafts:
            cell = sums[part(record)][unit(record)]
            cell[0] += (record.accepted or 0) + record.drafts
            cell[1] += record.drafts
    first, ratios = sums.get(parts[0], {}), {}
    for name in parts[1:]:
        later = sums.get(name, {})
        table = {unit: (*later[unit], *first[unit]) for unit in later if unit in first}
        if len(table) >= FEWEST_UNITS:
            confidence = 1 - 2 * alpha / (len(parts) - 1)  # one side of the interval decides
            ratios[name] = ratio([table], (1, -1, -1, 1), confidence)
    return ratios


def judge_answered(records: Sequence[RequestRecord], baseline: Sequence[RequestRecord]) -> CheckVerdict:
    """Judge whether the arm answers what the baseline answers."""
    sent = [record for record in records if record.phase == "measured"]
    theirs = {(record.prompt_id, record.turn) for record in answered(baseline)}
    failed = [record for record in sent if record.error is not None]
    alone = [record for record in failed if (record.prompt_id, record.turn) in theirs]
    figures: dict[str, float] = {"requests": len(sent), "failed": len(failed)}
    if not sent:
        return undecided("no request was sent", figures)
    summary = f"{len(sent) - len(failed)} of {counted(len(sent), 'request')} answered"
    power = f"detects that more than {MOST_FAILED:.0%} of the requests fail"
    if len(alone) > max(1, MOST_FAILED * len(sent)):
        examples = [f"{record.prompt_id}: {record.error}: {record.error_message}" for record in alone]
        return CheckVerdict(False, summary, power, figures, examples)
    if 2 * len(failed) > len(sent):  # on both arms: what is left says little about this traffic
        return undecided(f"{summary}; the first error: {failed[0].error}: {failed[0].error_message}", figures)
    return CheckVerdict(True, summary, power, figures)


def drafts_applicable(mode: str, verdict: CheckVerdict) -> CheckVerdict:
    """Return the verdict; for an arm without speculation say that it has no acceptance to judge."""
    return not_applicable("the arm does not speculate") if mode == "none" else verdict


def judge_failed(by_arm: bool, error: str) -> CheckVerdict:
    """Return the verdict after a request of the pack itself failed, on the arm or on the baseline."""
    if not by_arm:
        return undecided(f"the baseline refused or failed: {error}")
    summary = "the arm refused or failed at a request that the baseline answered"
    return CheckVerdict(False, summary, "detects each request of this pack that fails", {}, [error])
