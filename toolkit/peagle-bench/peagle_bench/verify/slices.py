"""Identical answers and acceptance by slice of the greedy check's prompts. Pure.

The statistics are those of `compare.slices`: shares of identical answers and acceptance lengths, each with
Bonferroni's confidence. Only `verify` knows two more things of a slice:

- which of its answers are faults by the greedy check's own rules;
- how often the baseline's own two runs differ. Where more answers of the endpoint differ than that (McNemar's
  exact test on the same prompts, at 5% for all slices together), the slice ``differs``. On a noisy floor a
  fault in one slice can be too rare for the greedy check, which looks at all prompts together.

Slices decide nothing: the checks do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from peagle_bench.compare.analysis import key_of
from peagle_bench.compare.slices import (
    acceptance_in,
    confidence_of_each,
    identity_share,
    in_order,
    keys_by_slice,
    within,
)
from peagle_bench.load.work import WorkItem
from peagle_bench.results.records import Load, RequestRecord, SliceRecord
from peagle_bench.verify.answers import TokenAnswer
from peagle_bench.verify.greedy import GreedyCase
from peagle_bench.verify.statistics import mcnemar_greater
from peagle_sm.core.request_slices import slices_of_body

#: Dimensions that the greedy check sets for itself: temperature 0, and no format.
NOT_SPLIT = ("temperature", "format")


def slices_of_greedy(
    cases: Sequence[GreedyCase],
    prompt_tokens: Mapping[str, int],
    wrong: Collection[str],
    items: Mapping[str, WorkItem],
    sides: tuple[str, str],
    concurrency: int,
    dimensions: Collection[str] | None = None,
) -> list[SliceRecord]:
    """Compute the slices of the greedy check.

    Args:
        cases: the prompts with their answers.
        prompt_tokens: length of each prompt, by id.
        wrong: ids of prompts whose answers are faults.
        items: the requests of the workload, by prompt id.
        sides: names of the endpoint and of its baseline.
        concurrency: requests in flight.
        dimensions: None: all that have more than one value.
    """
    arm, baseline = sides
    load = Load("closed", concurrency=concurrency)
    records = [
        _request(case, prompt_tokens[case.prompt_id], items[case.prompt_id], arm, load) for case in cases
    ]
    keys = keys_by_slice(records, dimensions)
    confidence = confidence_of_each(keys.values())
    found = []
    for name in in_order(keys):
        in_slice = [
            (key, case) for key, case in zip(map(key_of, records), cases, strict=True) if key in keys[name]
        ]
        mine = {key: _same(case.first.answer, case.candidate.answer) for key, case in in_slice}
        its = {key: _same(case.first.answer, case.repeat.answer) for key, case in in_slice}
        only_mine = sum(its[key] and not same for key, same in mine.items())
        only_its = sum(same and not its[key] for key, same in mine.items())
        identity = identity_share(mine, confidence)
        found.append(
            replace(
                acceptance_in(name, list(filter(within(keys[name]), records)), confidence),
                baseline=baseline,
                identical_outputs=sum(mine.values()),
                compared_outputs=len(mine),
                identity=identity,
                baseline_identical_outputs=sum(its.values()),
                wrong_outputs=sum(case.prompt_id in wrong for _, case in in_slice),
                # A slice of few prompts does not count as a look, so it is not tested either.
                differs=identity is not None and mcnemar_greater(only_mine, only_its) < 1 - confidence,
            )
        )
    return found


def _same(one: TokenAnswer, other: TokenAnswer) -> bool:
    return one.ids == other.ids and one.text == other.text


def _request(case: GreedyCase, prompt_tokens: int, item: WorkItem, arm: str, load: Load) -> RequestRecord:
    """Describe the endpoint's answer as a measured request, without times."""
    answer, drafted = case.candidate.answer, case.candidate.answer.acceptance
    of_body = slices_of_body(item.body, item.labels)
    return RequestRecord(
        arm=arm,
        load=load,
        prompt_id=case.prompt_id,
        phase="measured",
        due_s=0,
        sent_s=0,
        first_s=None,
        last_s=None,
        done_s=0,
        input_tokens=prompt_tokens,
        output_tokens=round((len(answer.ids) + len(case.first.answer.ids)) / 2),
        chunks=0,
        category=item.category,
        drafts=drafted.target_steps if drafted else None,
        accepted=drafted.accepted_tokens if drafted else None,
        histogram=drafted.histogram if drafted else (),
        cached_tokens=answer.cached_tokens,
        slices={name: value for name, value in of_body.items() if name not in NOT_SPLIT},
        conversation=item.conversation,
    )
