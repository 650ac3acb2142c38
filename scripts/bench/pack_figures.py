"""Figures of a run of one workload pack: acceptance, speed-up, identical answers, by kind of prompt. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from peagle_bench.benchmark.acceptance import from_requests
from peagle_bench.compare.confidence_intervals import FEWEST_UNITS, ratio
from peagle_bench.packs.identity import Key, compared
from peagle_bench.packs.judges import answered, unit_of
from peagle_bench.results.records import RequestRecord
from peagle_bench.results.result_file import Results

#: Packs whose units have several requests about the same documents; elsewhere each prompt is a unit.
_SHARED = ("rag", "long-context", "agents")


def figures_of(results: Results) -> dict[str, Any]:
    """Figures of each arm that speculates, by its mode.

    Speed-ups are ratios of output tokens per second of a request, with its time to first token, and have 95%
    confidence intervals over units.
    """
    modes = {arm.name: arm for arm in results.arms}
    by_arm: dict[str, Any] = {}
    for pack in results.packs:
        mine, plain = (
            answered([row for row in results.requests if row.arm == name])
            for name in (pack.arm, pack.baseline)
        )
        unit = unit_of if pack.pack in _SHARED else _prompt
        both, differing = (set(keys) for keys in compared(mine, plain))
        kinds = dict.fromkeys(row.category for row in mine)
        by_arm[modes[pack.arm].mode] = {
            "num_speculative_tokens": modes[pack.arm].num_speculative_tokens,
            "passed": pack.passed,
            "figure": pack.figure,
            "checks": {
                check.name: {
                    "passed": check.passed if check.applicable else "not applicable",
                    "summary": check.summary,
                }
                for check in pack.checks
            },
            "all": _figures(mine, plain, unit, both, differing),
            "kinds": {
                kind: _figures(
                    [row for row in mine if row.category == kind],
                    [row for row in plain if row.category == kind],
                    unit,
                    both,
                    differing,
                )
                for kind in kinds
            },
        }
    return by_arm


def _prompt(record: RequestRecord) -> str:
    return record.prompt_id


def _key(record: RequestRecord) -> Key:
    return record.prompt_id, record.turn


def _figures(
    mine: Sequence[RequestRecord],
    plain: Sequence[RequestRecord],
    unit: Callable[[RequestRecord], str],
    both: set[Key],
    differing: set[Key],
) -> dict[str, Any]:
    acceptance = from_requests(mine)
    rows = table(mine, plain, unit)
    compared_here = [key for key in map(_key, mine) if key in both]
    return {
        "requests": len(mine),
        "acceptance_length": acceptance.per_step if acceptance else None,
        "speed_up": asdict(ratio([rows], (1, -1, -1, 1))) if len(rows) >= FEWEST_UNITS else None,
        "units": len(rows),
        "compared": len(compared_here),
        "identical": len([key for key in compared_here if key not in differing]),
    }


def table(
    mine: Iterable[RequestRecord], plain: Iterable[RequestRecord], unit: Callable[[RequestRecord], str]
) -> dict[str, tuple[float, ...]]:
    """Tokens and seconds of both arms by unit, over the requests that both answered."""
    theirs = {_key(record): record for record in plain}
    rows: dict[str, tuple[float, ...]] = {}
    for record in mine:
        other = theirs.get(_key(record))
        if other is not None:
            row = tuple(
                value
                for each in (record, other)
                for value in (float(each.output_tokens or 0), each.done_s - each.sent_s)
            )
            before = rows.get(unit(record), (0.0,) * 4)
            rows[unit(record)] = tuple(a + b for a, b in zip(before, row, strict=True))
    return rows
